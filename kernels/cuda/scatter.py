"""Scatter-add of rows where they stand, and sums over runs of grouped rows."""

import functools
from typing import Any

import numpy as np

from . import check, launch
from .check import GOOD
from .group import grouped
from .intrin import (
    block_dim_x,
    block_dim_y,
    block_x,
    grid_dim_x,
    load_stream,
    red_add,
    thread_x,
    thread_y,
    u32,
    u64,
)
from .rules import _segment_sum
from .runs import Pass, row_pass, start_row_pass

AT_ONCE = 4
"""Positions for each team of threads of an unordered sum: fewer blocks to start, and enough to fill a device."""

VECTOR_RED = 90
"""Compute capability from which several float32 are added to memory by one instruction."""

ADD = Pass(_segment_sum, onto_weight=True)
"""``target[rows[u]] = target[rows[u]] + (the rows of run u, one after the other)``."""


def scatter_add(target: Any, indices: Any, updates: Any) -> int:
    """Add rows in place: ``target[indices[k], :] += updates[k, :]``, each row in the order of k.

    Parameters
    ----------
    target : (N, D) float16, float32 or float64 ndarray of CuPy
        Changed in place, C-contiguous; float16 is summed in float32 and rounded once.
    indices : (L,) int32 or int64
        Never written.
    updates : (L, D) float16, float32 or float64, C-contiguous
        Not wider than `target`, must not overlap it.

    Returns
    -------
    int
        Position of the first index outside ``[0, N)``, nothing changed then; or -1. See `check.mode`.

    Notes
    -----
    Groups the indices, then adds each row's updates to it in registers: no atomics, and the host waits for nothing but
    the check. The same bits each time; those of ``numpy.add.at`` and of the CPU, unless more than
    `fastemb.kernels.SUM_BLOCK` updates go to one row: then each so many are first summed from 0. Takes ``5 * L``
    integers of scratch and ``L / 512`` rows.
    """
    num_rows = target.shape[0]
    answers, runs = grouped(indices, num_rows, -1)
    flag, count = answers[:1], answers[1:]
    none = launch.namespace(target).empty(0, target.dtype)
    start_row_pass(ADD, target, (), updates, runs, none, (), False, flag, count)
    return check.answer(flag, indices, num_rows)


def scatter_add_range(target: Any, indices: Any, updates: Any, start: int, stop: int) -> int:
    """`scatter_add` for the positions ``[start, stop)``."""
    bad = scatter_add(target, indices[start:stop], updates[start:stop])
    return bad if bad < 0 else start + bad


@functools.cache
def make_scatter_unordered(n, at_once):
    """The kernel that adds `n` elements of a row an access, `at_once` in one instruction."""

    def scatter_unordered(target, indices, updates, flag, columns):
        if flag[u64(0)] != GOOD:
            return
        columns = u64(columns)
        k = u64(block_x()) * u64(block_dim_y()) + u64(thread_y())
        while k < u64(indices.size):
            row = u64(indices[k])
            c = u64(u32(thread_x() * u32(n)))
            while c < columns:
                red_add(target, row * columns + c, load_stream(updates, k * columns + c, n), at_once)
                c += u64(u32(block_dim_x() * u32(n)))
            k += u64(grid_dim_x()) * u64(block_dim_y())

    return scatter_unordered


def scatter_add_unordered(target: Any, indices: Any, updates: Any) -> int:
    """Add rows in place as `scatter_add` does, in whatever order the device comes to them.

    Parameters
    ----------
    target : (N, D) float32 or float64 ndarray of CuPy
        Changed in place, C-contiguous.
    indices : (L,) int32 or int64
        Never written.
    updates : (L, D), dtype of target, C-contiguous
        Must not overlap `target`.

    Returns
    -------
    int
        Position of the first index outside ``[0, N)``, nothing changed then; or -1. See `check.mode`.

    Notes
    -----
    Nothing is sorted and no scratch is taken; several float32 in one instruction on devices that can. Sums of one row
    may have other bits each time, float32 sums flush subnormal numbers, and updates of one row wait for each other.
    """
    flag = check.begin(indices, target.shape[0])
    columns = target.shape[1]
    if updates.size:
        n = launch.width(columns, target, updates)
        at_once = n if target.dtype == np.float32 and launch.capability(target) >= VECTOR_RED else 1
        grid, block = launch.teams(indices.size, launch.lanes(columns, n), AT_ONCE)
        kernel = make_scatter_unordered(n, at_once)
        launch.run(kernel, grid, block, target, indices, updates, flag, np.uint64(columns))
    return check.answer(flag, indices, target.shape[0])


_segment_sum_range, _segment_sum_driver = row_pass(_segment_sum, __name__)


def segment_sum_range(
    values: Any,
    updates: Any,
    rows: Any,
    starts: Any,
    positions: Any,
    coefficients: Any,
    scale_grad_by_freq: bool,
    start: int,
    stop: int,
) -> int:
    """`segment_sum` for the runs ``[start, stop)``."""
    return _segment_sum_range(
        values, (), updates, rows, starts, positions, coefficients, (), scale_grad_by_freq, start, stop
    )


def segment_sum(
    values: Any,
    updates: Any,
    rows: Any,
    starts: Any,
    positions: Any,
    coefficients: Any,
    scale_grad_by_freq: bool,
) -> int:
    """Sum runs of rows, as `fastemb.kernels.cpu.segment_sum` does, with its parameters and its bits.

    `values` may be float16 too: sums are float32 then and rounded once.
    """
    return _segment_sum_driver(values, (), updates, rows, starts, positions, coefficients, (), scale_grad_by_freq)
