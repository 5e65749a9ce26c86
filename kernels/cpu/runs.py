"""The pass over runs of duplicates that every gradient operation is: sum a run's gradient rows, then apply a row rule.

A rule is a small jitted function ``rule(weight, state, row, total, hyper)`` that changes one row of the table and of
its state, given the sum of the row's gradients. `row_pass` closes over one and makes the range form and the driver.
"""

import inspect
from typing import Any

import numba
import numpy as np

from .. import SUM_BLOCK, name_after_rule
from . import simd, threads
from .check import first_bad
from .jit import EXACT, jit
from .rows import prefetch

_NONE = np.empty(0, np.int64)

AHEAD = 4
"""Rows of the table between the one that is changed and the one that is asked for."""

POSITIONS_AHEAD = 16
"""Rows of the gradient between the one that is added and the one that is asked for."""

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
def _as_it_is(term, divisor):
    return term


@jit(fastmath=EXACT)
def _divided(term, divisor):
    return simd.div(term, divisor)


@jit(fastmath=EXACT)
def _load_all(where, like, count):
    return simd.load(where, like)


@jit(fastmath=EXACT)
def _store_all(where, vector, count):
    simd.store(where, vector)


@jit(fastmath=EXACT)
def _load_first(where, like, count):
    return simd.load_first(where, like, count)


@jit(fastmath=EXACT)
def _store_first(where, vector, count):
    simd.store_first(where, vector, count)


def _column_sums(scaled, load, store):
    """Make the sum of a run in the columns of one vector, in registers; `count` lanes of it where they are the last."""

    @jit(fastmath=EXACT)
    def sum_columns(target, source, stride, positions, lo, hi, divisor, zero, nbytes, count):
        total = zero
        for cut in range(lo, hi, SUM_BLOCK):
            part = zero
            for k in range(cut, min(hi, cut + SUM_BLOCK)):
                if k + POSITIONS_AHEAD < positions.size:
                    prefetch(source + np.uintp(positions[k + POSITIONS_AHEAD]) * stride, nbytes)
                term = load(source + np.uintp(positions[k]) * stride, zero, count)
                part = simd.add(part, scaled(term, divisor))
            total = simd.add(total, part)
        store(target, total, count)

    return sum_columns


