"""Indices grouped by row, once for everything that needs it, and a gradient read through the groups."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._arrays import BLOCK, Indices, all_indices, cast_gradient, index_error, kernel_gradient
from ._devices import HOST, backend, compiled, cpu, empty, namespace, reference, to_device, unchecked
from .kernels import SUM_BLOCK, accumulator
from .rowgrad import RowGrad, hand_over

NORM_BYTES = 1 << 18
"""Of summed gradient rows that are there at a time to take their norm."""

NORM_BYTES_ON_GPU = 1 << 28
"""There each time is a wait for the device."""

Block = tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[Any]]


def to_bags(positions: NDArray[np.int64], offsets: NDArray[np.int64]) -> None:
    """Replace positions by the bags, or the runs, that they are in, given where those begin and the last one ends."""
    with unchecked(positions):
        compiled(positions).bag_numbers(positions, positions, offsets)


class Groups(NamedTuple):
    """Distinct rows (U,), where each one's run starts (U + 1,), and the positions in the gradient, run after run.

    With coefficients, one for each position, the gradient's rows are multiplied by them.
    """

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    positions: NDArray[np.int64]
    coefficients: NDArray[Any] | None = None

    @classmethod
    def of(
        cls,
        indices: Indices,
        num_rows: int,
        padding_idx: int | None = None,
        offsets: NDArray[np.int64] | None = None,
    ) -> Groups:
        """Group `indices`, positions with `padding_idx` left out; IndexError if one is outside ``[0, num_rows)``.

        With `offsets` of bags, (B + 1,), each has one gradient row: a position in the gradient is the number of a bag.
        """
        flat = all_indices(indices, num_rows)
        if not isinstance(flat, np.ndarray):
            return cls._on_gpu(indices, flat, num_rows, padding_idx, offsets)
        rows, positions, starts = empty((3, flat.size + 1), np.dtype(np.int64), flat)
        count = np.empty(1, np.int64)
        given = rows[:-1], starts, positions[:-1], count, flat
        options = num_rows, -1 if padding_idx is None else padding_idx
        bad = cpu().group(*given, *options) if offsets is None else cpu().group_bags(*given, offsets, *options)
        if bad >= 0:
            raise index_error(indices, num_rows)
        distinct = int(count[0])
        return cls(rows[:distinct], starts[: distinct + 1], positions[: int(starts[distinct])])

    @classmethod
    def _on_gpu(
        cls,
        indices: Indices,
        flat: Indices,
        num_rows: int,
        padding_idx: int | None,
        offsets: NDArray[np.int64] | None,
    ) -> Groups:
        """The same, with one wait for the device: for the count, and whether an index is out of range."""
        from .kernels.cuda.check import GOOD
        from .kernels.cuda.group import grouped

        answers, (rows, starts, positions) = grouped(flat, num_rows, -1 if padding_idx is None else padding_idx)
        first_bad, distinct = map(int, to_device(answers, HOST))
        if first_bad != GOOD:
            raise index_error(indices, num_rows)
        positions = positions[: flat.size if padding_idx is None else int(starts[distinct])]
        if offsets is not None:
            to_bags(positions, offsets)
        return cls(rows[:distinct], starts[: distinct + 1], positions)

    def runs(self) -> NDArray[np.int64]:
        """The run of each position."""
        runs: NDArray[np.int64] = namespace(self.starts).arange(self.positions.size)
        to_bags(runs, self.starts)
        return runs

    def where(self, chosen: NDArray[np.bool]) -> Groups:
        """The groups of some of the positions; rows that are left without any are left out."""
        xp = namespace(self.starts)
        lengths = xp.bincount(self.runs()[chosen], minlength=self.rows.size)
        left = lengths > 0
        starts = xp.zeros(int(left.sum()) + 1, np.int64)
        starts[1:] = xp.cumsum(lengths[left])
        coefficients = None if self.coefficients is None else self.coefficients[chosen]
        return Groups(self.rows[left], starts, self.positions[chosen], coefficients)

    def blocks(self, size: int) -> Iterator[Groups]:
        """The groups, so many rows at a time."""
        for u in range(0, self.rows.size, size):
            starts = self.starts[u : u + size + 1]
            some = slice(int(starts[0]), int(starts[-1]))
            coefficients = None if self.coefficients is None else self.coefficients[some]
            yield Groups(self.rows[u : u + size], starts - starts[0], self.positions[some], coefficients)

    def clipped(
        self, max_norm: float, grad: NDArray[Any], num_rows: int, dtype: np.dtype[Any], *, scale_grad_by_freq: bool
    ) -> Groups:
        """With the gradient scaled to at most a norm, as `RowGrad.clip_norm_` does, a block of sums at a time."""
        norm, bytes_of_row = 0.0, max(1, grad.shape[-1] * dtype.itemsize)
        at_once = NORM_BYTES if isinstance(grad, np.ndarray) else NORM_BYTES_ON_GPU
        for block in self.blocks(max(1, at_once // bytes_of_row)):
            norm = math.hypot(
                norm, row_gradient(block, grad, num_rows, dtype, scale_grad_by_freq=scale_grad_by_freq).norm()
            )
        if not (math.isfinite(norm) and norm > max_norm):
            return self
        xp = namespace(grad)
        ones = xp.ones(1, dtype) if self.coefficients is None else self.coefficients
        factors = xp.broadcast_to(ones * dtype.type(max_norm / norm), self.positions.shape)
        return self._replace(coefficients=xp.ascontiguousarray(factors))


def row_gradient(
    groups: Groups, grad: NDArray[Any], num_rows: int, dtype: np.dtype[Any], *, scale_grad_by_freq: bool
) -> RowGrad:
    """The gradient of a lookup whose indices are grouped, summed in `dtype`."""
    xp = namespace(grad)
    values = xp.empty((groups.rows.size, grad.shape[-1]), dtype)
    numbered = groups._replace(rows=xp.arange(groups.rows.size))
    kernels = backend(values)
    with unchecked(values):
        for (terms, *runs), scale in gradient_blocks(grad, numbered, kernels, dtype, scale_grad_by_freq):
            kernels.segment_sum(values, terms, *runs, scale)
    return hand_over(groups.rows.copy(), values, num_rows)


def gradient_blocks(
    grad: NDArray[Any], groups: Groups, kernels: ModuleType, dtype: np.dtype[Any], scale_grad_by_freq: bool
) -> Iterator[tuple[Block, bool]]:
    """What a kernel is called with to apply a gradient ``(*indices.shape, D)``: one block if it can read it as it is.

    On a GPU it is one block in any case, copied if it has to be cast. Otherwise blocks of whole runs, cast to the
    accumulation dtype, at most `BLOCK` gradient rows at a time. The bits are those of the array cast as a whole.
    """
    wanted = accumulator(dtype)
    none = namespace(grad).empty(0, wanted)
    if not isinstance(grad, np.ndarray):
        flat: NDArray[Any] | None = cast_gradient(grad, wanted)
    else:
        flat = None if kernels is reference() else kernel_gradient(grad)
    rows, starts, positions, coefficients = groups
    if flat is not None:
        yield (flat, rows, starts, positions, none if coefficients is None else coefficients), scale_grad_by_freq
        return
    terms_of = _Caster(grad, groups, wanted, scale_grad_by_freq)
    u = 0
    while u < rows.size:
        lo = int(starts[u])
        v = max(u + 1, int(np.searchsorted(starts, lo + BLOCK, side="right")) - 1)
        hi = int(starts[v])
        if hi - lo <= BLOCK:
            terms, bounds = terms_of(lo, hi), starts[u : v + 1] - lo
        else:
            terms, bounds = _sum_of_long_run(terms_of, lo, hi, kernels), np.array([0, 1])
        yield (terms, rows[u:v], bounds, np.arange(len(terms)), none), False
        u = v


class _Caster:
    """Gradient rows of grouped positions ``[lo, hi)``, cast, times coefficients, over the lengths of their runs."""

    def __init__(self, grad: NDArray[Any], groups: Groups, dtype: np.dtype[Any], scale_grad_by_freq: bool) -> None:
        self.grad = grad if grad.ndim > 1 else grad[np.newaxis]  # of a single 0-d index
        self.groups, self.dtype = groups, dtype
        self.lengths = np.diff(groups.starts) if scale_grad_by_freq else None

    def __call__(self, lo: int, hi: int) -> NDArray[Any]:
        places = np.unravel_index(self.groups.positions[lo:hi], self.grad.shape[:-1])
        terms: NDArray[Any] = self.grad[places].astype(self.dtype)
        with np.errstate(all="ignore"):
            if self.groups.coefficients is not None:
                terms *= self.groups.coefficients[lo:hi, np.newaxis]
            if self.lengths is not None:
                runs = np.searchsorted(self.groups.starts, np.arange(lo, hi), side="right") - 1
                terms /= self.lengths[runs].astype(self.dtype)[:, np.newaxis]
        return terms


def _sum_of_long_run(terms_of: _Caster, lo: int, hi: int, kernels: ModuleType) -> NDArray[Any]:
    """A run's sum as one row, in parts cut where a kernel cuts it."""
    total = np.zeros((1, terms_of.grad.shape[-1]), terms_of.dtype)
    part = np.empty_like(total)
    for cut in range(lo, hi, SUM_BLOCK):
        terms = terms_of(cut, min(cut + SUM_BLOCK, hi))
        run = np.array([0, len(terms)])
        none = np.empty(0, part.dtype)
        kernels.segment_sum(part, terms, np.zeros(1, np.int64), run, np.arange(len(terms)), none, False)
        with np.errstate(all="ignore"):
            total += part
    return total
