"""What layers made of several tables share, and a table all of whose rows take part in every call."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from typing import Any, Self, SupportsFloat

from numpy.typing import NDArray

from .. import _options
from .._devices import checked, namespace, to_device
from .._state import require_entries
from ..optim import Optimizer, State
from ..rowgrad import RowGrad, hand_over
from .savable import Savable
from .table import TableLayer


class Composite(Savable, abc.ABC):
    """A layer whose parameters are tables of other layers: `step`, `state_dict` and the rest go through them."""

    _carried: tuple[str, ...] = ()
    """Arrays that lie where the tables do."""

    @abc.abstractmethod
    def tables(self) -> dict[str, TableLayer]:
        """The layers that hold the parameters, by name, each once.

        Returns
        -------
        dict of str to layer
            The layers themselves.
        """

    @property
    def device(self) -> str:
        """Where the tables lie: "cpu", or "cuda:0" for the first GPU."""
        return next(iter(self.tables().values())).device

    def to(self, device: str) -> Self:
        """Move the tables to a device, with the optimizer's state and what is pending.

        Parameters
        ----------
        device : {"cpu", "cuda"}
            Where to; "cuda:1" is the second GPU.

        Returns
        -------
        layer
            This layer; the arrays that it had are no longer its own.

        Raises
        ------
        ImportError
            A GPU without CuPy or numba-cuda.
        RuntimeError
            No GPU.
        TypeError
            bfloat16 on a GPU.
        ValueError
            Another device.
        """
        where = checked(device)
        for table in self.tables().values():
            table.to(where)
        for name in self._carried:
            setattr(self, name, to_device(getattr(self, name), where))
        return self

    def step(self, *, lr: SupportsFloat | None = None, max_grad_norm: SupportsFloat | None = None) -> None:
        """Apply what is pending with the optimizer, and clear it.

        Parameters
        ----------
        lr : float, optional
            Learning rate of this step, in place of the optimizer's own.
        max_grad_norm : float, optional
            Scale the gradient so that its norm, over all tables, is at most this; not where it is NaN or infinite.

        Raises
        ------
        RuntimeError
            A table has no optimizer.
        ValueError
            A learning rate or limit that is none. After any error nothing has changed.
        """
        tables, limit = self.tables().values(), self._checked_step(lr, max_grad_norm)
        norms = [0.0 if table.grad is None or limit is None else table.grad.norm() for table in tables]
        norm = math.hypot(*norms)
        clips = limit is not None and math.isfinite(norm) and norm > limit
        for table, share in zip(tables, norms, strict=True):
            table.step(lr=lr, max_grad_norm=share * (limit / norm) if clips and limit is not None else None)

    def _checked_step(self, lr: SupportsFloat | None, max_grad_norm: SupportsFloat | None) -> float | None:
        """The limit, once it is known that every table can take a step."""
        for table in self.tables().values():
            table.require_optimizer(lr)
        return None if max_grad_norm is None else _options.real("max_grad_norm", max_grad_norm, infinite=True)

    def zero_grad(self) -> None:
        """Forget what is pending."""
        for table in self.tables().values():
            table.zero_grad()

    def flush(self) -> None:
        """Bring all rows up to date, with an optimizer in mode "exact"; else nothing is to be done."""
        for table in self.tables().values():
            table.flush()

    def parameters(self) -> list[NDArray[Any]]:
        """The arrays that training changes.

        Returns
        -------
        list of ndarray
            The arrays themselves, each once.
        """
        return [array for table in self.tables().values() for array in table.parameters()]

    def state_dict(self) -> dict[str, Any]:
        """All that training changes, by the name of the table.

        Returns
        -------
        dict
            ``{name: state_dict of that table}``. The arrays are the layer's own: copy them to keep a snapshot.
        """
        return {name: table.state_dict() for name, table in self.tables().items()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave, once all of it is known to fit. What is pending is kept.

        Parameters
        ----------
        saved : mapping
            With the names, shapes and dtypes of this layer.

        Raises
        ------
        TypeError
            Not a mapping, or an entry that is not one or not an array.
        ValueError
            Missing or unknown names, another shape or dtype. After any error nothing has changed.
        """
        tables = self.tables()
        require_entries("state_dict", saved, set(tables))
        loaders = [table.loader(saved[name]) for name, table in tables.items()]
        for load in loaders:
            load()


class Dense(TableLayer):
    """A matrix of parameters all of whose rows have a gradient; `backward` is given the gradient itself, to keep."""

    _inner = True

    def __init__(self, weight: NDArray[Any], optimizer: Optimizer | None) -> None:
        self._set_options(len(weight), None, None, 2.0, False)
        self._own(weight, optimizer, frozen=False)

    def backward(self, *batch: Any) -> None:
        """Add an (N, D) gradient to `grad`."""
        self._add(self._all_rows(*batch))

    def _apply(self, rule: Optimizer, state: State, *batch: Any, **options: Any) -> None:
        rule.update(self.weight, state, self._all_rows(*batch), **options)

    def _all_rows(self, gradient: NDArray[Any]) -> RowGrad:
        count = self.num_embeddings
        return hand_over(namespace(gradient).arange(count), gradient, count)
