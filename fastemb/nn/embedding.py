"""Embedding: a layer around one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import _options
from .._arrays import TensorLike, accumulator, as_gradient, as_indices, as_table, check_indices
from .._compat import as_dtype
from .._groups import row_gradient
from .._state import same_kind
from ..functional import gather, renorm_
from ..optim import Optimizer, State
from ..rowgrad import RowGrad
from .initialisers import Initialiser, make_table


class Embedding:
    """A trainable table that maps ids to vectors: ``y[..., :] = weight[ids[...], :]``.

    Parameters
    ----------
    num_embeddings : int
        N, rows of the table, at least 1.
    embedding_dim : int
        D, width of a row, at least 1.
    padding_idx : int, optional
        In ``[-N, N)``. This row starts as zeros and gets no gradient; a lookup returns what it holds.
    max_norm : float, optional
        Before a lookup the rows looked up are shrunk, in the table, to at most this norm: see `renorm_`.
    norm_type : float
        p of that norm, > 0; may be ``inf``.
    scale_grad_by_freq : bool
        Divide gradients by how often their id occurs in the call.
    init : {"uniform_fan", "normal", "zeros"} or callable
        ``U(-sqrt(1/N), sqrt(1/N))``, ``N(0, 1)`` (as torch), zeros, or ``init(rng, shape, dtype) -> (N, D) array``.
    optimizer : fastemb.optim.Optimizer, optional
        The rule that `step` applies.
    dtype : dtype_like
        "float32" and "float64" are fast; "float16", and "bfloat16" with ml_dtypes installed, are right.
    device : {"cpu"}
        Where the table lies.
    seed : int, numpy.random.SeedSequence or numpy.random.Generator, optional
        Makes `init` repeatable.

    Attributes
    ----------
    weight : (N, D) ndarray
        The table.
    grad : RowGrad or None
        What `backward` has added up since the last `step` or `zero_grad`.
    state : fastemb.optim.State or None
        The optimizer's state.

    Raises
    ------
    ImportError
        dtype "bfloat16" without ml_dtypes.
    TypeError
        An option of a wrong kind.
    ValueError
        An option out of range.

    Notes
    -----
    Nothing is hidden: the ids are given to `backward` again, and no call keeps them. Unlike torch's ``nn.Embedding``,
    whose default is ``N(0, 1)``, the default `init` scales with N.

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> emb = fastemb.Embedding(10, 4, optimizer=fastemb.optim.SGD(lr=1.0), init="zeros")
    >>> ids = np.array([[2, 0], [5, 2]])
    >>> emb(ids).shape
    (2, 2, 4)
    >>> emb.backward(ids, np.ones((2, 2, 4), np.float32))
    >>> emb.grad
    RowGrad(3 of 10 rows, width 4, float32)
    >>> emb.step()
    >>> emb.weight[[0, 1, 2], 0]
    array([-1.,  0., -2.], dtype=float32)
    """

    def __init__(
        self,
        num_embeddings: SupportsIndex,
        embedding_dim: SupportsIndex,
        *,
        padding_idx: SupportsIndex | None = None,
        max_norm: SupportsFloat | None = None,
        norm_type: SupportsFloat = 2.0,
        scale_grad_by_freq: bool = False,
        init: str | Initialiser = "uniform_fan",
        optimizer: Optimizer | None = None,
        dtype: DTypeLike = "float32",
        device: str = "cpu",
        seed: int | np.random.SeedSequence | np.random.Generator | None = None,
    ) -> None:
        shape = (
            _options.integer("num_embeddings", num_embeddings, at_least=1),
            _options.integer("embedding_dim", embedding_dim, at_least=1),
        )
        if device != "cpu":
            msg = f"device must be 'cpu' in this version, got {device!r}"
            raise ValueError(msg)
        kind = _table_dtype(dtype)
        self._set_options(shape[0], padding_idx, max_norm, norm_type, scale_grad_by_freq)
        self._own(make_table(init, seed, shape, kind), optimizer, frozen=False)
        if self.padding_idx is not None:
            self.weight[self.padding_idx] = 0

    @classmethod
    def from_pretrained(
        cls,
        weight: NDArray[Any],
        *,
        freeze: bool = True,
        padding_idx: SupportsIndex | None = None,
        max_norm: SupportsFloat | None = None,
        norm_type: SupportsFloat = 2.0,
        scale_grad_by_freq: bool = False,
        optimizer: Optimizer | None = None,
        dtype: DTypeLike | None = None,
    ) -> Self:
        """Make a layer around an existing table.

        Parameters
        ----------
        weight : (N, D) ndarray
            The table, N and D at least 1. The padding row is taken as it is.
        freeze : bool
            True: the layer shares `weight` if it has the wanted dtype, and `backward` and `step` do nothing. False: the
            layer trains a copy.
        padding_idx : int, optional
            As for the class, but the row keeps what it holds.
        max_norm : float, optional
            As for the class. A frozen layer shrinks rows of the shared array.
        norm_type : float
            As for the class.
        scale_grad_by_freq : bool
            As for the class.
        optimizer : fastemb.optim.Optimizer, optional
            As for the class.
        dtype : dtype_like, optional
            That of `weight` by default, in native byte order where it has to be converted.

        Returns
        -------
        Embedding
            The layer.

        Raises
        ------
        TypeError
            `weight` is not a float array, or an option is of a wrong kind.
        ValueError
            `weight` is not two-dimensional or empty, or an option is out of range.

        Examples
        --------
        >>> import numpy as np, fastemb
        >>> vectors = np.array([[0.0, 0.0], [0.5, 0.25]])
        >>> emb = fastemb.Embedding.from_pretrained(vectors)
        >>> emb.weight is vectors, emb([1])
        (True, array([[0.5 , 0.25]]))
        """
        table = as_table(weight)
        kind = table.dtype if dtype is None else _table_dtype(dtype)
        _options.integer("num_embeddings", table.shape[0], at_least=1)
        _options.integer("embedding_dim", table.shape[1], at_least=1)
        self = cls.__new__(cls)
        self._set_options(table.shape[0], padding_idx, max_norm, norm_type, scale_grad_by_freq)
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
        self.weight = weight
        self.grad: RowGrad | None = None
        self._frozen = frozen
        self.optimizer = optimizer

    @property
    def optimizer(self) -> Optimizer | None:
        """The rule that `step` applies; a new one of the same kind keeps the state, one of another kind starts anew."""
        return self._optimizer

    @optimizer.setter
    def optimizer(self, rule: Optimizer | None) -> None:
        if rule is not None and not isinstance(rule, Optimizer):
            msg = f"optimizer must be a fastemb.optim.Optimizer, got {type(rule).__name__}"
            raise TypeError(msg)
        if rule is None or self._frozen:
            self.state: State | None = None
        elif type(rule) is not type(getattr(self, "_optimizer", None)):
            self.state = rule.init(self.weight)
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
        return int(self.weight.shape[0])

    @property
    def embedding_dim(self) -> int:
        """D, width of a row."""
        return int(self.weight.shape[1])

    def __call__(self, ids: TensorLike) -> NDArray[Any]:
        """Look ids up: ``weight[ids]``, after `max_norm` if that is set.

        Parameters
        ----------
        ids : array_like of int, any shape
            In ``[0, N)``.

        Returns
        -------
        (*ids.shape, D) ndarray
            A new array.

        Raises
        ------
        IndexError
            An id out of range; the table has not been changed then.
        TypeError
            Ids that are not integers.
        """
        if self.max_norm is not None:
            ids = as_indices(ids)  # read once: a tensor may be handed over only once
            check_indices(ids, self.num_embeddings)
            renorm_(self.weight, ids, self.max_norm, self.norm_type)
        return gather(self.weight, ids)

    def backward(self, ids: TensorLike, dy: TensorLike) -> None:
        """Add the gradient of a lookup's result to `grad`. A frozen layer does nothing.

        Parameters
        ----------
        ids : array_like of int, any shape
            What was looked up.
        dy : (*ids.shape, D) array_like
            Gradient of the result; must cast safely to the table's accumulation dtype.

        Raises
        ------
        IndexError
            An id out of range.
        TypeError
            Ids that are not integers, a gradient that does not cast safely.
        ValueError
            A gradient of a wrong shape. After any error `grad` is as before.
        """
        if self._frozen:
            return
        indices = as_indices(ids)
        values = as_gradient(dy, (*indices.shape, self.embedding_dim), self.weight.dtype, "dy")
        dtype = accumulator(self.weight.dtype)
        grad = row_gradient(
            indices,
            values,
            self.num_embeddings,
            dtype,
            self.padding_idx,
            scale_grad_by_freq=self.scale_grad_by_freq,
        )
        self.grad = grad if self.grad is None else self.grad + grad

    def step(self, *, lr: SupportsFloat | None = None) -> None:
        """Apply what is pending in `grad` with the optimizer, and clear it; without any, or frozen, do nothing.

        Parameters
        ----------
        lr : float, optional
            Learning rate of this step, in place of the optimizer's own.

        Raises
        ------
        RuntimeError
            The layer has no optimizer.
        """
        if self._frozen:
            return
        if self.optimizer is None or self.state is None:
            msg = "this layer has no optimizer: pass one, as in Embedding(N, D, optimizer=fastemb.optim.SGD(lr=0.1))"
            raise RuntimeError(msg)
        if self.grad is not None:
            self.optimizer.update(self.weight, self.state, self.grad, lr=lr)
            self.grad = None

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
            state. The arrays are the layer's own: copy them to keep a snapshot.
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
        if not isinstance(saved, Mapping):
            msg = f"state_dict must be a mapping, got {type(saved).__name__}"
            raise TypeError(msg)
        names = {"weight"} | ({"optimizer"} if self.state is not None else set())
        if set(saved) != names:
            msg = f"state_dict must have the entries {sorted(names)}, got {sorted(saved)}"
            raise ValueError(msg)
        weight = same_kind("weight", saved["weight"], self.weight)
        as_table(self.weight, write=True)
        if self.state is not None:
            self.state.load_state_dict(saved["optimizer"])
        self.weight[...] = weight

    def __repr__(self) -> str:
        """Sizes, dtype and the options that are set."""
        options = [f"{self.num_embeddings}, {self.embedding_dim}"]
        for name in ("padding_idx", "max_norm", "optimizer"):
            if getattr(self, name) is not None:
                options.append(f"{name}={getattr(self, name)!r}")
        options.append(f"dtype={self.weight.dtype}")
        return f"Embedding({', '.join(options)})"


def _table_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    return as_table(np.empty((0, 0), as_dtype(dtype)), "dtype").dtype.newbyteorder("=")
