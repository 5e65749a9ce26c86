"""What all rules do: change the touched rows of a table alone."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from .. import _options
from .._arrays import TensorLike, as_gradient, as_indices, as_table, require_disjoint
from .._bag_grad import bag_gradient, bag_groups
from .._bags import NO_NUMBERS, Bags, check_mode, plain_bounds
from .._devices import cpu, namespace
from .._groups import Groups
from .._pages import read_ahead
from .._state import State
from ..rowgrad import RowGrad
from .prepared import PreparedStep
from .rule import Rule


@dataclasses.dataclass(frozen=True)
class Optimizer(Rule):
    """What all rules share: hyper-parameters are fields, checked at construction; methods apply the rule.

    Parameters
    ----------
    lr : float
        Learning rate, at least 0.
    """

    def update(
        self,
        weight: NDArray[Any],
        state: State,
        row_grad: RowGrad,
        *,
        lr: SupportsFloat | None = None,
        max_grad_norm: SupportsFloat | None = None,
    ) -> None:
        """Apply a gradient of the touched rows to a table, in place.

        Parameters
        ----------
        weight : (N, D) ndarray of float16, bfloat16, float32 or float64
            The table; changed at ``row_grad.rows`` alone.
        state : State
            Made by `init` for this table; its step count goes up by one, also for an empty gradient.
        row_grad : RowGrad
            Of the shape of `weight`.
        lr : float, optional
            Learning rate of this step, in place of the rule's own.
        max_grad_norm : float, optional
            Scale the gradient so that its norm, after duplicates are summed, is at most this; not where the norm is NaN
            or infinite, so that a bad row stays the only bad one.

        Raises
        ------
        TypeError
            A state of another rule, or a gradient that does not cast safely to the table's accumulation dtype.
        ValueError
            Shapes that do not fit, arrays that overlap or cannot be written. After any error nothing has changed.
        """
        if not isinstance(row_grad, RowGrad):
            msg = f"row_grad must be a RowGrad, got {type(row_grad).__name__}"
            raise TypeError(msg)
        table = as_table(weight, write=True)
        if row_grad.shape != table.shape:
            msg = f"row_grad must have the shape of weight, {table.shape}, got {row_grad.shape}"
            raise ValueError(msg)
        values = row_grad.values
        grad = as_gradient(values, values.shape, table.dtype, "row_grad.values", like=table)
        xp, rows = namespace(table), row_grad.rows.copy()
        step = self._prepare(table, state, grad, lr, max_grad_norm)
        step.take_grouped(Groups(rows, xp.arange(rows.size + 1), xp.arange(rows.size)), scale_grad_by_freq=False)

    def step(
        self,
        weight: NDArray[Any],
        state: State,
        indices: TensorLike,
        grad: TensorLike,
        *,
        lr: SupportsFloat | None = None,
        max_grad_norm: SupportsFloat | None = None,
        padding_idx: SupportsIndex | None = None,
        scale_grad_by_freq: bool = False,
    ) -> None:
        """Apply the gradient of a lookup's result to the table, in place: `embedding_grad` and `update` in one pass.

        Parameters
        ----------
        weight : (N, D) ndarray of float16, bfloat16, float32 or float64
            The table; changed at the distinct `indices` alone.
        state : State
            Made by `init` for this table; its step count goes up by one.
        indices : array_like of int, any shape
            The indices of the lookup, in ``[0, N)``.
        grad : array_like, shape ``(*indices.shape, D)``
            Gradient of the lookup's result.
        lr : float, optional
            Learning rate of this step, in place of the rule's own.
        max_grad_norm : float, optional
            Scale the gradient so that its norm, after duplicates are summed, is at most this; not where the norm is NaN
            or infinite, so that a bad row stays the only bad one.
        padding_idx : int, optional
            In ``[-N, N)``: this row is not updated.
        scale_grad_by_freq : bool
            Divide each ``grad[k]`` by the number of times that ``indices[k]`` occurs in this call.

        Raises
        ------
        IndexError
            An index outside ``[0, N)``.
        TypeError
            Indices that are not integers, a state of another rule, a gradient that does not cast safely.
        ValueError
            Shapes that do not fit, arrays that overlap or cannot be written. After any error nothing has changed.

        Notes
        -----
        No gradient array exists: allocates O(L) integers and O(D) numbers a thread, whatever N and the gradient's
        dtype, and one row for every 1,024 positions of an index that occurs more often than that. The bits are those
        of `update` with the result of `embedding_grad`, given a gradient in the dtype of the sums. With `max_grad_norm`
        the gradient is summed twice, 256 KiB at a time for the norm, and its rows are scaled before they are summed.
        """
        table = as_table(weight, write=True)
        ids = as_indices(indices, like=table)
        values = as_gradient(grad, (*ids.shape, table.shape[1]), table.dtype, like=table)
        padding = _options.padding(padding_idx, table.shape[0])
        step = self._prepare(table, state, values, lr, max_grad_norm, indices=ids)
        step.take(ids, padding, scale_grad_by_freq=bool(scale_grad_by_freq))

    def step_bag(
        self,
        weight: NDArray[Any],
        state: State,
        indices: TensorLike,
        offsets: TensorLike | None,
        grad: TensorLike,
        *,
        mode: str = "sum",
        per_sample_weights: TensorLike | None = None,
        lr: SupportsFloat | None = None,
        max_grad_norm: SupportsFloat | None = None,
        padding_idx: SupportsIndex | None = None,
        include_last_offset: bool = False,
        scale_grad_by_freq: bool = False,
    ) -> None:
        """Apply the gradient of pooled rows to the table, in place: `embedding_bag_grad` and `update` in one pass.

        Parameters
        ----------
        weight : (N, D) ndarray of float16, bfloat16, float32 or float64
            The table; changed at the distinct `indices` alone.
        state : State
            Made by `init` for this table; its step count goes up by one.
        indices : array_like of int, (L,) or (B, H)
            As in the lookup, see `fastemb.embedding_bag`.
        offsets : array_like of int, or None
            As in the lookup.
        grad : (B, D) array_like
            Gradient of the lookup's result.
        mode : {"sum", "mean", "sqrtn", "max"}
            As in the lookup, whose own default is "mean".
        per_sample_weights : array_like, optional
            As in the lookup.
        lr : float, optional
            Learning rate of this step, in place of the rule's own.
        max_grad_norm : float, optional
            Scale the gradient so that its norm, after duplicates are summed, is at most this; not where the norm is NaN
            or infinite, so that a bad row stays the only bad one.
        padding_idx : int, optional
            As in the lookup.
        include_last_offset : bool
            As in the lookup.
        scale_grad_by_freq : bool
            Divide by the number of times that the index occurs in this call, over all bags. Not with "max".

        Raises
        ------
        IndexError
            An index outside ``[0, N)``.
        TypeError
            Indices or offsets that are not integers, a state of another rule, numbers that do not cast safely.
        ValueError
            Offsets or shapes that do not fit, arrays that overlap or cannot be written. After any error nothing has
            changed.

        Notes
        -----
        No gradient array exists but in "max", which makes that of the rows that win: allocates O(L) integers, with
        weights or divisors as many numbers, and O(D) numbers a thread. The bits are those of `update` with the result
        of `embedding_bag_grad`.
        """
        if (
            (type(mode) is str and mode == "sum")
            and (per_sample_weights is None and max_grad_norm is None and padding_idx is None)
            and not (include_last_offset or scale_grad_by_freq)
            and self._step_plain(weight, state, indices, offsets, grad, lr)
        ):
            return
        check_mode(mode, scale_grad_by_freq)
        table = as_table(weight, write=True)
        bags = Bags.of(table, indices, offsets, mode, per_sample_weights, padding_idx, include_last_offset)
        values = as_gradient(grad, (bags.size, table.shape[1]), table.dtype, like=table)
        step = self._prepare(table, state, values, lr, max_grad_norm, **bags.arrays())
        if mode == "max":
            self.catch_up(table, state, bags.ids, padding_idx=padding_idx)  # the winners are of the table as it is
            winners = bag_gradient(table, bags, values, scale_grad_by_freq=False)
            self.update(table, state, winners, lr=lr, max_grad_norm=max_grad_norm)
        else:
            groups, scale = bag_groups(table.shape[0], bags, scale_grad_by_freq=bool(scale_grad_by_freq))
            step.take_grouped(groups, scale_grad_by_freq=scale)

    def _step_plain(
        self, weight: Any, state: Any, indices: Any, offsets: Any, grad: Any, lr: SupportsFloat | None
    ) -> bool:
        """Take a step with the gradient of sums of bags of ordinary arrays, the short way: see `plain_bounds`.

        False, and nothing done, if anything is out of the ordinary. A wrong rate, state or index raises what it raises
        the long way.
        """
        if not (
            type(state) is self._state
            and (state.missed is None and state.changed is None)
            and (type(grad) is np.ndarray and grad.flags.carray)
        ):
            return False
        bounds = plain_bounds(weight, indices, offsets)
        if bounds is None or grad.dtype is not weight.dtype or grad.shape != (offsets.size, weight.shape[1]):
            return False
        rate = self.check_rate(self.lr if lr is None else lr)
        arrays = tuple(self._state_arrays(weight, state).values())
        number = _options.integer("state.step", state.step, at_least=0) + 1
        written, read = (weight, *arrays), (grad, indices, offsets)
        pairs = itertools.product(written, read), itertools.combinations(written, 2)
        if any(itertools.starmap(np.may_share_memory, itertools.chain(*pairs))):
            return False
        for array in written:
            read_ahead(array, indices)
        rows, starts, numbers, _ = Groups.of(indices, weight.shape[0], offsets=bounds)
        given = rows, starts, numbers, NO_NUMBERS[weight.dtype], self._hyper(rate, number)
        getattr(cpu(), self._kernel)(weight, arrays, grad, *given, False)
        state.step = number
        return True

    def _prepare(
        self,
        table: NDArray[Any],
        state: State,
        grad: NDArray[Any],
        lr: SupportsFloat | None,
        max_grad_norm: SupportsFloat | None,
        **read: NDArray[Any],
    ) -> PreparedStep:
        """Check everything but the indices."""
        rate = self.check_rate(self.lr if lr is None else lr)
        limit = None if max_grad_norm is None else _options.real("max_grad_norm", max_grad_norm, infinite=True)
        arrays = self._state_arrays(table, state)
        number = _options.integer("state.step", state.step, at_least=0) + 1
        require_disjoint({"weight": table, **arrays}, {"grad": grad, **read})
        of_rule = self._hyper(rate, number), number, limit, self._replay()
        return PreparedStep(self._kernel, table, state, tuple(arrays.values()), grad, *of_rule)
