"""Many rows folded into one by a thread that asks for several of them before it uses the first.

Pieces of kernels, made for a count of rows: two halves of a count make the whole, so nothing is written twice.
"""

import functools
from typing import Any

from .intrin import SIMULATED, cuda, load_stream, u64

_forced = {} if SIMULATED else {"forceinline": True}

device_function: Any = functools.partial(cuda.jit, device=True, **_forced)
"""Make a piece of kernels: it is copied into each, as a call would keep its rows in memory."""


@functools.cache
def make_ask(n, count, weighted=False):
    """`n` columns of the rows at `count` positions: a tuple of (position, index, factor or None, columns)."""
    if count == 1:

        def ask(weight, indices, factors, k, c, columns):
            row = indices[k]
            factor = factors[k] if weighted else None
            return ((k, row, factor, load_stream(weight, u64(row) * u64(columns) + u64(c), n)),)

    else:
        half, ahead = make_ask(n, count // 2, weighted), count // 2

        def ask(weight, indices, factors, k, c, columns):
            first = half(weight, indices, factors, k, c, columns)
            return first + half(weight, indices, factors, k + u64(ahead), c, columns)

    return device_function(ask)


@functools.cache
def make_each(do, count):
    """``total = do(total, row, padding)`` for each row of `make_ask`, in their order."""
    if count == 1:

        def each(total, asked, padding):
            return do(total, asked[0], padding)

    else:
        half, ahead = make_each(do, count // 2), count // 2

        def each(total, asked, padding):
            return half(half(total, asked[:ahead], padding), asked[ahead:], padding)

    return device_function(each)


@functools.cache
def _make_fold_rest(do, n, count, weighted):
    """`make_fold` for fewer than twice `count` positions."""
    ask, each = make_ask(n, count, weighted), make_each(do, count)
    rest = _make_fold_rest(do, n, count // 2, weighted) if count > 1 else None

    def fold_rest(total, weight, indices, factors, k, end, c, columns, padding):
        if k + u64(count) <= end:
            total = each(total, ask(weight, indices, factors, k, c, columns), padding)
            k = k + u64(count)
        if rest is not None:
            total = rest(total, weight, indices, factors, k, end, c, columns, padding)
        return total

    return device_function(fold_rest)


@functools.cache
def make_fold(do, n, count, weighted=False):
    """``total = do(total, row, padding)`` for the positions ``[k, end)``, `count` of them in flight; a power of two."""
    ask, each = make_ask(n, count, weighted), make_each(do, count)
    rest = _make_fold_rest(do, n, count // 2, weighted)

    def fold(total, weight, indices, factors, k, end, c, columns, padding):
        while k + u64(count) <= end:
            total = each(total, ask(weight, indices, factors, k, c, columns), padding)
            k = k + u64(count)
        return rest(total, weight, indices, factors, k, end, c, columns, padding)

    return device_function(fold)
