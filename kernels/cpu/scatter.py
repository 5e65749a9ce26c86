"""Duplicate-safe scatter-add of grouped rows."""

from typing import Any

from numpy.typing import NDArray

from .jit import EXACT, jit
from .runs import row_pass


@jit(fastmath=EXACT)
def _add(target, state, row, total, hyper):
    """``target += G``; state (), hyper ()."""
    for j in range(total.size):
        target[row, j] += total[j]


_add_range, _add_driver = row_pass(_add)


@jit(fastmath=EXACT)
def scatter_add_range(target, updates, rows, starts, positions, scale_grad_by_freq, start, stop):
    """Add runs of rows: ``target[rows[u]] += sum over k in run u of updates[positions[k]]``, u in ``[start, stop)``.

    Parameters
    ----------
    target : (N, D) float32 or float64
        Changed in place; other rows are not touched.
    updates : (L, D) float32 or float64
        Read at `positions` alone; not wider than `target`, must not overlap it.
    rows : (U,) int64
        Distinct rows of `target`.
    starts : (U + 1,) int64
        Run u is ``positions[starts[u]:starts[u + 1]]``.
    positions : (starts[U],) int64
        Rows of `updates`.
    scale_grad_by_freq : bool
        Divide each row of a run by the run's length first.
    start, stop : int
        The runs to do.

    Returns
    -------
    int
        First u with ``rows[u]`` outside ``[0, N)``, nothing written then; or -1.

    Notes
    -----
    Sums in `target`'s dtype, in the order of `positions`, cut every `fastemb.kernels.SUM_BLOCK`. Moves
    ``(L + 2 * U) * D * itemsize`` bytes. The bits do not depend on how the runs are divided.
    """
    return _add_range(target, (), updates, rows, starts, positions, (), scale_grad_by_freq, start, stop)


def scatter_add(
    target: NDArray[Any],
    updates: NDArray[Any],
    rows: NDArray[Any],
    starts: NDArray[Any],
    positions: NDArray[Any],
    scale_grad_by_freq: bool,
) -> int:
    """Add all U runs of rows, over threads.

    Parameters and result as `scatter_add_range`.
    """
    return _add_driver(target, (), updates, rows, starts, positions, (), scale_grad_by_freq)
