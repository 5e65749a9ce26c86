"""Embedding: a layer around one table."""

from __future__ import annotations

from typing import Any, Self, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._arrays import Indices, TensorLike, accumulator, as_gradient, as_indices, check_indices
from .._groups import Groups, row_gradient
from ..functional import gather, renorm_
from ..optim import Optimizer, State
from .initialisers import Initialiser
from .table import TableLayer


class Embedding(TableLayer):
    """A trainable table that maps ids to vectors: ``y[..., :] = weight[ids[...], :]``.

    Parameters
    ----------
    num_embeddings : int
        N, rows of the table, at least 1.
    embedding_dim : int, optional
        D, width of a row, at least 1. Without it there is no table before `bind` is told the width.
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
    device : {"cpu", "cuda"}
        Where the table lies; "cuda:1" is the second GPU.
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
        dtype "bfloat16" without ml_dtypes, device "cuda" without CuPy or numba-cuda.
    RuntimeError
        Device "cuda" without a GPU.
    TypeError
        An option of a wrong kind.
    ValueError
        An option out of range.

    Notes
    -----
    Nothing is hidden: the ids are given to `backward` again, and no call keeps them. Unlike torch's ``nn.Embedding``,
    whose default is ``N(0, 1)``, the default `init` scales with N. A lookup only reads, from any number of threads;
    with `max_norm` or an optimizer in mode "exact" it writes rows too, and one thread at a time may look up.

    References
    ----------
    Y. Bengio et al., "A Neural Probabilistic Language Model", 2003, https://jmlr.org/papers/v3/bengio03a.html

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
        embedding_dim: SupportsIndex | None = None,
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
        self._create(
            num_embeddings,
            embedding_dim,
            init,
            optimizer,
            dtype,
            device,
            seed,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
        )

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
        copy: bool = True,
        state: State | None = None,
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
        copy : bool
            False: a layer that is not frozen trains `weight` itself, such as a table in a file (`io.open_table`).
        state : fastemb.optim.State, optional
            That of `optimizer` for `weight`, such as one in a file (`io.open_state`); a new one by default.

        Returns
        -------
        Embedding
            The layer.

        Raises
        ------
        TypeError
            `weight` is not a float array, or an option is of a wrong kind.
        ValueError
            `weight` is not two-dimensional or empty, or an option is out of range; a state of another rule or table,
            another dtype with ``copy=False``.

        Examples
        --------
        >>> import numpy as np, fastemb
        >>> vectors = np.array([[0.0, 0.0], [0.5, 0.25]])
        >>> emb = fastemb.Embedding.from_pretrained(vectors)
        >>> emb.weight is vectors, emb([1])
        (True, array([[0.5 , 0.25]]))
        """
        return cls._adopt(
            weight,
            freeze,
            optimizer,
            dtype,
            copy,
            state,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
        )

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
        ValueError
            A read-only table, with `max_norm` or an optimizer in mode "exact".
        """
        if self.writes_at_lookup:
            ids = as_indices(ids, like=self.weight)  # read once: a tensor may be handed over only once
            self.make_ready(ids)  # whatever comes first in it checks all of them before it writes
        return gather(self.weight, ids)

    def require(self, ids: Indices) -> None:
        """IndexError unless all ids are in range.

        Parameters
        ----------
        ids : ndarray of int
            What will be looked up.

        Raises
        ------
        IndexError
            An id out of range.
        """
        check_indices(ids, self.num_embeddings)

    def make_ready(self, ids: Indices) -> None:
        """Do to the rows what comes before a lookup: bring them up to date, and shrink them to `max_norm`.

        Parameters
        ----------
        ids : ndarray of int
            What will be looked up, in range.
        """
        self.catch_up(ids)
        if self.max_norm is not None:
            if self.state is not None and self.state.changed is not None:
                self.require(ids)
                self.state.mark(ids)
            renorm_(self.weight, ids, self.max_norm, self.norm_type)

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
        indices = as_indices(ids, like=self.weight)
        values = as_gradient(dy, (*indices.shape, self.embedding_dim), self.weight.dtype, "dy", like=self.weight)
        groups = Groups.of(indices, self.num_embeddings, self.padding_idx)
        dtype = accumulator(self.weight.dtype)
        scale = self.scale_grad_by_freq
        self._add(row_gradient(groups, values, self.num_embeddings, dtype, scale_grad_by_freq=scale))

    def fused_step(
        self,
        ids: TensorLike,
        dy: TensorLike,
        *,
        lr: SupportsFloat | None = None,
        max_grad_norm: SupportsFloat | None = None,
    ) -> None:
        """`backward` and `step` in one pass over the rows: no gradient array exists, and `grad` stays None.

        What is pending in `grad` is part of the step; then the gradients are added first. A frozen layer does nothing.

        Parameters
        ----------
        ids : array_like of int, any shape
            What was looked up.
        dy : (*ids.shape, D) array_like
            Gradient of the result; must cast safely to the table's accumulation dtype.
        lr : float, optional
            Learning rate of this step, in place of the optimizer's own.
        max_grad_norm : float, optional
            Scale the gradient so that its norm is at most this.

        Raises
        ------
        IndexError
            An id out of range.
        RuntimeError
            The layer has no optimizer.
        TypeError
            Ids that are not integers, a gradient that does not cast safely.
        ValueError
            A gradient of a wrong shape. After any error nothing has changed.

        Examples
        --------
        >>> import numpy as np, fastemb
        >>> emb = fastemb.Embedding(10, 1, optimizer=fastemb.optim.SGD(lr=1.0), init="zeros")
        >>> emb.fused_step([2, 0, 2], np.ones((3, 1), np.float32))
        >>> emb.weight[[0, 1, 2], 0]
        array([-1.,  0., -2.], dtype=float32)
        """
        self._fuse(ids, dy, lr=lr, max_grad_norm=max_grad_norm)

    def _apply(self, rule: Optimizer, state: State, ids: TensorLike, dy: TensorLike, **options: Any) -> None:
        options |= {"padding_idx": self.padding_idx, "scale_grad_by_freq": self.scale_grad_by_freq}
        rule.step(self.weight, state, ids, dy, **options)
