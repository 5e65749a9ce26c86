"""Shrinking of rows whose norm exceeds a limit."""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from . import threads
from .check import first_bad
from .jit import EXACT, REASSOCIATE, jit

SMALLEST_SUM = 1e-280
"""A sum of powers above this has lost nothing that counts to underflow."""


@jit(fastmath=REASSOCIATE)
def _power_sum(weight, row, norm_type, scale):
    total = 0.0
    if norm_type == 2.0:
        for j in range(weight.shape[1]):
            x = np.float64(weight[row, j]) / scale
            total += x * x
    else:
        for j in range(weight.shape[1]):
            total += (abs(np.float64(weight[row, j])) / scale) ** norm_type
    return total


@jit(fastmath=EXACT)
def _largest(weight, row):
    largest = 0.0
    for j in range(weight.shape[1]):
        x = abs(np.float64(weight[row, j]))
        if not x <= largest:  # also true for NaN, which then stays
            largest = x
            if np.isnan(x):
                break
    return largest


@jit(fastmath=EXACT)
def _norm(weight, row, norm_type):
    """``(sum |x|**p) ** (1 / p)`` in float64, in units of the largest element where powers leave float64's range."""
    if np.isinf(norm_type):
        return _largest(weight, row)
    total = _power_sum(weight, row, norm_type, 1.0)
    if np.isnan(total) or SMALLEST_SUM <= total < np.inf:
        return total ** (1.0 / norm_type)
    largest = _largest(weight, row)
    if largest == 0 or np.isinf(largest):
        return largest
    return largest * _power_sum(weight, row, norm_type, largest) ** (1.0 / norm_type)


@jit(fastmath=EXACT)
def _renorm_rows(weight, rows, max_norm, norm_type, start, stop):
    for u in range(start, stop):
        norm = _norm(weight, rows[u], norm_type)
        if norm > max_norm:
            factor = weight.dtype.type(max_norm / (norm + 1e-7))
            for j in range(weight.shape[1]):
                weight[rows[u], j] *= factor


@jit(fastmath=EXACT)
def renorm_range(weight, rows, max_norm, norm_type, start, stop):
    """Shrink rows: ``W[r] *= max_norm / (norm + 1e-7)`` where ``norm = (sum |W[r]|**p)**(1/p) > max_norm``.

    Parameters
    ----------
    weight : (N, D) float32 or float64
        Changed in place at ``rows[start:stop]`` alone; a row at or below the limit keeps its bits.
    rows : (U,) int64
        Distinct rows.
    max_norm : float
        The limit, at least 0.
    norm_type : float
        p > 0; infinity is the largest absolute value.
    start, stop : int
        The part of `rows` to do.

    Returns
    -------
    int
        First u with ``rows[u]`` outside ``[0, N)``, nothing written then; or -1.

    Notes
    -----
    Norms are float64 sums. Moves ``2 * U * D * itemsize`` bytes. The bits do not depend on the number of threads, but
    the order of the sum follows the CPU's vector width.
    """
    bad = first_bad(rows, weight.shape[0], start, stop)
    if bad < 0:
        _renorm_rows(weight, rows, max_norm, norm_type, start, stop)
    return bad


@jit(fastmath=EXACT, parallel=True)
def _renorm_parallel(weight, rows, max_norm, norm_type, bounds):
    for c in numba.prange(bounds.size - 1):
        _renorm_rows(weight, rows, max_norm, norm_type, bounds[c], bounds[c + 1])


def renorm(weight: NDArray[Any], rows: NDArray[Any], max_norm: float, norm_type: float) -> int:
    """Shrink all U rows, over threads.

    Parameters and result as `renorm_range`.
    """
    count = rows.size
    parts = threads.chunks(2 * count * weight.shape[1] * weight.itemsize)
    if parts == 1:
        return renorm_range(weight, rows, max_norm, norm_type, 0, count)
    bad = first_bad(rows, weight.shape[0], 0, count)
    if bad < 0:
        with threads.region():
            _renorm_parallel(weight, rows, max_norm, norm_type, threads.split(count, parts))
    return bad
