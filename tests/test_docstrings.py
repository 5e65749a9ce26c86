"""Docstrings of public names are numpydoc: every parameter, result and section, in order."""

import inspect

import numpydoc.validate
import pytest

import fastemb
import fastemb.buffers
import fastemb.io
import fastemb.nn
import fastemb.optim
from fastemb.kernels import cpu

IGNORED = {
    "EX01": "an example: tests/test_public_api.py asks for one, here or in README",
    "SA01": "See Also",
    "ES01": "an extended summary",
    "GL01": "text on the line after the quotes",
    "SS03": "a period",
    "SS05": "no infinitive",
    "SS06": "one line",
    "PR06": "type names",
    "PR08": "a capital letter",
    "PR09": "a period",
    "RT02": "one result without a name",
    "RT03": "a capital letter",
    "RT05": "a period",
    "YD01": "Yields",
}


def public():
    """Dotted paths of public functions, classes, and their methods and properties."""
    for module in (fastemb, fastemb.buffers, fastemb.io, fastemb.nn, fastemb.optim):
        for name in module.__all__:
            value = getattr(module, name)
            if not inspect.ismodule(value):
                yield f"{module.__name__}.{name}"
            if inspect.isclass(value):
                members = (m for m in vars(value) if not m.startswith("_"))
                fields = getattr(value, "__dataclass_fields__", {})
                yield from (f"{module.__name__}.{name}.{m}" for m in members if m not in fields)


def errors(path):
    """Codes and texts of what is wrong."""
    return [error for error in numpydoc.validate.validate(path)["errors"] if error[0] not in IGNORED]


@pytest.mark.parametrize("path", sorted(set(public())))
def test_public_names(path):
    assert errors(path) == []


@pytest.mark.parametrize("name", cpu.__all__)
def test_kernels(name):
    kernel = getattr(cpu, name)
    told_by_range_form = {"PR01", "RT01"} if f"{name}_range" in cpu.__all__ else set()
    path = f"{kernel.__module__}.{name}"
    found = [error for error in errors(path) if error[0] not in told_by_range_form]
    of_a_rule = kernel.__module__.endswith((".update", ".catch_up"))  # both forms have one text
    assert [error for error in found if not (error[0] in {"PR01", "PR02"} and of_a_rule)] == []


def test_the_check_can_fail():
    assert {code for code, _ in errors("strategies.exactly")} >= {"PR01", "RT01"}
