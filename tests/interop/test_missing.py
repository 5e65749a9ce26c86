"""Without its library a module of fastemb.interop says what to install; fastemb itself imports none of them."""

import subprocess
import sys

import pytest


def last_line(code):
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    return (found.stdout + found.stderr).splitlines()[-1]


@pytest.mark.parametrize("name", ["jax", "sorix"])
def test_what_is_missing_is_named(name):
    line = last_line(f"import sys; sys.modules[{name!r}] = None; import fastemb.interop.{name}")
    assert line.startswith(f"ImportError: fastemb.interop.{name} needs ")
    assert line.endswith(f"pip install 'fastemb[{name}]'")


def test_fastemb_imports_none_of_them():
    code = "import sys, numpy, fastemb.interop, fastemb.nn; fastemb.gather(numpy.ones((2, 1)), [1])"
    assert last_line(f"{code}; print(sorted({{'jax', 'sorix', 'torch'}} & set(sys.modules)))") == "[]"