def _contiguous_sums(scaled):
    """Make the sum of a run for gradient rows of contiguous elements."""
    sum_vector = _column_sums(scaled, _load_all, _store_all)
    sum_last = _column_sums(scaled, _load_first, _store_first)

    @jit(fastmath=EXACT)
    def sum_run(target, source, stride, row_bytes, positions, lo, hi, divisor):
        nothing = divisor - divisor
        zero, scale = simd.line(nothing), simd.line(divisor)
        wide_zero, wide_scale = simd.wide(nothing), simd.wide(divisor)
        wide, line = np.uintp(simd.WIDE), np.uintp(simd.LINE)
        at = np.uintp(0)
        while at + wide <= row_bytes:
            sum_vector(target + at, source + at, stride, positions, lo, hi, wide_scale, wide_zero, wide, 0)
            at += wide
        while at + line <= row_bytes:
            sum_vector(target + at, source + at, stride, positions, lo, hi, scale, zero, line, 0)
            at += line
        if at < row_bytes:
            left = row_bytes - at
            count = np.int64(left // simd.item_size(divisor))
            sum_last(target + at, source + at, stride, positions, lo, hi, scale, zero, left, count)

    return sum_run


_sum_contiguous = _contiguous_sums(_as_it_is)
_sum_contiguous_divided = _contiguous_sums(_divided)


@jit(fastmath=EXACT)
def _sum_any(total, grad, positions, lo, hi, divisor):
    part = np.empty_like(total)
    total[:] = 0
    for cut in range(lo, hi, SUM_BLOCK):
        part[:] = 0
        for k in range(cut, min(hi, cut + SUM_BLOCK)):
            at = positions[k]
            for j in range(total.size):
                part[j] += total.dtype.type(grad[at, j]) / divisor
        for j in range(total.size):
            total[j] += part[j]


@jit(fastmath=EXACT)
def _contiguous_like(grad, total):
    """Whether gradient rows are contiguous elements of the dtype of the sums."""
    return grad.itemsize == total.itemsize and (grad.shape[1] <= 1 or grad.strides[1] == grad.itemsize)


@jit(fastmath=EXACT)
def _sum_run(total, grad, positions, lo, hi, divisor):
    """``total = sum over k in [lo, hi) of grad[positions[k]] / divisor``, cut every SUM_BLOCK positions of the run."""
    if not _contiguous_like(grad, total):
        _sum_any(total, grad, positions, lo, hi, divisor)
        return
    target, source, stride = simd.address(total), simd.address(grad), np.uintp(grad.strides[0])
    row_bytes = np.uintp(total.size * total.itemsize)
    if divisor == 1:
        _sum_contiguous(target, source, stride, row_bytes, positions, lo, hi, divisor)
    else:
        _sum_contiguous_divided(target, source, stride, row_bytes, positions, lo, hi, divisor)


@jit(fastmath=EXACT, parallel=True)
def _sum_pieces(partial, grad, positions, lo, hi, divisors, bounds):
    """Row p of `partial` is the sum of positions ``[lo[p], hi[p])``, one piece of a run."""
    for c in numba.prange(bounds.size - 1):
        for p in range(bounds[c], bounds[c + 1]):
            _sum_run(partial[p], grad, positions, lo[p], hi[p], divisors[p])


def _pieces_of(starts, long):
    """(lo, hi, run length) of every SUM_BLOCK positions of the runs `long`, and where each run's pieces start."""
    lengths = starts[long + 1] - starts[long]
    counts = -(-lengths // SUM_BLOCK)
    first = np.concatenate(([0], np.cumsum(counts)))
    lo = np.repeat(starts[long], counts) + SUM_BLOCK * (np.arange(first[-1]) - np.repeat(first[:-1], counts))
    hi = np.minimum(lo + SUM_BLOCK, np.repeat(starts[long + 1], counts))
    return lo, hi, np.repeat(lengths, counts), first


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
    def do_runs(weight, state, grad, rows, starts, positions, hyper, scale_grad_by_freq, longest, start, stop):
        total = np.empty(weight.shape[1], weight.dtype)
        divisor = weight.dtype.type(1)
        contiguous = _contiguous_like(grad, total)
        # Outside of the loop, and as numbers: to pass arrays on costs more than to sum a short run.
        target, source, stride = simd.address(total), simd.address(grad), np.uintp(grad.strides[0])
        row_bytes = np.uintp(total.size * total.itemsize)
        table, row_stride = simd.address(weight), np.uintp(weight.strides[0])
        for u in range(start, stop):
            if u + AHEAD < stop:
                prefetch(table + np.uintp(rows[u + AHEAD]) * row_stride, row_bytes)
            lo, hi = starts[u], starts[u + 1]
            if hi - lo > longest:
                continue
            if scale_grad_by_freq:
                divisor = weight.dtype.type(hi - lo)
            if not contiguous:
                _sum_any(total, grad, positions, lo, hi, divisor)
            elif divisor == 1:
                _sum_contiguous(target, source, stride, row_bytes, positions, lo, hi, divisor)
            else:
                _sum_contiguous_divided(target, source, stride, row_bytes, positions, lo, hi, divisor)
            rule(weight, state, rows[u], total, hyper)

    @jit(fastmath=EXACT)
    def range_form(weight, state, grad, rows, starts, positions, hyper, scale_grad_by_freq, start, stop):
        bad = first_bad(rows, weight.shape[0], start, stop)
        if bad < 0:
            longest = positions.size
            do_runs(weight, state, grad, rows, starts, positions, hyper, scale_grad_by_freq, longest, start, stop)
        return bad

    @jit(fastmath=EXACT, parallel=True)
    def parallel_form(weight, state, grad, rows, starts, positions, hyper, scale_grad_by_freq, longest, bounds):
        for c in numba.prange(bounds.size - 1):
            lo, hi = bounds[c], bounds[c + 1]
            do_runs(weight, state, grad, rows, starts, positions, hyper, scale_grad_by_freq, longest, lo, hi)

    @jit(fastmath=EXACT)
    def apply_sums(weight, state, partial, rows, first, hyper):
        total = np.empty(weight.shape[1], weight.dtype)
        for u in range(rows.size):
            total[:] = 0
            for p in range(first[u], first[u + 1]):
                for j in range(total.size):
                    total[j] += partial[p, j]
            rule(weight, state, rows[u], total, hyper)

    def driver(weight, state, grad, rows, starts, positions, hyper, scale_grad_by_freq):
        count = rows.size
        row_bytes = weight.shape[1] * weight.itemsize
        parts = threads.chunks(row_bytes * (int(starts[count]) + 2 * count * (1 + len(state))))
        if parts == 1:
            return range_form(weight, state, grad, rows, starts, positions, hyper, scale_grad_by_freq, 0, count)
        bad = first_bad(rows, weight.shape[0], 0, count)
        if bad >= 0:
            return bad
        total = int(starts[count])
        # The common case first: no run is long, and equal shares of positions are cut between rows.
        done = starts[: count + 1]
        long = np.flatnonzero(np.diff(done) > SUM_BLOCK) if total > SUM_BLOCK else _NONE
        with threads.region():
            if long.size:  # in pieces, which are equal work, however few rows they belong to
                lo, hi, length, first = _pieces_of(starts, long)
                partial = np.empty((lo.size, weight.shape[1]), weight.dtype)
                divisors = (length if scale_grad_by_freq else np.ones_like(length)).astype(weight.dtype)
                _sum_pieces(partial, grad, positions, lo, hi, divisors, threads.split(lo.size, parts))
                apply_sums(weight, state, partial, rows[long], first, hyper)
                lengths = np.diff(done)
                lengths[long] = 0
                done = np.concatenate(([0], np.cumsum(lengths)))
            bounds = np.searchsorted(done, threads.split(int(done[-1]), parts))
            bounds[-1] = count  # runs without positions at the end are runs too
            parallel_form(weight, state, grad, rows, starts, positions, hyper, scale_grad_by_freq, SUM_BLOCK, bounds)
        return bad

    name_after_rule(range_form, driver, rule, DOC.format(rule=inspect.cleandoc(rule.__doc__ or "")))
    return range_form, driver
