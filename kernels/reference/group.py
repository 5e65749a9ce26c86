"""Grouping of duplicate indices: distinct rows, and the positions of each, in a stable order."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .bag_grad import bag_numbers_range
from .check import first_bad


def group_range(rows, starts, positions, count, indices, num_rows, padding_idx, start, stop):
    """See `fastemb.kernels.cpu.group_range`."""
    bad = first_bad(indices, num_rows, start, stop)
    if bad >= 0:
        return bad
    kept = start + np.flatnonzero(indices[start:stop] != padding_idx)
    kept = kept[np.argsort(indices[kept], kind="stable")]
    distinct, first = np.unique(indices[kept], return_index=True)
    rows[: distinct.size] = distinct
    starts[: distinct.size] = first
    starts[distinct.size] = kept.size
    positions[: kept.size] = kept
    count[0] = distinct.size
    return -1


def group(
    rows: NDArray[Any],
    starts: NDArray[Any],
    positions: NDArray[Any],
    count: NDArray[Any],
    indices: NDArray[Any],
    num_rows: int,
    padding_idx: int,
) -> int:
    """See `fastemb.kernels.cpu.group`."""
    return group_range(rows, starts, positions, count, indices, num_rows, padding_idx, 0, indices.size)


def group_bags_range(rows, starts, numbers, count, indices, offsets, num_rows, padding_idx, start, stop):
    """See `fastemb.kernels.cpu.group_bags_range`."""
    bad = group_range(rows, starts, numbers, count, indices, num_rows, padding_idx, start, stop)
    if bad < 0:
        bag_numbers_range(numbers, numbers, offsets, 0, int(starts[count[0]]))
    return bad


def group_bags(
    rows: NDArray[Any],
    starts: NDArray[Any],
    numbers: NDArray[Any],
    count: NDArray[Any],
    indices: NDArray[Any],
    offsets: NDArray[Any],
    num_rows: int,
    padding_idx: int,
) -> int:
    """See `fastemb.kernels.cpu.group_bags`."""
    return group_bags_range(rows, starts, numbers, count, indices, offsets, num_rows, padding_idx, 0, indices.size)
