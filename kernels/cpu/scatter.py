"""Scatter-add of rows where they stand, and sums over runs of grouped rows."""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from . import simd, threads
from .check import first_bad
from .jit import EXACT, jit
from .rows import prefetch
from .runs import row_pass

BLOCK = 1024
"""Positions of which a thread first picks its own, without a branch, and then adds them."""

AHEAD = 4
"""Rows between the one that is added and the ones that are asked for."""

IN_CACHE = 1 << 15
"""Bytes of a table that stays in a core's first cache: one thread adds to it as fast as memory gives the updates."""

SAMPLES = 512
"""Indices that are looked at to give every thread about as many positions."""


@jit(fastmath=EXACT)
def _plain_rows(target, updates):
    """Whether both have rows of contiguous elements of one dtype, for `_add_vectors`."""
    return (
        updates.itemsize == target.itemsize
        and (target.shape[1] <= 1 or target.strides[1] == target.itemsize)
        and (updates.shape[1] <= 1 or updates.strides[1] == updates.itemsize)
    )


@jit(fastmath=EXACT, inline=True)
def _add_vectors(target, source, row_bytes, item, wide, line):
    at = np.uintp(0)
    while at + np.uintp(simd.WIDE) <= row_bytes:
        simd.store(target + at, simd.add(simd.load(target + at, wide), simd.load(source + at, wide)))
        at += np.uintp(simd.WIDE)
    while at + np.uintp(simd.LINE) <= row_bytes:
        simd.store(target + at, simd.add(simd.load(target + at, line), simd.load(source + at, line)))
        at += np.uintp(simd.LINE)
    if at < row_bytes:
        n = np.int64((row_bytes - at) // item)
        total = simd.add(simd.load_first(target + at, line, n), simd.load_first(source + at, line, n))
        simd.store_first(target + at, total, n)


@jit(fastmath=EXACT)
def _add_rows(target, indices, updates, places, count):
    """``target[indices[k]] += updates[k]`` for the first `count` k of `places`, in order."""
    if not _plain_rows(target, updates):
        for i in range(count):
            k = places[i]
            row = np.int64(indices[k])
            for j in range(target.shape[1]):
                target[row, j] += updates[k, j]
        return
    zero = target.dtype.type(0)
    wide, line = simd.wide(zero), simd.line(zero)
    item = np.uintp(target.itemsize)
    row_bytes = np.uintp(target.shape[1]) * item
    rows, row_stride = simd.address(target), np.uintp(target.strides[0])
    terms, term_stride = simd.address(updates), np.uintp(updates.strides[0])
    last_ahead = np.uintp(max(count - AHEAD, 0))
    for i in range(np.uintp(count)):  # unsigned: Numba wraps signed positions around
        if i < last_ahead:
            k = places[i + np.uintp(AHEAD)]
            prefetch(rows + np.uintp(indices[k]) * row_stride, row_bytes)
            prefetch(terms + np.uintp(k) * term_stride, row_bytes)
        k = places[i]
        row = rows + np.uintp(indices[k]) * row_stride
        _add_vectors(row, terms + np.uintp(k) * term_stride, row_bytes, item, wide, line)


@jit(fastmath=EXACT)
def _add_rows_between(target, indices, updates, start, stop, low, high):
    """``target[indices[k]] += updates[k]`` for k in ``[start, stop)`` whose index is in ``[low, high)``, in order."""
    places = np.empty(BLOCK, np.uintp)
    for block in range(start, stop, BLOCK):
        count = 0
        for k in range(np.uintp(block), np.uintp(min(stop, block + BLOCK))):
            row = np.int64(indices[k])
            places[np.uintp(count)] = k
            count += np.int64((row >= low) & (row < high))
        _add_rows(target, indices, updates, places, count)


@jit(fastmath=EXACT)
def scatter_add_range(target, indices, updates, start, stop):
    """Add rows in place: ``target[indices[k], :] += updates[k, :]`` for k in ``[start, stop)``, one after the other.

    Parameters
    ----------
    target : (N, D) float32 or float64
        Changed in place at `indices` alone.
    indices : (L,) int32 or int64
        Never written.
    updates : (L, D) float32 or float64
        Not wider than `target`; must not overlap it.
    start, stop : int
        The part of the positions to do. Two parts may meet in a row: do not run them at once on one target.

    Returns
    -------
    int
        Position of the first index outside ``[0, N)`` among them, nothing written then; or -1.

    Notes
    -----
    The order and the bits are those of ``numpy.add.at``. Moves ``(stop - start) * D * itemsize`` bytes of updates, and
    twice that of the table where it is not in the caches.
    """
    bad = first_bad(indices, target.shape[0], start, stop)
    if bad < 0:
        _add_rows_between(target, indices, updates, start, stop, 0, target.shape[0])
    return bad


@jit(fastmath=EXACT, parallel=True)
def _scatter_add_parallel(target, indices, updates, parts):
    # Every thread owns a range of rows and adds all that goes there, in the order of the positions.
    sample = np.sort(indices[:: max(1, indices.size // SAMPLES)])
    for c in numba.prange(parts):
        part = np.int64(c)
        low = np.int64(sample[sample.size * part // parts]) if part > 0 else np.int64(0)
        last = part == parts - 1
        high = np.int64(target.shape[0]) if last else np.int64(sample[sample.size * (part + 1) // parts])
        _add_rows_between(target, indices, updates, 0, indices.size, low, high)


def scatter_add(target: NDArray[Any], indices: NDArray[Any], updates: NDArray[Any]) -> int:
    """Add rows in place, over threads: ``target[indices[k], :] += updates[k, :]``, each row in the order of k.

    Parameters and result as `scatter_add_range`, for all L positions. A row belongs to one thread, so the bits are
    those of ``numpy.add.at`` for any number of threads.
    """
    parts = 1 if target.nbytes <= IN_CACHE else threads.chunks(updates.nbytes)
    if parts == 1:
        return scatter_add_range(target, indices, updates, 0, indices.size)
    bad = first_bad(indices, target.shape[0], 0, indices.size)
    if bad < 0:
        with threads.region():
            _scatter_add_parallel(target, indices, updates, parts)
    return bad


@jit(fastmath=EXACT)
def _segment_sum(values, state, row, total, hyper):
    """``values[rows[u]] = G``; state (), hyper ()."""
    for j in range(total.size):
        values[row, j] = total[j]


_segment_sum_range, _segment_sum_driver = row_pass(_segment_sum)


@jit(fastmath=EXACT)
def segment_sum_range(values, updates, rows, starts, positions, coefficients, scale_grad_by_freq, start, stop):
    """Sum runs of rows: ``values[rows[u], :] = sum over k in run u of coefficients[k] * updates[positions[k], :]``.

    Parameters
    ----------
    values : (N, D) float32 or float64
        Output: the sums, in its dtype.
    updates : (L, D) float32 or float64
        Read at `positions` alone; not wider than `values`, must not overlap it.
    rows : (U,) int64
        Distinct rows of `values`.
    starts : (U + 1,) int64
        Run u is ``positions[starts[u]:starts[u + 1]]``.
    positions : (starts[U],) int64
        Rows of `updates`.
    coefficients : (starts[U],) or (0,), dtype of values
        What to multiply row ``positions[k]`` of `updates` by; empty for nothing.
    scale_grad_by_freq : bool
        Divide each row of a run by the run's length before it is added.
    start, stop : int
        The runs u to do.

    Returns
    -------
    int
        First u with ``rows[u]`` outside ``[0, N)``, nothing written then; or -1.

    Notes
    -----
    Sums follow `positions` and are cut every `fastemb.kernels.SUM_BLOCK`. Moves ``(L + U) * D * itemsize`` bytes. The
    bits do not depend on how the runs are divided.
    """
    return _segment_sum_range(
        values, (), updates, rows, starts, positions, coefficients, (), scale_grad_by_freq, start, stop
    )


def segment_sum(
    values: NDArray[Any],
    updates: NDArray[Any],
    rows: NDArray[Any],
    starts: NDArray[Any],
    positions: NDArray[Any],
    coefficients: NDArray[Any],
    scale_grad_by_freq: bool,
) -> int:
    """Sum all U runs of rows, over threads.

    Parameters and result as `segment_sum_range`.
    """
    return _segment_sum_driver(values, (), updates, rows, starts, positions, coefficients, (), scale_grad_by_freq)
