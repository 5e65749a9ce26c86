"""How a new table is filled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _lines
from .._arrays import as_array

Initialiser = Callable[[np.random.Generator, tuple[int, int], np.dtype[Any]], NDArray[Any]]


def uniform_fan(rng: np.random.Generator, shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """``U(-sqrt(1/N), sqrt(1/N))``."""
    bound = math.sqrt(1 / shape[0])
    table = _lines.empty(shape, _drawn(dtype))
    rng.random(dtype=table.dtype, out=table)
    table *= 2 * bound
    table -= bound
    return table


def normal(rng: np.random.Generator, shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """``N(0, 1)``."""
    table = _lines.empty(shape, _drawn(dtype))
    rng.standard_normal(dtype=table.dtype, out=table)
    return table


def zeros(rng: np.random.Generator, shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """All zeros."""
    return _lines.filled(shape, dtype, 0)


def _drawn(dtype: np.dtype[Any]) -> np.dtype[Any]:
    # NumPy draws single and double precision; half-width tables are rounded from single.
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


INITIALISERS: dict[str, Initialiser] = {"normal": normal, "uniform_fan": uniform_fan, "zeros": zeros}


def make_table(
    init: str | Initialiser,
    seed: int | np.random.SeedSequence | np.random.Generator | None,
    shape: tuple[int, int],
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    """A new C-contiguous table of `shape` and `dtype`, filled as `init` says."""
    rng = np.random.default_rng(seed)
    if isinstance(init, str):
        if init not in INITIALISERS:
            msg = f"init must be one of {sorted(INITIALISERS)} or a callable, got {init!r}"
            raise ValueError(msg)
        drawn = INITIALISERS[init](rng, shape, dtype)
        return drawn if drawn.dtype == dtype else _copy(drawn, dtype)
    if not callable(init):
        msg = f"init must be a name or a callable (rng, shape, dtype), got {init!r}"
        raise TypeError(msg)
    table = as_array(init(rng, shape, dtype), "what init returns")
    if table.dtype.kind not in "iuf" and table.dtype != dtype:
        msg = f"init must return real numbers, got {table.dtype}"
        raise TypeError(msg)
    if table.shape != shape:
        msg = f"init must return an array of shape {shape}, got {table.shape}"
        raise ValueError(msg)
    return _copy(table, dtype)  # what the callable keeps is not the layer's


def _copy(table: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    copy = _lines.empty(table.shape, dtype)
    copy[...] = table
    return copy
