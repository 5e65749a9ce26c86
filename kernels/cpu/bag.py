"""Pooled lookup: the sum of the rows that a bag of indices names, or their greatest elements.

Bag b is the positions ``offsets[b]`` to ``offsets[b + 1]``. Positions whose index is `padding_idx` are left out.
"""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from . import simd, threads
from .check import first_bad, first_bad_in_parts, part
from .fold import address_or_0, largest_rows, largest_rows_any, sum_rows, sum_rows_any
from .jit import EXACT, jit

UNEVEN = 1.5
"""A thread with this many times its share of the positions: then threads share columns instead of bags."""


@jit(fastmath=EXACT, inline=True)
def _zero(weight):
    return weight.dtype.type(0)


@jit(fastmath=EXACT, inline=True)
def _least(weight):
    return weight.dtype.type(-np.inf)


@jit(fastmath=EXACT, inline=True)
def _sum_of_nothing(indices, lo, hi, padding_idx):
    return False  # comes to zeros on its own


@jit(fastmath=EXACT, inline=True)
def _nothing_left(indices, lo, hi, padding_idx):
    while lo < hi and indices[lo] == padding_idx:
        lo += 1
    return lo >= hi


@jit(fastmath=EXACT)
def _shares(offsets, width, itemsize, parts):
    """(parts, 4): from and to which bag, and from and to which column, each thread works.

    All columns of about as many positions each, or where one bag has too many of them, all bags of some columns.
    """
    bags = offsets.size - 1
    work = offsets[bags] + bags  # a bag without positions is work too
    shares = np.empty((parts, 4), np.int64)
    most = 0
    bag = 0
    for c in range(parts):
        shares[c, 0] = bag
        low, high = bag, bags
        while low < high:  # the first bag that begins at this thread's share of the work or later
            middle = (low + high) // 2
            if offsets[middle] + middle < part(work, c + 1, parts):
                low = middle + 1
            else:
                high = middle
        most = max(most, offsets[low] + low - offsets[bag] - bag)
        bag = low
        shares[c, 1] = bag
        shares[c, 2] = 0
        shares[c, 3] = width
    if most * parts > UNEVEN * work:
        in_line = simd.LINE // itemsize
        lines = -(-width // in_line)
        for c in range(parts):
            shares[c, 0] = 0
            shares[c, 1] = bags
            shares[c, 2] = min(width, in_line * part(lines, c, parts))
            shares[c, 3] = min(width, in_line * part(lines, c + 1, parts))
    return shares


def _pooling(fold_rows, fold_any, start_of, is_empty):
    """Make the two forms of a pooled lookup: the fold of each bag's rows, zeros for a bag without any."""

    @jit(fastmath=EXACT)
    def pool(out, weight, indices, offsets, per_sample_weights, divisors, padding_idx, start, stop):
        one = weight.dtype.type(1)
        start_number = start_of(weight)
        divisor = one
        plain = weight.shape[1] <= 1 or weight.strides[1] == weight.itemsize
        source, stride = simd.address(weight), np.uintp(weight.strides[0])
        row_bytes = np.uintp(weight.shape[1] * weight.itemsize)
        target, out_stride = simd.address(out), np.uintp(out.strides[0])
        factors = address_or_0(per_sample_weights)
        for b in range(np.uintp(start), np.uintp(stop)):  # unsigned: Numba wraps signed positions around
            lo, hi = offsets[b], offsets[b + np.uintp(1)]
            if divisors.size > 0:
                divisor = divisors[b]
            if divisor == 0 or is_empty(indices, lo, hi, padding_idx):
                out[b] = 0
            elif plain:
                fold_rows(
                    target + b * out_stride, source, stride, row_bytes, indices, lo, hi, padding_idx,
                    factors, one, divisor, start_number,
                )  # fmt: skip
            else:
                fold_any(out[b], weight, indices, lo, hi, padding_idx, per_sample_weights, one, divisor, start_number)

    @jit(fastmath=EXACT, parallel=True)
    def pool_parallel(out, weight, indices, offsets, per_sample_weights, divisors, padding_idx, parts):
        bad = first_bad_in_parts(indices, weight.shape[0], parts)
        if bad < 0:
            shares = _shares(offsets, weight.shape[1], weight.itemsize, parts)
            for c in numba.prange(parts):
                start, stop, low, high = shares[c]
                to, of = out[:, low:high], weight[:, low:high]
                pool(to, of, indices, offsets, per_sample_weights, divisors, padding_idx, start, stop)
        return bad

    return pool, pool_parallel


_pool_sums, _pool_sums_parallel = _pooling(sum_rows, sum_rows_any, _zero, _sum_of_nothing)
_pool_largest, _pool_largest_parallel = _pooling(largest_rows, largest_rows_any, _least, _nothing_left)


def bag_parts(weight: NDArray[Any], indices: NDArray[Any], offsets: NDArray[Any]) -> int:
    """How many threads a pass over all rows of all bags is worth."""
    return threads.chunks((indices.size + offsets.size) * weight.shape[1] * weight.itemsize)


@jit(fastmath=EXACT)
def bag_sum_range(out, weight, indices, offsets, per_sample_weights, divisors, padding_idx, start, stop):
    """Sum the rows of bags: ``out[b, :] = sum over k in bag b of w[k] * weight[indices[k], :] / divisors[b]``.

    Bag b is the positions k in ``[offsets[b], offsets[b + 1])``, less those whose index is `padding_idx`. With
    `bag_divisors` that is the sum, the mean, or the sum over the root of the squares.

    Parameters
    ----------
    out : (B, D), dtype of weight, C-contiguous
        Rows ``start`` to ``stop`` are written; zeros for a bag without rows, or with a divisor of 0. Must not overlap
        ``weight``.
    weight : (N, D) float32 or float64
        The table; any strides, never written.
    indices : (L,) int32 or int64
        Never written.
    offsets : (B + 1,) int64
        Where bags begin, and the last one ends; not decreasing, in ``[0, L]``.
    per_sample_weights : (L,) or (0,), dtype of weight
        w; empty for ones.
    divisors : (B,) or (0,), dtype of weight
        Empty for ones.
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
    A sum follows the positions and is cut every `fastemb.kernels.SUM_BLOCK` of its bag. It stays in registers: moves
    ``(L + B) * D * itemsize`` bytes. The bits do not depend on how the bags are divided.
    """
    bad = first_bad(indices, weight.shape[0], offsets[start], offsets[stop])
    if bad < 0:
        _pool_sums(out, weight, indices, offsets, per_sample_weights, divisors, padding_idx, start, stop)
    return bad


def bag_sum(
    out: NDArray[Any],
    weight: NDArray[Any],
    indices: NDArray[Any],
    offsets: NDArray[Any],
    per_sample_weights: NDArray[Any],
    divisors: NDArray[Any],
    padding_idx: int,
) -> int:
    """Sum the rows of all B bags, over threads.

    Parameters and result as `bag_sum_range`.
    """
    parts = bag_parts(weight, indices, offsets)
    if parts == 1:
        bags = offsets.size - 1
        return bag_sum_range(out, weight, indices, offsets, per_sample_weights, divisors, padding_idx, 0, bags)
    with threads.region():
        return _pool_sums_parallel(out, weight, indices, offsets, per_sample_weights, divisors, padding_idx, parts)


@jit(fastmath=EXACT)
def bag_max_range(out, weight, indices, offsets, padding_idx, start, stop):
    """Greatest elements of bags: ``out[b, j] = max over k in bag b of weight[indices[k], j]``; NaN if one is NaN.

    Of equal zeros of either sign the first stands.

    Parameters
    ----------
    out : (B, D), dtype of weight, C-contiguous
        Rows ``start`` to ``stop`` are written; zeros for a bag without rows. Must not overlap ``weight``.
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

    Notes
    -----
    Moves ``(L + B) * D * itemsize`` bytes.
    """
    bad = first_bad(indices, weight.shape[0], offsets[start], offsets[stop])
    if bad < 0:
        none = np.empty(0, weight.dtype)
        _pool_largest(out, weight, indices, offsets, none, none, padding_idx, start, stop)
    return bad


def bag_max(
    out: NDArray[Any], weight: NDArray[Any], indices: NDArray[Any], offsets: NDArray[Any], padding_idx: int
) -> int:
    """Greatest elements of all B bags, over threads.

    Parameters and result as `bag_max_range`.
    """
    parts = bag_parts(weight, indices, offsets)
    if parts == 1:
        return bag_max_range(out, weight, indices, offsets, padding_idx, 0, offsets.size - 1)
    none = np.empty(0, weight.dtype)
    with threads.region():
        return _pool_largest_parallel(out, weight, indices, offsets, none, none, padding_idx, parts)


@jit(fastmath=EXACT)
def bag_divisors_range(divisors, indices, offsets, per_sample_weights, padding_idx, squared, start, stop):
    """What `bag_sum` divides by: ``divisors[b] = sum of w[k]``, or with `squared` ``sqrt(sum of w[k]**2)``.

    Parameters
    ----------
    divisors : (B,) float32 or float64
        Output.
    indices : (L,) int32 or int64
        Never written.
    offsets : (B + 1,) int64
        Where bags begin, and the last one ends; not decreasing, in ``[0, L]``.
    per_sample_weights : (L,) or (0,), dtype of divisors
        w; empty for ones.
    padding_idx : int
        Positions with this index are left out; -1 leaves nothing out.
    squared : bool
        False for the mean, True for the sum over the root of the squares.
    start, stop : int
        The bags to do.

    Returns
    -------
    int
        -1: the values of the indices do not matter.

    Notes
    -----
    Sums are float64.
    """
    for b in range(start, stop):
        total = 0.0
        for k in range(np.uintp(offsets[b]), np.uintp(offsets[b + 1])):
            if indices[k] != padding_idx:
                w = np.float64(per_sample_weights[k]) if per_sample_weights.size > 0 else 1.0
                total += w * w if squared else w
        divisors[b] = np.sqrt(total) if squared else total
    return -1


def bag_divisors(
    divisors: NDArray[Any],
    indices: NDArray[Any],
    offsets: NDArray[Any],
    per_sample_weights: NDArray[Any],
    padding_idx: int,
    squared: bool,
) -> int:
    """Do all B bags.

    Parameters and result as `bag_divisors_range`.
    """
    bags = offsets.size - 1
    return bag_divisors_range(divisors, indices, offsets, per_sample_weights, padding_idx, squared, 0, bags)
