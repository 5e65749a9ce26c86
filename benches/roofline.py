"""What the machine can do: memory copied past the caches, rows read, and rows scaled where they are."""

import functools
import itertools

import numba
import numpy as np

import fastemb
from fastemb.kernels.cpu import arithmetic, simd
from fastemb.kernels.cpu.jit import EXACT, jit
from fastemb.kernels.cpu.rows import prefetch
from fastemb.kernels.cpu.runs import AHEAD

FAR = 1 << 28
"""Bytes between two uses of the same memory where no cache is to hold it, as between batches in training."""

WHOLE = 1 << 12
"""Bytes of which a copy reads and writes a multiple: some for each thread."""


@jit(fastmath=EXACT, parallel=True)
def _stream_copy(target, source, nread, bounds):
    like = simd.wide(np.float32(0))
    for c in numba.prange(bounds.size - 1):
        at, end = np.uintp(bounds[c]), np.uintp(bounds[c + 1])
        begin = np.uintp(nread * c // (bounds.size - 1) // simd.WIDE * simd.WIDE)
        stop = np.uintp(nread * (c + 1) // (bounds.size - 1) // simd.WIDE * simd.WIDE)
        of = begin
        while at < end:
            simd.stream(simd.address(target) + at, simd.load(simd.address(source) + of, like))
            at += np.uintp(simd.WIDE)
            of += np.uintp(simd.WIDE)
            if of >= stop:
                of = begin
        simd.fence()


def in_rotation(calls):
    """A call of the next of several every time."""
    rotation = itertools.cycle(calls)
    return lambda: next(rotation)()


def times_to_pass(nbytes):
    """How many pieces of memory of so many bytes make up `FAR`."""
    return max(1, -(-FAR // max(nbytes, WHOLE)))


def streaming_copy(nwritten, nread=None):
    """(target, call): a copy of ones past the caches, by as many threads as Numba is set to.

    It writes `nwritten` bytes and reads as many, or `nread` of these again and again, each to a multiple of `WHOLE`;
    the next call reads others, which no cache holds.
    """
    parts = numba.get_num_threads()
    nwritten, nread = (max(1, nbytes // WHOLE) * WHOLE for nbytes in (nwritten, nwritten if nread is None else nread))
    nread = min(nread, nwritten)
    # from recycled memory, which begins at a cache line unless it is small
    target = fastemb.buffers.empty((max(nwritten, fastemb.buffers.SMALLEST) // 4,), np.dtype(np.float32))
    source = fastemb.buffers.empty((times_to_pass(nread), nread // 4), np.dtype(np.float32))
    source[:] = 1
    bounds = np.array([nwritten // simd.WIDE * c // parts * simd.WIDE for c in range(parts + 1)])
    calls = [functools.partial(_stream_copy, target, part, nread, bounds) for part in source]
    return target[: nwritten // 4], in_rotation(calls)


@jit(fastmath=EXACT, parallel=True)
def _scale_rows(table, rows, factor, bounds):
    start, stride = simd.address(table), np.uintp(table.strides[0])
    row_bytes = np.uintp(table.shape[1] * table.itemsize)
    factors = simd.line(factor)
    for c in numba.prange(bounds.size - 1):
        end = np.uintp(bounds[c + 1])
        for u in range(np.uintp(bounds[c]), end):
            if u + np.uintp(AHEAD) < end:
                prefetch(start + np.uintp(rows[u + np.uintp(AHEAD)]) * stride, row_bytes)
            at = start + np.uintp(rows[u]) * stride
            stop = at + row_bytes
            while at < stop:
                simd.store(at, arithmetic.mul(simd.load(at, factors), factors))
                at += np.uintp(simd.LINE)


@jit(fastmath=EXACT, parallel=True)
def _scale_numbers(column, rows, factor, bounds):
    start, stride = simd.address(column), np.uintp(column.strides[0])
    for c in numba.prange(bounds.size - 1):
        last = np.uintp(bounds[c + 1] - 1)
        for u in range(np.uintp(bounds[c]), np.uintp(bounds[c + 1])):
            simd.prefetch(start + np.uintp(rows[min(u + np.uintp(AHEAD), last)]) * stride)
            at = start + np.uintp(rows[u]) * stride
            simd.store_number(at, simd.number(at, factor) * factor)


def scaling(tables, rows, factor=1):
    """A call that multiplies rows of each table: every row is read and written once, and nothing else is.

    By as many threads as Numba is set to; rows are one number, or a multiple of `simd.LINE` bytes.
    """
    parts = numba.get_num_threads()
    bounds = np.array([rows.size * c // parts for c in range(parts + 1)])

    def call():
        for table in tables:
            scale = _scale_rows if table.shape[1] > 1 else _scale_numbers
            scale(table, rows, table.dtype.type(factor), bounds)

    return call


@jit(fastmath=EXACT, parallel=True)
def _read_rows(sums, out, table, ids, bounds):
    start, stride = simd.address(table), np.uintp(table.strides[0])
    row_bytes = np.uintp(table.shape[1] * table.itemsize)
    whole = row_bytes - row_bytes % np.uintp(simd.LINE)
    left = np.int64((row_bytes - whole) // np.uintp(table.itemsize))
    for c in numba.prange(bounds.size - 1):
        last, total = np.uintp(bounds[c + 1] - 1), simd.line(table.dtype.type(0))
        ones = simd.line(table.dtype.type(1))
        share = out.size * bounds[c] // ids.size, out.size * bounds[c + 1] // ids.size
        in_line = simd.lanes(ones)
        to, written = np.uintp(share[0] // in_line * simd.LINE), np.uintp(share[1] // in_line * simd.LINE)
        for k in range(np.uintp(bounds[c]), np.uintp(bounds[c + 1])):
            row = start + np.uintp(ids[k]) * stride
            coming = start + np.uintp(ids[min(k + np.uintp(AHEAD), last)]) * stride
            at = np.uintp(0)
            while at < whole:
                simd.prefetch(coming + at)
                total = arithmetic.add(total, simd.load(row + at, total))
                if to < written:
                    simd.stream(simd.address(out) + to, ones)
                    to += np.uintp(simd.LINE)
                at += np.uintp(simd.LINE)
            if left > 0:
                simd.prefetch(coming + at)
                total = arithmetic.add(total, simd.load_first(row + at, total, left))
            simd.prefetch(coming + row_bytes - np.uintp(1))
        while to < written:  # what is left where rows are not whole lines
            simd.stream(simd.address(out) + to, ones)
            to += np.uintp(simd.LINE)
        sums[c] = arithmetic.sum_lanes(total)
        simd.fence()


def reading(table, ids, out=None):
    """A call that reads rows of a table, one for each index, and does no more with them than add all numbers.

    Meanwhile it writes ones past the caches to `out`, a contiguous array that begins at a cache line: as much as a
    lookup has to move, but none of what it writes waits for what it reads. By as many threads as Numba is set to.
    """
    parts = numba.get_num_threads()
    bounds = np.array([ids.size * c // parts for c in range(parts + 1)])
    written = np.empty(0, table.dtype) if out is None else out.reshape(-1)
    return functools.partial(_read_rows, np.empty(parts, table.dtype), written, table, ids, bounds)
