"""What every layer around one table has: options, optimizer, state."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import _options
from .._arrays import TensorLike, as_table
from .._compat import as_dtype
from .._state import require_entries, same_kind
from ..optim import Optimizer, State
from ..rowgrad import RowGrad
from .initialisers import Initialiser, make_table


class UnknownWidthError(RuntimeError, AttributeError):
    """There is no table yet; an AttributeError too, so that `hasattr` says so."""


class TableLayer(abc.ABC):
    """A trainable table; its subclasses say what is looked up, and what the gradient of that is.

    Attributes
    ----------
    weight : (N, D) ndarray
        The table.
    grad : RowGrad or None
        What `backward` has added up since the last `step` or `zero_grad`.
    state : fastemb.optim.State or None
        The optimizer's state.
    """

    weight: NDArray[Any]

    _inner = False
    """Whether users see this layer only as a part of another."""

    _shown: tuple[str, ...] = ("padding_idx", "max_norm", "optimizer")
    """Options that `repr` shows where they are set."""

    def _create(
        self,
        num_embeddings: SupportsIndex,
        embedding_dim: SupportsIndex | None,
        init: str | Initialiser,
        optimizer: Optimizer | None,
        dtype: DTypeLike,
        device: str,
        seed: int | np.random.SeedSequence | np.random.Generator | None,
        **options: Any,
    ) -> None:
        self._num_rows = _options.size("num_embeddings", num_embeddings)
        width = None if embedding_dim is None else _options.size("embedding_dim", embedding_dim)
        if device != "cpu":
            msg = f"device must be 'cpu' in this version, got {device!r}"
            raise ValueError(msg)
        kind = table_dtype(dtype)
        self._set_options(self._num_rows, **options)
        self._make = partial(make_table, init, seed, dtype=kind)
        self._set_up(optimizer, frozen=False)
        if width is not None:
            self.bind(width)

    def bind(self, dim: Any) -> None:
        """Make the table, for a layer that was made without `embedding_dim`.

        Parameters
        ----------
        dim : int, or a layer with `in_features`
            D; a consumer states its own width.

        Raises
        ------
        TypeError
            Not an integer, and without `in_features`.
        ValueError
            Out of range, or another width than the layer has already.

        Examples
        --------
        >>> import fastemb
        >>> emb = fastemb.Embedding(64)  # its width follows from what comes after it
        >>> emb.bind(5)
        >>> emb
        Embedding(64, 5, dtype=float32)
        """
        width = _options.size("embedding_dim", getattr(dim, "in_features", dim))
        if self.embedding_dim is not None:
            if width != self.embedding_dim:
                msg = f"embedding_dim must be {self.embedding_dim}, as it is already, got {width}"
                raise ValueError(msg)
            return
        self.weight = self._make(shape=(self._num_rows, width))
        del self._make  # it may hold what cannot be pickled
        if self.padding_idx is not None:
            self.weight[self.padding_idx] = 0
        self.optimizer = self._optimizer  # and its state

    def __getattr__(self, name: str) -> Any:
        """Say what to do about a table that is not there yet."""
        if name == "weight":
            msg = "embedding_dim of this layer is not known yet: pass it, or call bind(dim)"
            raise UnknownWidthError(msg)
        msg = f"{type(self).__name__!r} object has no attribute {name!r}"
        raise AttributeError(msg)

    @classmethod
    def _adopt(
        cls, weight: NDArray[Any], freeze: bool, optimizer: Optimizer | None, dtype: DTypeLike | None, **options: Any
    ) -> Self:
        table = as_table(weight)
        kind = table.dtype if dtype is None else table_dtype(dtype)
        _options.size("embedding_dim", table.shape[1])
        self = cls.__new__(cls)
        self._set_options(_options.size("num_embeddings", table.shape[0]), **options)
        if not freeze or table.dtype != kind:
            with np.errstate(all="ignore"):
                weight = table.astype(kind.newbyteorder("="), order="C")
        self._own(weight, optimizer, frozen=bool(freeze))
        return self

    def _set_options(
        self,
        num_rows: int,
        padding_idx: SupportsIndex | None,
        max_norm: SupportsFloat | None,
        norm_type: SupportsFloat,
        scale_grad_by_freq: bool,
    ) -> None:
        self._padding_idx = _options.padding(padding_idx, num_rows)
        self._max_norm = None if max_norm is None else _options.real("max_norm", max_norm, infinite=True)
        self._norm_type = _options.real("norm_type", norm_type, above=0.0, infinite=True)
        self._scale_grad_by_freq = bool(scale_grad_by_freq)

    def _own(self, weight: NDArray[Any], optimizer: Optimizer | None, *, frozen: bool) -> None:
        self.weight, self._num_rows = weight, len(weight)
        self._set_up(optimizer, frozen=frozen)

    def _set_up(self, optimizer: Optimizer | None, *, frozen: bool) -> None:
        self.grad: RowGrad | None = None
        self._frozen = frozen
        self.state: State | None = None
        self.optimizer = optimizer

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
        if rule is None or self._frozen or self.embedding_dim is None:
            self.state = None
        else:
            kept = self.state
            self.state = kept if kept is not None and rule.serves(self.weight, kept) else rule.init(self.weight)
        self._optimizer = rule

    @property
    def padding_idx(self) -> int | None:
        """The row without gradient, in ``[0, N)``."""
        return self._padding_idx

    @property
    def max_norm(self) -> float | None:
        """The greatest norm that a lookup leaves."""
        return self._max_norm

    @property
    def norm_type(self) -> float:
        """The p of that norm."""
        return self._norm_type

    @property
    def scale_grad_by_freq(self) -> bool:
        """Whether gradients are divided by how often their id occurs."""
        return self._scale_grad_by_freq

    @property
    def num_embeddings(self) -> int:
        """N, rows of the table."""
        return int(self.weight.shape[0]) if "weight" in self.__dict__ else self._num_rows

    @property
    def embedding_dim(self) -> Any:
        """D, width of a row: an int, or None before `bind`."""
        return int(self.weight.shape[1]) if "weight" in self.__dict__ else None

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

    def __repr__(self) -> str:
        """Sizes, dtype and the options that are set."""
        options = [f"{self.num_embeddings}, {self.embedding_dim}"]
        for name in self._shown:
            if getattr(self, name) is not None:
                options.append(f"{name}={getattr(self, name)!r}")
        if self.embedding_dim is not None:
            options.append(f"dtype={self.weight.dtype}")
        return f"{type(self).__name__}({', '.join(options)})"


def table_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """A dtype that tables may have, in native byte order."""
    return as_table(np.empty((0, 0), as_dtype(dtype)), "dtype").dtype.newbyteorder("=")
