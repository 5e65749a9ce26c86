"""Shrinking of rows whose norm exceeds a limit."""

import functools
from typing import Any

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from .. import accumulator
from ..cpu.jit import EXACT, jit
from ..cpu.renorm import SMALLEST_SUM
from . import check, launch
from .check import GOOD
from .intrin import (
    block_dim_x,
    block_dim_y,
    block_x,
    div_rn,
    grid_dim_x,
    lane,
    larger,
    load,
    mul_rn,
    shuffle_xor,
    store,
    thread_x,
    thread_y,
    u32,
    u64,
)
from .launch import team_mask

INF = np.inf

# What of an element is summed, and the norm that comes of the sum, or of the greatest element


@jit(fastmath=EXACT, inline=True)
def _itself(x, norm_type):
    return x


@jit(fastmath=EXACT, inline=True)
def _sum(total, largest, norm_type):
    return total


@jit(fastmath=EXACT, inline=True)
def _square(x, norm_type):
    return x * x


@jit(fastmath=EXACT, inline=True)
def _square_root(total, largest, norm_type):
    return np.sqrt(total)


@jit(fastmath=EXACT, inline=True)
def _one(x, norm_type):
    return 1.0


@jit(fastmath=EXACT, inline=True)
def _largest(total, largest, norm_type):
    return largest


@jit(fastmath=EXACT, inline=True)
def _power(x, norm_type):
    return x**norm_type


@jit(fastmath=EXACT, inline=True)
def _root(total, largest, norm_type):
    return total ** (1.0 / norm_type)


NORMS = {1.0: (_itself, _sum), 2.0: (_square, _square_root), np.inf: (_one, _largest)}
"""Norm types that need no power, by far the slowest of what a kernel does."""


@functools.cache
def make_renorm(n, number, raised, root):
    """The kernel for `n` elements an access, which is of type `number` once loaded: `block_dim_x` threads for a row."""

    def renorm(weight, rows, max_norm, norm_type, flag, columns):
        if flag[u64(0)] != GOOD:
            return
        count, columns = u64(rows.size), u64(columns)
        team = block_dim_x()
        mask = team_mask(lane(), team)
        stride = u64(grid_dim_x()) * u64(block_dim_y())
        r = u64(block_x()) * u64(block_dim_y()) + u64(thread_y())
        step = u64(u32(team * u32(n)))
        first = u64(u32(thread_x() * u32(n)))
        while r < count:
            row = u64(rows[r]) * columns
            scale, norm, unknown = 1.0, 0.0, True
            while unknown:
                total, largest = 0.0, 0.0
                c = first
                while c < columns:
                    for value in load(weight, row + c, n):
                        x = abs(types.float64(value))
                        largest = larger(largest, x)
                        # A division costs more than all the rest, and the first sum hardly ever needs another.
                        total += raised(x if scale == 1.0 else div_rn(x, scale), norm_type)
                    c += step
                apart = team >> u32(1)
                while apart:
                    total += shuffle_xor(mask, total, apart)
                    largest = larger(largest, shuffle_xor(mask, largest, apart))
                    apart = apart >> u32(1)
                # Powers that left the range of float64: in units of the greatest element they cannot.
                unknown = scale == 1.0 and 0.0 < largest < INF and not SMALLEST_SUM <= total < INF
                norm = scale * root(total, largest, norm_type)
                scale = largest
            if norm > max_norm:
                factor = number(div_rn(max_norm, norm + 1e-7))
                c = first
                while c < columns:
                    store(weight, row + c, mul_rn(load(weight, row + c, n), factor))
                    c += step
            r += stride

    return renorm


def renorm(weight: Any, rows: Any, max_norm: float, norm_type: float) -> int:
    """Shrink rows: ``W[r] *= max_norm / (norm + 1e-7)`` where ``norm = (sum |W[r]|**p)**(1/p) > max_norm``.

    Parameters
    ----------
    weight : (N, D) ndarray of CuPy, float16, float32 or float64
        Changed in place at `rows` alone, C-contiguous; a row at or below the limit, or with NaN, keeps its bits.
    rows : (U,) int32 or int64
        Distinct rows.
    max_norm : float
        The limit, at least 0.
    norm_type : float
        p > 0; infinity is the largest absolute value.

    Returns
    -------
    int
        First u with ``rows[u]`` outside ``[0, N)``, nothing written then; or -1. See `check.mode`.

    Notes
    -----
    Norms are float64 sums; the product is in float32 for float16. Moves ``2 * U * D * itemsize`` bytes. The bits do not
    depend on the grid, but the order of the sum follows the width of an access, so D and where `weight` begins.
    """
    flag = check.begin(rows, weight.shape[0])
    columns = weight.shape[1]
    if rows.size and columns:
        n = launch.width(columns, weight)
        pieces = NORMS.get(float(norm_type), (_power, _root))
        grid, block = launch.teams(rows.size, launch.lanes(columns, n))
        kernel = make_renorm(n, from_dtype(accumulator(weight.dtype)), *pieces)
        limits = np.float64(max_norm), np.float64(norm_type)
        launch.run(kernel, grid, block, weight, rows, *limits, flag, np.uint64(columns))
    return check.answer(flag, rows, weight.shape[0])


def renorm_range(weight: Any, rows: Any, max_norm: float, norm_type: float, start: int, stop: int) -> int:
    """`renorm` for ``rows[start:stop]``."""
    bad = renorm(weight, rows[start:stop], max_norm, norm_type)
    return bad if bad < 0 else start + bad
