"""What the training of pooled lookups needs: where greatest elements came from, and gradients of the weights."""

import functools
from typing import Any

import numpy as np

from .. import accumulator, checking
from . import check, launch
from .bag import begin_part, positions_of, rows_at_once, threads_of_bag
from .check import GOOD
from .dots import make_dots
from .fold import device_function, make_each, make_fold
from .intrin import (
    WARP,
    block_dim_x,
    block_dim_y,
    block_x,
    full,
    grid_dim_x,
    larger,
    load_stream,
    store,
    store_stream,
    thread_x,
    thread_y,
    u32,
    u64,
)

PLACES_AT_ONCE = 4
"""Positions whose winners are asked for together, in the gradient of greatest elements."""


# Where greatest elements came from


@functools.cache
def _make_first_greatest(n):
    """For each of `n` columns the position of the greatest element, with one more at `k`."""
    if n == 1:

        def first_greatest(best, where, values, k):
            x, y = best[0], values[0]
            taken = (where[0] < 0) | (y > x) | ((y != y) & (x == x))
            return (np.int64(k) if taken else where[0],)

    else:
        half, rest = _make_first_greatest(n // 2), n // 2

        def first_greatest(best, where, values, k):
            first = half(best[:rest], where[:rest], values[:rest], k)
            return first + half(best[rest:], where[rest:], values[rest:], k)

    return device_function(first_greatest)


@functools.cache
def make_winners(n, rows):
    """The kernel of `bag_winners`: `n` elements an access, `rows` of a bag in flight."""
    first_greatest = _make_first_greatest(n)

    @device_function
    def won(total, row, padding):
        best, where = total
        values = row[3]
        later = larger(best, values), first_greatest(best, where, values, row[0])
        return later if row[1] != padding else total

    fold = make_fold(won, n, rows)

    def bag_winners(winners, weight, indices, offsets, flag, columns, padding, least):
        if flag[u64(0)] != GOOD:
            return
        columns, count = u64(columns), u64(offsets.size - 1)
        b = u64(block_x()) * u64(block_dim_y()) + u64(thread_y())
        stride = u64(grid_dim_x()) * u64(block_dim_y())
        first, step = u64(u32(thread_x() * u32(n))), u64(u32(block_dim_x() * u32(n)))
        while b < count:
            lo, hi = u64(offsets[b]), u64(offsets[b + u64(1)])
            c = first
            while c < columns:
                none = full(least, n), full(np.int64(-1), n)
                total = fold(none, weight, indices, indices, lo, hi, c, columns, padding)
                store_stream(winners, b * columns + c, total[1])
                c += step
            b += stride

    return bag_winners


def _winners(winners, weight, indices, offsets, padding_idx, positions=None):
    flag, answer = begin_part(indices, weight.shape[0], positions)
    bags, columns = winners.shape
    if winners.size:
        n = launch.width(columns, winners, weight)
        grid, block = launch.teams(bags, threads_of_bag(columns, n))
        least = accumulator(weight.dtype).type(-np.inf)
        rows = rows_at_once(indices.size, bags, weight.dtype.itemsize < 8)
        launch.run(
            make_winners(n, rows), grid, block, winners, weight, indices, offsets, flag,
            np.uint64(columns), np.int64(padding_idx), least,
        )  # fmt: skip
    return answer()


def bag_winners(winners: Any, weight: Any, indices: Any, offsets: Any, padding_idx: int) -> int:
    """Where `bag_max` found its elements: as `fastemb.kernels.cpu.bag_winners`.

    Parameters
    ----------
    winners : (B, D) int64
        Output: positions, the first of equal ones; -1 for a bag without rows.
    weight, indices, offsets, padding_idx
        As for `bag_max`.

    Returns
    -------
    int
        Position of the first index outside ``[0, N)``, in a bag or not, nothing written then; or -1. See `check.mode`.

    Notes
    -----
    Moves ``L * D * itemsize + 8 * B * D`` bytes, 16 bytes of positions an access.
    """
    return _winners(winners, weight, indices, offsets, padding_idx)


def bag_winners_range(
    winners: Any, weight: Any, indices: Any, offsets: Any, padding_idx: int, start: int, stop: int
) -> int:
    """`bag_winners` for the bags ``[start, stop)``; waits for the device, to learn their positions."""
    positions, offsets = positions_of(offsets, start, stop), offsets[start : stop + 1]
    return _winners(winners[start:stop], weight, indices, offsets, padding_idx, positions)


# Gradients that go where greatest elements came from


def mark_bags(bag_of, winners, columns):
    """``bag_of[winners[b, j]] = b``: whoever writes an element writes the same, as a position has one bag."""
    b = u64(block_x()) * u64(block_dim_y()) + u64(thread_y())
    stride = u64(grid_dim_x()) * u64(block_dim_y())
    columns = u64(columns)
    while b * columns < u64(winners.size):
        c = u64(thread_x())
        while c < columns:
            k = winners[b * columns + c]
            if k >= 0:
                bag_of[u64(k)] = b
            c += u64(block_dim_x())
        b += stride


@functools.cache
def _make_candidates(count):
    """For `count` positions of an order: (whether this column's greatest element is there, its gradient)."""
    if count == 1:

        def candidates(grad, winners, bag_of, order, i, c, columns):
            k = order[i]
            b = bag_of[u64(k)]
            at = u64(max(b, np.int64(0))) * columns + c
            return (((b >= 0) & (winners[at] == k), load_stream(grad, at, 1)[0]),)

    else:
        half, ahead = _make_candidates(count // 2), count // 2

        def candidates(grad, winners, bag_of, order, i, c, columns):
            first = half(grad, winners, bag_of, order, i, c, columns)
            return first + half(grad, winners, bag_of, order, i + u64(ahead), c, columns)

    return device_function(candidates)


@device_function
def add_won(total, candidate, padding):
    """The sum with one more gradient, if the column was won."""
    won, gradient = candidate
    added = total + gradient
    return added if won else total


@functools.cache
def make_max_grad(at_once):
    """The kernel of `bag_max_grad`: a team for a row of the values, which takes the positions of its place in order."""
    several, one = _make_candidates(at_once), _make_candidates(1)
    add_several, add_one = make_each(add_won, at_once), make_each(add_won, 1)

    def bag_max_grad(values, grad, winners, bag_of, order, starts, columns, start, stop, zero):
        columns = u64(columns)
        r = u64(block_x()) * u64(block_dim_y()) + u64(thread_y())
        stride = u64(grid_dim_x()) * u64(block_dim_y())
        while r < u64(starts.size - 1):
            end = u64(starts[r + u64(1)])
            c = u64(start) + u64(thread_x())
            while c < u64(stop):
                i, total = u64(starts[r]), zero
                while i + u64(at_once) <= end:
                    total = add_several(total, several(grad, winners, bag_of, order, i, c, columns), 0)
                    i += u64(at_once)
                while i < end:
                    total = add_one(total, one(grad, winners, bag_of, order, i, c, columns), 0)
                    i += u64(1)
                store(values, r * columns + c, full(total, 1))
                c += u64(block_dim_x())
            r += stride

    return bag_max_grad


def bag_max_grad_range(values: Any, grad: Any, winners: Any, places: Any, start: int, stop: int) -> int:
    """`bag_max_grad` for the columns ``[start, stop)``."""
    bags, columns = winners.shape
    if not winners.size or not values.size or start >= stop:
        values[:, start:stop] = 0
        return -1
    xp = launch.namespace(values)
    bag_of = xp.full(places.size, -1, np.int64)
    grid, block = launch.teams(bags, threads_of_bag(columns, 1))
    launch.run(mark_bags, grid, block, bag_of, winners, np.uint64(columns))
    order = xp.argsort(places, kind="stable")
    starts = xp.searchsorted(places[order], xp.arange(values.shape[0] + 1))
    grid, block = launch.teams(values.shape[0], threads_of_bag(stop - start, 1))
    launch.run(
        make_max_grad(PLACES_AT_ONCE), grid, block, values, grad, winners, bag_of, order, starts,
        np.uint64(columns), np.uint64(start), np.uint64(stop), accumulator(values.dtype).type(0),
    )  # fmt: skip
    return -1


def bag_max_grad(values: Any, grad: Any, winners: Any, places: Any) -> int:
    """Sum gradients where greatest elements came from: as `fastemb.kernels.cpu.bag_max_grad`.

    Parameters
    ----------
    values : (U, D) float16, float32 or float64
        Output. float16 is summed in float32 and rounded once.
    grad : (B, D) float16, float32 or float64
        Not wider than `values`.
    winners : (B, D) int64
        Of `bag_winners`.
    places : (L,) int64
        The row of `values` that belongs to a position, in ``[0, U)`` where it is a winner.

    Returns
    -------
    int
        -1: there are no indices of a table.

    Notes
    -----
    Sums follow the bags, without atomics: positions are sorted by place (stable, L keys) and each place takes its own
    in order. A position that won anything has the winners and the gradient of its whole bag read, from the caches
    mostly: up to ``L * D * (8 + itemsize)`` bytes. Needs ``24 * L + 8 * U`` bytes beside. A place that won in very
    many bags is the work of one team of threads.
    """
    return bag_max_grad_range(values, grad, winners, places, 0, grad.shape[1])


# Gradients of the weights


def dots_at_once(n: int) -> int:
    """Rows that are multiplied together: each has `n` sums of its own in registers, which eight numbers would fill."""
    return 4 if n < 8 else 2


def _dots(dots, weight, indices, offsets, grad, padding_idx, positions=None):
    flag, answer = begin_part(indices, weight.shape[0], positions)
    bags, columns = grad.shape
    dtype = accumulator(weight.dtype)
    if accumulator(grad.dtype) != dtype:
        grad = grad.astype(dtype)
    if dots.size and bags:
        n = launch.width(columns, weight, grad)
        grid, block = launch.teams(bags, launch.lanes(columns, n))
        launch.run(
            make_dots(n, dots_at_once(n)), grid, block, dots, weight, indices, offsets, grad, flag,
            np.uint32(columns), np.int64(padding_idx), dtype.type(0),
        )  # fmt: skip
    return answer()


def bag_dots(dots: Any, weight: Any, indices: Any, offsets: Any, grad: Any, padding_idx: int) -> int:
    """Products of rows with their bag's gradient: as `fastemb.kernels.cpu.bag_dots`.

    Parameters
    ----------
    dots : (L,) dtype of weight, or float32 for a float16 table
        Output: the positions of the bags; zeros for those with `padding_idx`.
    weight, indices, offsets, padding_idx
        As for `bag_sum`.
    grad : (B, D) float16, float32 or float64
        Not wider than `weight`; copied if narrower than its sums.

    Returns
    -------
    int
        Position of the first index outside ``[0, N)``, in a bag or not, nothing written then; or -1. See `check.mode`.

    Notes
    -----
    Sums of float16 are float32. Their order follows the width of the row and of an access, nothing else. Moves
    ``(L + B) * D * itemsize`` bytes, 16 an access where rows allow it.
    """
    return _dots(dots, weight, indices, offsets, grad, padding_idx)


def bag_dots_range(
    dots: Any, weight: Any, indices: Any, offsets: Any, grad: Any, padding_idx: int, start: int, stop: int
) -> int:
    """`bag_dots` for the bags ``[start, stop)``; waits for the device, to learn their positions."""
    positions, offsets = positions_of(offsets, start, stop), offsets[start : stop + 1]
    return _dots(dots, weight, indices, offsets, grad[start:stop], padding_idx, positions)


# Bags of positions


def find_bags(numbers, positions, offsets, flag):
    """How many bags begin at or before each position, less one."""
    if flag[u64(0)] != GOOD:
        return
    i = (u64(block_x()) * u64(block_dim_y()) + u64(thread_y())) * u64(block_dim_x()) + u64(thread_x())
    stride = u64(grid_dim_x()) * u64(block_dim_x()) * u64(block_dim_y())
    while i < u64(positions.size):
        k = positions[i]
        low, high = u64(0), u64(offsets.size)
        while low < high:
            middle = (low + high) >> u64(1)
            if offsets[middle] <= k:
                low = middle + u64(1)
            else:
                high = middle
        numbers[i] = np.int64(low) - np.int64(1)
        i += stride


def begin_bag_numbers(numbers: Any, positions: Any, offsets: Any, flag: Any) -> None:
    """Start `bag_numbers`, which does nothing where the flag says that an index is bad."""
    if positions.size:
        grid, block = launch.teams(-(-positions.size // WARP), WARP)
        launch.run(find_bags, grid, block, numbers, positions, offsets, flag)


def bag_numbers(numbers: Any, positions: Any, offsets: Any) -> int:
    """The bag of each position: as `fastemb.kernels.cpu.bag_numbers`.

    Parameters
    ----------
    numbers : (P,) int64
        Output; may be `positions` itself.
    positions : (P,) int64
        In ``[0, L)`` with ``L = offsets[B]``.
    offsets : (B + 1,) int64
        Where bags begin, and the last one ends; from 0, not decreasing.

    Returns
    -------
    int
        First k with ``positions[k]`` outside ``[0, L)``, nothing written then; or -1. See `check.mode`.

    Notes
    -----
    A binary search for each position. Waits for the device, to learn L, unless indices are not checked.
    """
    length = int(offsets[-1]) if offsets.size > 1 and checking.current().when != "off" else 0
    flag = check.begin(positions, length)
    begin_bag_numbers(numbers, positions, offsets, flag)
    return check.answer(flag, positions, length)


def bag_numbers_range(numbers: Any, positions: Any, offsets: Any, start: int, stop: int) -> int:
    """`bag_numbers` for the positions ``[start, stop)`` of the positions."""
    bad = bag_numbers(numbers[start:stop], positions[start:stop], offsets)
    return bad if bad < 0 else start + bad
