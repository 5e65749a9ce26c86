"""Row lookup: ``out[k, :] = weight[indices[k], :]``."""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from . import simd, threads
from .check import first_bad, first_bad_in_parts, part
from .jit import EXACT, jit
from .rows import ahead_of, prefetch

STREAM_ABOVE = 16 << 20
"""Bytes of output from which rows are written past the caches: it would not stay there, and reading it first costs."""

PREFETCH_ABOVE = 1 << 20
"""Bytes of a table from which its rows are asked for before they are read, if the output stays in the caches."""


@jit(fastmath=EXACT)
def _copy_rows_cached(out, weight, indices, start, stop):
    """Copy rows of contiguous elements, by overlapping vectors: faster than a mask for the last one."""
    zero = weight.dtype.type(0)
    wide, line = simd.wide(zero), simd.line(zero)
    row_bytes = np.uintp(weight.shape[1] * weight.itemsize)
    base, stride = simd.address(weight), np.uintp(weight.strides[0])
    out_stride = np.uintp(out.strides[0])
    target = simd.address(out) + np.uintp(start) * out_stride
    ahead = ahead_of(row_bytes)
    last_ahead = np.uintp(max(stop - ahead, 0) if weight.size * weight.itemsize > PREFETCH_ABOVE else 0)
    for k in range(np.uintp(start), np.uintp(stop)):  # unsigned: Numba wraps signed positions around
        if k < last_ahead:
            prefetch(base + np.uintp(indices[k + np.uintp(ahead)]) * stride, row_bytes)
        source = base + np.uintp(indices[k]) * stride
        at = np.uintp(0)
        while at + np.uintp(simd.WIDE) <= row_bytes:
            simd.store(target + at, simd.load(source + at, wide))
            at += np.uintp(simd.WIDE)
        while at + np.uintp(simd.LINE) <= row_bytes:
            simd.store(target + at, simd.load(source + at, line))
            at += np.uintp(simd.LINE)
        if at < row_bytes:
            if at > 0:  # a whole vector that ends with the row, over what is there already
                at = row_bytes - np.uintp(simd.LINE)
                simd.store(target + at, simd.load(source + at, line))
            else:
                n = np.int64(row_bytes // np.uintp(weight.itemsize))
                simd.store_first(target, simd.load_first(source, line, n), n)
        target += out_stride


@jit(fastmath=EXACT)
def _copy_rows_streamed(out, weight, indices, start, stop):
    """Copy rows of contiguous elements, of a cache line at least, past the caches: every line of `out` once and whole.

    Where rows do not begin at lines, the end of one and the begin of the next meet in a register. Each line is copied
    beside the request for one of a row to come: many requests at once wait for each other.
    """
    line = simd.line(weight.dtype.type(0))
    item = np.uintp(weight.itemsize)
    row_bytes = np.uintp(weight.shape[1] * weight.itemsize)
    base, stride = simd.address(weight), np.uintp(weight.strides[0])
    target = simd.address(out) + np.uintp(start) * row_bytes
    ahead, last = np.uintp(ahead_of(row_bytes)), np.uintp(stop - 1)
    carried, count = line, np.int64(0)  # the end of the row before, and how many numbers that is
    for k in range(np.uintp(start), np.uintp(stop)):
        source = base + np.uintp(indices[k]) * stride
        coming = base + np.uintp(indices[min(k + ahead, last)]) * stride
        simd.prefetch(coming)  # and its last line, which the loop may not reach
        simd.prefetch(coming + row_bytes - np.uintp(1))
        at = (np.uintp(0) - target) & np.uintp(simd.LINE - 1)
        if at > 0:
            if k > np.uintp(start):
                whole = simd.load_after(source, carried, count)
                simd.stream(target + at - np.uintp(simd.LINE), whole)
            else:
                n = np.int64(at // item)
                simd.store_first(target, simd.load_first(source, line, n), n)
        while at + np.uintp(simd.LINE) <= row_bytes:
            simd.prefetch(coming + at)
            simd.stream(target + at, simd.load(source + at, line))
            at += np.uintp(simd.LINE)
        count = np.int64((row_bytes - at) // item)
        if count > 0:
            carried = simd.load_first(source + at, line, count)
        target += row_bytes
    if count > 0:
        simd.store_first(target - np.uintp(count) * item, carried, count)
    simd.fence()


@jit(fastmath=EXACT)
def _copy_rows(out, weight, indices, start, stop, large):
    streamed = large and out.strides[0] == out.shape[1] * out.itemsize
    if weight.shape[1] > 1 and weight.strides[1] != weight.itemsize:
        for k in range(start, stop):
            row = np.int64(indices[k])
            for j in range(weight.shape[1]):
                out[k, j] = weight[row, j]
    elif streamed and weight.shape[1] * weight.itemsize >= simd.LINE:
        _copy_rows_streamed(out, weight, indices, start, stop)
    else:
        _copy_rows_cached(out, weight, indices, start, stop)


@jit(fastmath=EXACT)
def gather_range(out, weight, indices, start, stop):
    """Look rows up: ``out[k, :] = weight[indices[k], :]`` for k in ``[start, stop)``.

    Parameters
    ----------
    out : (L, D), dtype of weight, each row contiguous
        Rows ``start`` to ``stop`` are written, nothing between them. Must not overlap ``weight``.
    weight : (N, D) float32 or float64
        The table; any strides, never written.
    indices : (L,) int32 or int64
        Never written.
    start, stop : int
        The part of the positions to do.

    Returns
    -------
    int
        Position of the first index outside ``[0, N)`` among them, nothing written then; or -1.

    Notes
    -----
    Moves ``2 * (stop - start) * D * itemsize`` bytes and the indices. No arithmetic: bits are copied. An output above
    `STREAM_ABOVE` bytes whose rows lie one after the other is written past the caches.
    """
    bad = first_bad(indices, weight.shape[0], start, stop)
    if bad < 0:
        _copy_rows(out, weight, indices, start, stop, (stop - start) * out.shape[1] * out.itemsize > STREAM_ABOVE)
    return bad


@jit(fastmath=EXACT, parallel=True)
def _gather_parallel(out, weight, indices, parts):
    bad = first_bad_in_parts(indices, weight.shape[0], parts)
    if bad >= 0:
        return bad
    total = indices.size
    large = out.size * out.itemsize > STREAM_ABOVE
    for c in numba.prange(parts):
        _copy_rows(out, weight, indices, part(total, c, parts), part(total, c + 1, parts), large)
    return -1


def gather(out: NDArray[Any], weight: NDArray[Any], indices: NDArray[Any]) -> int:
    """Look rows up, over threads: ``out[k, :] = weight[indices[k], :]``.

    Parameters and result as `gather_range`, for all L positions.
    """
    parts = threads.chunks(out.nbytes)
    if parts == 1:
        return gather_range(out, weight, indices, 0, indices.size)
    with threads.region():
        return _gather_parallel(out, weight, indices, parts)
