"""What every layer that trains one table does: gradients, optimizer, state."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, SupportsFloat

from numpy.typing import NDArray

from .._arrays import TensorLike, as_table
from .._state import require_entries, same_kind
from ..optim import Optimizer, State
from ..rowgrad import RowGrad
from .savable import Savable


class Trained(Savable, abc.ABC):
    """A table, the gradient that is pending for it, and the optimizer with its state."""

    weight: NDArray[Any]
    grad: RowGrad | None
    state: State | None
    _optimizer: Optimizer | None
    _frozen: bool

    _inner = False
    """Whether users see this layer only as a part of another."""

    @property
    @abc.abstractmethod
    def padding_idx(self) -> int | None:
        """The row without gradient, in ``[0, N)``."""

    @property
    @abc.abstractmethod
    def max_norm(self) -> float | None:
        """The greatest norm that a lookup leaves."""

    @property
    def optimizer(self) -> Optimizer | None:
        """The rule that `step` applies; a new one keeps the state if it fits, with all rows brought up to date."""
        return self._optimizer

    @optimizer.setter
    def optimizer(self, rule: Optimizer | None) -> None:
        if rule is not None and not isinstance(rule, Optimizer):
            msg = f"optimizer must be a fastemb.optim.Optimizer, got {type(rule).__name__}"
            raise TypeError(msg)
        self.flush()
        if rule is None or self._frozen or "weight" not in self.__dict__:
            self.state = None
        else:
            kept = self.state
            self.state = kept if kept is not None and rule.serves(self.weight, kept) else rule.init(self.weight)
        self._optimizer = rule

    def _add(self, grad: RowGrad) -> None:
        self.grad = grad if self.grad is None else self.grad + grad

    def step(self, *, lr: SupportsFloat | None = None, max_grad_norm: SupportsFloat | None = None) -> None:
        """Apply what is pending in `grad` with the optimizer, and clear it; without any, or frozen, do nothing.

        Parameters
        ----------
        lr : float, optional
            Learning rate of this step, in place of the optimizer's own.
        max_grad_norm : float, optional
            Scale the gradient so that its norm is at most this.

        Raises
        ------
        RuntimeError
            The layer has no optimizer.
        """
        if self._frozen:
            return
        optimizer, state = self._training()
        if self.grad is not None:
            optimizer.update(self.weight, state, self.grad, lr=lr, max_grad_norm=max_grad_norm)
            self.grad = None

    def require_optimizer(self, lr: SupportsFloat | None = None) -> None:
        """Check that a step can be taken: for what is going to take several.

        Parameters
        ----------
        lr : float, optional
            The learning rate of the step.

        Raises
        ------
        RuntimeError
            The layer has no optimizer, and is not frozen.
        ValueError
            A learning rate that the optimizer does not take, a read-only table.
        """
        if not self._frozen:
            rule, _ = self._training()
            as_table(self.weight, write=True)
            rule.check_rate(rule.lr if lr is None else lr)

    def _training(self) -> tuple[Optimizer, State]:
        if self.optimizer is None or self.weight is None or self.state is None:
            example = "optimizer=fastemb.optim.SGD(lr=0.1)"
            if not self._inner:
                example = f"{type(self).__name__}(N, D, {example})"
            msg = f"this layer has no optimizer: pass one, as in {example}"
            raise RuntimeError(msg)
        return self.optimizer, self.state

    def _fuse(self, *batch: Any, **options: Any) -> None:
        """`backward` and `step` of a batch, in one pass unless something is pending."""
        if self._frozen:
            return
        rule, state = self._training()
        if self.grad is None:
            self._apply(rule, state, *batch, **options)
            return
        pending = self.grad
        self.backward(*batch)
        try:
            self.step(**options)
        except Exception:
            self.grad = pending
            raise

    @abc.abstractmethod
    def backward(self, *batch: Any) -> None:
        """Add the gradient of a lookup's result to `grad`."""

    @abc.abstractmethod
    def _apply(self, rule: Optimizer, state: State, *batch: Any, **options: Any) -> None:
        """A step of the optimizer with the gradient of a lookup's result."""

    @property
    def _moves(self) -> bool:
        """Whether rows move without being touched."""
        return self.state is not None and self.state.missed is not None

    @property
    def writes_at_lookup(self) -> bool:
        """Whether a lookup changes the rows that it reads: with `max_norm`, or an optimizer in mode "exact"."""
        return self.max_norm is not None or self._moves

    def catch_up(self, ids: TensorLike) -> None:
        """Bring rows up to date that will be read from `weight` itself, with an optimizer in mode "exact".

        Parameters
        ----------
        ids : array_like of int, any shape
            Which rows; in ``[0, N)``.

        Raises
        ------
        IndexError
            A row out of range.
        """
        if self._moves:
            rule, state = self._training()
            rule.catch_up(self.weight, state, ids, padding_idx=self.padding_idx)

    def flush(self) -> None:
        """Bring all rows up to date, with an optimizer in mode "exact"; else nothing is to be done.

        Lookups bring the rows that they read up to date; call this before you read `weight` itself.
        """
        if self._moves:
            rule, state = self._training()
            rule.flush(self.weight, state, padding_idx=self.padding_idx)

    def zero_grad(self) -> None:
        """Forget what is pending in `grad`."""
        self.grad = None

    def parameters(self) -> list[NDArray[Any]]:
        """The arrays that training changes.

        Returns
        -------
        list of ndarray
            The table, or nothing if the layer is frozen.
        """
        return [] if self._frozen else [self.weight]

    def state_dict(self) -> dict[str, Any]:
        """All that training changes: the table and, with an optimizer, its step count and arrays.

        Returns
        -------
        dict
            ``{"weight": ndarray, "optimizer": {"step": int, name: ndarray, ...}}``, the second entry if there is a
            state. The arrays are the layer's own: copy them to keep a snapshot. With an optimizer in mode "exact" rows
            are as they stand, and their missed steps are part of its state: `flush` first to save weights alone.
        """
        saved: dict[str, Any] = {"weight": self.weight}
        if self.state is not None:
            saved["optimizer"] = self.state.state_dict()
        return saved

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave, once all of it is known to fit. What is pending is kept.

        The arrays of the layer are written, also a table that a frozen layer shares.

        Parameters
        ----------
        saved : mapping
            With the names, shapes and dtypes of this layer.

        Raises
        ------
        TypeError
            Not a mapping, or an entry that is not an array.
        ValueError
            Missing or unknown names, another shape or dtype, a read-only table. After any error nothing has changed.
        """
        self.loader(saved)()

    def loader(self, saved: Mapping[str, Any]) -> Callable[[], None]:
        """Check what `load_state_dict` is given, and return what takes it over.

        Parameters
        ----------
        saved : mapping
            With the names, shapes and dtypes of this layer.

        Returns
        -------
        callable
            Without parameters; nothing has changed before it is called.
        """
        require_entries("state_dict", saved, {"weight"} | ({"optimizer"} if self.state is not None else set()))
        weight = same_kind("weight", saved["weight"], self.weight)
        as_table(self.weight, write=True)
        load_state = None if self.state is None else self.state.loader(saved["optimizer"])

        def load() -> None:
            if load_state is not None:
                load_state()
            self.weight[...] = weight

        return load
