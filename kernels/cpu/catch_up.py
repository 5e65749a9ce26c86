"""What rows missed while they were not touched: the steps of a dense optimizer, with gradients of zero.

Momentum goes on moving a row after its last gradient. A row's missed steps are summed as a power series: one division
for each group of steps and number, however many steps there are.
"""

import inspect
from typing import Any

import numba
import numpy as np

from .. import SERIES_TERMS as TERMS
from .. import name_after_rule
from . import arithmetic, simd, threads
from .check import first_bad
from .jit import EXACT, jit
from .runs import AHEAD, ask_for

DOC = """{rule}

``name_range(..., start, stop)`` does the rows ``rows[start:stop]``; ``name(...)`` does all of them, over threads. A row
whose last step is k steps ago gets ``W = W * growth[T - k] / growth[T] - the movement``. That of missed step i of 1 to
k has the factor ``rates[T - k + i] / growth[T]``; steps beyond the last group move nothing.

Parameters
----------
weight : (N, D) float32 or float64
    Changed in place at `rows` alone.
state : tuple of (N, D), dtype of weight
    Likewise; what, is said above.
last : (N,) int64
    Step up to which each row is, 0 to T; becomes T.
rows : (U,) int64
    Distinct rows of `weight`.
rates : (T + 1,) float64
    Of each step the learning rate times `growth`; that of step 0 is not used.
growth : (T + 1,) float64
    Of each step the product of ``1 / (1 - lr * weight_decay)`` up to it, times any constant.
terms : (J, 8) float64
    Of each step of a group what it adds to the coefficients of the group's series.
groups : (C + 1,) int64
    Group c is steps ``groups[c]`` to ``groups[c + 1] - 1`` after the first missed one.
centres : (C,) float64
    Around which value a group's series is.
hyper : tuple of float
    The numbers named above.

Returns
-------
int
    First u with ``rows[u]`` outside ``[0, N)``, nothing changed then; or -1.

Notes
-----
Coefficients are summed in float64, the rest is in weight's dtype. Moves ``2 * U * (1 + len(state)) * D * itemsize``
bytes and ``min(k, J)`` lines of `terms` a row. The bits do not depend on the number of threads.
"""


@jit(fastmath=EXACT, inline=True)
def _add_series(total, state, row, series, centre, hyper):
    """``total += sum of series``: what is moved does not depend on how long ago it is."""
    moved = total.dtype.type(series[0])
    for j in range(total.size):
        total[j] += moved


@jit(fastmath=EXACT, inline=True)
def _momentum_missed(weight, state, row, total, shrink, missed, hyper):
    """``W = W * shrink - rate * mu * buf; buf = mu * buf``, for every missed step.

    State (buf, touched), (N, D) and (N, 1), the second unused; hyper (mu,).
    """
    buf, _ = state
    kept = weight.dtype.type(hyper[0] ** missed)
    for j in range(total.size):
        b = buf[row, j]
        weight[row, j] = weight[row, j] * shrink - b * total[j]
        buf[row, j] = b * kept


@jit(fastmath=EXACT, inline=True)
def _add_adam_series(total, state, row, series, centre, hyper):
    """Adds ``sum of terms * h**p / (x + eps)`` with ``x = centre * sqrt(v)`` and ``h = x / (x + eps)``."""
    _, v = state
    dtype = total.dtype.type
    eps, middle, one = dtype(hyper[2]), dtype(centre), dtype(1)
    c0, c1, c2, c3 = dtype(series[0]), dtype(series[1]), dtype(series[2]), dtype(series[3])
    c4, c5, c6, c7 = dtype(series[4]), dtype(series[5]), dtype(series[6]), dtype(series[7])
    for j in range(total.size):
        x = middle * np.sqrt(v[row, j])
        d = one / (x + eps)
        h = x * d
        total[j] += d * (c0 + h * (c1 + h * (c2 + h * (c3 + h * (c4 + h * (c5 + h * (c6 + h * c7)))))))


