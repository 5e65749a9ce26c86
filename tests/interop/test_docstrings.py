"""Docstrings of what stands beside other frameworks: numpydoc, and their examples run. (sorix: test_sorix.py.)"""

import doctest
import importlib
from pathlib import Path

import numpydoc.validate
import pytest

import fastemb.interop.jax
import fastemb.interop.torch

from ..test_docstrings import IGNORED

MODULES = ["jax", "torch", "_torch_bags", "_torch_functional", "_torch_modules", "_torch_optim", "_torch_tensors"]
PUBLIC = [
    f"{module.__name__}.{name}" for module in (fastemb.interop.jax, fastemb.interop.torch) for name in module.__all__
]


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names(name):
    errors = numpydoc.validate.validate(name)["errors"]
    assert [error for error in errors if error[0] not in IGNORED] == []


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(f"fastemb.interop.{name}")
    assert doctest.testmod(module).failed == 0


def test_every_public_name_has_an_example():
    files = [Path(importlib.import_module(f"fastemb.interop.{name}").__file__) for name in MODULES]
    texts = "".join(file.read_text(encoding="utf-8") for file in files)
    examples = "".join(line for line in texts.splitlines(keepends=True) if line.lstrip().startswith((">>>", "...")))
    for path in PUBLIC:
        assert path.rpartition(".")[2] in examples, path
