"""Row lookup: ``out[k, :] = weight[indices[k], :]``."""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from . import simd, threads
from .check import first_bad, first_bad_in_parts, part
from .jit import EXACT, jit
from .rows import prefetch

STREAM_ABOVE = 8 << 20
"""Bytes of output from which rows are written past the caches: it would not stay there, and reading it first costs."""

STREAM_ROWS_ABOVE = 512
"""Bytes of a row from which that pays although rows do not begin at cache lines."""

AHEAD = 8
"""Rows between the one that is copied and the one that is asked for, in a table above `PREFETCH_ABOVE` bytes."""

PREFETCH_ABOVE = 1 << 20

PREFETCH_BYTES = 256
"""Of a row: the machine itself goes on with the rest of a longer one."""


@jit(fastmath=EXACT, inline=True)
def _store(where, vector):
    simd.store(where, vector)


@jit(fastmath=EXACT, inline=True)
def _stream(where, vector):
    simd.stream(where, vector)


@jit(fastmath=EXACT, inline=True)
def _no_head(target, row_bytes):
    return np.uintp(0)


@jit(fastmath=EXACT, inline=True)
def _head_to_line(target, row_bytes):
    """Bytes before the first cache line that begins in the row."""
    return min((np.uintp(0) - target) & np.uintp(simd.LINE - 1), row_bytes)


def _row_copier(put, head_of):
    """Make the loop over positions for rows of contiguous elements: whole vectors by `put`, ends by masked stores.

    With `overlapping` the last vector may reach back over the one before: faster than a mask, but a line that was
    streamed must not be written again.
    """

    @jit(fastmath=EXACT)
    def copy_rows(out, weight, indices, start, stop, overlapping):
        zero = weight.dtype.type(0)
        wide, line = simd.wide(zero), simd.line(zero)
        item = np.uintp(weight.itemsize)
        row_bytes = np.uintp(weight.shape[1]) * item
        base, stride = simd.address(weight), np.uintp(weight.strides[0])
        target = simd.address(out) + np.uintp(start) * row_bytes
        ahead_bytes = min(row_bytes, np.uintp(PREFETCH_BYTES))
        far = weight.size * weight.itemsize > PREFETCH_ABOVE
        last_ahead = np.uintp(max(stop - AHEAD, 0) if far else 0)
        for k in range(np.uintp(start), np.uintp(stop)):  # unsigned: Numba wraps signed positions around
            if k < last_ahead:
                coming = base + np.uintp(indices[k + np.uintp(AHEAD)]) * stride
                prefetch(coming, ahead_bytes)
            source = base + np.uintp(indices[k]) * stride
            at = head_of(target, row_bytes)
            if at > 0:
                n = np.int64(at // item)
                simd.store_first(target, simd.load_first(source, line, n), n)
            while at + np.uintp(simd.WIDE) <= row_bytes:
                put(target + at, simd.load(source + at, wide))
                at += np.uintp(simd.WIDE)
            while at + np.uintp(simd.LINE) <= row_bytes:
                put(target + at, simd.load(source + at, line))
                at += np.uintp(simd.LINE)
            if at < row_bytes:
                if overlapping and at > 0:  # a whole vector that ends with the row, over what is there already
                    at = row_bytes - np.uintp(simd.LINE)
                    simd.store(target + at, simd.load(source + at, line))
                else:
                    n = np.int64((row_bytes - at) // item)
                    simd.store_first(target + at, simd.load_first(source + at, line, n), n)
            target += row_bytes

    return copy_rows


_copy_rows_cached = _row_copier(_store, _no_head)
_copy_rows_streamed = _row_copier(_stream, _head_to_line)


@jit(fastmath=EXACT)
def _worth_streaming(out):
    row_bytes = np.uintp(out.shape[1] * out.itemsize)
    aligned = (simd.address(out) | row_bytes) & np.uintp(simd.LINE - 1) == 0
    return aligned or row_bytes >= STREAM_ROWS_ABOVE


@jit(fastmath=EXACT)
def _copy_rows(out, weight, indices, start, stop, streamed):
    if weight.shape[1] > 1 and weight.strides[1] != weight.itemsize:
        for k in range(start, stop):
            row = np.int64(indices[k])
            for j in range(weight.shape[1]):
                out[k, j] = weight[row, j]
    elif streamed and _worth_streaming(out):
        _copy_rows_streamed(out, weight, indices, start, stop, False)
        simd.fence()
    else:
        _copy_rows_cached(out, weight, indices, start, stop, True)


@jit(fastmath=EXACT)
def gather_range(out, weight, indices, start, stop):
    """Look rows up: ``out[k, :] = weight[indices[k], :]`` for k in ``[start, stop)``.

    Parameters
    ----------
    out : (L, D), dtype of weight, C-contiguous
        Rows ``start`` to ``stop`` are written. Must not overlap ``weight``.
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
    `STREAM_ABOVE` bytes is written past the caches.
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
    streamed = out.size * out.itemsize > STREAM_ABOVE
    for c in numba.prange(parts):
        _copy_rows(out, weight, indices, part(total, c, parts), part(total, c + 1, parts), streamed)
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
