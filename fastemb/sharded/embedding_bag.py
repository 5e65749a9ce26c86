"""ShardedEmbeddingBag: a layer that pools the rows of one table, which lie on many ranks."""

from __future__ import annotations

from typing import Any, NamedTuple, Self, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._arrays import TensorLike, as_gradient
from .._bag_grad import bag_gradient
from .._bags import Bags, check_mode
from .._devices import HOST, backend, empty, namespace, to_device
from ..nn.initialisers import Initialiser
from ..optim import Optimizer
from ..rowgrad import RowGrad, hand_over
from .initial import drawn
from .table import ShardedTable


class _Batch(NamedTuple):
    """Distinct places, bags of their numbers, and a table of their shape; padding is one number more."""

    places: NDArray[np.int64]
    bags: Bags
    shaped: NDArray[Any]


class ShardedEmbeddingBag(ShardedTable):
    """A trainable table over the ranks of MPI that maps bags of ids to pooled vectors.

    Parameters
    ----------
    num_embeddings : int
        N, rows of the whole table, at least 1; up to 2**31 - 1 on each rank.
    embedding_dim : int
        D, width of a row, at least 1.
    comm : mpi4py.MPI.Intracomm
        The ranks.
    mode : {"mean", "sum", "sqrtn", "max"}
        How the rows of a bag are pooled.
    include_last_offset : bool
        Whether offsets also say where the last bag ends.
    partition : {"range", "hash", "replicate-hot"}
        As for `ShardedEmbedding`.
    hot_ids : array_like of int, optional
        As for `ShardedEmbedding`.
    padding_idx : int, optional
        In ``[-N, N)``. This row starts as zeros, gets no gradient, and is left out of every bag.
    max_norm : float, optional
        Before a lookup the rows looked up are shrunk, in the table, to at most this norm: see `renorm_`.
    norm_type : float
        p of that norm, > 0; may be ``inf``.
    init : {"uniform_fan", "normal", "zeros"} or callable
        As for `ShardedEmbedding`.
    optimizer : fastemb.optim.Optimizer, optional
        The rule that `step` applies.
    dtype : dtype_like
        As for `fastemb.EmbeddingBag`.
    device : {"cpu", "cuda"}
        As for `ShardedEmbedding`.
    seed : int, optional
        Makes `init` repeatable; that of rank 0 counts.

    Attributes
    ----------
    shard : fastemb.Embedding
        The rows of this rank, with their optimizer's state.
    hot : fastemb.Embedding
        This rank's copy of the hot rows; without rows for other partitions.
    hot_ids : (H,) ndarray of int64
        Their ids, ascending.

    Raises
    ------
    ImportError
        mpi4py is not installed, or ml_dtypes for dtype "bfloat16".
    IndexError
        Hot ids out of range.
    TypeError
        An option of a wrong kind.
    ValueError
        An option out of range, or not the same on every rank.

    Notes
    -----
    The distinct rows of a rank's bags travel, and are pooled where the bags are, for all modes: bags may hold rows of
    any ranks. What `ShardedEmbedding` says of ranks, errors and bits holds here too. In "max" `backward` and
    `fused_step` fetch the rows again.

    Examples
    --------
    >>> import numpy as np, fastemb, fastemb.sharded
    >>> from mpi4py import MPI
    >>> bag = fastemb.sharded.ShardedEmbeddingBag(10, 4, comm=MPI.COMM_WORLD, mode="sum", padding_idx=0)
    >>> bag(np.array([[2, 5, 0], [5, 0, 0]])).shape
    (2, 4)
    """

    def __init__(
        self,
        num_embeddings: SupportsIndex,
        embedding_dim: SupportsIndex,
        *,
        comm: Any,
        mode: str = "mean",
        include_last_offset: bool = False,
        partition: str = "range",
        hot_ids: ArrayLike | None = None,
        padding_idx: SupportsIndex | None = None,
        max_norm: SupportsFloat | None = None,
        norm_type: SupportsFloat = 2.0,
        init: str | Initialiser = "uniform_fan",
        optimizer: Optimizer | None = None,
        dtype: DTypeLike = "float32",
        device: str = "cpu",
        seed: int | None = None,
    ) -> None:
        self._create(
            comm,
            drawn(init, seed),
            num_embeddings=num_embeddings,
            embedding_dim=embedding_dim,
            mode=mode,
            include_last_offset=include_last_offset,
            partition=partition,
            hot_ids=hot_ids,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            optimizer=optimizer,
            dtype=dtype,
            device=device,
        )

    def _set_pooling(self, **pooling: Any) -> None:
        check_mode(pooling["mode"])
        self._mode: str = pooling["mode"]
        self._include_last_offset = bool(pooling["include_last_offset"])

    def _pooling(self) -> dict[str, Any]:
        return {"mode": self._mode, "include_last_offset": self._include_last_offset}

    @classmethod
    def from_pretrained(
        cls,
        weight: NDArray[Any],
        *,
        comm: Any,
        mode: str = "mean",
        include_last_offset: bool = False,
        partition: str = "range",
        hot_ids: ArrayLike | None = None,
        padding_idx: SupportsIndex | None = None,
        max_norm: SupportsFloat | None = None,
        norm_type: SupportsFloat = 2.0,
        optimizer: Optimizer | None = None,
        dtype: DTypeLike | None = None,
        device: str = "cpu",
    ) -> Self:
        """Make a layer from a table that every rank can read. Collective.

        Parameters
        ----------
        weight : (N, D) ndarray
            The table, the same on every rank; of a memory-mapped one each rank reads its own rows alone. The padding
            row is taken as it is.
        comm : mpi4py.MPI.Intracomm
            The ranks.
        mode : {"mean", "sum", "sqrtn", "max"}
            As for the class.
        include_last_offset : bool
            As for the class.
        partition : {"range", "hash", "replicate-hot"}
            As for the class.
        hot_ids : array_like of int, optional
            As for the class.
        padding_idx : int, optional
            As for the class, but the row keeps what it holds.
        max_norm : float, optional
            As for the class.
        norm_type : float
            As for the class.
        optimizer : fastemb.optim.Optimizer, optional
            As for the class.
        dtype : dtype_like, optional
            That of `weight` by default.
        device : {"cpu", "cuda"}
            As for the class.

        Returns
        -------
        ShardedEmbeddingBag
            The layer, which trains copies of the rows.

        Raises
        ------
        TypeError
            `weight` is not a float array, or an option is of a wrong kind.
        ValueError
            `weight` is not two-dimensional or empty, or an option is out of range.
        """
        return cls._adopt(
            weight,
            dtype,
            comm,
            mode=mode,
            include_last_offset=include_last_offset,
            partition=partition,
            hot_ids=hot_ids,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            optimizer=optimizer,
            device=device,
        )

    @property
    def mode(self) -> str:
        """How the rows of a bag are pooled."""
        return self._mode

    @property
    def include_last_offset(self) -> bool:
        """Whether offsets also say where the last bag ends."""
        return self._include_last_offset

    def __call__(
        self, ids: TensorLike, offsets: TensorLike | None = None, per_sample_weights: TensorLike | None = None
    ) -> NDArray[Any]:
        """Look bags of ids up and pool them, after `max_norm` if that is set. Collective.

        Parameters
        ----------
        ids : array_like of int, (L,) or (B, H)
            This rank's, in ``[0, N)``. Of a 2-D array each row is a bag.
        offsets : array_like of int, (B,) or with `include_last_offset` (B + 1,)
            For 1-D ids: where each bag begins.
        per_sample_weights : array_like, shape of `ids`, optional
            Not with "max".

        Returns
        -------
        (B, D) ndarray
            A new array.

        Raises
        ------
        IndexError
            An id out of range, on any rank.
        TypeError
            Ids or offsets that are not integers, weights that do not cast safely.
        ValueError
            Offsets or weights that do not fit. After any error the table is as before.
        """
        with self._exchange.together("a lookup of bags") as agreed:
            batch = self._batch(ids, offsets, per_sample_weights)
            agreed.largest = self._rows.largest(batch.places)
        rows = self._looked_up(batch, agreed.largest)
        out = empty((batch.bags.size, self._width), rows.dtype, rows)
        batch.bags.pool(out, rows, backend(rows))
        return out

    def backward(
        self,
        ids: TensorLike,
        offsets: TensorLike | None,
        dy: TensorLike,
        per_sample_weights: TensorLike | None = None,
    ) -> None:
        """Add the gradient of a lookup's result to what is pending on this rank. Collective.

        Parameters
        ----------
        ids : array_like of int, (L,) or (B, H)
            What this rank looked up. In "max" the table must be that of the lookup, too.
        offsets : array_like of int, or None
            What the lookup was given.
        dy : (B, D) array_like
            Gradient of the result; must cast safely to the table's accumulation dtype.
        per_sample_weights : array_like, optional
            What the lookup was given.

        Raises
        ------
        IndexError
            An id out of range, on any rank.
        TypeError
            Ids or offsets that are not integers, a gradient or weights that do not cast safely.
        ValueError
            Shapes or offsets that do not fit. After any error `grad` is as before, on every rank.
        """
        self._add(self._gradient("backward", ids, offsets, dy, per_sample_weights))

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
        """`backward` and `step` in one. Collective. What is pending is part of the step.

        Parameters
        ----------
        ids : array_like of int, (L,) or (B, H)
            What this rank looked up. In "max" the table must be that of the lookup, too.
        offsets : array_like of int, or None
            What the lookup was given.
        dy : (B, D) array_like
            Gradient of the result; must cast safely to the table's accumulation dtype.
        per_sample_weights : array_like, optional
            What the lookup was given.
        lr : float, optional
            Learning rate of this step, in place of the optimizer's own; the same on every rank.
        max_grad_norm : float, optional
            Scale the gradient so that its norm, over all ranks, is at most this; the same on every rank.

        Raises
        ------
        IndexError
            An id out of range, on any rank.
        RuntimeError
            The layer has no optimizer.
        TypeError
            Ids or offsets that are not integers, a gradient that does not cast safely.
        ValueError
            Shapes or offsets that do not fit, options that are not the same on every rank. After any error nothing has
            changed.
        """
        gradient = self._gradient("fused_step", ids, offsets, dy, per_sample_weights)
        self._step("fused_step", lambda: gradient, lr, max_grad_norm)

    def _batch(self, ids: TensorLike, offsets: TensorLike | None, per_sample_weights: TensorLike | None) -> _Batch:
        """Everything checked."""
        places, numbers = self._rows.distinct(self._places(ids), self._padding)
        padded, xp = self._padding is not None, namespace(self.weight)
        shaped = xp.broadcast_to(xp.zeros((1, 1), self.weight.dtype), (places.size + padded, self._width))
        padding = places.size if padded else None
        ids, last = self._rows.here(numbers), self._include_last_offset
        bags = Bags.of(shaped, ids, offsets, self._mode, per_sample_weights, padding, last)
        return _Batch(places, bags, shaped)

    def _looked_up(self, batch: _Batch, largest: int) -> NDArray[Any]:
        """The rows of a batch, zeros for padding."""
        rows = self._rows.fetch(batch.places, largest, spare=len(batch.shaped) - batch.places.size)
        rows[batch.places.size :] = 0
        return rows

    def _gradient(
        self,
        call: str,
        ids: TensorLike,
        offsets: TensorLike | None,
        dy: TensorLike,
        per_sample_weights: TensorLike | None,
    ) -> RowGrad:
        """The gradient of this rank's batch, of places."""
        with self._exchange.together(call) as agreed:
            batch = self._batch(ids, offsets, per_sample_weights)
            values = as_gradient(dy, (batch.bags.size, self._width), self.weight.dtype, "dy", like=self.weight)
            agreed.largest = self._rows.largest(batch.places)
        rows = self._looked_up(batch, agreed.largest) if self._mode == "max" else batch.shaped
        grad = bag_gradient(rows, batch.bags, values, scale_grad_by_freq=False)
        places = batch.places[to_device(grad.rows, HOST)]
        return hand_over(self._rows.here(places), grad.values, self._num_rows)
