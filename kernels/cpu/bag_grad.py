"""What the training of pooled lookups needs: where greatest elements came from, and gradients of the weights."""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from . import simd, threads
from .bag import bag_parts
from .check import first_bad, first_bad_in_parts, part
from .jit import EXACT, REASSOCIATE, jit
from .rows import prefetch

AHEAD = 8
"""Rows between the one that is multiplied and the one that is asked for."""


@jit(fastmath=EXACT)
def bag_winners_range(winners, weight, indices, offsets, padding_idx, start, stop):
    """Where `bag_max` found its elements: ``out[b, j] = weight[indices[winners[b, j]], j]``.

    Parameters
    ----------
    winners : (B, D) int64
        Output: positions, the first of equal ones; -1 for a bag without rows.
    weight : (N, D) float32 or float64
        The table; any strides, never written.
    indices : (L,) int32 or int64
        Never written.
    offsets : (B + 1,) int64
        Where bags begin, and the last one ends; not decreasing, in ``[0, L]``.
    padding_idx : int
        Positions with this index are left out; -1 leaves nothing out.
    start, stop : int
        The bags to do.

    Returns
    -------
    int
        Position of the first index outside ``[0, N)`` among theirs, nothing written then; or -1.
    """
    bad = first_bad(indices, weight.shape[0], offsets[start], offsets[stop])
    if bad >= 0:
        return bad
    greatest = np.empty(weight.shape[1], weight.dtype)
    for b in range(start, stop):
        winner = winners[b]
        winner[:] = -1
        for k in range(offsets[b], offsets[b + 1]):
            row = indices[k]
            if row == padding_idx:
                continue
            for j in range(greatest.size):
                x, y = greatest[j], weight[row, j]
                if winner[j] < 0 or y > x or (np.isnan(y) and not np.isnan(x)):
                    greatest[j] = y
                    winner[j] = k
    return bad


@jit(fastmath=EXACT, parallel=True)
def _winners_parallel(winners, weight, indices, offsets, padding_idx, parts):
    bad = first_bad_in_parts(indices, weight.shape[0], parts)
    if bad < 0:
        bags = offsets.size - 1
        for c in numba.prange(parts):
            start, stop = part(bags, c, parts), part(bags, c + 1, parts)
            bag_winners_range(winners, weight, indices, offsets, padding_idx, start, stop)
    return bad


def bag_winners(
    winners: NDArray[Any], weight: NDArray[Any], indices: NDArray[Any], offsets: NDArray[Any], padding_idx: int
) -> int:
    """Do all B bags, over threads.

    Parameters and result as `bag_winners_range`.
    """
    parts = bag_parts(weight, indices, offsets)
    if parts == 1:
        return bag_winners_range(winners, weight, indices, offsets, padding_idx, 0, offsets.size - 1)
    with threads.region():
        return _winners_parallel(winners, weight, indices, offsets, padding_idx, parts)


@jit(fastmath=EXACT)
def bag_max_grad_range(values, grad, winners, places, start, stop):
    """Sum gradients where greatest elements came from: ``values[places[winners[b, j]], j] += grad[b, j]``, from zeros.

    Parameters
    ----------
    values : (U, D) float32 or float64
        Output: columns ``start`` to ``stop``.
    grad : (B, D) float32 or float64
        Not wider than `values`.
    winners : (B, D) int64
        Of `bag_winners`.
    places : (L,) int64
        The row of `values` that belongs to a position, in ``[0, U)`` where it is a winner.
    start, stop : int
        The columns to do.

    Returns
    -------
    int
        -1: there are no indices of a table.

    Notes
    -----
    Sums follow the bags, so the bits do not depend on how the columns are divided.
    """
    values[:, start:stop] = 0
    for b in range(grad.shape[0]):
        for j in range(start, stop):
            if winners[b, j] >= 0:
                values[places[winners[b, j]], j] += grad[b, j]
    return -1


@jit(fastmath=EXACT, parallel=True)
def _max_grad_parallel(values, grad, winners, places, parts):
    width = grad.shape[1]
    for c in numba.prange(parts):
        bag_max_grad_range(values, grad, winners, places, part(width, c, parts), part(width, c + 1, parts))


def bag_max_grad(values: NDArray[Any], grad: NDArray[Any], winners: NDArray[Any], places: NDArray[Any]) -> int:
    """Do all D columns, over threads.

    Parameters and result as `bag_max_grad_range`.
    """
    parts = threads.chunks(3 * winners.nbytes)
    if parts == 1:
        return bag_max_grad_range(values, grad, winners, places, 0, grad.shape[1])
    with threads.region():
        _max_grad_parallel(values, grad, winners, places, parts)
    return -1


@jit(fastmath=REASSOCIATE)
def _dot(grad, b, weight, row):
    total = weight.dtype.type(0)
    for j in range(weight.shape[1]):
        total += grad[b, j] * weight[row, j]
    return total


