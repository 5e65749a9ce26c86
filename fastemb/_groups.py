"""Indices grouped by row, once for everything that needs it, and a gradient read through the groups."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._arrays import BLOCK, Indices, accumulator, all_indices, cpu, index_error, kernel_gradient
from .kernels import SUM_BLOCK

Block = tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


class Groups(NamedTuple):
    """Distinct rows (U,), where each one's run starts (U + 1,), and the positions, run after run."""

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    positions: NDArray[np.int64]

    @classmethod
    def of(cls, indices: Indices, num_rows: int, padding_idx: int | None = None) -> Groups:
        """Group `indices`, positions with `padding_idx` left out; IndexError if one is outside ``[0, num_rows)``."""
        flat = all_indices(indices, num_rows)
        rows, positions = np.empty(flat.size, np.int64), np.empty(flat.size, np.int64)
        starts, count = np.empty(flat.size + 1, np.int64), np.empty(1, np.int64)
        skipped = -1 if padding_idx is None else padding_idx
        if cpu().group(rows, starts, positions, count, flat, num_rows, skipped) >= 0:
            raise index_error(indices, num_rows)
        distinct = int(count[0])
        return cls(rows[:distinct], starts[: distinct + 1], positions[: int(starts[distinct])])

    def numbered(self) -> Groups:
        """The same runs, for a target that has one row a run."""
        return Groups(np.arange(self.rows.size), self.starts, self.positions)


def gradient_blocks(
    grad: NDArray[Any], groups: Groups, kernels: ModuleType, dtype: np.dtype[Any], scale_grad_by_freq: bool
) -> Iterator[tuple[Block, bool]]:
    """What a kernel is called with to apply a gradient ``(*indices.shape, D)``: one block if it can read it as it is.

    Otherwise blocks of whole runs, cast to the accumulation dtype, at most `BLOCK` gradient rows at a time; a longer
    run is summed first, cut where a kernel cuts it. The bits are those of the array cast as a whole.
    """
    flat = kernel_gradient(grad) if kernels is cpu() else None
    if flat is not None:
        yield (flat, *groups), scale_grad_by_freq
        return
    if grad.ndim == 1:  # of a single 0-d index
        grad = grad[np.newaxis]
    dtype = accumulator(dtype)
    rows, starts, positions = groups

    def cast(lo: int, hi: int) -> NDArray[Any]:
        terms: NDArray[Any] = grad[np.unravel_index(positions[lo:hi], grad.shape[:-1])].astype(dtype)
        return terms

    u = 0
    while u < rows.size:
        lo = int(starts[u])
        v = max(u + 1, int(np.searchsorted(starts, lo + BLOCK, side="right")) - 1)
        hi = int(starts[v])
        lengths = np.diff(starts[u : v + 1]) if scale_grad_by_freq else np.ones(v - u, np.int64)
        if hi - lo <= BLOCK:
            terms = cast(lo, hi)
            terms /= np.repeat(lengths, np.diff(starts[u : v + 1])).astype(dtype)[:, np.newaxis]
            yield (terms, rows[u:v], starts[u : v + 1] - lo, np.arange(hi - lo)), False
        else:
            total = np.zeros((1, grad.shape[-1]), dtype)
            for cut in range(lo, hi, SUM_BLOCK):
                terms = cast(cut, min(cut + SUM_BLOCK, hi))
                terms /= dtype.type(lengths[0])
                run = np.array([0, len(terms)])
                kernels.scatter_add(total, terms, np.zeros(1, np.int64), run, np.arange(len(terms)), False)
            yield (total, rows[u:v], np.array([0, 1]), np.zeros(1, np.int64)), False
        u = v
