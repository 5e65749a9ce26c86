"""The check that comes before every read and write."""

import numba
import numpy as np

from .jit import EXACT, jit


@jit(fastmath=EXACT)
def first_bad(indices, num_rows, start, stop):
    """Position of the first index outside ``[0, num_rows)`` among ``indices[start:stop]``, or -1.

    Parameters
    ----------
    indices : (L,) int32 or int64
        Never written.
    num_rows : int
        N, at least 0.
    start, stop : int
        The part to look at, ``0 <= start <= stop <= L``.

    Returns
    -------
    int
        A position in ``indices``, or -1 when all are in range.

    Notes
    -----
    As an unsigned number a negative index is greater than every N. The first loop has no branch and runs in vector
    registers; it reads ``(stop - start) * itemsize`` bytes.
    """
    last = np.uint64(num_rows) - np.uint64(1)
    signs = np.uint64(0)  # the highest bit: of an index that is negative, or of last - index where that is
    for k in range(np.uintp(start), np.uintp(stop)):  # Numba wraps signed positions around, and LLVM then gives up
        index = np.uint64(np.int64(indices[k]))
        signs |= index | (last - index)
    if signs >> np.uint64(63):
        for k in range(start, stop):
            if np.uint64(np.int64(indices[k])) >= np.uint64(num_rows):
                return k
    return -1


@jit(fastmath=EXACT)
def any_bad(indices, num_rows):
    """Whether an index is outside ``[0, num_rows)``: `first_bad` for callers to whom a microsecond is long."""
    return first_bad(indices, num_rows, 0, indices.size) >= 0


@jit(fastmath=EXACT)
def part(total, number, parts):
    """Where the `number`-th of `parts` nearly equal ranges that make up ``range(total)`` begins."""
    return total * np.int64(number) // parts


APART_ABOVE = 1 << 14
"""Indices from which the check is worth threads."""


@jit(fastmath=EXACT, parallel=True)
def first_bad_in_parts(indices, num_rows, parts):
    """`first_bad` of all indices, over threads where they are many."""
    total = indices.size
    if total <= APART_ABOVE:
        return first_bad(indices, num_rows, 0, total)
    found = np.empty(parts, np.int64)
    for c in numba.prange(parts):
        found[c] = first_bad(indices, num_rows, part(total, c, parts), part(total, c + 1, parts))
    for c in range(parts):
        if found[c] >= 0:
            return found[c]
    return np.int64(-1)


@jit(fastmath=EXACT)
def close_offsets(bounds, offsets, size):
    """Write offsets and after them `size` into `bounds`; whether they begin with 0 and do not decrease."""
    last = np.int64(0)
    good = offsets.size == 0 or offsets[0] == 0
    for b in range(np.uintp(offsets.size)):
        offset = np.int64(offsets[b])
        good &= offset >= last
        bounds[b] = offset
        last = offset
    bounds[np.uintp(offsets.size)] = size
    return good and last <= size
