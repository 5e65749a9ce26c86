"""A step of which everything is checked but the indices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._arrays import Indices, all_indices, cast_gradient, index_error
from .._bags import NO_PADDING
from .._devices import backend, cuda, unchecked
from .._groups import Groups, gradient_blocks
from .._missed import Replay
from .._pages import read_ahead
from .._state import State
from ..kernels import accumulator


class PreparedStep(NamedTuple):
    """What a step needs beside the indices.

    `state` is counted on to `number` once the step is taken; `arrays` are those of the state as kernels take them, and
    `hyper` the numbers of the rule. `max_grad_norm` and `replay` may be None.
    """

    kernel: str
    table: NDArray[Any]
    state: State
    arrays: tuple[NDArray[Any], ...]
    grad: NDArray[Any]
    hyper: tuple[float, ...]
    number: int
    max_grad_norm: float | None
    replay: Replay | None

    def take(self, indices: Indices, padding_idx: int | None, *, scale_grad_by_freq: bool) -> None:
        """Take the step with the gradient of a lookup."""
        on_gpu = not isinstance(self.table, np.ndarray)
        if on_gpu and self.max_grad_norm is None and self.replay is None:
            self._take_on_gpu(indices, padding_idx, scale_grad_by_freq=scale_grad_by_freq)
        else:
            groups = Groups.of(indices, len(self.table), padding_idx)
            self.take_grouped(groups, scale_grad_by_freq=scale_grad_by_freq)

    def take_grouped(self, groups: Groups, *, scale_grad_by_freq: bool) -> None:
        """Take the step with a gradient whose positions are grouped by row."""
        table, dtype = self.table, accumulator(self.table.dtype)
        if self.max_grad_norm is not None:
            limit, num_rows = self.max_grad_norm, len(table)
            groups = groups.clipped(limit, self.grad, num_rows, dtype, scale_grad_by_freq=scale_grad_by_freq)
        self.state.mark(groups.rows)
        for array in (table, *self.arrays):
            read_ahead(array, groups.rows)
        missed, replay = self.state.missed, self.replay
        if missed and replay:
            replay.move(table, self.arrays, missed, missed.behind(groups.rows))
            missed.append(self.hyper[0] * replay.boost, self.hyper[1])
            missed.last[groups.rows] = missed.now
        kernels = backend(table)
        kernel = getattr(kernels, self.kernel)
        with unchecked(table):
            for (terms, *runs), scale in gradient_blocks(self.grad, groups, kernels, table.dtype, scale_grad_by_freq):
                kernel(table, self.arrays, terms, *runs, self.hyper, scale)
        self.state.step = self.number

    def _take_on_gpu(self, indices: Indices, padding_idx: int | None, *, scale_grad_by_freq: bool) -> None:
        """The same without waiting for the number of distinct rows."""
        num_rows, padding = len(self.table), NO_PADDING if padding_idx is None else padding_idx
        flat, terms = all_indices(indices, num_rows), cast_gradient(self.grad, accumulator(self.table.dtype))
        given = self.table, self.arrays, flat, terms, padding, self.hyper, scale_grad_by_freq
        if cuda().update.step(self.kernel, *given) >= 0:
            raise index_error(indices, num_rows)
        self.state.step = self.number
