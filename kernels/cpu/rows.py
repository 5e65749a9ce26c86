"""What kernels do with the bytes of a row."""

import numpy as np

from . import simd
from .jit import EXACT, jit

AHEAD_BYTES = 1 << 15
"""How far the rows that are asked for run ahead of the one that is worked on."""

NEAREST, FARTHEST = 4, 32
"""Limits of that in rows."""


@jit(fastmath=EXACT, inline=True)
def ahead_of(row_bytes):
    """How many rows ahead to ask for one of so many bytes."""
    return max(NEAREST, min(FARTHEST, AHEAD_BYTES // (np.int64(row_bytes) + 1)))


@jit(fastmath=EXACT, inline=True)
def prefetch(start, nbytes):
    """Ask for the cache lines of `nbytes` from an address."""
    at, end = start - start % np.uintp(simd.LINE), start + nbytes
    while at < end:
        simd.prefetch(at)
        at += np.uintp(simd.LINE)


@jit(fastmath=EXACT, inline=True)
def load_all(where, like, count):
    """The vector at an address; takes a count as `load_first` does."""
    return simd.load(where, like)


@jit(fastmath=EXACT, inline=True)
def store_all(where, vector, count):
    """Write a vector; takes a count as `store_first` does."""
    simd.store(where, vector)


@jit(fastmath=EXACT, inline=True)
def load_first(where, like, count):
    """`simd.load_first`, to be passed on."""
    return simd.load_first(where, like, count)


@jit(fastmath=EXACT, inline=True)
def store_first(where, vector, count):
    """`simd.store_first`, to be passed on."""
    simd.store_first(where, vector, count)
