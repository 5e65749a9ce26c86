"""Scatter-add of rows where they stand, and sums over runs of grouped rows."""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from . import arithmetic, simd, threads
from .check import first_bad, part
from .jit import EXACT, jit
from .rows import ahead_of, load_all, load_first, prefetch, store_all, store_first
from .runs import row_pass

BLOCK = 1024
"""Positions of which a thread first picks its own, without a branch, and then adds them."""

TOGETHER = 16
"""Neighbours that go to one hot row and are added to it at once, in registers."""

ALONE = 1
"""The same where no row is hot: to look for neighbours costs more than it saves."""

IN_CACHE = 1 << 15
"""Bytes of a table that stays in a core's first cache: one thread adds to it as fast as memory gives the updates."""

SAMPLES = 512
"""Indices that are looked at to give every thread about as many positions."""

UNEVEN = 1.5
"""A thread with this many times its share of them: then threads share columns instead of rows."""


@jit(fastmath=EXACT)
def _plain_rows(target, updates):
    """Whether both have rows of contiguous elements of one dtype, for `_add_vectors`."""
    return (
        updates.itemsize == target.itemsize
        and (target.shape[1] <= 1 or target.strides[1] == target.itemsize)
        and (updates.shape[1] <= 1 or updates.strides[1] == updates.itemsize)
    )


def _column_adder(load, store):
    """Make the sum of `total` and the next `run` rows of updates, in order, in the columns of one vector."""

    @jit(fastmath=EXACT, inline=True)
    def add_columns(target, terms, term_stride, places, first, run, like, count):
        total = load(target, like, count)
        for i in range(first, first + run):
            total = arithmetic.add(total, load(terms + places[i] * term_stride, like, count))
        store(target, total, count)

    return add_columns


_add_vector = _column_adder(load_all, store_all)
_add_last = _column_adder(load_first, store_first)


@jit(fastmath=EXACT, inline=True)
def _add_run(row, terms, term_stride, places, first, run, row_bytes, item, wide, line):
    at = np.uintp(0)
    while at + np.uintp(simd.WIDE) <= row_bytes:
        _add_vector(row + at, terms + at, term_stride, places, first, run, wide, 0)
        at += np.uintp(simd.WIDE)
    while at + np.uintp(simd.LINE) <= row_bytes:
        _add_vector(row + at, terms + at, term_stride, places, first, run, line, 0)
        at += np.uintp(simd.LINE)
    if at < row_bytes:
        count = np.int64((row_bytes - at) // item)
        _add_last(row + at, terms + at, term_stride, places, first, run, line, count)


@jit(fastmath=EXACT)
def _add_rows(target, indices, updates, places, count, together):
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
    ahead = np.uintp(ahead_of(row_bytes))
    size = np.uintp(count)
    i = np.uintp(0)  # unsigned: Numba wraps signed positions around
    while i < size:
        row = np.uintp(indices[places[i]])
        run = np.uintp(1)
        while run < np.uintp(together) and i + run < size and np.uintp(indices[places[i + run]]) == row:
            run += np.uintp(1)
        for coming in range(i + ahead, min(i + ahead + run, size)):
            k = places[coming]
            prefetch(rows + np.uintp(indices[k]) * row_stride, row_bytes)
            prefetch(terms + k * term_stride, row_bytes)
        _add_run(rows + row * row_stride, terms, term_stride, places, i, run, row_bytes, item, wide, line)
        i += run


@jit(fastmath=EXACT)
def _add_rows_between(target, indices, updates, start, stop, low, high, together):
    """``target[indices[k]] += updates[k]`` for k in ``[start, stop)`` whose index is in ``[low, high)``, in order."""
    places = np.empty(BLOCK, np.uintp)
    for block in range(start, stop, BLOCK):
        count = 0
        for k in range(np.uintp(block), np.uintp(min(stop, block + BLOCK))):
            row = np.int64(indices[k])
            places[np.uintp(count)] = k
            count += np.int64((row >= low) & (row < high))
        _add_rows(target, indices, updates, places, count, together)


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
        _add_rows_between(target, indices, updates, start, stop, 0, target.shape[0], ALONE)
    return bad


@jit(fastmath=EXACT)
def _shares(indices, target, parts):
    """(parts, 4): from and to which row, and from and to which column of it, each thread adds.

    All columns of rows that a sample of the indices divides evenly, or where one row has too much of it, all rows of
    some columns. Either way a thread adds in the order of the positions.
    """
    num_rows, width = target.shape
    sample = np.sort(indices[:: max(1, indices.size // SAMPLES)])
    shares = np.empty((parts, 4), np.int64)
    most = 0
    begin = 0
    for c in range(parts):
        low = np.int64(sample[part(sample.size, c, parts)]) if c > 0 else np.int64(0)
        high = np.int64(sample[part(sample.size, c + 1, parts)]) if c < parts - 1 else np.int64(num_rows)
        shares[c, 0], shares[c, 1], shares[c, 2], shares[c, 3] = low, high, 0, width
        end = np.searchsorted(sample, high)
        most = max(most, end - begin)
        begin = end
    in_line = simd.LINE // target.itemsize
    lines = width // in_line
    if most * parts > UNEVEN * sample.size and lines >= parts:
        # Cut between cache lines of the hot row, which is in the middle of the sample: two threads in one line would
        # take it from each other at every addition.
        row = np.uintp(np.int64(sample[sample.size // 2])) * np.uintp(target.strides[0])
        ahead = np.int64((np.uintp(0) - simd.address(target) - row) % np.uintp(simd.LINE)) // target.itemsize
        for c in range(parts):
            shares[c, 0], shares[c, 1] = 0, num_rows
            shares[c, 2] = ahead + in_line * part(lines, c, parts) if c > 0 else 0
            shares[c, 3] = ahead + in_line * part(lines, c + 1, parts) if c < parts - 1 else width
    return shares


@jit(fastmath=EXACT, parallel=True)
def _scatter_add_parallel(target, indices, updates, parts):
    shares = _shares(indices, target, parts)
    for c in numba.prange(parts):
        low, high, first, last = shares[c]
        columns, terms = target[:, first:last], updates[:, first:last]
        together = TOGETHER if last - first < target.shape[1] else ALONE
        _add_rows_between(columns, indices, terms, 0, indices.size, low, high, together)


def scatter_add(target: NDArray[Any], indices: NDArray[Any], updates: NDArray[Any]) -> int:
    """Add rows in place, over threads: ``target[indices[k], :] += updates[k, :]``, each row in the order of k.

    Parameters and result as `scatter_add_range`, for all L positions. A row, or where one is hot a column, is one
    thread's work, so the bits are those of ``numpy.add.at`` for any number of threads.
    """
    parts = 1 if target.nbytes <= IN_CACHE else threads.chunks(updates.nbytes)
    if parts == 1:
        return scatter_add_range(target, indices, updates, 0, indices.size)
    bad = first_bad(indices, target.shape[0], 0, indices.size)
    if bad < 0:
        with threads.region():
            _scatter_add_parallel(target, indices, updates, parts)
    return bad


@jit(fastmath=EXACT, inline=True)
def _segment_sum(values, state, total, numbers):
    """``values[rows[u]] = G``; state (), hyper ()."""
    return total, state


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
