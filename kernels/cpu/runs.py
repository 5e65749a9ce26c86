"""The pass over runs of duplicates that every gradient operation is: sum a run's gradient rows, then apply a row rule.

A rule is a small jitted function ``rule(weight, state, total, numbers) -> (weight, state)``: the new numbers of a row
and of its state, given the sum of the row's gradients. It is written for vectors, with the operators of `arithmetic`.
`row_pass` closes over one and makes the range form and the driver.
"""

import inspect
from typing import Any

import numba
import numpy as np
from numba import literal_unroll

from .. import SUM_BLOCK, name_after_rule
from . import each, simd, threads
from .change import (
    SHORT,
    TERMS_AHEAD,
    any_strided,
    contiguous,
    in_lines,
    make_change_lines,
    make_change_row,
    no_memory,
    nothing_of_a_row,
    one_term,
    places_of,
)
from .check import first_bad, part
from .fold import address_or_0, sum_rows, sum_rows_any
from .jit import EXACT, jit, read_only
from .rows import prefetch

NOTHING_SKIPPED = -1
"""Instead of a position that a sum leaves out."""

AHEAD = 16
"""Rows of the table between the one that is changed and the one that is asked for."""

DOC = """{rule}

``name_range(..., start, stop)`` does the runs ``[start, stop)``; ``name(...)`` does all of them, over threads. G is
the sum of a run's rows of `grad`, each times its coefficient, and with `scale_grad_by_freq` divided by the run's
length.

Parameters
----------
weight : (N, D) float32 or float64
    Changed in place at `rows` alone.
state : tuple of (N, D) or (N, 1), dtype of weight
    Likewise; how many, and what, is said above. Rows are changed fastest where all arrays begin at cache lines.
grad : (L, D) float32 or float64
    Read at `positions` alone; not wider than `weight`, must not overlap what is written.
rows : (U,) int64
    Distinct rows of `weight`.
starts : (U + 1,) int64
    Run u is ``positions[starts[u]:starts[u + 1]]``.
positions : (starts[U],) int64
    Rows of `grad`.
coefficients : (starts[U],) or (0,), dtype of weight
    What to multiply row ``positions[k]`` of `grad` by; empty for nothing.
hyper : tuple of float
    The numbers named above.
scale_grad_by_freq : bool
    Divide each row of a run by the run's length before it is added.

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
def _sum_terms(target, source, stride, row_bytes, positions, count, step, weights, lo, hi, divisor, zero):
    """`sum_rows` of positions at an address, not inlined: rare beside runs of one position, whose loop stays small.

    Numbers alone, for two threads that count the references to one array wait for each other.
    """
    one = simd.as_number(1, zero)
    terms = simd.integers(positions, count, step)
    sum_rows(target, source, stride, row_bytes, terms, lo, hi, NOTHING_SKIPPED, weights, divisor, one, zero)


@jit(fastmath=EXACT)
def _sum_run(total, grad, positions, coefficients, lo, hi, divisor):
    """``total = sum over k in [lo, hi) of c[k] * grad[positions[k]] / divisor``, cut every SUM_BLOCK positions."""
    zero, one = total.dtype.type(0), total.dtype.type(1)
    if grad.itemsize == total.itemsize and contiguous(grad):
        target, source, stride = simd.address(total), simd.address(grad), np.uintp(grad.strides[0])
        row_bytes = np.uintp(total.size * total.itemsize)
        weights = address_or_0(coefficients)
        sum_rows(target, source, stride, row_bytes, positions, lo, hi, NOTHING_SKIPPED, weights, divisor, one, zero)
    else:
        sum_rows_any(total, grad, positions, lo, hi, NOTHING_SKIPPED, coefficients, divisor, one, zero)


@jit(fastmath=EXACT, parallel=True)
def _sum_pieces(partial, grad, positions, coefficients, lo, hi, divisors, bounds):
    """Row p of `partial` is the sum of positions ``[lo[p], hi[p])``, one piece of a run."""
    for c in numba.prange(bounds.size - 1):
        for p in range(bounds[c], bounds[c + 1]):
            _sum_run(partial[p], grad, positions, coefficients, lo[p], hi[p], divisors[p])


@jit(fastmath=EXACT)
def _shares(bounds, starts):
    """Cut runs into parts of about as many positions each: ``bounds[c]`` is the first run of part c."""
    count, parts = starts.size - 1, bounds.size - 1
    for c in range(parts):
        bounds[c] = np.searchsorted(starts, part(starts[count], c, parts))
    bounds[parts] = count  # runs without positions at the end are runs too


@jit(fastmath=EXACT)
def _survey(bounds, rows, starts, num_rows):
    """The first run whose row is not in the table, or -1; positions in the longest run; `_shares`."""
    longest = np.int64(0)
    for u in range(np.uintp(rows.size)):
        longest = max(longest, starts[u + np.uintp(1)] - starts[u])
    _shares(bounds, starts[: rows.size + 1])
    return first_bad(rows, num_rows, 0, rows.size), longest


def _pieces_of(starts, long):
    """(lo, hi, run length) of every SUM_BLOCK positions of the runs `long`, and where each run's pieces start."""
    lengths = starts[long + 1] - starts[long]
    counts = -(-lengths // SUM_BLOCK)
    first = np.concatenate(([0], np.cumsum(counts)))
    lo = np.repeat(starts[long], counts) + SUM_BLOCK * (np.arange(first[-1]) - np.repeat(first[:-1], counts))
    hi = np.minimum(lo + SUM_BLOCK, np.repeat(starts[long + 1], counts))
    return lo, hi, np.repeat(lengths, counts), first


@jit(fastmath=EXACT, inline=True)
def ask_for(arrays, row):
    """Ask for a row of each array."""
    for array in literal_unroll(arrays):
        start = simd.address(array) + np.uintp(row) * np.uintp(array.strides[0])
        prefetch(start, np.uintp(array.shape[1] * array.itemsize))


def _over_runs(change):
    """Make the loop over runs: the sum of each, as `sum_part` or `sum_terms` takes it, handed to `change`.

    What is the same for all runs comes in numbers, for LLVM takes those that a caller writes out of the loop.
    """

    @jit(fastmath=EXACT, inline=True)
    def do(given, readable, weights, by_freq, strided):
        arrays, grad, rows, starts, positions, coefficients, numbers, scratch, known, longest, start, stop = given
        zero, one = scratch.dtype.type(0), scratch.dtype.type(1)
        total, places = scratch[len(arrays) + 1], places_of(arrays, scratch)
        # Outside of the loop, and as numbers: to pass arrays on costs more than to sum a short run.
        target, source, stride = simd.address(total), simd.address(grad), np.uintp(grad.strides[0])
        row_bytes = np.uintp(total.size * total.itemsize)
        terms, size, step = simd.address(positions), positions.size, np.uintp(positions.strides[0])
        last_row, last_term = np.uintp(stop - 1), np.uintp(positions.size - 1)
        divisor = one
        for u in range(np.uintp(start), np.uintp(stop)):  # unsigned, rows too: Numba wraps signed positions around
            lo, hi = starts[u], starts[u + np.uintp(1)]
            if hi - lo > longest:
                continue
            if by_freq:
                divisor = scratch.dtype.type(hi - lo)
            memory = np.uintp(0)
            short = readable and 0 < hi - lo <= SHORT
            if short:
                place = np.uintp(positions[np.uintp(lo)])
                first = source + place * stride
                coming = source + np.uintp(positions[min(np.uintp(lo + TERMS_AHEAD), last_term)]) * stride
                begin, end = np.uintp(lo + 1), np.uintp(hi)
                if known.size > 0 and hi - lo == 1:
                    memory = simd.address(known) + place * simd.item_size(zero)
            else:
                if readable:
                    _sum_terms(target, source, stride, row_bytes, terms, size, step, weights, lo, hi, divisor, zero)
                else:
                    _sum_run(total, grad, positions, coefficients, lo, hi, divisor)
                first = coming = target
                begin = end = np.uintp(0)
            # What finds other terms is in every run, though one that is summed has none: what never changes stays in
            # registers.
            others = source, stride, terms, step, last_term
            factors = (weights, divisor) if short else (np.uintp(0), one)
            run = first, coming, begin, end, *others, *factors, memory
            coming_row = np.uintp(rows[min(u + np.uintp(AHEAD), last_row)])
            change(arrays, places, np.uintp(rows[u]), coming_row, run, target, numbers, scratch, strided)

    return do


def row_pass(rule: Any, of_row: Any = nothing_of_a_row, remembers: Any = no_memory) -> tuple[Any, Any]:
    """Make the kernel that sums each run's gradient and hands it to `rule`.

    Parameters
    ----------
    rule : jitted function
        ``rule(weight, state, total, numbers) -> (weight, state)``, of vectors, a tuple of them for the state, and a
        tuple of numbers.
    of_row : jitted function
        For a rule that has numbers of each row. ``of_row(places, run, total, row_bytes, numbers)`` is given the
        addresses of the row in all arrays, its gradient for `sum_part`, room for the sum of that, and the numbers of
        `hyper`. It returns the addresses of what the rule changes, the table first, the gradient again, which it may
        have summed, and the numbers that the rule takes.
    remembers : jitted function
        `a_number_of_a_term`, if `of_row` has one.

    Returns
    -------
    range_form : jitted function
        ``(weight, state, grad, rows, starts, positions, coefficients, hyper, scale_grad_by_freq, start, stop) -> int``.
    driver : function
        The same without ``start`` and ``stop``, over threads.
    """
    change_row = make_change_row(rule, of_row)
    over_any, over_lines = _over_runs(change_row), _over_runs(make_change_lines(rule, of_row))

    @jit(fastmath=EXACT)
    def do_runs(
        weight, state, grad, rows, starts, positions, coefficients, hyper, scale_grad_by_freq, longest, start, stop
    ):
        arrays = (weight, *state)
        zero = weight.dtype.type(0)
        numbers = each.as_numbers(hyper, zero)
        scratch = np.zeros((len(arrays) + 2, weight.shape[1]), weight.dtype)
        readable = grad.itemsize == weight.itemsize and contiguous(grad)
        weights = address_or_0(coefficients)
        plain = readable and weights == 0 and not scale_grad_by_freq
        worth_it = remembers() and plain and 2 * grad.shape[0] <= stop - start
        known = np.full(grad.shape[0] if worth_it else 0, zero - weight.dtype.type(1))
        given = arrays, grad, rows, starts, positions, coefficients, numbers, scratch, known, longest, start, stop
        if plain and in_lines(arrays):
            over_lines(given, True, np.uintp(0), False, False)
        else:
            over_any(given, readable, weights, scale_grad_by_freq, any_strided(arrays))

    @jit(fastmath=EXACT)
    def range_form(weight, state, grad, rows, starts, positions, coefficients, hyper, scale_grad_by_freq, start, stop):
        bad = first_bad(rows, weight.shape[0], start, stop)
        if bad < 0:
            longest = positions.size
            do_runs(
                weight,
                state,
                grad,
                rows,
                starts,
                positions,
                coefficients,
                hyper,
                scale_grad_by_freq,
                longest,
                start,
                stop,
            )
        return bad

    @jit(fastmath=EXACT, parallel=True)
    def parallel_form(
        weight, state, grad, rows, starts, positions, coefficients, hyper, scale_grad_by_freq, longest, bounds
    ):
        for c in numba.prange(bounds.size - 1):
            lo, hi = bounds[c], bounds[c + 1]
            do_runs(
                weight, state, grad, rows, starts, positions, coefficients, hyper, scale_grad_by_freq, longest, lo, hi
            )

    @jit(fastmath=EXACT)
    def apply_sums(weight, state, partial, rows, first, hyper):
        arrays = (weight, *state)
        numbers = each.as_numbers(hyper, weight.dtype.type(0))
        scratch = np.zeros((len(arrays) + 2, weight.shape[1]), weight.dtype)
        total, places = scratch[len(arrays) + 1], places_of(arrays, scratch)
        strided = any_strided(arrays)
        for u in range(rows.size):
            total[:] = 0
            for p in range(first[u], first[u + 1]):
                for j in range(total.size):
                    total[j] += partial[p, j]
            row, target = np.uintp(rows[u]), simd.address(total)
            run = one_term(target, total.dtype.type(1))
            change_row(arrays, places, row, row, run, target, numbers, scratch, strided)

    def driver(weight, state, grad, rows, starts, positions, coefficients, hyper, scale_grad_by_freq):
        count = rows.size
        grad = read_only(grad)
        row_bytes = weight.shape[1] * weight.itemsize
        parts = threads.chunks(row_bytes * (int(starts[count]) + 2 * count * (1 + len(state))))
        if parts == 1:
            return range_form(
                weight, state, grad, rows, starts, positions, coefficients, hyper, scale_grad_by_freq, 0, count
            )
        bounds = np.empty(parts + 1, np.int64)
        bad, longest = _survey(bounds, rows, starts, weight.shape[0])
        if bad >= 0:
            return bad
        with threads.region():
            if longest > SUM_BLOCK:  # in pieces, which are equal work, however few rows they belong to
                lengths = np.diff(starts[: count + 1])
                long = np.flatnonzero(lengths > SUM_BLOCK)
                lo, hi, length, first = _pieces_of(starts, long)
                partial = np.empty((lo.size, weight.shape[1]), weight.dtype)
                divisors = (length if scale_grad_by_freq else np.ones_like(length)).astype(weight.dtype)
                _sum_pieces(partial, grad, positions, coefficients, lo, hi, divisors, threads.split(lo.size, parts))
                apply_sums(weight, state, partial, rows[long], first, hyper)
                lengths[long] = 0
                _shares(bounds, np.concatenate(([0], np.cumsum(lengths))))
            parallel_form(
                weight, state, grad, rows, starts, positions, coefficients, hyper, scale_grad_by_freq, SUM_BLOCK, bounds
            )
        return bad

    name_after_rule(range_form, driver, rule, DOC.format(rule=inspect.cleandoc(rule.__doc__ or "")))
    return range_form, driver
