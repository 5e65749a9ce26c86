"""Grouping of duplicate indices: distinct rows, and the positions of each, in a stable order."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
