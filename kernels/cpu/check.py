"""The check that comes before every read and write."""

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
    As an unsigned number a negative index is greater than every N, so one comparison finds both kinds. The first loop
    has no branch and runs in vector registers; it reads ``(stop - start) * itemsize`` bytes.
    """
    limit = np.uint64(num_rows)
    bad = False
    for k in range(start, stop):
        bad |= np.uint64(np.int64(indices[k])) >= limit
    if bad:
        for k in range(start, stop):
            if np.uint64(np.int64(indices[k])) >= limit:
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
