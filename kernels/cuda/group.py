"""Grouping of duplicate indices: distinct rows, and the positions of each, in a stable order."""

from typing import Any

import numpy as np

from . import check, launch
from .bag_grad import begin_bag_numbers
from .check import GOOD
from .intrin import block_dim_x, block_dim_y, block_x, grid_dim_x, thread_x, thread_y, u64

LAST_NARROW = np.iinfo(np.int32).max
"""The greatest N whose indices are sorted as int32: a radix sort takes 8 bits at a time, so that halves its passes."""


def cut_runs(rows, starts, positions, count, keys, order, number, flag, num_rows, origin):
    """Write what ends and begins at each place of the sorted `keys`; `number` says how many runs began before it.

    Padding has the key `num_rows` and lies at the end.
    """
    if flag[u64(0)] != GOOD:
        return
    k = (u64(block_x()) * u64(block_dim_y()) + u64(thread_y())) * u64(block_dim_x()) + u64(thread_x())
    step = u64(grid_dim_x()) * u64(block_dim_x()) * u64(block_dim_y())
    size = u64(order.size)
    while k < size:
        key = keys[k]
        kept = key < num_rows
        run = u64(number[k])
        begins = k == u64(0) or keys[k - u64(1)] != key
        last = k + u64(1) == size
        if kept:
            positions[k] = origin + order[k]
            if last or keys[k + u64(1)] != key:
                starts[run + u64(1)] = k + u64(1)
        if begins and kept:
            rows[run] = key
        if k == u64(0):
            starts[u64(0)] = 0
        if last:
            count[u64(0)] = run + u64(1) if kept else run
        k += step


def _sorted(indices: Any, num_rows: int, padding_idx: int) -> tuple[Any, Any, Any]:
    """(keys in order, where each stood, how many runs began before it)."""
    xp = launch.namespace(indices)
    dtype = np.dtype(np.int32 if num_rows <= LAST_NARROW else np.int64)
    keys = indices.astype(dtype, copy=False)
    if padding_idx >= 0:
        keys = xp.where(indices == padding_idx, dtype.type(num_rows), keys)
    order = xp.argsort(keys, kind="stable")
    keys = keys[order]
    new = xp.zeros(keys.size, np.int64)
    new[1:] = keys[1:] != keys[:-1]
    return keys, order, xp.cumsum(new)


def begin_group(
    rows: Any,
    starts: Any,
    positions: Any,
    count: Any,
    indices: Any,
    num_rows: int,
    padding_idx: int,
    origin: int,
    flag: Any = None,
) -> Any:
    """Start `group`, with positions counted from `origin`; the flag of its check, which nobody has waited for."""
    flag = check.begin(indices, num_rows, flag)
    if not indices.size:
        starts[:1] = 0
        count[:] = 0
        return flag
    grid, block = launch.teams(-(-indices.size // launch.GROUP), launch.GROUP)
    keys = _sorted(indices, num_rows, padding_idx)
    launch.run(cut_runs, grid, block, rows, starts, positions, count, *keys, flag, np.int64(num_rows), np.int64(origin))
    return flag


def grouped(indices: Any, num_rows: int, padding_idx: int) -> tuple[Any, tuple[Any, Any, Any]]:
    """The flag of the check and the count in one array, and (rows, starts, positions): nobody has waited for them."""
    xp, size = launch.namespace(indices), indices.size
    rows, starts, positions, answers = (xp.empty(n, np.int64) for n in (size, size + 1, size, 2))
    begin_group(rows, starts, positions, answers[1:], indices, num_rows, padding_idx, 0, answers[:1])
    return answers, (rows, starts, positions)


def group(rows: Any, starts: Any, positions: Any, count: Any, indices: Any, num_rows: int, padding_idx: int) -> int:
    """Group all L indices by value, as `fastemb.kernels.cpu.group` does.

    Parameters
    ----------
    rows : (L,) int64 ndarray of CuPy
        Output: U distinct indices, ascending.
    starts : (L + 1,) int64
        Output: U + 1 starts of runs, from 0.
    positions : (L,) int64
        Output: ``starts[U]`` positions.
    count : (1,) int64
        Output: U.
    indices : (L,) int32 or int64
        Never written.
    num_rows : int
        N.
    padding_idx : int
        Positions with this index are left out; -1 leaves none out.

    Returns
    -------
    int
        Position of the first index outside ``[0, N)``, nothing written then; or -1. See `check.mode`.

    Notes
    -----
    The array library's stable sort, a running sum, and one kernel that writes the outputs; the host waits for nothing
    but the check. Integers alone: the same result as on the CPU.
    """
    return check.answer(
        begin_group(rows, starts, positions, count, indices, num_rows, padding_idx, 0), indices, num_rows
    )


def group_range(
    rows: Any,
    starts: Any,
    positions: Any,
    count: Any,
    indices: Any,
    num_rows: int,
    padding_idx: int,
    start: int,
    stop: int,
) -> int:
    """`group` for the positions ``[start, stop)``."""
    part = indices[start:stop]
    flag = begin_group(rows, starts, positions, count, part, num_rows, padding_idx, start)
    bad = check.answer(flag, part, num_rows)
    return bad if bad < 0 else start + bad


def _begin_group_bags(rows, starts, numbers, count, indices, offsets, num_rows, padding_idx, origin):
    numbers = numbers[: indices.size]
    flag = begin_group(rows, starts, numbers, count, indices, num_rows, padding_idx, origin)
    begin_bag_numbers(numbers, numbers, offsets, flag)
    return flag


def group_bags(
    rows: Any,
    starts: Any,
    numbers: Any,
    count: Any,
    indices: Any,
    offsets: Any,
    num_rows: int,
    padding_idx: int,
) -> int:
    """Group all L indices by value, as bags, as `fastemb.kernels.cpu.group_bags` does.

    Parameters
    ----------
    rows : (L,) int64 ndarray of CuPy
        Output: U distinct indices, ascending.
    starts : (L + 1,) int64
        Output: U + 1 starts of runs, from 0.
    numbers : (L,) int64
        Output: ``starts[U]`` bags; what lies behind them may be written.
    count : (1,) int64
        Output: U.
    indices : (L,) int32 or int64
        Never written.
    offsets : (B + 1,) int64
        Where bags begin, and the last one ends; from 0 to L, not decreasing.
    num_rows : int
        N.
    padding_idx : int
        Positions with this index are left out; -1 leaves none out.

    Returns
    -------
    int
        Position of the first index outside ``[0, N)``, nothing written then; or -1. See `check.mode`.

    Notes
    -----
    `group`, then a binary search for each position; the host waits for nothing but the check.
    """
    flag = _begin_group_bags(rows, starts, numbers, count, indices, offsets, num_rows, padding_idx, 0)
    return check.answer(flag, indices, num_rows)


def group_bags_range(
    rows: Any,
    starts: Any,
    numbers: Any,
    count: Any,
    indices: Any,
    offsets: Any,
    num_rows: int,
    padding_idx: int,
    start: int,
    stop: int,
) -> int:
    """`group_bags` for the positions ``[start, stop)``."""
    part = indices[start:stop]
    flag = _begin_group_bags(rows, starts, numbers, count, part, offsets, num_rows, padding_idx, start)
    bad = check.answer(flag, part, num_rows)
    return bad if bad < 0 else start + bad
