"""Many rows folded into one: the sum, or the greatest of each column, of the rows that a range of indices names.

Pooled lookups fold rows of the table, gradients fold rows of the upstream gradient; both by the pieces made here.
"""

import numpy as np

from .. import SUM_BLOCK
from . import arithmetic, simd
from .jit import EXACT, jit
from .rows import load_all, load_first, store_all, store_first

AHEAD = 32
"""Rows between the one that is folded and the one that is asked for."""


@jit(fastmath=EXACT, inline=True)
def address_or_0(array):
    """Where an array's first element lies; 0 for an empty one."""
    return simd.address(array) if array.size > 0 else np.uintp(0)


@jit(fastmath=EXACT, inline=True)
def _as_it_is(term, k, coefficients, divisor):
    return term


@jit(fastmath=EXACT, inline=True)
def scaled_term(term, k, coefficients, divisor):
    """A term of a sum times the k-th number from an address, unless that is 0, and over a divisor."""
    if coefficients != 0:
        coefficient = simd.number(coefficients + k * simd.item_size(divisor), divisor)
        term = arithmetic.mul(term, simd.fill(coefficient, term))
    if divisor != 1:
        term = arithmetic.div(term, simd.fill(divisor, term))
    return term


def _column_folder(combine, scaled, load, store):
    """Make the fold of the columns of one vector, in registers; of `count` lanes of it where they are the last."""

    @jit(fastmath=EXACT, inline=True)
    def fold_columns(
        target, source, stride, indices, lo, hi, skipped, coefficients, term_divisor, divisor, start, count
    ):
        # Unsigned positions: Numba wraps negative ones around, and every instruction here counts.
        last_ahead = np.uintp(max(indices.size - AHEAD, 0))
        total = start
        cut = lo
        while True:  # a range with a step costs as much as a row
            part = start
            end = min(hi, cut + SUM_BLOCK)
            for k in range(np.uintp(cut), np.uintp(end)):
                if k < last_ahead:
                    simd.prefetch_vector(source + np.uintp(indices[k + np.uintp(AHEAD)]) * stride, start)
                row = indices[k]
                if row == skipped:
                    continue
                term = load(source + np.uintp(row) * stride, start, count)
                part = combine(part, scaled(term, k, coefficients, term_divisor))
            total = combine(total, part)
            cut = end
            if cut >= hi:
                break
        if divisor != 1:
            total = arithmetic.div(total, simd.fill(divisor, start))
        store(target, total, count)

    return fold_columns


def _row_folder(combine, scaled):
    """Make the fold of rows of contiguous elements.

    Parameters
    ----------
    combine : jitted function
        ``combine(vector so far, vector of the next row) -> vector``.
    scaled : jitted function
        `_as_it_is`, or `scaled_term` for rows with factors.

    Returns
    -------
    jitted function
        ``(target, source, stride, row_bytes, indices, lo, hi, skipped, coefficients, term_divisor, divisor, start)``:
        writes to the address `target`, for `row_bytes` from there, the fold of the rows at
        ``source + indices[k] * stride`` for k in ``[lo, hi)``. Rows whose index is `skipped` are left out. If `scaled`
        does it, a row is multiplied by the k-th number from the address `coefficients`, unless that is 0, and divided
        by `term_divisor`. The whole is divided by `divisor`. Folds begin with the number `start` and are cut every
        `SUM_BLOCK` positions.
    """
    fold_vector = _column_folder(combine, scaled, load_all, store_all)
    fold_last = _column_folder(combine, scaled, load_first, store_first)

    @jit(fastmath=EXACT, inline=True)
    def fold_rows(
        target, source, stride, row_bytes, indices, lo, hi, skipped, coefficients, term_divisor, divisor, start
    ):
        widest, wide, line = np.uintp(simd.WIDEST), np.uintp(simd.WIDE), np.uintp(simd.LINE)
        widest_start, wide_start, line_start = simd.widest(start), simd.wide(start), simd.line(start)
        at = np.uintp(0)
        while at + widest <= row_bytes:
            fold_vector(
                target + at, source + at, stride, indices, lo, hi, skipped,
                coefficients, term_divisor, divisor, widest_start, 0,
            )  # fmt: skip
            at += widest
        while at + wide <= row_bytes:
            fold_vector(
                target + at, source + at, stride, indices, lo, hi, skipped,
                coefficients, term_divisor, divisor, wide_start, 0,
            )  # fmt: skip
            at += wide
        while at + line <= row_bytes:
            fold_vector(
                target + at, source + at, stride, indices, lo, hi, skipped,
                coefficients, term_divisor, divisor, line_start, 0,
            )  # fmt: skip
            at += line
        if at < row_bytes:
            count = np.int64((row_bytes - at) // simd.item_size(start))
            fold_last(
                target + at, source + at, stride, indices, lo, hi, skipped,
                coefficients, term_divisor, divisor, line_start, count,
            )  # fmt: skip

    return fold_rows


def _any_row_folder(combine):
    """Make the fold of rows of any layout and dtype: as `_row_folder`, of arrays and of numbers."""

    @jit(fastmath=EXACT, inline=True)
    def fold_any(target, source, indices, lo, hi, skipped, coefficients, term_divisor, divisor, start):
        for j in range(target.size):
            total = start
            for cut in range(lo, hi, SUM_BLOCK):
                part = start
                for k in range(cut, min(hi, cut + SUM_BLOCK)):
                    if indices[k] == skipped:
                        continue
                    term = target.dtype.type(source[indices[k], j])
                    if coefficients.size > 0:
                        term *= coefficients[k]
                    part = combine(part, term / term_divisor)
                total = combine(total, part)
            target[j] = total / divisor

    return fold_any


@jit(fastmath=EXACT, inline=True)
def _add_vectors(x, y):
    return arithmetic.add(x, y)


@jit(fastmath=EXACT, inline=True)
def _add_numbers(x, y):
    return x + y


@jit(fastmath=EXACT, inline=True)
def _larger_vectors(x, y):
    return arithmetic.larger(x, y)


@jit(fastmath=EXACT, inline=True)
def _larger_numbers(x, y):
    return y if y > x or (y != y and x == x) else x


_plain_sum = _row_folder(_add_vectors, _as_it_is)
_scaled_sum = _row_folder(_add_vectors, scaled_term)
largest_rows = _row_folder(_larger_vectors, _as_it_is)
sum_rows_any = _any_row_folder(_add_numbers)
largest_rows_any = _any_row_folder(_larger_numbers)


@jit(fastmath=EXACT, inline=True)
def sum_rows(target, source, stride, row_bytes, indices, lo, hi, skipped, coefficients, term_divisor, divisor, start):
    """The fold of `_row_folder` by addition."""
    if coefficients == 0 and term_divisor == 1:
        _plain_sum(
            target, source, stride, row_bytes, indices, lo, hi, skipped, coefficients, term_divisor, divisor, start
        )
    else:
        _scaled_sum(
            target, source, stride, row_bytes, indices, lo, hi, skipped, coefficients, term_divisor, divisor, start
        )
