"""One row in a pass over runs: the sum of its gradient, and what a rule makes of it, of the row and of its state."""

import numpy as np
from numba import literal_unroll

from . import arithmetic, each, simd  # noqa: F401  rules are made of the operators of arithmetic
from .fold import AHEAD, scaled_term
from .jit import EXACT, jit

SHORT = 2
"""Positions of a run that is summed where it is used, line by line; longer ones are summed first, row by row.

`sum_terms` knows of two.
"""

TERMS_AHEAD = AHEAD
"""Rows of the gradient between the one that is read and the one that is asked for."""


@jit(fastmath=EXACT, inline=True)
def contiguous(array):
    """Whether a row's elements lie one after the other."""
    return array.shape[1] <= 1 or array.strides[1] == array.itemsize


@jit(fastmath=EXACT, inline=True)
def any_strided(arrays):
    """Whether one of several is not `contiguous`."""
    strided = False
    for array in literal_unroll(arrays):
        strided |= not contiguous(array)
    return strided


@jit(fastmath=EXACT, inline=True)
def _copy_row(arrays, row, copies, back):
    """A row of each array into the row of `copies` with its number, or `back`."""
    number = np.uintp(0)
    for array in literal_unroll(arrays):
        if array.shape[0] > 0:
            for j in range(np.uintp(array.shape[1])):
                if back:
                    array[row, j] = copies[number, j]
                else:
                    copies[number, j] = array[row, j]
        number += np.uintp(1)


@jit(fastmath=EXACT, inline=True)
def one_term(where, divisor):
    """The run, as `sum_part` takes it, of a sum that lies at an address already."""
    nothing = np.uintp(0)
    return where, where, nothing, nothing, where, nothing, nothing, nothing, nothing, nothing, divisor, nothing


@jit(fastmath=EXACT, inline=True)
def _load(where, like, first, last):
    return simd.load(where, like)


@jit(fastmath=EXACT, inline=True)
def _load_between(where, like, first, last):
    return simd.load_between(where, like, first, last)


def _run_summer(load):
    """Make the sum of a short run, where it is used: in registers, with the bits of `fold.sum_rows`."""

    @jit(fastmath=EXACT, inline=True)
    def sum_run(run, at, like, first, last):
        where, _, begin, end, source, stride, positions, step, last_term, weights, divisor, _ = run
        total = like + scaled_term(load(where + at, like, first, last), begin - np.uintp(1), weights, divisor)
        for k in range(begin, end):
            row = simd.number(positions + k * step, np.uintp(0))
            later = simd.number(positions + min(k + np.uintp(TERMS_AHEAD), last_term) * step, np.uintp(0))
            simd.prefetch_vector(source + later * stride + at, like)
            where = source + row * stride + at
            total = total + scaled_term(load(where, like, first, last), k, weights, divisor)
        return total

    return sum_run


_sum_whole = _run_summer(_load)
sum_part_between = _run_summer(_load_between)


@jit(fastmath=EXACT, inline=True)
def sum_part(run, at, like):
    """A vector of a run's sum, `at` bytes from its begin. `sum_part_between` reads lanes `first` up to `last` alone.

    A run is numbers alone: the addresses of its first term and of one that comes later; from which to which position
    its other terms are; then what these are found by: gradient and its stride, positions and their stride, the last of
    them, coefficients, divisor; and at last where a number of its only term is remembered, or 0.
    """
    return _sum_whole(run, at, like, 0, 0)


@jit(fastmath=EXACT, inline=True)
def in_lines(arrays):
    """Whether rows of the table are whole cache lines, and no array has columns apart."""
    table = arrays[0]
    where = simd.address(table) | np.uintp(table.strides[0]) | np.uintp(table.shape[1] * table.itemsize)
    return where % np.uintp(simd.LINE) == 0 and not any_strided(arrays)


@jit(fastmath=EXACT, inline=True)
def terms_of(run):
    """Of a plain run of one or two: whether it is two, where they lie, and one that comes later."""
    where, _, begin, end, source, stride, positions, step, last_term, _, _, _ = run
    several, second, coming = begin < end, np.uintp(0), np.uintp(0)
    if several:
        second = source + simd.number(positions + begin * step, np.uintp(0)) * stride
        coming = min(begin + np.uintp(TERMS_AHEAD), last_term)
        coming = source + simd.number(positions + coming * step, np.uintp(0)) * stride
    return several, where, second, coming


@jit(fastmath=EXACT, inline=True)
def sum_terms(terms, at, like):
    """A vector of the sum of `terms_of` a run, `at` bytes from its begin."""
    several, where, second, coming = terms
    total = like + simd.load(where + at, like)
    if several:
        simd.prefetch_vector(coming + at, like)
        total = total + simd.load(second + at, like)
    return total


