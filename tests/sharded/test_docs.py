"""Examples and docstrings of fastemb.sharded. The examples are run on one rank, in a process of their own."""

import numpydoc.validate
import pytest
from sharded.launch import mpiexec
from test_docstrings import IGNORED

import fastemb.sharded

EXAMPLES = """
import doctest, sys
from fastemb.sharded import embedding, embedding_bag, frequency
for module in (embedding, embedding_bag, frequency):
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0, module
"""


def test_docstring_examples():
    done = mpiexec(1, "-c", EXAMPLES)
    assert done.returncode == 0, done.stdout


def names():
    """Dotted paths of what is public, inherited members too."""
    for name in fastemb.sharded.__all__:
        yield name
        value = getattr(fastemb.sharded, name)
        yield from (f"{name}.{member}" for member in dir(value) if isinstance(value, type) and member[0] != "_")


@pytest.mark.parametrize("name", list(names()))
def test_docstrings(name):
    found = numpydoc.validate.validate(f"fastemb.sharded.{name}")["errors"]
    assert [error for error in found if error[0] not in IGNORED] == []
