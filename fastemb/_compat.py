"""Optional imports: the only file that tries them."""

from __future__ import annotations

import importlib
import importlib.metadata
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


def as_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """``np.dtype(dtype)``, where the text "bfloat16" too is one if ml_dtypes is installed."""
    if isinstance(dtype, str) and dtype == "bfloat16":
        ml_dtypes = optional("ml_dtypes")
        if ml_dtypes is None:
            msg = "dtype 'bfloat16' needs the package ml_dtypes: pip install ml_dtypes"
            raise ImportError(msg)
        dtype = ml_dtypes.bfloat16
    return np.dtype(dtype)