@jit(fastmath=EXACT, inline=True)
def places_of(arrays, scratch):
    """Where the arrays begin, and the bytes from a row of each to the next: see `make_change_row`."""
    spare = simd.address(scratch) + np.uintp(len(arrays)) * np.uintp(scratch.strides[0])
    return each.begins(arrays, spare), each.strides(arrays)


@jit(fastmath=EXACT, inline=True)
def nothing_of_a_row(places, run, total, row_bytes, numbers):
    """For a rule that has the same numbers for every row."""
    return places, run, numbers


@jit(fastmath=EXACT, inline=True)
def no_memory():
    """For a rule that has nothing to remember of gradient rows."""
    return False


@jit(fastmath=EXACT, inline=True)
def a_number_of_a_term():
    """For `row_pass`: a rule has a number of each gradient row to remember, at least 0, which many rows may need."""
    return True


def make_change_row(rule, of_row):
    """Make the function that changes one row of the arrays (table, then state), given the run of its gradients.

    `places` says where the arrays begin, and the bytes from a row of each to the next. `scratch` has a row for each
    array and one more, which is the only one of an array without rows, so that a rule may read and write what an option
    leaves out. Arrays with columns apart are copied there and back.
    """

    @jit(fastmath=EXACT, inline=True)
    def change_row(arrays, places, row, coming_row, run, total, numbers, scratch, strided):
        zero = scratch.dtype.type(0)
        size = np.int64(simd.item_size(zero))
        row_bytes = scratch.shape[1] * size
        coming_places = each.addresses(*places, coming_row)
        if strided:
            _copy_row(arrays, row, scratch, False)
            wheres = each.rows_of(scratch, arrays)
        else:
            wheres = each.addresses(*places, row)
        coming_term = run[1]
        columns, run, own = of_row(wheres, run, total, np.uintp(row_bytes), numbers)
        if len(wheres) > len(columns):
            simd.prefetch(coming_places[-1])
        coming, line = each.as_many(coming_places, columns), simd.line(zero)
        # By lines of the table, so that none is written in two parts where rows do not begin with one. Always each
        # beside the request for one of a row to come: many requests at once wait for each other.
        at = -np.int64(columns[0] % np.uintp(simd.LINE))
        while at < row_bytes:
            here, left = np.uintp(at), row_bytes - at
            each.prefetch(coming, here, line)
            simd.prefetch(coming_term + here)
            if at >= 0 and left >= simd.LINE:
                old = each.load(columns, here, line)
                new, state = rule(old[0], old[1:], sum_part(run, here, line), own)
                each.store(columns, here, (new, *state))
            else:
                first, last = max(-at, np.int64(0)) // size, min(left, np.int64(simd.LINE)) // size
                old = each.load_between(columns, here, line, first, last)
                new, state = rule(old[0], old[1:], sum_part_between(run, here, line, first, last), own)
                each.store_between(columns, here, (new, *state), first, last)
            at += simd.LINE
        if strided:
            _copy_row(arrays, row, scratch, True)

    return change_row


def make_change_lines(rule, of_row):
    """Make `change_row` for rows of whole cache lines and plain runs, whose loop has no cases: see `in_lines`."""

    @jit(fastmath=EXACT, inline=True)
    def change_lines(arrays, places, row, coming_row, run, total, numbers, scratch, strided):
        line = simd.line(scratch.dtype.type(0))
        row_bytes = np.uintp(scratch.shape[1] * scratch.itemsize)
        wheres, coming_places = each.addresses(*places, row), each.addresses(*places, coming_row)
        coming_term = run[1]
        columns, run, own = of_row(wheres, run, total, row_bytes, numbers)
        if len(wheres) > len(columns):
            simd.prefetch(coming_places[-1])
        coming, terms = each.as_many(coming_places, columns), terms_of(run)
        at, wide = np.uintp(0), simd.wide(scratch.dtype.type(0))
        # Not as a function of the width: inlined for both, that of the wide vector wrote nothing (Numba 0.68).
        while at + np.uintp(simd.WIDE) <= row_bytes:
            each.prefetch(coming, at, wide)
            simd.prefetch_vector(coming_term + at, wide)
            before = each.load(columns, at, wide)
            after, others = rule(before[0], before[1:], sum_terms(terms, at, wide), own)
            each.store(columns, at, (after, *others))
            at += np.uintp(simd.WIDE)
        while at < row_bytes:
            each.prefetch(coming, at, line)
            simd.prefetch(coming_term + at)
            old = each.load(columns, at, line)
            new, state = rule(old[0], old[1:], sum_terms(terms, at, line), own)
            each.store(columns, at, (new, *state))
            at += np.uintp(simd.LINE)

    return change_lines
