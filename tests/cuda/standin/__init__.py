"""A stand-in for CuPy on memory of the host: see README.md."""

import contextlib
import functools
import sys

import numpy as np

from . import indexing as indexing
from .array import ndarray
from .counts import counts, waits
from .devices import cuda, module
from .functions import FROM_NUMPY, FUNCTIONS, LINALG
from .ufuncs import UFUNCS, ufunc

__all__ = ["counts", "cupy", "installed", "ndarray", "waits"]


def get_array_module(*args):
    return cupy if any(isinstance(arg, ndarray) for arg in args) else np


linalg = module("cupy.linalg", **LINALG)
cupy = module(
    "cupy",
    __version__="14.2.0",
    cuda=cuda,
    get_array_module=get_array_module,
    linalg=linalg,
    ndarray=ndarray,
    ufunc=ufunc,
    **{name: getattr(np, name) for name in FROM_NUMPY.split()},
    **UFUNCS,
    **FUNCTIONS,
)
MODULES = {"cupy": cupy, "cupy.cuda": cuda, "cupy.cuda.runtime": cuda.runtime, "cupy.linalg": linalg}


def _array_function(self, func, types, args, kwargs):
    """What NumPy's functions do where one of their arguments is an array of CuPy: they call CuPy's."""
    try:
        inner = functools.reduce(getattr, func.__module__.split(".")[1:], cupy)
        function = getattr(inner, func.__name__)
    except AttributeError:
        return NotImplemented
    if not all(issubclass(kind, (ndarray, np.ndarray)) for kind in types):
        return NotImplemented
    return function(*args, **kwargs)


ndarray.__array_function__ = _array_function


@contextlib.contextmanager
def installed(monkeypatch):
    """``import cupy`` gives the stand-in meanwhile."""
    with monkeypatch.context() as patch:
        for name, made in MODULES.items():
            patch.setitem(sys.modules, name, made)
        with cuda.Device(0):
            yield cupy