@jit(fastmath=EXACT)
def bag_dots_range(dots, weight, indices, offsets, grad, padding_idx, start, stop):
    """Products of rows with their bag's gradient: ``dots[k] = sum over j of grad[b, j] * weight[indices[k], j]``.

    That is the gradient of the weights of a sum.

    Parameters
    ----------
    dots : (L,) dtype of weight
        Output: the positions of the bags; zeros for those with `padding_idx`.
    weight : (N, D) float32 or float64
        The table; any strides, never written.
    indices : (L,) int32 or int64
        Never written.
    offsets : (B + 1,) int64
        Where bags begin, and the last one ends; not decreasing, in ``[0, L]``.
    grad : (B, D) float32 or float64
        Not wider than `weight`.
    padding_idx : int
        Positions with this index are left out; -1 leaves nothing out.
    start, stop : int
        The bags to do.

    Returns
    -------
    int
        Position of the first index outside ``[0, N)`` among theirs, nothing written then; or -1.

    Notes
    -----
    The order of the sum follows the CPU's vector width; it does not depend on the number of threads.
    """
    bad = first_bad(indices, weight.shape[0], offsets[start], offsets[stop])
    if bad >= 0:
        return bad
    table, stride = simd.address(weight), np.uintp(weight.strides[0])
    row_bytes = np.uintp(weight.shape[1] * weight.itemsize)
    last_ahead = np.uintp(max(offsets[stop] - AHEAD, 0))
    for b in range(start, stop):
        for k in range(np.uintp(offsets[b]), np.uintp(offsets[b + 1])):
            if k < last_ahead:
                prefetch(table + np.uintp(indices[k + np.uintp(AHEAD)]) * stride, row_bytes)
            row = indices[k]
            dots[k] = 0 if row == padding_idx else _dot(grad, b, weight, row)
    return bad


@jit(fastmath=EXACT, parallel=True)
def _dots_parallel(dots, weight, indices, offsets, grad, padding_idx, parts):
    bad = first_bad_in_parts(indices, weight.shape[0], parts)
    if bad < 0:
        bags = offsets.size - 1
        for c in numba.prange(parts):
            start, stop = part(bags, c, parts), part(bags, c + 1, parts)
            bag_dots_range(dots, weight, indices, offsets, grad, padding_idx, start, stop)
    return bad


def bag_dots(
    dots: NDArray[Any],
    weight: NDArray[Any],
    indices: NDArray[Any],
    offsets: NDArray[Any],
    grad: NDArray[Any],
    padding_idx: int,
) -> int:
    """Do all B bags, over threads.

    Parameters and result as `bag_dots_range`.
    """
    parts = bag_parts(weight, indices, offsets)
    if parts == 1:
        return bag_dots_range(dots, weight, indices, offsets, grad, padding_idx, 0, offsets.size - 1)
    with threads.region():
        return _dots_parallel(dots, weight, indices, offsets, grad, padding_idx, parts)


@jit(fastmath=EXACT)
def _look_bags_up(numbers, positions, offsets, table, start, stop):
    for b in range(np.uintp(offsets.size - 1)):
        for k in range(np.uintp(offsets[b]), np.uintp(offsets[b + np.uintp(1)])):
            table[k] = b
    for k in range(np.uintp(start), np.uintp(stop)):
        numbers[k] = table[np.uintp(positions[k])]


@jit(fastmath=EXACT)
def bag_numbers_range(numbers, positions, offsets, start, stop):
    """The bag of each position: ``offsets[numbers[k]] <= positions[k] < offsets[numbers[k] + 1]``.

    Parameters
    ----------
    numbers : (P,) int64
        Output; may be `positions` itself.
    positions : (P,) int64
        In ``[0, L)`` with ``L = offsets[B]``.
    offsets : (B + 1,) int64
        Where bags begin, and the last one ends; from 0, not decreasing.
    start, stop : int
        The part of the positions to do.

    Returns
    -------
    int
        First k with ``positions[k]`` outside ``[0, L)``, nothing written then; or -1.

    Notes
    -----
    Makes a table of the bags of all L positions, int32 where that is enough, and reads it. Moves
    ``16 * P + 8 * L`` bytes.
    """
    bags = offsets.size - 1
    length = offsets[bags] if bags > 0 else np.int64(0)
    bad = first_bad(positions, length, start, stop)
    if bad < 0:
        if bags < 1 << 31:
            _look_bags_up(numbers, positions, offsets, np.empty(length, np.int32), start, stop)
        else:
            _look_bags_up(numbers, positions, offsets, np.empty(length, np.int64), start, stop)
    return bad


def bag_numbers(numbers: NDArray[Any], positions: NDArray[Any], offsets: NDArray[Any]) -> int:
    """The bags of all P positions, in the caller's thread.

    Parameters and result as `bag_numbers_range`.
    """
    return bag_numbers_range(numbers, positions, offsets, 0, positions.size)
