"""What an optimizer remembers of a table between steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from . import _options
from ._arrays import as_array, as_table
from ._devices import checked, device_of, to_device
from ._missed import Missed


def same_kind(name: str, saved: Any, own: NDArray[Any]) -> NDArray[Any]:
    """A saved array, if it has the shape and dtype of the one that it is to replace, brought to its device."""
    array = as_array(saved, name)
    if array.shape != own.shape or array.dtype != own.dtype:
        msg = f"{name} must have shape {own.shape} and dtype {own.dtype}, got {array.shape} and {array.dtype}"
        raise ValueError(msg)
    return to_device(array, device_of(own))


def require_entries(name: str, saved: Any, wanted: set[str]) -> None:
    """TypeError for what is no mapping, ValueError for one with other entries."""
    if not isinstance(saved, Mapping):
        msg = f"{name} must be a mapping, got {type(saved).__name__}"
        raise TypeError(msg)
    if set(saved) != wanted:
        msg = f"{name} must have the entries {sorted(wanted)}, got {sorted(map(str, saved))}"
        raise ValueError(msg)


def in_columns(array: Any) -> Any:
    """An array of one number a row, (N,), as the (N, 1) that kernels take; anything else as it is."""
    return array[:, np.newaxis] if getattr(array, "ndim", 0) == 1 else array


_NO_ARRAYS = ("step", "missed", "changed")


@dataclasses.dataclass(eq=False)
class State:
    """What an optimizer remembers of a table between steps; this one remembers the number of steps.

    Parameters
    ----------
    step : int
        Steps taken, t.

    Attributes
    ----------
    missed : Missed or None
        In mode "exact": how far each row is, and what the steps were.
    changed : (N,) ndarray of bool or None
        Which rows of table and state were changed, since a `fastemb.io.Checkpointer` that asked for it saved them.
    """

    step: int = 0
    missed: Missed | None = dataclasses.field(default=None, init=False, repr=False)
    changed: NDArray[np.bool] | None = dataclasses.field(default=None, init=False, repr=False)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of the state by name, in the order of the kernels.

        Returns
        -------
        dict of str to ndarray
            The arrays themselves.
        """
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in _NO_ARRAYS}

    def mark(self, rows: Any) -> None:
        """Note that rows are about to change, if somebody wants to know.

        Parameters
        ----------
        rows : ndarray of int, or slice
            In range.
        """
        if self.changed is not None:
            self.changed[rows] = True

    def to(self, device: str) -> Self:
        """Move the arrays to a device.

        Parameters
        ----------
        device : {"cpu", "cuda"}
            Where to; "cuda:1" is the second GPU.

        Returns
        -------
        State
            This state.
        """
        moved = {name: to_device(array, checked(device)) for name, array in self.arrays().items()}
        if self.missed:
            self.missed.last = to_device(self.missed.last, checked(device))
        vars(self).update(moved)
        self.changed = None
        return self

    def state_dict(self) -> dict[str, Any]:
        """The step count and the arrays by name.

        Returns
        -------
        dict
            Refers to the arrays of this state: copy what must not change with it.
        """
        return {"step": self.step, **self.arrays(), **(self.missed.state_dict() if self.missed else {})}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave, once all of it is known to fit.

        Parameters
        ----------
        saved : mapping
            With the names, shapes and dtypes of this state.

        Raises
        ------
        TypeError
            Not a mapping, or an entry that is not an array.
        ValueError
            Missing or unknown names, another shape or dtype, an array of this state that is read-only. After any error
            nothing has changed.
        """
        self.loader(saved)()

    def loader(self, saved: Mapping[str, Any]) -> Callable[[], None]:
        """Check what `load_state_dict` is given, and return what takes it over.

        Parameters
        ----------
        saved : mapping
            With the names, shapes and dtypes of this state.

        Returns
        -------
        callable
            Without parameters; nothing has changed before it is called.
        """
        step, arrays, missed = self._checked(saved)

        def load() -> None:
            self.mark(slice(None))
            for name, array in self.arrays().items():
                array[...] = arrays[name]
            if self.missed:
                self.missed.take(*missed)
            self.step = step

        return load

    def _checked(self, saved: Mapping[str, Any]) -> tuple[int, dict[str, NDArray[Any]], tuple[NDArray[Any], ...]]:
        own = self.arrays()
        require_entries("state", saved, set(self.state_dict()))
        for name, array in own.items():
            as_table(in_columns(array), f"state.{name}", write=True)
        arrays = {name: same_kind(f"state {name!r}", saved[name], array) for name, array in own.items()}
        missed = self.missed.checked(saved) if self.missed else ()
        return _options.integer("step", saved["step"], at_least=0), arrays, missed


@dataclasses.dataclass(eq=False)
class AdamState(State):
    """State of `Adam`: running means of the gradient and of its square.

    Parameters
    ----------
    step : int
        Steps taken, t.
    m, v : (N, D) ndarray
        The running means; float32 for half-width tables, else the table's dtype.
    """

    m: NDArray[Any] = dataclasses.field(kw_only=True)
    v: NDArray[Any] = dataclasses.field(kw_only=True)


@dataclasses.dataclass(eq=False)
class MomentumState(State):
    """State of `Momentum`: the buffer, and which rows were touched.

    Parameters
    ----------
    step : int
        Steps taken, t.
    buf : (N, D) ndarray
        The buffer; float32 for half-width tables, else the table's dtype.
    touched : (N,) ndarray
        1 for rows that were touched, else 0; in mode "exact" 1 for all.
    """

    buf: NDArray[Any] = dataclasses.field(kw_only=True)
    touched: NDArray[Any] = dataclasses.field(kw_only=True)


@dataclasses.dataclass(eq=False)
class AdagradState(State):
    """State of `Adagrad`: sums of squares.

    Parameters
    ----------
    step : int
        Steps taken, t.
    S : (N, D) ndarray
        Sums of squared gradients; float32 for half-width tables, else the table's dtype.
    """

    S: NDArray[Any] = dataclasses.field(kw_only=True)


@dataclasses.dataclass(eq=False)
class RowWiseAdagradState(State):
    """State of `RowWiseAdagrad`: a sum for each row.

    Parameters
    ----------
    step : int
        Steps taken, t.
    s : (N,) ndarray
        Sums of mean squared gradients; float32 for half-width tables, else the table's dtype.
    """

    s: NDArray[Any] = dataclasses.field(kw_only=True)


@dataclasses.dataclass(eq=False)
class RMSpropState(State):
    """State of `RMSprop`: running means, and the buffer.

    Parameters
    ----------
    step : int
        Steps taken, t.
    v : (N, D) ndarray
        Running mean of squared gradients; float32 for half-width tables, else the table's dtype.
    mean : (N, D) or (0, D) ndarray
        Running mean of gradients, if centered.
    buf : (N, D) or (0, D) ndarray
        The buffer, with momentum.
    """

    v: NDArray[Any] = dataclasses.field(kw_only=True)
    mean: NDArray[Any] = dataclasses.field(kw_only=True)
    buf: NDArray[Any] = dataclasses.field(kw_only=True)


@dataclasses.dataclass(eq=False)
class FtrlState(State):
    """State of `Ftrl`: z and sums of squares.

    Parameters
    ----------
    step : int
        Steps taken, t.
    z : (N, D) ndarray
        What gradients and steps have added up to; float32 for half-width tables, else the table's dtype.
    n : (N, D) ndarray
        Sums of squared gradients.
    """

    z: NDArray[Any] = dataclasses.field(kw_only=True)
    n: NDArray[Any] = dataclasses.field(kw_only=True)
