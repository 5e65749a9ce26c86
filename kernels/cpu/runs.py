"""The pass over runs of duplicates that every gradient operation is: sum a run's gradient rows, then apply a row rule.

A rule is a small jitted function ``rule(weight, state, row, total, hyper)`` that changes one row of the table and of
its state, given the sum of the row's gradients. `row_pass` closes over one and makes the range form and the driver.
"""

import inspect
from typing import Any

import numba
import numpy as np

from .. import SUM_BLOCK, name_after_rule
from . import threads
from .check import first_bad
from .jit import EXACT, jit

DOC = """{rule}

``name_range(..., start, stop)`` does the runs ``[start, stop)``; ``name(...)`` does all of them, over threads. G is
the sum of a run's rows of `grad`, or with `scale_grad_by_freq` of those divided by the run's length.

Parameters
----------
weight : (N, D) float32 or float64
    Changed in place at `rows` alone.
state : tuple of (N, D), dtype of weight
    Likewise; how many, and what, is said above.
grad : (L, D) float32 or float64
    Read at `positions` alone; not wider than `weight`, must not overlap what is written.
rows : (U,) int64
    Distinct rows of `weight`.
starts : (U + 1,) int64
    Run u is ``positions[starts[u]:starts[u + 1]]``.
positions : (starts[U],) int64
    Rows of `grad`.
hyper : tuple of float
    The numbers named above.
scale_grad_by_freq : bool
    Divide each row of a run by the run's length first.

Returns
-------
int
    First u with ``rows[u]`` outside ``[0, N)``, nothing changed then; or -1.

Notes
-----
Arithmetic is in weight's dtype, operation by operation as written. Moves ``(L + 2 * U * (1 + len(state))) * D *
itemsize`` bytes. The bits do not depend on the number of threads.
"""


@jit(fastmath=EXACT)
def _add_rows(total, grad, positions, lo, hi, divisor):
    if divisor == 1:
        for k in range(lo, hi):
            at = positions[k]
            for j in range(total.size):
                total[j] += grad[at, j]
    else:
        for k in range(lo, hi):
            at = positions[k]
            for j in range(total.size):
                total[j] += grad[at, j] / divisor


@jit(fastmath=EXACT)
def _sum_run(total, part, grad, positions, lo, hi, divisor):
    """``total = sum over k in [lo, hi) of grad[positions[k]] / divisor``, cut every SUM_BLOCK positions of the run."""
    total[:] = 0
    _add_rows(total, grad, positions, lo, min(hi, lo + SUM_BLOCK), divisor)
    for cut in range(lo + SUM_BLOCK, hi, SUM_BLOCK):
        part[:] = 0
        _add_rows(part, grad, positions, cut, min(hi, cut + SUM_BLOCK), divisor)
        for j in range(total.size):
            total[j] += part[j]


def row_pass(rule: Any) -> tuple[Any, Any]:
    """Make the kernel that sums each run's gradient and hands it to `rule`.

    Parameters
    ----------
    rule : jitted function
        ``rule(weight, state, row, total, hyper)``.

    Returns
    -------
    range_form : jitted function
        ``(weight, state, grad, rows, starts, positions, hyper, scale_grad_by_freq, start, stop) -> int``.
    driver : function
        The same without ``start`` and ``stop``, over threads.
    """

    @jit(fastmath=EXACT)
    def do_runs(weight, state, grad, rows, starts, positions, hyper, scale_grad_by_freq, start, stop):
        total = np.empty(weight.shape[1], weight.dtype)
        part = np.empty(weight.shape[1], weight.dtype)
        divisor = weight.dtype.type(1)
        for u in range(start, stop):
            lo, hi = starts[u], starts[u + 1]
            if scale_grad_by_freq:
                divisor = weight.dtype.type(hi - lo)
            _sum_run(total, part, grad, positions, lo, hi, divisor)
            rule(weight, state, rows[u], total, hyper)

    @jit(fastmath=EXACT)
    def range_form(weight, state, grad, rows, starts, positions, hyper, scale_grad_by_freq, start, stop):
        bad = first_bad(rows, weight.shape[0], start, stop)
        if bad < 0:
            do_runs(weight, state, grad, rows, starts, positions, hyper, scale_grad_by_freq, start, stop)
        return bad

    @jit(fastmath=EXACT, parallel=True)
    def parallel_form(weight, state, grad, rows, starts, positions, hyper, scale_grad_by_freq, bounds):
        for c in numba.prange(bounds.size - 1):
            do_runs(weight, state, grad, rows, starts, positions, hyper, scale_grad_by_freq, bounds[c], bounds[c + 1])

    def driver(weight, state, grad, rows, starts, positions, hyper, scale_grad_by_freq):
        count = rows.size
        row_bytes = weight.shape[1] * weight.itemsize
        parts = threads.chunks(row_bytes * (int(starts[count]) + 2 * count * (1 + len(state))))
        if parts == 1:
            return range_form(weight, state, grad, rows, starts, positions, hyper, scale_grad_by_freq, 0, count)
        bad = first_bad(rows, weight.shape[0], 0, count)
        if bad < 0:
            # Equal shares of positions, cut between rows: a row belongs to one thread.
            bounds = np.searchsorted(starts[: count + 1], threads.split(int(starts[count]), parts))
            bounds[-1] = count  # runs without positions at the end are runs too
            with threads.region():
                parallel_form(weight, state, grad, rows, starts, positions, hyper, scale_grad_by_freq, bounds)
        return bad

    name_after_rule(range_form, driver, rule, DOC.format(rule=inspect.cleandoc(rule.__doc__ or "")))
    return range_form, driver
