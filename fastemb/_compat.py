"""Optional imports: the only file that tries them."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from typing import Any

import numpy as np
from numpy.typing import DTypeLike


def optional(name: str) -> Any | None:
    """The module `name`, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def version_of(distribution: str) -> str | None:
    """Version of an installed distribution, without importing it; None where it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def cuda_problem() -> ImportError | RuntimeError | None:
    """Why arrays cannot be on a GPU here, or None if they can."""
    library = optional("cupy")
    if library is None or importlib.util.find_spec("numba_cuda") is None:
        missing = "CuPy" if library is None else "numba-cuda"
        extras = "pip install 'fastemb[cuda13]', or 'fastemb[cuda12]' where the driver is one of CUDA 12"
        return ImportError(f"arrays on a GPU need {missing}, which is not installed: {extras}")
    if not library.cuda.is_available():
        fits = "'fastemb[cuda13]' needs a driver of CUDA 13, 'fastemb[cuda12]' one of CUDA 12"
        return RuntimeError(f"arrays on a GPU need an NVIDIA GPU, and CuPy finds none whose driver fits it: {fits}")
    return None


def cupy() -> Any:
    """The module cupy; ImportError or RuntimeError, with the reason, where it is of no use."""
    global _useful
    library = sys.modules.get("cupy")
    if library is None or library is not _useful:
        problem = cuda_problem()
        if problem is not None:
            raise problem
        _useful = library = sys.modules["cupy"]
    return library


_useful: Any = None
"""The module cupy, once it is known to find a GPU."""


def as_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """``np.dtype(dtype)``, where the text "bfloat16" too is one if ml_dtypes is installed."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        ml_dtypes = optional("ml_dtypes")
        if ml_dtypes is None:
            msg = "dtype 'bfloat16' needs the package ml_dtypes: pip install ml_dtypes"
            raise ImportError(msg)
        dtype = ml_dtypes.bfloat16
    return np.dtype(dtype)
