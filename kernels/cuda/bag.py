"""Pooled lookup: the sum of the rows that a bag of indices names, or their greatest elements.

A team of threads has a bag, each thread `n` of its columns, which stay in registers; the bits do not depend on how many
threads there are. A bag is one team's work however long it is: a few very long ones leave most of a device idle.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import SUM_BLOCK, accumulator
from . import check, launch
from .check import GOOD
from .fold import device_function, make_ask, make_fold
from .intrin import (
    WARP,
    add_rn,
    block_dim_x,
    block_dim_y,
    block_x,
    div_rn,
    full,
    grid_dim_x,
    larger,
    mul_rn,
    sqrt_rn,
    store_stream,
    thread_x,
    thread_y,
    u32,
    u64,
)

LONG_BAGS = 8
"""Positions of a bag, in the mean, from which on rows are asked for eight at a time."""

SHORT_BAGS = 2
"""Positions of a bag, in the mean, below which bags are looked at several at a time: many have a single row."""

BAGS_AT_ONCE = 4
"""Bags of a single row whose rows a thread asks for before it writes the first."""


def rows_at_once(positions: int, bags: int, lean: bool) -> int:
    """Rows of a bag that a thread asks for before it uses the first.

    Eight keep the memory busy with half the threads that fit on a device: 64 registers each, four blocks of 256. That
    is enough where a row takes no more than 16 bytes of them (`lean`); factors, indices to compare with padding, and
    float16, which is two registers a word, leave room for four. So do bags that seldom have eight.
    """
    return 8 if lean and positions >= LONG_BAGS * bags else 4


def bags_at_once(positions: int, bags: int, weighted: bool) -> int:
    """Bags that a team looks at together: where each has a single row, these are in flight together.

    Not with weights: as many numbers more on their way, and registers would run out.
    """
    return BAGS_AT_ONCE if positions < SHORT_BAGS * bags and not weighted else 1


def threads_of_bag(columns: int, n: int) -> int:
    """Part of a warp for narrow rows, so that a warp has several bags; several warps, which share nothing, for wide."""
    wanted = -(-columns // n)
    return launch.lanes(columns, n) if wanted <= WARP else min(launch.THREADS, -(-wanted // WARP) * WARP)


@device_function
def add_row(total, row, padding):
    """The sum with one more row."""
    return add_rn(total, row[3])


@device_function
def add_scaled_row(total, row, padding):
    """The sum with one more row times its factor."""
    return add_rn(total, mul_rn(row[3], row[2]))


@device_function
def larger_row(total, row, padding):
    """The greatest elements with those of one more row."""
    return larger(total, row[3])


@functools.cache
def skip_padding(do):
    """`do` for rows that are not padding; chosen, not branched to, so that no load waits for a comparison.

    Indices stay in registers for it, which is why lookups without padding go without it.
    """

    @device_function
    def do_unless_padding(total, row, padding):
        done = do(total, row, padding)
        return done if row[1] != padding else total

    return do_unless_padding


@device_function
def divided(total, zeros, divisors, indices, b, lo, hi, padding):
    """A sum over its divisor."""
    if divisors.size:
        divisor = divisors[b]
        quotient = div_rn(total, divisor)
        total = quotient if divisor != 0 else zeros
    return total


@device_function
def zeros_for_nothing(total, zeros, divisors, indices, b, lo, hi, padding):
    """The greatest elements of a bag, zeros where nothing is left of it."""
    k = u64(lo)
    while k < hi and indices[k] == padding:
        k = k + u64(1)
    return total if k < hi else zeros


@functools.cache
def _make_singles(do, finish, n, count):
    """Write bags of a single row each, from the rows that were asked for."""
    if count == 1:

        def singles(out, start, zero, divisors, indices, asked, b, c, columns, padding):
            total = do(full(start, n), asked[0], padding)
            lo = asked[0][0]
            total = finish(total, full(zero, n), divisors, indices, b, lo, lo + u64(1), padding)
            store_stream(out, b * u64(columns) + u64(c), total)

    else:
        half, ahead = _make_singles(do, finish, n, count // 2), count // 2

        def singles(out, start, zero, divisors, indices, asked, b, c, columns, padding):
            half(out, start, zero, divisors, indices, asked[:ahead], b, c, columns, padding)
            half(out, start, zero, divisors, indices, asked[ahead:], b + u64(ahead), c, columns, padding)

    return device_function(singles)


@functools.cache
def _make_one_bag(do, combine, finish, n, rows, block, weighted):
    """Fold a bag, `rows` of it in flight; every `block` positions a partial result ends."""
    fold = make_fold(do, n, rows, weighted)

    def one_bag(out, weight, indices, offsets, factors, divisors, columns, padding, start, zero, b):
        lo, hi = u64(offsets[b]), u64(offsets[b + u64(1)])
        c = u32(thread_x() * u32(n))
        while c < columns:
            total, k = full(start, n), lo
            while k < hi:
                end = min(k + u64(block), hi)
                part = fold(full(start, n), weight, indices, factors, k, end, c, columns, padding)
                total = combine(total, part)
                k = end
            total = finish(total, full(zero, n), divisors, indices, b, lo, hi, padding)
            store_stream(out, b * u64(columns) + u64(c), total)
            c = u32(c + block_dim_x() * u32(n))

    return device_function(one_bag)


@functools.cache
def make_pool(do, combine, finish, n, rows, bags, block, weighted):
    """The kernel of a pooled lookup, `n` elements an access.

    `rows` of a bag are in flight, `bags` are looked at together, and every `block` positions a partial result ends.
    """
    one_bag = _make_one_bag(do, combine, finish, n, rows, block, weighted)
    ask, singles = make_ask(n, bags), _make_singles(do, finish, n, bags)

    def pool(out, weight, indices, offsets, factors, divisors, flag, columns, padding, start, zero):
        if flag[u64(0)] != GOOD:
            return
        count = u64(offsets.size - 1)
        b = (u64(block_x()) * u64(block_dim_y()) + u64(thread_y())) * u64(bags)
        while b < count:
            if bags == 1:
                one_bag(out, weight, indices, offsets, factors, divisors, columns, padding, start, zero, b)
            else:
                last = min(b + u64(bags), count)
                others, at = u64(last - b) ^ u64(bags), b  # not 0 where a bag is missing, or not of one row
                while at < last:
                    others |= u64(offsets[at + u64(1)] - offsets[at]) ^ u64(1)
                    at += u64(1)
                if others == 0:
                    c = u32(thread_x() * u32(n))
                    while c < columns:
                        asked = ask(weight, indices, factors, u64(offsets[b]), c, columns)
                        singles(out, start, zero, divisors, indices, asked, b, c, columns, padding)
                        c = u32(c + block_dim_x() * u32(n))
                else:
                    at = b
                    while at < last:
                        one_bag(out, weight, indices, offsets, factors, divisors, columns, padding, start, zero, at)
                        at += u64(1)
            b += u64(grid_dim_x()) * u64(block_dim_y()) * u64(bags)

    return pool


def begin_part(indices: Any, num_rows: int, positions: tuple[int, int] | None) -> tuple[Any, Callable[[], int]]:
    """The flag of a check of some positions, or of all, and what waits for its answer."""
    lo, hi = positions or (0, indices.size)
    part = indices[lo:hi]
    flag = check.begin(part, num_rows)

    def answer() -> int:
        bad = check.answer(flag, part, num_rows)
        return bad if bad < 0 else lo + bad

    return flag, answer


def positions_of(offsets: Any, start: int, stop: int) -> tuple[int, int]:
    """Where some bags begin and end. Waits for the device, which the functions for all bags do not."""
    return int(offsets[start]), int(offsets[stop])


def _pool(do, combine, finish, start, out, weight, indices, offsets, factors, divisors, padding_idx, positions=None):
    flag, answer = begin_part(indices, weight.shape[0], positions)
    (bags, columns), dtype = out.shape, accumulator(weight.dtype)
    if out.size:
        n = launch.width(columns, out, weight)
        weighted, padded = bool(factors.size), padding_idx >= 0
        lean = not weighted and not padded and weight.dtype == dtype
        rows, at_once = rows_at_once(indices.size, bags, lean), bags_at_once(indices.size, bags, weighted)
        do = skip_padding(do) if padded else do
        kernel = make_pool(do, combine, finish, n, rows, at_once, SUM_BLOCK, weighted)
        grid, block = launch.teams(bags, threads_of_bag(columns, n), at_once)
        launch.run(
            kernel, grid, block, out, weight, indices, offsets, factors, divisors, flag,
            np.uint32(columns), np.int64(padding_idx), dtype.type(start), dtype.type(0),
        )  # fmt: skip
    return answer()


def _pool_sums(out, weight, indices, offsets, per_sample_weights, divisors, padding_idx, positions=None):
    do = add_scaled_row if per_sample_weights.size else add_row
    return _pool(
        do, add_rn, divided, 0, out, weight, indices, offsets, per_sample_weights, divisors, padding_idx, positions
    )


def bag_sum(
    out: Any, weight: Any, indices: Any, offsets: Any, per_sample_weights: Any, divisors: Any, padding_idx: int
) -> int:
    """Sum the rows of all B bags: as `fastemb.kernels.cpu.bag_sum`.

    Parameters
    ----------
    out : (B, D) ndarray of CuPy, dtype of weight
        Written; zeros for a bag without rows, or with a divisor of 0. Must not overlap ``weight``.
    weight : (N, D) float16, float32 or float64
        The table, C-contiguous, never written. float16 is summed in float32 and rounded once.
    indices : (L,) int32 or int64
        Never written.
    offsets : (B + 1,) int64
        Where bags begin, and the last one ends; not decreasing, in ``[0, L]``.
    per_sample_weights : (L,) or (0,), float32, or float64 for a float64 table
        Empty for ones.
    divisors : (B,) or (0,), likewise
        Empty for ones.
    padding_idx : int
        Positions with this index are left out; -1 leaves nothing out.

    Returns
    -------
    int
        Position of the first index outside ``[0, N)``, in a bag or not, nothing written then; or -1. See `check.mode`.

    Notes
    -----
    A sum follows the positions and is cut every `fastemb.kernels.SUM_BLOCK` of its bag. It stays in registers: moves
    ``(L + B) * D * itemsize`` bytes and the indices, 16 bytes an access where rows allow it. A bag is the work of one
    team of threads.
    """
    return _pool_sums(out, weight, indices, offsets, per_sample_weights, divisors, padding_idx)


def bag_sum_range(
    out: Any,
    weight: Any,
    indices: Any,
    offsets: Any,
    per_sample_weights: Any,
    divisors: Any,
    padding_idx: int,
    start: int,
    stop: int,
) -> int:
    """`bag_sum` for the bags ``[start, stop)``; waits for the device, to learn their positions."""
    positions, offsets = positions_of(offsets, start, stop), offsets[start : stop + 1]
    part = divisors[start:stop]
    return _pool_sums(out[start:stop], weight, indices, offsets, per_sample_weights, part, padding_idx, positions)


def _pool_largest(out, weight, indices, offsets, padding_idx, positions=None):
    none = launch.namespace(out).empty(0, accumulator(weight.dtype))
    return _pool(
        larger_row,
        larger,
        zeros_for_nothing,
        -np.inf,
        out,
        weight,
        indices,
        offsets,
        none,
        none,
        padding_idx,
        positions,
    )


def bag_max(out: Any, weight: Any, indices: Any, offsets: Any, padding_idx: int) -> int:
    """Greatest elements of all B bags: as `fastemb.kernels.cpu.bag_max`.

    Parameters and result as `bag_sum`; zeros for a bag without rows.
    """
    return _pool_largest(out, weight, indices, offsets, padding_idx)


def bag_max_range(out: Any, weight: Any, indices: Any, offsets: Any, padding_idx: int, start: int, stop: int) -> int:
    """`bag_max` for the bags ``[start, stop)``; waits for the device, to learn their positions."""
    positions, offsets = positions_of(offsets, start, stop), offsets[start : stop + 1]
    return _pool_largest(out[start:stop], weight, indices, offsets, padding_idx, positions)


@functools.cache
def make_divisors(weighted, squared):
    """The kernel of `bag_divisors`: a thread for a bag, since a sum follows the positions."""

    def bag_divisors(divisors, indices, offsets, factors, padding):
        b = (u64(block_x()) * u64(block_dim_y()) + u64(thread_y())) * u64(block_dim_x()) + u64(thread_x())
        stride = u64(grid_dim_x()) * u64(block_dim_x()) * u64(block_dim_y())
        while b < u64(divisors.size):
            total = np.float64(0)
            k, hi = u64(offsets[b]), u64(offsets[b + u64(1)])
            while k < hi:
                w = np.float64(factors[k]) if weighted else np.float64(1)
                added = add_rn(total, mul_rn(w, w) if squared else w)
                total = added if indices[k] != padding else total
                k += u64(1)
            divisors[b] = sqrt_rn(total) if squared else total
            b += stride

    return bag_divisors


def bag_divisors(
    divisors: Any, indices: Any, offsets: Any, per_sample_weights: Any, padding_idx: int, squared: bool
) -> int:
    """What `bag_sum` divides by: as `fastemb.kernels.cpu.bag_divisors`.

    Parameters
    ----------
    divisors : (B,) float32 or float64
        Output.
    indices, offsets, padding_idx
        As for `bag_sum`.
    per_sample_weights : (L,) or (0,), dtype of divisors
        Empty for ones.
    squared : bool
        False for the sum of the weights, True for the root of the sum of their squares.

    Returns
    -------
    int
        -1: the values of the indices do not matter.

    Notes
    -----
    Sums are float64, one by one in order.
    """
    if divisors.size:
        grid, block = launch.teams(-(-divisors.size // WARP), WARP)
        kernel = make_divisors(bool(per_sample_weights.size), bool(squared))
        launch.run(kernel, grid, block, divisors, indices, offsets, per_sample_weights, np.int64(padding_idx))
    return -1


def bag_divisors_range(
    divisors: Any,
    indices: Any,
    offsets: Any,
    per_sample_weights: Any,
    padding_idx: int,
    squared: bool,
    start: int,
    stop: int,
) -> int:
    """`bag_divisors` for the bags ``[start, stop)``."""
    part = offsets[start : stop + 1]
    return bag_divisors(divisors[start:stop], indices, part, per_sample_weights, padding_idx, squared)
