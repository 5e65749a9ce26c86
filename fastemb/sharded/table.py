"""What every layer around a table over ranks has: the rows of this rank, and the ways of ids, rows and gradients."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Self, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .. import _options
from .._arrays import TensorLike, accumulator, as_indices, as_table, check_indices
from .._devices import HOST, checked, device_of, require_cuda_dtype, to_device
from .._state import require_entries
from ..nn import Embedding
from ..nn.table import table_dtype
from ..optim import Optimizer, State
from ..rowgrad import RowGrad, hand_over
from . import checkpoint
from .checkpoint import Checkpoint
from .exchange import Exchange
from .initial import FillOf, copied
from .partition import PARTITIONS, Partition
from .rows import Rows


class ShardedTable:
    """A trainable table whose rows lie on the ranks of a communicator."""

    def _create(
        self,
        comm: Any,
        fill_of: FillOf,
        *,
        num_embeddings: SupportsIndex,
        embedding_dim: SupportsIndex,
        partition: str,
        hot_ids: ArrayLike | None,
        padding_idx: SupportsIndex | None,
        max_norm: SupportsFloat | None,
        norm_type: SupportsFloat,
        optimizer: Optimizer | None,
        dtype: DTypeLike,
        device: str,
        **pooling: Any,
    ) -> None:
        exchange = self._exchange = Exchange(comm)
        limits = {"max_norm": max_norm, "norm_type": norm_type}
        with exchange.together("the constructor") as agreed:
            self._set_pooling(**pooling)
            self._num_rows = _options.integer("num_embeddings", num_embeddings, at_least=1)
            self._width = _options.size("embedding_dim", embedding_dim)
            self._padding_idx = _options.padding(padding_idx, self._num_rows)
            kind, where = table_dtype(dtype), checked(device)
            if where != HOST:
                require_cuda_dtype(kind, "dtype")
            hot = _checked_hot(partition, hot_ids, self._num_rows)
            others = repr((kind, partition, self._padding_idx, optimizer, limits, pooling)).encode()
            agreed.same = {
                "num_embeddings": self._num_rows,
                "embedding_dim": self._width,
                "the checksum of the other arguments": zlib.crc32(others + hot.tobytes()),
            }
        part = self._partition = Partition(partition, self._num_rows, exchange.size, hot)
        self._padding = None if self._padding_idx is None else int(part.places(np.array(self._padding_idx)))
        self._pending: RowGrad | None = None
        fill = fill_of(exchange, part, self._padding)
        with exchange.together("the constructor"):
            self._rows = Rows(exchange, part, self._width, kind, self._padding, optimizer, fill, limits)
            self._rows.to(where)

    def _set_pooling(self, **pooling: Any) -> None:
        """Check and keep the options that one of the layers alone has."""

    @classmethod
    def _adopt(cls, weight: NDArray[Any], dtype: DTypeLike | None, comm: Any, **options: Any) -> Self:
        """A layer that trains copies of the rows of a table."""
        with Exchange(comm).together("from_pretrained"):
            table = to_device(as_table(weight), HOST)
            kind = table.dtype if dtype is None else table_dtype(dtype)
        self, (rows, width) = cls.__new__(cls), table.shape
        self._create(comm, copied(table), num_embeddings=rows, embedding_dim=width, dtype=kind, **options)
        return self

    @property
    def num_embeddings(self) -> int:
        """N, rows of the whole table."""
        return self._num_rows

    @property
    def embedding_dim(self) -> int:
        """D, width of a row."""
        return self._width

    @property
    def partition(self) -> str:
        """How rows are spread over the ranks."""
        return self._partition.kind

    @property
    def padding_idx(self) -> int | None:
        """The row without gradient, in ``[0, N)``."""
        return self._padding_idx

    @property
    def comm(self) -> Any:
        """The ranks."""
        return self._exchange.comm

    @property
    def device(self) -> str:
        """Where this rank's rows lie."""
        return device_of(self.weight)

    @property
    def shard(self) -> Embedding:
        """The rows of this rank, those of `owned_ids`, as a layer of their own."""
        return self._rows.shard

    @property
    def hot(self) -> Embedding:
        """The hot rows, of which every rank has a copy: those of `hot_ids`; without rows for other partitions."""
        return self._rows.hot

    @property
    def hot_ids(self) -> NDArray[np.int64]:
        """The ids of the hot rows, in the order of ``hot.weight``."""
        return self._partition.ids(np.arange(self._partition.cold, self._num_rows))

    @property
    def optimizer(self) -> Optimizer | None:
        """The rule that `step` applies."""
        return self.shard.optimizer

    @property
    def state(self) -> State | None:
        """The optimizer's state of this rank's rows."""
        return self.shard.state

    @property
    def weight(self) -> NDArray[Any]:
        """The rows of this rank, those of `owned_ids`; hot rows are in ``hot.weight``."""
        return self.shard.weight

    @property
    def owned_ids(self) -> NDArray[np.int64]:
        """The ids of this rank's rows, in the order of `weight`."""
        first = self._rows.first
        return self._partition.ids(np.arange(first, first + len(self.weight)))

    @property
    def bytes_sent(self) -> int:
        """Bytes of ids, rows, gradients and counts that this rank has sent to others so far."""
        return self._exchange.sent

    @property
    def grad(self) -> RowGrad | None:
        """What `backward` has added up on this rank since the last `step` or `zero_grad`, a copy; or None."""
        if self._pending is None:
            return None
        here, ids = self._rows.here, self._partition.ids(to_device(self._pending.rows, HOST))
        order = np.argsort(ids)
        return hand_over(here(ids[order]), self._pending.values[here(order)], self._num_rows)

    def zero_grad(self) -> None:
        """Forget what is pending on this rank."""
        self._pending = None

    def parameters(self) -> list[NDArray[Any]]:
        """The arrays of this rank that training changes.

        Returns
        -------
        list of ndarray
            Its rows, and its copy of the hot rows.
        """
        return [*self.shard.parameters(), *self.hot.parameters()]

    def _places(self, ids: TensorLike) -> NDArray[np.int64]:
        indices = to_device(as_indices(ids), HOST)
        check_indices(indices, self._num_rows)
        return self._partition.places(indices)

    def _add(self, grad: RowGrad) -> None:
        self._pending = grad if self._pending is None else self._pending + grad

    def step(self, *, lr: SupportsFloat | None = None, max_grad_norm: SupportsFloat | None = None) -> None:
        """Send what is pending to the owners of the rows, who apply it with the optimizer, and clear it.

        Collective. If nothing is pending on any rank, nothing is done; if there is on some, it is a step for all.

        Parameters
        ----------
        lr : float, optional
            Learning rate of this step, in place of the optimizer's own; the same on every rank.
        max_grad_norm : float, optional
            Scale the gradient so that its norm, over all ranks, is at most this; the same on every rank.

        Raises
        ------
        RuntimeError
            The layer has no optimizer.
        TypeError
            Not a number.
        ValueError
            A rate or limit that is none, or not the same on every rank. After any error nothing has changed.
        """
        self._step("step", lambda: None, lr, max_grad_norm)

    def _step(
        self,
        call: str,
        gradient: Callable[[], RowGrad | None],
        lr: SupportsFloat | None,
        max_grad_norm: SupportsFloat | None,
    ) -> None:
        """Take a step with what is pending and another gradient."""
        with self._exchange.together(call) as agreed:
            for part in (self.shard, self.hot):
                part.require_optimizer(lr)
            rate = None if lr is None else _options.real("lr", lr)
            limit = None if max_grad_norm is None else _options.real("max_grad_norm", max_grad_norm, infinite=True)
            new, pending = gradient(), self._pending
            grad = new if pending is None else pending if new is None else pending + new
            agreed.same = {"lr": rate, "max_grad_norm": limit}
            agreed.largest = -1 if grad is None else self._rows.largest(to_device(grad.rows, HOST))
        if agreed.largest >= 0:
            self._rows.apply(grad or self._nothing(), agreed.largest, rate, limit)
            self._pending = None

    def _nothing(self) -> RowGrad:
        values = np.empty((0, self._width), accumulator(self.weight.dtype))
        return hand_over(self._rows.here(np.empty(0, np.int64)), self._rows.here(values), self._num_rows)

    def flush(self) -> None:
        """Bring all rows of this rank up to date, with an optimizer in mode "exact"; to be called on every rank."""
        self.shard.flush()
        self.hot.flush()

    def gather_table(self, root: int = 0) -> NDArray[Any] | None:
        """The whole table on one rank, in the order of ids. Collective.

        Parameters
        ----------
        root : int
            The rank that gets it.

        Returns
        -------
        (N, D) ndarray or None
            A new array on rank `root`, None on the others.

        Raises
        ------
        ValueError
            There is no such rank.
        """
        with self._exchange.together("gather_table") as agreed:
            _options.integer("root", root, at_least=0, at_most=self._exchange.size - 1)
            agreed.same = {"root": root}
        rows = self._rows.gather(root)
        if rows is None or self.partition == "range":
            return rows
        table = np.empty_like(rows)
        table[self._partition.ids(np.arange(self._num_rows))] = rows
        return table

    def state_dict(self) -> dict[str, Any]:
        """All of this rank that training changes.

        Returns
        -------
        dict
            ``{"shard": state_dict of its rows, "hot": that of its copy of the hot rows}``. The arrays are the layer's
            own: copy them to keep a snapshot.
        """
        return {"shard": self.shard.state_dict(), "hot": self.hot.state_dict()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave on this rank, once all of it is known to fit on every rank. Collective.

        Parameters
        ----------
        saved : mapping
            With the names, shapes and dtypes of this layer.

        Raises
        ------
        TypeError
            Not a mapping, or an entry that is not an array.
        ValueError
            Missing or unknown names, another shape or dtype. After any error nothing has changed.
        """
        with self._exchange.together("load_state_dict"):
            require_entries("state_dict", saved, {"shard", "hot"})
            loaders = [self.shard.loader(saved["shard"]), self.hot.loader(saved["hot"])]
        for load in loaders:
            load()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a checkpoint: the rows and the optimizer's state of each rank, and what `load` has to know. Collective.

        Parameters
        ----------
        folder : str or os.PathLike
            On a file system that all ranks share; made if it is not there. A checkpoint in it is replaced.

        Raises
        ------
        OSError
            A rank cannot write. What was in the folder can still be loaded.

        Notes
        -----
        One safetensors file for each rank, one for the hot rows, and ``manifest.json``, written last: until then, after
        a crash at any moment too, the folder holds the checkpoint before. Each file has a checksum (BLAKE2b). What is
        pending in `grad` is not saved.
        """
        options = {
            "num_embeddings": self._num_rows,
            "embedding_dim": self._width,
            "dtype": self.weight.dtype.name,
            "partition": self.partition,
            "hot_ids": self.hot_ids.tolist() if self.partition == "replicate-hot" else None,
            "padding_idx": self._padding_idx,
            "max_norm": self.shard.max_norm,
            "norm_type": self.shard.norm_type,
            **self._pooling(),
        }
        checkpoint.save(folder, self._exchange, self._partition, self._rows, type(self).__name__, options)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, comm: Any, device: str = "cpu") -> Self:
        """Make the layer of a checkpoint, on any number of ranks. Collective.

        Parameters
        ----------
        folder : str or os.PathLike
            What `save` was given.
        comm : mpi4py.MPI.Intracomm
            The ranks.
        device : {"cpu", "cuda"}
            As for the class.

        Returns
        -------
        ShardedEmbedding or ShardedEmbeddingBag
            With table, optimizer, its state, and the partition that was saved. Before any row is read, the ranks have
            checked the checksums of all files between them. Each reads its own rows alone.

        Raises
        ------
        ImportError
            safetensors is not installed.
        OSError
            A file is missing or cannot be read.
        ValueError
            The folder holds no checkpoint of this class, or a damaged one.
        """
        exchange = Exchange(comm)
        with exchange.together("load"):
            where, saved = checked(device), Checkpoint(folder, cls.__name__)
            saved.verify(exchange.rank, exchange.size)
        self = cls.__new__(cls)
        self._create(comm, saved.fill_of, optimizer=saved.optimizer, device=HOST, **saved.options)
        with exchange.together("load"):
            saved.load_state(self._rows.shard, self._rows.first)
            saved.load_state(self._rows.hot, self._partition.cold)
            self._rows.to(where)
        return self

    def _pooling(self) -> dict[str, Any]:
        """The options that one of the layers alone has."""
        return {}

    def __repr__(self) -> str:
        """Sizes, how rows are spread, and where this rank is."""
        where = f"rank {self._exchange.rank} of {self._exchange.size}"
        sizes = f"{self._num_rows}, {self._width}, partition={self.partition!r}"
        return f"{type(self).__name__}({sizes}, dtype={self.weight.dtype}, {where})"


def _checked_hot(partition: str, hot_ids: ArrayLike | None, num_rows: int) -> NDArray[np.int64]:
    """Distinct ids, for "replicate-hot"; none for other partitions."""
    _options.choice("partition", partition, PARTITIONS)
    if (partition == "replicate-hot") != (hot_ids is not None):
        msg = f"hot_ids must be given for partition 'replicate-hot' and no other, got {partition!r} and {hot_ids!r}"
        raise ValueError(msg)
    indices = as_indices([] if hot_ids is None else hot_ids, "hot_ids").reshape(-1)
    check_indices(indices, num_rows)
    distinct = np.unique(indices.astype(np.int64))
    if distinct.size != indices.size:
        msg = f"hot_ids must be distinct, got {indices.size - distinct.size} of them twice"
        raise ValueError(msg)
    return distinct
