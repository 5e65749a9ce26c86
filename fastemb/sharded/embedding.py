"""ShardedEmbedding: a layer around one table whose rows lie on many ranks."""

from __future__ import annotations

from typing import Any, Self, SupportsFloat, SupportsIndex

from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._arrays import TensorLike, accumulator, as_gradient
from .._groups import Groups, row_gradient
from ..functional import gather
from ..nn.initialisers import Initialiser
from ..optim import Optimizer
from ..rowgrad import RowGrad
from .initial import drawn
from .table import ShardedTable


class ShardedEmbedding(ShardedTable):
    """A trainable table over the ranks of MPI: ``y[..., :] = weight[ids[...], :]``, whichever rank has the row.

    Parameters
    ----------
    num_embeddings : int
        N, rows of the whole table, at least 1; up to 2**31 - 1 on each rank.
    embedding_dim : int
        D, width of a row, at least 1.
    comm : mpi4py.MPI.Intracomm
        The ranks.
    partition : {"range", "hash", "replicate-hot"}
        "range": rank r of R owns the ids from ``r * N // R`` on. "hash": ids are permuted first, so that frequent ids,
        which often are the low ones, are spread. "replicate-hot": likewise, but every rank has the rows of `hot_ids`,
        which never travel at a lookup.
    hot_ids : array_like of int, optional
        Distinct ids, for "replicate-hot" alone: `hottest` counts them.
    padding_idx : int, optional
        In ``[-N, N)``. This row starts as zeros and gets no gradient; a lookup returns what it holds.
    max_norm : float, optional
        Before a lookup the rows looked up are shrunk, in the table, to at most this norm: see `renorm_`.
    norm_type : float
        p of that norm, > 0; may be ``inf``.
    init : {"uniform_fan", "normal", "zeros"} or callable
        ``U(-sqrt(1/N), sqrt(1/N))``, ``N(0, 1)``, zeros, or ``init(rng, shape, dtype)`` for blocks of rows.
    optimizer : fastemb.optim.Optimizer, optional
        The rule that `step` applies.
    dtype : dtype_like
        As for `fastemb.Embedding`.
    device : {"cpu", "cuda"}
        Where this rank's rows lie, and what is looked up; "cuda:1" is the second GPU.
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
    Lookups, `backward` and steps are collective: every rank calls them, in one order, each with ids of its own, as many
    as it likes, none too. An error on one rank, such as a bad id, is raised on all of them, that of the lowest rank,
    and nothing has changed then.

    A lookup sends each distinct id and each distinct row once: ``U * (8 + D * itemsize)`` bytes for U distinct ids that
    other ranks own, and counts. The rows that a rank owns itself are looked up while the others travel. Gradients are
    summed on each rank before they travel, as the owners add them in the order of ranks and apply the rule once. So
    results depend on no timing; for floats in general they do depend on how many ranks there are, as sums are rounded
    in another order. Where sums are exact, for instance of whole numbers, the bits are those of `fastemb.Embedding` on
    one machine, given all ids, those of rank 0 first. Rows are drawn in blocks with generators of their own: they
    depend on `seed` and on whether `partition` permutes, not on the number of ranks.

    A rank that dies ends the job: MPI's launcher stops the others. An exception that one rank alone does not catch does
    so only under ``python -m mpi4py script.py``. Several ranks on one machine want ``NUMBA_NUM_THREADS`` set to their
    share of its cores.

    References
    ----------
    D. Mudigere et al., "Software-Hardware Co-design for Fast and Scalable Training of Deep Learning Recommendation
    Models", 2022, https://arxiv.org/abs/2104.05158

    Examples
    --------
    On one rank; with ``mpiexec -n 4 python script.py`` on four:

    >>> import numpy as np, fastemb, fastemb.sharded
    >>> from mpi4py import MPI
    >>> rule = fastemb.optim.SGD(lr=1.0)
    >>> emb = fastemb.sharded.ShardedEmbedding(10, 4, comm=MPI.COMM_WORLD, optimizer=rule, init="zeros")
    >>> ids = np.array([[2, 0], [5, 2]])
    >>> emb(ids).shape
    (2, 2, 4)
    >>> emb.fused_step(ids, np.ones((2, 2, 4), np.float32))
    >>> emb([2, 5])[:, 0]
    array([-2., -1.], dtype=float32)
    """

    def __init__(
        self,
        num_embeddings: SupportsIndex,
        embedding_dim: SupportsIndex,
        *,
        comm: Any,
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
            partition=partition,
            hot_ids=hot_ids,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            optimizer=optimizer,
            dtype=dtype,
            device=device,
        )

    @classmethod
    def from_pretrained(
        cls,
        weight: NDArray[Any],
        *,
        comm: Any,
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
        ShardedEmbedding
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
            partition=partition,
            hot_ids=hot_ids,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            optimizer=optimizer,
            device=device,
        )

    def __call__(self, ids: TensorLike) -> NDArray[Any]:
        """Look ids up: ``weight[ids]``, after `max_norm` if that is set. Collective.

        Parameters
        ----------
        ids : array_like of int, any shape
            This rank's, in ``[0, N)``.

        Returns
        -------
        (*ids.shape, D) ndarray
            A new array.

        Raises
        ------
        IndexError
            An id out of range, on any rank; the table has not been changed then.
        TypeError
            Ids that are not integers, on any rank.
        """
        with self._exchange.together("a lookup") as agreed:
            distinct = self._rows.distinct(self._places(ids))
            agreed.largest = self._rows.largest(distinct.places)
        rows = self._rows.fetch(distinct.places, agreed.largest)
        return gather(rows, self._rows.here(distinct.numbers))

    def backward(self, ids: TensorLike, dy: TensorLike) -> None:
        """Add the gradient of a lookup's result to what is pending on this rank. Collective, but no rows travel.

        Parameters
        ----------
        ids : array_like of int, any shape
            What this rank looked up.
        dy : (*ids.shape, D) array_like
            Gradient of the result; must cast safely to the table's accumulation dtype.

        Raises
        ------
        IndexError
            An id out of range, on any rank.
        TypeError
            Ids that are not integers, a gradient that does not cast safely.
        ValueError
            A gradient of a wrong shape. After any error `grad` is as before, on every rank.
        """
        with self._exchange.together("backward"):
            grad = self._gradient(ids, dy)
        self._add(grad)

    def fused_step(
        self,
        ids: TensorLike,
        dy: TensorLike,
        *,
        lr: SupportsFloat | None = None,
        max_grad_norm: SupportsFloat | None = None,
    ) -> None:
        """`backward` and `step` in one. Collective. What is pending is part of the step.

        Parameters
        ----------
        ids : array_like of int, any shape
            What this rank looked up.
        dy : (*ids.shape, D) array_like
            Gradient of the result; must cast safely to the table's accumulation dtype.
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
            Ids that are not integers, a gradient that does not cast safely.
        ValueError
            A gradient of a wrong shape, options that are not the same on every rank. After any error nothing has
            changed.
        """
        self._step("fused_step", lambda: self._gradient(ids, dy), lr, max_grad_norm)

    def _gradient(self, ids: TensorLike, dy: TensorLike) -> RowGrad:
        """The gradient of this rank's batch, of places."""
        places = self._rows.here(self._places(ids))
        values = as_gradient(dy, (*places.shape, self._width), self.weight.dtype, "dy", like=self.weight)
        groups = Groups.of(places, self._num_rows, self._padding)
        dtype = accumulator(self.weight.dtype)
        return row_gradient(groups, values, self._num_rows, dtype, scale_grad_by_freq=False)
