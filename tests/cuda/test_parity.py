"""The backend for CUDA has the functions of the others, and nothing else imports it."""

import inspect
import pickle

import pytest
from strategies import run_python
from test_parity import signature

from fastemb.kernels import cuda, reference


def test_same_names():
    assert cuda.__all__ == sorted(reference.__all__)
    assert all(callable(getattr(cuda, kernel)) for kernel in cuda.__all__)


@pytest.mark.parametrize("kernel", reference.__all__)
def test_same_parameters_and_a_docstring(kernel):
    assert signature(getattr(cuda, kernel)) == signature(getattr(reference, kernel))
    assert inspect.getdoc(getattr(cuda, kernel))


@pytest.mark.parametrize("kernel", [name for name in reference.__all__ if not name.endswith("_range")])
def test_kernels_bear_their_names(kernel):
    driver = getattr(cuda, kernel)
    assert driver.__name__ == kernel
    assert driver.__module__.startswith("fastemb.kernels.cuda.")
    assert pickle.loads(pickle.dumps(driver)) is driver


def test_the_package_can_do_without():
    code = "import sys, numpy, fastemb, fastemb.kernels.cpu; fastemb.gather(numpy.ones((1, 1)), [0])"
    printed = run_python(f"{code}; print([m for m in sys.modules if 'kernels.cuda' in m or m.startswith('cupy')])")
    assert printed == "[]\n"
