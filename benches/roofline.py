"""What the machine can do: memory copied past the caches, and rows scaled where they are."""

import functools

import numba
import numpy as np

import fastemb
from fastemb.kernels.cpu import simd
from fastemb.kernels.cpu.jit import EXACT, jit
from fastemb.kernels.cpu.rows import prefetch
from fastemb.kernels.cpu.runs import AHEAD


@jit(fastmath=EXACT, parallel=True)
def _stream_copy(target, source, bounds):
    like = simd.wide(np.float32(0))
    for c in numba.prange(bounds.size - 1):
        at, end = np.uintp(bounds[c]), np.uintp(bounds[c + 1])
        while at < end:
            simd.stream(simd.address(target) + at, simd.load(simd.address(source) + at, like))
            at += np.uintp(simd.WIDE)
        simd.fence()


def streaming_copy(nbytes):
    """(source, target, call): a copy past the caches, by as many threads as Numba is set to."""
    nbytes -= nbytes % simd.WIDE
    size = max(nbytes, fastemb.buffers.SMALLEST) // 4 + 1024  # smaller ones do not begin at a cache line
    source, target = (fastemb.buffers.empty((size,), np.dtype(np.float32)) for _ in range(2))
    source[:], target[:] = 1, 2
    parts = numba.get_num_threads()
    bounds = np.array([nbytes // simd.WIDE * c // parts * simd.WIDE for c in range(parts + 1)])
    return source, target, functools.partial(_stream_copy, target, source, bounds)


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
                simd.store(at, simd.mul(simd.load(at, factors), factors))
                at += np.uintp(simd.LINE)


def scaling(tables, rows):
    """A call that multiplies rows of each table by 1: every row is read and written once, and nothing else is.

    By as many threads as Numba is set to; rows are a multiple of `simd.LINE` bytes.
    """
    parts = numba.get_num_threads()
    bounds = np.array([rows.size * c // parts for c in range(parts + 1)])

    def call():
        for table in tables:
            _scale_rows(table, rows, table.dtype.type(1), bounds)

    return call
