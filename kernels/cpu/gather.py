"""Row lookup: ``out[k, :] = weight[indices[k], :]``."""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from . import threads
from .check import first_bad
from .jit import EXACT, jit


@jit(fastmath=EXACT)
def _copy_rows(out, weight, indices, start, stop):
    for k in range(start, stop):
        row = np.int64(indices[k])
        for j in range(weight.shape[1]):
            out[k, j] = weight[row, j]


@jit(fastmath=EXACT)
def gather_range(out, weight, indices, start, stop):
    """Look rows up: ``out[k, :] = weight[indices[k], :]`` for k in ``[start, stop)``.

    Parameters
    ----------
    out : (L, D), dtype of weight
        Rows ``start`` to ``stop`` are written. Must not overlap ``weight``.
    weight : (N, D) float32 or float64
        The table; any strides, never written.
    indices : (L,) int32 or int64
        Never written.
    start, stop : int
        The part of the positions to do.

    Returns
    -------
    int
        Position of the first index outside ``[0, N)`` among them, nothing written then; or -1.

    Notes
    -----
    Moves ``2 * (stop - start) * D * itemsize`` bytes and the indices. No arithmetic: bits are copied.
    """
    bad = first_bad(indices, weight.shape[0], start, stop)
    if bad < 0:
        _copy_rows(out, weight, indices, start, stop)
    return bad


@jit(fastmath=EXACT, parallel=True)
def _copy_rows_parallel(out, weight, indices, bounds):
    for c in numba.prange(bounds.size - 1):
        _copy_rows(out, weight, indices, bounds[c], bounds[c + 1])


def gather(out: NDArray[Any], weight: NDArray[Any], indices: NDArray[Any]) -> int:
    """Look rows up, over threads: ``out[k, :] = weight[indices[k], :]``.

    Parameters and result as `gather_range`, for all L positions.
    """
    total = indices.size
    parts = threads.chunks(out.nbytes)
    if parts == 1:
        return gather_range(out, weight, indices, 0, total)
    bad = first_bad(indices, weight.shape[0], 0, total)
    if bad < 0:
        with threads.region():
            _copy_rows_parallel(out, weight, indices, threads.split(total, parts))
    return bad
