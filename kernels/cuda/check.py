"""The index check on the device, and when its answer comes back to the host."""

from typing import Any

import numpy as np

from .. import checking
from . import launch
from .intrin import atomic_min, block_dim_x, block_dim_y, block_x, grid_dim_x, thread_x, thread_y, u64

GOOD = np.iinfo(np.int64).max
"""What a flag holds while no index is bad; else the first position of one."""

mode = checking.mode
"""When a bad index is reported: see `fastemb.kernels.checking.mode`."""


def find_bad(flag, indices, num_rows):
    """Lower ``flag[0]`` to the first position of an index outside ``[0, num_rows)``."""
    k = (u64(block_x()) * u64(block_dim_y()) + u64(thread_y())) * u64(block_dim_x()) + u64(thread_x())
    step = u64(grid_dim_x()) * u64(block_dim_x()) * u64(block_dim_y())
    count = u64(indices.size)
    while k < count:
        index = indices[k]
        if index < 0 or index >= num_rows:
            atomic_min(flag, u64(0), k)
            return  # the positions that this thread has left are greater
        k += step


def begin(indices: Any, num_rows: int, flag: Any = None) -> Any:
    """A flag for kernels to look at, a new one unless it is given, its check started."""
    flag = launch.namespace(indices).empty(1, np.int64) if flag is None else flag
    flag.fill(GOOD)
    if checking.current().when != "off" and indices.size:
        grid, block = launch.teams(-(-indices.size // launch.GROUP), launch.GROUP)
        launch.run(find_bad, grid, block, flag, indices, np.int64(num_rows))
    return flag


def answer(flag: Any, indices: Any, num_rows: int) -> int:
    """The first bad position, or -1; waits for the device in mode "now" alone."""

    def find() -> int:
        found = int(flag[0])
        return -1 if found == GOOD else found

    answers = checking.current()
    if answers.when == "now":
        return find()
    if answers.when == "later":
        answers.add(find, indices, num_rows)
    return -1


def close(bounds, offsets, flag, length):
    """Copy offsets and end them with `length`; lower ``flag[0]`` to the first that is not as offsets have to be."""
    k = (u64(block_x()) * u64(block_dim_y()) + u64(thread_y())) * u64(block_dim_x()) + u64(thread_x())
    step = u64(grid_dim_x()) * u64(block_dim_x()) * u64(block_dim_y())
    while k < u64(bounds.size):
        value = np.int64(offsets[k]) if k < u64(offsets.size) else length
        before = np.int64(offsets[k - u64(1)]) if k > u64(0) else value
        if value < before or (k == u64(0) and value != 0):
            atomic_min(flag, u64(0), k)
        bounds[k] = value
        k += step


def close_offsets(bounds: Any, offsets: Any, length: int) -> bool:
    """Copy offsets and end them with L; whether they begin with 0, do not decrease and do not pass L.

    As `fastemb.kernels.cpu.check.close_offsets`; waits for the device in every mode.
    """
    flag = launch.namespace(offsets).full(1, GOOD, np.int64)
    grid, block = launch.teams(-(-bounds.size // launch.GROUP), launch.GROUP)
    launch.run(close, grid, block, bounds, offsets, flag, np.int64(length))
    return int(flag[0]) == GOOD


def first_bad(indices: Any, num_rows: int, start: int, stop: int) -> int:
    """Position in ``[start, stop)`` of the first index outside ``[0, num_rows)``, or -1.

    Parameters
    ----------
    indices : (L,) int32 or int64
        Never written.
    num_rows : int
        N.
    start, stop : int
        The part of the positions to look at.

    Returns
    -------
    int
        A position, or -1.
    """
    part = indices[start:stop]
    found = answer(begin(part, num_rows), part, num_rows)
    return found if found < 0 else start + found
