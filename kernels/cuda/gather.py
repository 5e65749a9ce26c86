"""Row lookup: ``out[k, :] = weight[indices[k], :]``."""

import functools
from typing import Any

import numpy as np

from . import check, launch
from .check import GOOD
from .intrin import (
    block_dim_x,
    block_dim_y,
    block_x,
    grid_dim_x,
    load_stream,
    store_stream,
    thread_x,
    thread_y,
    u32,
    u64,
)

AT_ONCE = 4
"""Rows that a thread asks for before it writes the first: loads of one would leave the memory idle."""


@functools.cache
def make_gather(n):
    """The kernel for `n` elements an access: `block_dim_x` threads for a row, four rows of each in flight."""

    def gather(out, weight, indices, flag, columns):
        if flag[u64(0)] != GOOD:
            return
        rows, columns = u64(indices.size), u64(columns)
        stride = u64(grid_dim_x()) * u64(block_dim_y())
        r = u64(block_x()) * u64(block_dim_y()) + u64(thread_y())
        step = u64(u32(block_dim_x() * u32(n)))
        first = u64(u32(thread_x() * u32(n)))
        while r + u64(3) * stride < rows:
            r1 = r + stride
            r2 = r1 + stride
            r3 = r2 + stride
            s0, s1 = u64(indices[r]) * columns, u64(indices[r1]) * columns
            s2, s3 = u64(indices[r2]) * columns, u64(indices[r3]) * columns
            c = first
            while c < columns:
                v0, v1 = load_stream(weight, s0 + c, n), load_stream(weight, s1 + c, n)
                v2, v3 = load_stream(weight, s2 + c, n), load_stream(weight, s3 + c, n)
                store_stream(out, r * columns + c, v0)
                store_stream(out, r1 * columns + c, v1)
                store_stream(out, r2 * columns + c, v2)
                store_stream(out, r3 * columns + c, v3)
                c += step
            r = r3 + stride
        while r < rows:
            source = u64(indices[r]) * columns
            c = first
            while c < columns:
                store_stream(out, r * columns + c, load_stream(weight, source + c, n))
                c += step
            r += stride

    return gather


def _as_words(*arrays: Any) -> tuple[Any, ...]:
    """The arrays as 32-bit words, if their rows are made of whole ones: bits are copied, whatever they mean."""
    whole = all(a.shape[1] * a.dtype.itemsize % 4 == 0 and launch.address(a) % 4 == 0 for a in arrays)
    return tuple(a.view(np.uint32) for a in arrays) if whole and arrays[0].shape[1] else arrays


def gather(out: Any, weight: Any, indices: Any) -> int:
    """Look rows up: ``out[k, :] = weight[indices[k], :]``.

    Parameters
    ----------
    out : (L, D) ndarray of CuPy, dtype of weight
        Written. Must not overlap ``weight``.
    weight : (N, D) float16, float32 or float64
        The table, C-contiguous, never written.
    indices : (L,) int32 or int64
        Never written.

    Returns
    -------
    int
        Position of the first index outside ``[0, N)``, nothing written then; or -1. See `check.mode`.

    Notes
    -----
    Moves ``2 * L * D * itemsize`` bytes and the indices, 16 bytes an access where rows allow it. Bits are copied.
    """
    flag = check.begin(indices, weight.shape[0])
    words, table = _as_words(out, weight)
    columns = table.shape[1]
    if out.size:
        n = launch.width(columns, words, table)
        grid, block = launch.teams(indices.size, launch.lanes(columns, n), AT_ONCE)
        launch.run(make_gather(n), grid, block, words, table, indices, flag, np.uint64(columns))
    return check.answer(flag, indices, weight.shape[0])


def gather_range(out: Any, weight: Any, indices: Any, start: int, stop: int) -> int:
    """`gather` for the positions ``[start, stop)``."""
    bad = gather(out[start:stop], weight, indices[start:stop])
    return bad if bad < 0 else start + bad
