"""Public names: there, lazy, documented, and shown."""

import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fastemb
import fastemb.buffers
import fastemb.functional
import fastemb.nn
import fastemb.optim

PACKAGE = Path(fastemb.__file__).parent
MODULES = [fastemb, fastemb.buffers, fastemb.functional, fastemb.io, fastemb.nn, fastemb.optim]


def run(code):
    """What a fresh process prints, as JSON."""
    return json.loads(subprocess.check_output([sys.executable, "-c", code], text=True, timeout=120))


def test_names():
    assert fastemb.__all__ == sorted(fastemb.__all__)
    bags = {"embedding_bag", "embedding_bag_grad", "embedding_bag_weight_grad"}
    operations = {"embedding_grad", "gather", "one_hot", "renorm_", "scatter_add"} | bags
    layers = {"Embedding", "EmbeddingBag"}
    others = {"RowGrad", "buffers", "index_check", "io", "kernels", "nn", "optim", "sharded"}
    assert set(fastemb.__all__) == operations | layers | others
    for name in fastemb.__all__:
        assert name in dir(fastemb)
        assert getattr(fastemb, name) is not None
    with pytest.raises(AttributeError, match="^module 'fastemb' has no attribute 'gater'$"):
        _ = fastemb.gater
    assert re.fullmatch(r"\d+\.\d+\.\d+", fastemb.__version__)


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_what_is_defined_is_listed(module):
    found = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    }
    assert found <= set(module.__all__)


def test_importing_loads_nothing_but_the_standard_library_and_numpy():
    allowed = set(sys.stdlib_module_names) | {"fastemb", "numpy", "cython_runtime"}  # the last by numpy.random
    code = "import sys, json; {}; print(json.dumps(sorted({{m.partition('.')[0] for m in sys.modules}})))"
    bare = set(run(code.format("pass")))
    loaded = set(run(code.format("import fastemb, fastemb.nn, fastemb.optim, fastemb.functional"))) - bare
    assert "numpy" in loaded
    assert {m for m in loaded if not m.startswith("_")} <= allowed
    assert "numba" in run(code.format("import numpy, fastemb; fastemb.gather(numpy.ones((1, 1)), [0])"))
    assert "numba" not in run(
        code.format("import numpy, fastemb; fastemb.gather(numpy.ones((1, 1), numpy.float16), [0])")
    )


def public_objects():
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield name, value


@pytest.mark.parametrize(
    ("name", "value"), dict(public_objects()).items(), ids=lambda v: v if isinstance(v, str) else ""
)
def test_every_public_name_is_shown(name, value):
    readme = Path(__file__).parents[1].joinpath("README.md").read_text()
    module = inspect.getdoc(importlib.import_module(value.__module__)) or ""
    shown = re.search(rf"(?<!\w){re.escape(name)}\b", readme) or ">>>" in (inspect.getdoc(value) or "")
    shown = shown or f".{name}(" in module
    assert shown or (inspect.isabstract(value) or name.endswith("State") or name == "State"), f"{name} has no example"


EXAMPLES = [
    path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>>" in path.read_text() and not {"kernels", "interop", "sharded"} & set(path.parts)
]
"""What needs other libraries has its examples run by tests/interop and tests/sharded."""


def test_modules_with_examples_are_found():
    assert {"bags", "buffers", "lookup", "functional", "nn.embedding_bag", "optim.ftrl"} <= set(EXAMPLES)


@pytest.mark.parametrize("module", EXAMPLES)
def test_docstring_examples(module):
    import doctest

    result = doctest.testmod(importlib.import_module(f"fastemb.{module}"))
    assert result.attempted > 0
    assert result.failed == 0