@jit(fastmath=EXACT, inline=True)
def _adam_missed(weight, state, row, total, shrink, missed, hyper):
    """``m *= b1; v *= b2; W = W * shrink - rate * m / (sqrt(v) + eps)``, for every missed step.

    State (m, v), each (N, D); hyper (b1, b2, eps). Numbers whose m is 0 do not move.
    """
    m, v = state
    zero = weight.dtype.type(0)
    m_kept, v_kept = weight.dtype.type(hyper[0] ** missed), weight.dtype.type(hyper[1] ** missed)
    for j in range(total.size):
        moving = m[row, j]
        weight[row, j] = weight[row, j] * shrink - (zero if moving == zero else moving * total[j])
        m[row, j] = moving * m_kept
        v[row, j] = v[row, j] * v_kept


def _catch_up_pass(add_series: Any, rule: Any) -> tuple[Any, Any]:
    """Make the kernel that sums each row's missed steps with `add_series`, group by group, and applies `rule`."""

    @jit(fastmath=EXACT)
    def do_rows(weight, state, last, rows, rates, growth, terms, groups, centres, hyper, start, stop):
        arrays = (weight, *state)
        total = np.empty(weight.shape[1], weight.dtype)
        series = np.empty(TERMS, np.float64)
        now = np.int64(rates.size - 1)
        last_ahead = np.uintp(max(stop - AHEAD, 0))
        for u in range(np.uintp(start), np.uintp(stop)):
            if u < last_ahead:
                ask_for(arrays, rows[u + np.uintp(AHEAD)])
            row = np.uintp(rows[u])
            since = last[row]
            missed = now - since
            if missed <= 0:
                continue
            last[row] = now
            total[:] = 0
            for c in range(centres.size):
                begin, end = groups[np.uintp(c)], min(groups[np.uintp(c + 1)], missed)
                if begin >= end:
                    break
                sums = simd.line(np.float64(0))
                at = simd.address(terms) + np.uintp(begin * TERMS * 8)
                for i in range(np.uintp(begin), np.uintp(end)):
                    rate = simd.fill(rates[np.uintp(since + 1) + i] / growth[np.uintp(now)], sums)
                    sums = arithmetic.fma(rate, simd.load(at, sums), sums)
                    at += np.uintp(TERMS * 8)
                simd.store(simd.address(series), sums)
                add_series(total, state, row, series, centres[np.uintp(c)], hyper)
            shrink = weight.dtype.type(growth[np.uintp(since)] / growth[np.uintp(now)])
            rule(weight, state, row, total, shrink, missed, hyper)

    @jit(fastmath=EXACT)
    def range_form(weight, state, last, rows, rates, growth, terms, groups, centres, hyper, start, stop):
        bad = first_bad(rows, weight.shape[0], start, stop)
        if bad < 0:
            do_rows(weight, state, last, rows, rates, growth, terms, groups, centres, hyper, start, stop)
        return bad

    @jit(fastmath=EXACT, parallel=True)
    def parallel_form(weight, state, last, rows, rates, growth, terms, groups, centres, hyper, bounds):
        for c in numba.prange(bounds.size - 1):
            lo, hi = bounds[c], bounds[c + 1]
            do_rows(weight, state, last, rows, rates, growth, terms, groups, centres, hyper, lo, hi)

    def driver(weight, state, last, rows, rates, growth, terms, groups, centres, hyper):
        count = rows.size
        parts = threads.chunks(2 * count * (1 + len(state)) * weight.shape[1] * weight.itemsize)
        if parts == 1:
            return range_form(weight, state, last, rows, rates, growth, terms, groups, centres, hyper, 0, count)
        bad = first_bad(rows, weight.shape[0], 0, count)
        if bad < 0:
            bounds = threads.split(count, parts)
            with threads.region():
                parallel_form(weight, state, last, rows, rates, growth, terms, groups, centres, hyper, bounds)
        return bad

    name_after_rule(range_form, driver, rule, DOC.format(rule=inspect.cleandoc(rule.__doc__ or "")))
    return range_form, driver


momentum_missed_range, momentum_missed = _catch_up_pass(_add_series, _momentum_missed)
adam_missed_range, adam_missed = _catch_up_pass(_add_adam_series, _adam_missed)
