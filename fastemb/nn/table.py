"""What every layer around one table has: its options, and a device where it lies."""

from __future__ import annotations

from functools import partial
from typing import Any, Self, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import _devices, _options
from .._arrays import as_table
from .._compat import as_dtype
from ..optim import Optimizer, State
from .initialisers import Initialiser, make_table
from .trained import Trained


class UnknownWidthError(RuntimeError, AttributeError):
    """There is no table yet; an AttributeError too, so that `hasattr` says so."""


class TableLayer(Trained):
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
        kind = table_dtype(dtype)
        self._device = _devices.checked(device)
        if self._device != _devices.HOST:
            _devices.require_cuda_dtype(kind, "dtype")
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
        weight = self._make(shape=(self._num_rows, width))
        del self._make  # it may hold what cannot be pickled
        if self.padding_idx is not None:
            weight[self.padding_idx] = 0
        self.weight = _devices.to_device(weight, self._device)
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
        cls,
        weight: NDArray[Any],
        freeze: bool,
        optimizer: Optimizer | None,
        dtype: DTypeLike | None,
        copy: bool = True,
        state: State | None = None,
        **options: Any,
    ) -> Self:
        table = as_table(weight)
        kind = table.dtype if dtype is None else table_dtype(dtype)
        _options.size("embedding_dim", table.shape[1])
        if not (copy or freeze) and table.dtype != kind:
            msg = f"dtype must be that of weight with copy=False, {table.dtype}, got {kind}"
            raise ValueError(msg)
        converted = table.dtype != kind
        if state is not None and (optimizer is None or freeze or converted or not optimizer.serves(table, state)):
            msg = "state must be that of optimizer for weight, in a layer that is not frozen"
            raise ValueError(msg)
        self = cls.__new__(cls)
        self._set_options(_options.size("num_embeddings", table.shape[0]), **options)
        if (copy and not freeze) or table.dtype != kind:
            with np.errstate(all="ignore"):
                table = weight = table.astype(kind.newbyteorder("="), order="C")
        self._own(weight if isinstance(weight, np.ndarray) else table, optimizer, frozen=bool(freeze), state=state)
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

    def _own(
        self, weight: NDArray[Any], optimizer: Optimizer | None, *, frozen: bool, state: State | None = None
    ) -> None:
        self.weight, self._num_rows = weight, len(weight)
        self._device = _devices.device_of(weight)
        self._set_up(optimizer, frozen=frozen, state=state)

    def _set_up(self, optimizer: Optimizer | None, *, frozen: bool, state: State | None = None) -> None:
        self.grad = None
        self._frozen = frozen
        self._optimizer = optimizer
        self.state = state
        self.optimizer = optimizer

    @property
    def device(self) -> str:
        """Where the table lies: "cpu", or "cuda:0" for the first GPU."""
        return _devices.device_of(self.weight) if "weight" in self.__dict__ else self._device

    def to(self, device: str) -> Self:
        """Move the table, the optimizer's state and what is pending in `grad` to a device.

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

        Examples
        --------
        >>> import fastemb
        >>> emb = fastemb.Embedding(10, 4)
        >>> emb.to("cpu").device
        'cpu'
        """
        where = _devices.checked(device)
        if "weight" in self.__dict__:
            if where != _devices.HOST:
                _devices.require_cuda_dtype(self.weight.dtype, "weight")
            self.weight = _devices.to_device(self.weight, where)
            self.state = None if self.state is None else self.state.to(where)
            self.grad = None if self.grad is None else self.grad.to(where)
        self._device = where
        return self

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
