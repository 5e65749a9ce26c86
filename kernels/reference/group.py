"""Grouping of duplicate indices: distinct rows, and the positions of each, in a stable order."""

import numpy as np

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


def group(rows, starts, positions, count, indices, num_rows, padding_idx):
    """See `fastemb.kernels.cpu.group`."""
    return group_range(rows, starts, positions, count, indices, num_rows, padding_idx, 0, indices.size)
