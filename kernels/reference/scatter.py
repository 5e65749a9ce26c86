"""Scatter-add of rows where they stand, and sums over runs of grouped rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import accumulator
from .check import first_bad
from .runs import row_pass

BLOCK = 4096
"""Rows of updates that are cast at a time."""


@np.errstate(all="ignore")  # NaN and inf flow through, as they do in compiled kernels
def scatter_add_range(target, indices, updates, start, stop):
    """See `fastemb.kernels.cpu.scatter_add_range`; half-width targets are summed in float32 and rounded once."""
    bad = first_bad(indices, target.shape[0], start, stop)
    if bad < 0:
        touched, inverse = np.unique(indices[start:stop], return_inverse=True)
        dtype = accumulator(target.dtype)
        rows = target[touched].astype(dtype)
        for k in range(start, stop, BLOCK):
            block = slice(k, min(stop, k + BLOCK))
            np.add.at(rows, inverse[block.start - start : block.stop - start], updates[block].astype(dtype))
        target[touched] = rows
    return bad


def scatter_add(target: NDArray[Any], indices: NDArray[Any], updates: NDArray[Any]) -> int:
    """See `fastemb.kernels.cpu.scatter_add`."""
    return scatter_add_range(target, indices, updates, 0, indices.size)


def _segment_sum(values, state, total, hyper):
    """``values[rows[u]] = G``; state (), hyper ()."""
    return total, state


_segment_sum_range, _segment_sum_driver = row_pass(_segment_sum)


def segment_sum_range(values, updates, rows, starts, positions, coefficients, scale_grad_by_freq, start, stop):
    """See `fastemb.kernels.cpu.segment_sum_range`."""
    return _segment_sum_range(
        values, (), updates, rows, starts, positions, coefficients, (), scale_grad_by_freq, start, stop
    )


def segment_sum(
    values: NDArray[Any],
    updates: NDArray[Any],
    rows: NDArray[Any],
    starts: NDArray[Any],
    positions: NDArray[Any],
    coefficients: NDArray[Any],
    scale_grad_by_freq: bool,
) -> int:
    """See `fastemb.kernels.cpu.segment_sum`."""
    return _segment_sum_driver(values, (), updates, rows, starts, positions, coefficients, (), scale_grad_by_freq)
