"""Backends have one set of functions with one set of signatures."""

import inspect
import pickle

import pytest
from strategies import BACKENDS


def signature(kernel):
    """Parameter names in order, of a jitted function too."""
    return list(inspect.signature(getattr(kernel, "py_func", kernel)).parameters)


@pytest.mark.parametrize("name", BACKENDS)
def test_same_names(name):
    assert BACKENDS[name].__all__ == sorted(BACKENDS["reference"].__all__)
    assert all(callable(getattr(BACKENDS[name], kernel)) for kernel in BACKENDS[name].__all__)


@pytest.mark.parametrize("kernel", BACKENDS["reference"].__all__)
def test_same_parameters(kernel):
    first, *others = (signature(getattr(backend, kernel)) for backend in BACKENDS.values())
    assert first
    assert all(other == first for other in others)


@pytest.mark.parametrize("kernel", [k for k in BACKENDS["reference"].__all__ if k.endswith("_range")])
def test_range_form_and_driver(kernel):
    backend = BACKENDS["reference"]
    whole = signature(getattr(backend, kernel.removesuffix("_range")))
    assert signature(getattr(backend, kernel)) == [*whole, "start", "stop"]


@pytest.mark.parametrize("name", BACKENDS)
def test_every_kernel_has_a_docstring(name):
    for kernel in BACKENDS[name].__all__:
        assert inspect.getdoc(getattr(BACKENDS[name], kernel)), kernel


@pytest.mark.parametrize("name", BACKENDS)
def test_kernels_made_for_a_rule_bear_its_name(name):
    for kernel in ("sgd", "adam"):
        driver, range_form = (getattr(BACKENDS[name], f"{kernel}{end}") for end in ("", "_range"))
        assert (driver.__name__, range_form.__name__) == (kernel, f"{kernel}_range")
        assert pickle.loads(pickle.dumps(driver)) is driver
