"""What a rule is: hyper-parameters, and the state of a table, which it can bring up to date."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from .. import _lines, _options
from .._arrays import BLOCK, TensorLike, as_indices, as_table, check_indices, require_disjoint
from .._devices import device_of, namespace, require_one_device
from .._groups import Groups
from .._missed import Missed, Replay
from .._state import State, in_columns
from ..kernels import accumulator

MODES = ("lazy", "exact")
"""What becomes of rows that are not touched."""


@dataclasses.dataclass(frozen=True)
class Rule(abc.ABC):
    """Hyper-parameters, checked at construction, and the state that they ask for.

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
            With ``step`` 0, and the arrays that the rule names, on the device of `weight`.
        """
        table = as_table(weight)
        xp, dtype = namespace(table), accumulator(table.dtype)
        arrays: dict[str, Any] = {}
        for name, (shape, fill) in self._layout(*table.shape).items():
            with np.errstate(all="ignore"):
                on_gpu = not isinstance(table, np.ndarray)
                arrays[name] = xp.full(shape, fill, dtype) if on_gpu else _lines.filled(shape, dtype, fill, table)
        state = self._state(**arrays)
        state.missed = Missed(len(table), table) if self._replay() else None
        return state

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
            False where `init` has to make a new one: a state of another kind, without what an option needs, or for a
            table of another shape, dtype or device.
        """
        num_rows, dtype, device = len(weight), accumulator(weight.dtype), device_of(weight)
        wanted = {name: (shape, dtype, device) for name, (shape, _) in self._layout(*weight.shape).items()}
        found = {name: (array.shape, array.dtype, device_of(array)) for name, array in state.arrays().items()}
        rows = (num_rows, device) if self._replay() else None
        counted = None if state.missed is None else (len(state.missed.last), device_of(state.missed.last))
        followed = state.changed is None or len(state.changed) == num_rows
        return type(state) is self._state and wanted == found and counted == rows and followed

    def check_rate(self, lr: SupportsFloat) -> float:
        """A learning rate, if it is one for this rule.

        Parameters
        ----------
        lr : float
            What a step is to be given.

        Returns
        -------
        float
            The same number.

        Raises
        ------
        TypeError
            Not a number.
        ValueError
            Out of range; in mode "exact" also with ``lr * weight_decay >= 1``.
        """
        rate = _options.real("lr", lr)
        if self._replay() is not None and not self._hyper(rate, 1)[1] > 0:
            msg = f"lr * weight_decay must be < 1 in mode 'exact', got {1 - self._hyper(rate, 1)[1]:g}"
            raise ValueError(msg)
        return rate

    @abc.abstractmethod
    def _hyper(self, lr: float, t: int) -> tuple[float, ...]:
        """The numbers of step t, as the kernel takes them."""

    def _replay(self) -> Replay | None:
        """How rows that are not touched move, if they do."""
        return None

    def catch_up(
        self, weight: NDArray[Any], state: State, indices: TensorLike, *, padding_idx: SupportsIndex | None = None
    ) -> None:
        """Bring rows up to date before they are read, in place: for rules in mode "exact"; else nothing is changed.

        Parameters
        ----------
        weight : (N, D) ndarray of float16, bfloat16, float32 or float64
            The table; changed at those of the rows that missed steps.
        state : State
            Made by `init` for this table; likewise.
        indices : array_like of int, any shape
            The rows that will be looked up, in ``[0, N)``. A step does this for its rows itself.
        padding_idx : int, optional
            In ``[-N, N)``: this row stays.

        Raises
        ------
        IndexError
            An index outside ``[0, N)``.
        TypeError
            Indices that are not integers, a state of another rule.
        ValueError
            Arrays that overlap or cannot be written. After any error nothing has changed.

        Examples
        --------
        >>> import numpy as np, fastemb
        >>> table, opt = np.zeros((2, 1)), fastemb.optim.Momentum(lr=1.0, momentum=0.5, mode="exact")
        >>> state = opt.init(table)
        >>> for row in (0, 1, 1):
        ...     opt.step(table, state, [row], np.ones((1, 1)))
        >>> table[0]
        array([-1.])
        >>> opt.catch_up(table, state, [0])
        >>> table[0]  # and -0.5, and -0.25
        array([-1.75])
        """
        table = as_table(weight, write=True)
        ids = as_indices(indices, like=table)
        arrays = self._state_arrays(table, state)
        padding = _options.padding(padding_idx, table.shape[0])
        check_indices(ids, table.shape[0])
        missed, replay = state.missed, self._replay()
        if missed is None or replay is None:
            return
        require_disjoint({"weight": table, **arrays}, {"indices": ids})
        behind = missed.behind(ids.reshape(-1))
        if behind.size:
            rows = Groups.of(behind, table.shape[0], padding).rows
            state.mark(rows)
            replay.move(table, tuple(arrays.values()), missed, rows)

    def flush(self, weight: NDArray[Any], state: State, *, padding_idx: SupportsIndex | None = None) -> None:
        """Bring all rows up to date, in place, as before a table is saved: `catch_up` for the whole table.

        Parameters
        ----------
        weight : (N, D) ndarray of float16, bfloat16, float32 or float64
            The table.
        state : State
            Made by `init` for this table.
        padding_idx : int, optional
            In ``[-N, N)``: this row stays.

        Raises
        ------
        TypeError
            A state of another rule.
        ValueError
            Arrays that overlap or cannot be written. After any error nothing has changed.
        """
        table = as_table(weight)
        num_rows, xp = table.shape[0], namespace(table)
        padding = _options.padding(padding_idx, num_rows)
        for start in range(0, max(num_rows, 1), BLOCK):
            self.catch_up(weight, state, xp.arange(start, min(start + BLOCK, num_rows)), padding_idx=padding)
        if state.missed is not None:
            state.mark(slice(None))
            state.missed.restart()

    def _state_arrays(self, table: NDArray[Any], state: State) -> dict[str, NDArray[Any]]:
        """The arrays as kernels take them, two-dimensional: (N, D), or (N, 1) for one number a row."""
        if type(state) is not self._state:
            msg = f"state must be a {self._state.__name__} made by init(weight), got {type(state).__name__}"
            raise TypeError(msg)
        last = None if state.missed is None else state.missed.last.shape
        if last != ((len(table),) if self._replay() else None):
            wanted = "with" if self._replay() else "without"
            msg = f"state must be made by init(weight) of this rule: {wanted} what rows missed, as its mode says"
            raise ValueError(msg)
        arrays, dtype = {}, accumulator(table.dtype)
        layout = self._layout(*table.shape)
        for name, array in state.arrays().items():
            shape, name = layout[name][0], f"state.{name}"
            arrays[name] = as_table(in_columns(array), name, write=True)
            require_one_device({"weight": table, name: array})
            if array.shape != shape or array.dtype != dtype:
                msg = f"{name} must have shape {shape} and dtype {dtype}, got {array.shape} and {array.dtype}"
                raise ValueError(msg)
        return arrays
