"""EmbeddingBag: a layer that pools the rows of one table."""

from __future__ import annotations

from typing import Any, Self, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._arrays import TensorLike, as_gradient
from .._bag_grad import bag_gradient
from .._bags import Bags, check_mode
from .._devices import backend, empty
from .._groups import Groups
from ..functional import renorm_
from ..optim import Optimizer, State
from .initialisers import Initialiser
from .table import TableLayer


class EmbeddingBag(TableLayer):
    """A trainable table that maps bags of ids to pooled vectors: `fastemb.embedding_bag` as a layer.

    Parameters
    ----------
    num_embeddings : int
        N, rows of the table, at least 1.
    embedding_dim : int, optional
        D, width of a row, at least 1. Without it there is no table before `bind` is told the width.
    mode : {"mean", "sum", "sqrtn", "max"}
        How the rows of a bag are pooled.
    include_last_offset : bool
        Whether offsets also say where the last bag ends.
    padding_idx : int, optional
        In ``[-N, N)``. This row starts as zeros, gets no gradient, and is left out of every bag.
    max_norm : float, optional
        Before a lookup the rows looked up are shrunk, in the table, to at most this norm: see `renorm_`.
    norm_type : float
        p of that norm, > 0; may be ``inf``.
    scale_grad_by_freq : bool
        Divide gradients by how often their id occurs in the call. Not with "max".
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
    Nothing is hidden: ids, offsets and weights are given to `backward` again, and no call keeps them. A lookup only
    reads; with `max_norm` or an optimizer in mode "exact" it writes rows too, and one thread at a time may look up.

    References
    ----------
    A. Joulin et al., "Bag of Tricks for Efficient Text Classification", 2016, https://arxiv.org/abs/1607.01759

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> bag = fastemb.EmbeddingBag(10, 4, padding_idx=0, optimizer=fastemb.optim.SGD(lr=1.0), init="zeros")
    >>> ids = np.array([[2, 5, 0], [5, 0, 0]])  # rows filled up with padding
    >>> bag(ids).shape
    (2, 4)
    >>> bag.backward(ids, None, np.ones((2, 4), np.float32))
    >>> bag.step()
    >>> bag.weight[[0, 2, 5], 0]
    array([ 0. , -0.5, -1.5], dtype=float32)
    """

    _shown = ("mode", "padding_idx", "max_norm", "optimizer")

    def __init__(
        self,
        num_embeddings: SupportsIndex,
        embedding_dim: SupportsIndex | None = None,
        *,
        mode: str = "mean",
        include_last_offset: bool = False,
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
        self._set_pooling(mode, include_last_offset, scale_grad_by_freq)
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
        mode: str = "mean",
        include_last_offset: bool = False,
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
        mode : {"mean", "sum", "sqrtn", "max"}
            As for the class.
        include_last_offset : bool
            As for the class.
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
        EmbeddingBag
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
        >>> vectors = np.array([[1.0, 0.0], [0.5, 0.25]])
        >>> fastemb.EmbeddingBag.from_pretrained(vectors, mode="sum")([[0, 1], [1, 1]])
        array([[1.5 , 0.25],
               [1.  , 0.5 ]])
        """
        self = cls._adopt(
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
        self._set_pooling(mode, include_last_offset, scale_grad_by_freq)
        return self

    def _set_pooling(self, mode: str, include_last_offset: bool, scale_grad_by_freq: bool) -> None:
        check_mode(mode, scale_grad_by_freq)
        self._mode, self._include_last_offset = mode, bool(include_last_offset)

    @property
    def mode(self) -> str:
        """How the rows of a bag are pooled."""
        return self._mode

    @property
    def include_last_offset(self) -> bool:
        """Whether offsets also say where the last bag ends."""
        return self._include_last_offset

    def _bags(self, ids: TensorLike, offsets: TensorLike | None, per_sample_weights: TensorLike | None) -> Bags:
        last, padding = self.include_last_offset, self.padding_idx
        return Bags.of(self.weight, ids, offsets, self.mode, per_sample_weights, padding, last)

    def __call__(
        self, ids: TensorLike, offsets: TensorLike | None = None, per_sample_weights: TensorLike | None = None
    ) -> NDArray[Any]:
        """Look bags of ids up and pool them, after `max_norm` if that is set.

        Parameters
        ----------
        ids : array_like of int, (L,) or (B, H)
            In ``[0, N)``. Of a 2-D array each row is a bag.
        offsets : array_like of int, (B,) or with `include_last_offset` (B + 1,)
            For 1-D ids: where each bag begins.
        per_sample_weights : array_like, shape of `ids`, optional
            What rows are multiplied by; not with "max".

        Returns
        -------
        (B, D) ndarray
            A new array.

        Raises
        ------
        IndexError
            An id out of range.
        TypeError
            Ids or offsets that are not integers, weights that do not cast safely.
        ValueError
            Offsets or weights that do not fit. After any error the table is as before.
        """
        bags = self._bags(ids, offsets, per_sample_weights)
        self.catch_up(bags.ids)
        if self.max_norm is not None:
            rows = Groups.of(bags.ids, self.num_embeddings, self.padding_idx).rows
            if self.state is not None:
                self.state.mark(rows)
            renorm_(self.weight, rows, self.max_norm, self.norm_type)
        out = empty((bags.size, self.embedding_dim), self.weight.dtype.newbyteorder("="), self.weight)
        bags.pool(out, self.weight, backend(self.weight))
        return out

    def backward(
        self,
        ids: TensorLike,
        offsets: TensorLike | None,
        dy: TensorLike,
        per_sample_weights: TensorLike | None = None,
    ) -> None:
        """Add the gradient of a lookup's result to `grad`. A frozen layer does nothing.

        Parameters
        ----------
        ids : array_like of int, (L,) or (B, H)
            What was looked up. In "max" the table must be that of the lookup, too.
        offsets : array_like of int, or None
            What the lookup was given.
        dy : (B, D) array_like
            Gradient of the result; must cast safely to the table's accumulation dtype.
        per_sample_weights : array_like, optional
            What the lookup was given. Their own gradient: `fastemb.embedding_bag_weight_grad`.

        Raises
        ------
        IndexError
            An id out of range.
        TypeError
            Ids or offsets that are not integers, a gradient or weights that do not cast safely.
        ValueError
            Shapes or offsets that do not fit. After any error `grad` is as before.
        """
        if self._frozen:
            return
        bags = self._bags(ids, offsets, per_sample_weights)
        values = as_gradient(dy, (bags.size, self.embedding_dim), self.weight.dtype, "dy", like=self.weight)
        self._add(bag_gradient(self.weight, bags, values, scale_grad_by_freq=self.scale_grad_by_freq))

    def fused_step(
        self,
        ids: TensorLike,
        offsets: TensorLike | None,
        dy: TensorLike,
        per_sample_weights: TensorLike | None = None,
        *,
        lr: SupportsFloat | None = None,
        max_grad_norm: SupportsFloat | None = None,
    ) -> None:
        """`backward` and `step` in one pass over the rows: no gradient array exists, and `grad` stays None.

        What is pending in `grad` is part of the step; then the gradients are added first. A frozen layer does nothing.

        Parameters
        ----------
        ids : array_like of int, (L,) or (B, H)
            What was looked up. In "max" the table must be that of the lookup, too.
        offsets : array_like of int, or None
            What the lookup was given.
        dy : (B, D) array_like
            Gradient of the result; must cast safely to the table's accumulation dtype.
        per_sample_weights : array_like, optional
            What the lookup was given.
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
            Ids or offsets that are not integers, a gradient or weights that do not cast safely.
        ValueError
            Shapes or offsets that do not fit. After any error nothing has changed.

        Examples
        --------
        >>> import numpy as np, fastemb
        >>> bag = fastemb.EmbeddingBag(10, 1, mode="sum", optimizer=fastemb.optim.SGD(lr=1.0), init="zeros")
        >>> bag.fused_step([2, 0, 2], [0, 2], np.array([[1.0], [4.0]], np.float32))
        >>> bag.weight[[0, 1, 2], 0]
        array([-1.,  0., -5.], dtype=float32)
        """
        self._fuse(ids, offsets, dy, per_sample_weights, lr=lr, max_grad_norm=max_grad_norm)

    def _apply(
        self,
        rule: Optimizer,
        state: State,
        ids: TensorLike,
        offsets: TensorLike | None,
        dy: TensorLike,
        per_sample_weights: TensorLike | None,
        **options: Any,
    ) -> None:
        options |= {"mode": self.mode, "per_sample_weights": per_sample_weights, "padding_idx": self.padding_idx}
        options |= {"include_last_offset": self.include_last_offset, "scale_grad_by_freq": self.scale_grad_by_freq}
        rule.step_bag(self.weight, state, ids, offsets, dy, **options)
