"""What all rules share: they change the touched rows of a table alone."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from .. import _options
from .._arrays import TensorLike, as_gradient, as_indices, as_table, backend, require_disjoint
from .._bag_grad import bag_gradient, bag_groups
from .._bags import Bags, check_mode
from .._groups import Groups, gradient_blocks
from .._state import State, in_columns
from ..kernels import accumulator
from ..rowgrad import RowGrad


@dataclasses.dataclass(frozen=True)
class Optimizer(abc.ABC):
    """What all rules share: hyper-parameters are fields, checked at construction; methods apply the rule.

    Parameters
    ----------
    lr : float
        Learning rate, at least 0.
    """

    lr: float

    _kernel: ClassVar[str]
    _state: ClassVar[type[State]] = State

    def _layout(self, num_rows: int, width: int) -> dict[str, tuple[tuple[int, ...], float]]:
        """Shape of each array of the state, and the number that it begins with."""
        return {}

    def __post_init__(self) -> None:
        """Make the hyper-parameters that are single numbers floats: finite and at least 0."""
        for field in dataclasses.fields(self):
            if field.type in ("float", float):
                object.__setattr__(self, field.name, _options.real(field.name, getattr(self, field.name)))

    def init(self, weight: NDArray[Any]) -> State:
        """Make the state for a table.

        Parameters
        ----------
        weight : (N, D) ndarray
            The table that will be updated.

        Returns
        -------
        State
            With ``step`` 0, and the arrays that the rule names.
        """
        table = as_table(weight)
        dtype = accumulator(table.dtype)
        arrays: dict[str, Any] = {}
        for name, (shape, fill) in self._layout(*table.shape).items():
            with np.errstate(all="ignore"):
                arrays[name] = np.full(shape, fill, dtype) if fill else np.zeros(shape, dtype)
        return self._state(**arrays)

    def serves(self, weight: NDArray[Any], state: State) -> bool:
        """Whether a state has the arrays that this rule needs for a table, of whatever rule it was made.

        Parameters
        ----------
        weight : (N, D) ndarray
            The table.
        state : State
            Made by a rule for it.

        Returns
        -------
        bool
            False where `init` has to make a new one: a state of another kind, or without what an option needs.
        """
        wanted = {name: shape for name, (shape, _) in self._layout(*weight.shape).items()}
        return type(state) is self._state and wanted == {name: a.shape for name, a in state.arrays().items()}

    def _rate(self, lr: SupportsFloat) -> float:
        """A learning rate, checked."""
        return _options.real("lr", lr)

    @abc.abstractmethod
    def _hyper(self, lr: float, t: int) -> tuple[float, ...]:
        """The numbers of step t, as the kernel takes them."""

    def update(self, weight: NDArray[Any], state: State, row_grad: RowGrad, *, lr: SupportsFloat | None = None) -> None:
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
        grad = as_gradient(row_grad.values, row_grad.values.shape, table.dtype, "row_grad.values")
        rows = row_grad.rows.copy()
        apply = self._prepare(table, state, grad, lr)
        apply(Groups(rows, np.arange(rows.size + 1), np.arange(rows.size)), scale_grad_by_freq=False)

    def step(
        self,
        weight: NDArray[Any],
        state: State,
        indices: TensorLike,
        grad: TensorLike,
        *,
        lr: SupportsFloat | None = None,
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
        of `update` with the result of `embedding_grad`, given a gradient in the dtype of the sums.
        """
        table = as_table(weight, write=True)
        ids = as_indices(indices)
        values = as_gradient(grad, (*ids.shape, table.shape[1]), table.dtype)
        padding = _options.padding(padding_idx, table.shape[0])
        apply = self._prepare(table, state, values, lr, indices=ids)
        apply(Groups.of(ids, table.shape[0], padding), scale_grad_by_freq=bool(scale_grad_by_freq))

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
        check_mode(mode, scale_grad_by_freq)
        table = as_table(weight, write=True)
        bags = Bags.of(table, indices, offsets, mode, per_sample_weights, padding_idx, include_last_offset)
        values = as_gradient(grad, (bags.size, table.shape[1]), table.dtype)
        apply = self._prepare(table, state, values, lr, **bags.arrays())
        if mode == "max":
            self.update(table, state, bag_gradient(table, bags, values, scale_grad_by_freq=False), lr=lr)
        else:
            groups, scale = bag_groups(table.shape[0], bags, scale_grad_by_freq=bool(scale_grad_by_freq))
            apply(groups, scale_grad_by_freq=scale)

    def _prepare(
        self,
        table: NDArray[Any],
        state: State,
        grad: NDArray[Any],
        lr: SupportsFloat | None,
        **read: NDArray[Any],
    ) -> Callable[..., None]:
        """Check everything but the indices, and return what takes the step."""
        rate = self.lr if lr is None else self._rate(lr)
        arrays = self._state_arrays(table, state)
        step = _options.integer("state.step", state.step, at_least=0) + 1
        hyper = self._hyper(rate, step)
        require_disjoint({"weight": table, **arrays}, {"grad": grad, **read})
        kernels: ModuleType = backend(table)
        kernel = getattr(kernels, self._kernel)

        def apply(groups: Groups, *, scale_grad_by_freq: bool) -> None:
            for (terms, *runs), scale in gradient_blocks(grad, groups, kernels, table.dtype, scale_grad_by_freq):
                kernel(table, tuple(arrays.values()), terms, *runs, hyper, scale)
            state.step = step

        return apply

    def _state_arrays(self, table: NDArray[Any], state: State) -> dict[str, NDArray[Any]]:
        """The arrays as kernels take them, two-dimensional: (N, D), or (N, 1) for one number a row."""
        if type(state) is not self._state:
            msg = f"state must be a {self._state.__name__} made by init(weight), got {type(state).__name__}"
            raise TypeError(msg)
        arrays, dtype = {}, accumulator(table.dtype)
        layout = self._layout(*table.shape)
        for name, array in state.arrays().items():
            shape, name = layout[name][0], f"state.{name}"
            arrays[name] = as_table(in_columns(array), name, write=True)
            if array.shape != shape or array.dtype != dtype:
                msg = f"{name} must have shape {shape} and dtype {dtype}, got {array.shape} and {array.dtype}"
                raise ValueError(msg)
        return arrays
