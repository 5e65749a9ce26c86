"""The ids that occur most often, counted over all ranks."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from .. import _options
from .._arrays import TensorLike, as_indices, check_indices
from .._devices import HOST, to_device
from .exchange import Exchange
from .partition import Partition


def hottest(ids: TensorLike, count: SupportsIndex, *, num_embeddings: SupportsIndex, comm: Any) -> NDArray[np.int64]:
    """The ids that occur most often in the batches of all ranks. Collective.

    Parameters
    ----------
    ids : array_like of int, any shape
        This rank's, in ``[0, num_embeddings)``: a sample of what will be looked up.
    count : int
        How many ids to return, at most.
    num_embeddings : int
        N, rows of the table.
    comm : mpi4py.MPI.Intracomm
        The ranks.

    Returns
    -------
    (H,) ndarray of int64
        The same on every rank, the most frequent first, the lower one first among equals: for the `hot_ids` of
        `ShardedEmbedding`. Fewer than `count` if fewer occur.

    Raises
    ------
    ImportError
        mpi4py is not installed.
    IndexError
        An id out of range, on any rank.
    TypeError
        Ids that are not integers.
    ValueError
        A `count` that is negative, or not the same on every rank.

    Notes
    -----
    The counts are exact. Each rank counts its own ids and sends each distinct one and its count to one rank, which adds
    them; no rank holds the counts of all ids.

    Examples
    --------
    >>> import fastemb.sharded
    >>> from mpi4py import MPI
    >>> fastemb.sharded.hottest([7, 3, 3, 9, 7, 7], 2, num_embeddings=10, comm=MPI.COMM_WORLD)
    array([7, 3])
    """
    exchange = Exchange(comm)
    with exchange.together("hottest") as agreed:
        rows = _options.integer("num_embeddings", num_embeddings, at_least=1)
        most = _options.integer("count", count, at_least=0)
        indices = to_device(as_indices(ids), HOST)
        check_indices(indices, rows)
        partition = Partition("hash", rows, exchange.size, np.empty(0, np.int64))
        places, counted = np.unique(partition.places(indices), return_counts=True)
        counts = partition.counts(places)
        agreed.largest, agreed.same = int(counts.max()), {"num_embeddings": rows, "count": most}
    pairs = np.stack((places, counted.astype(np.int64)), axis=1)
    received = exchange.swap(pairs, counts, exchange.counts(counts), agreed.largest)
    distinct, numbers = np.unique(received[:, 0], return_inverse=True)
    total = np.zeros(distinct.size, np.int64)
    np.add.at(total, numbers, received[:, 1])
    ranked = _first(np.stack((partition.ids(distinct), total), axis=1), most)
    return _first(_of_all(exchange, ranked), most)[:, 0].copy()


def _first(pairs: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The pairs of id and count with the greatest counts, the lower ids first among equals."""
    chosen: NDArray[np.int64] = pairs[np.lexsort((pairs[:, 0], -pairs[:, 1]))[:most]]
    return chosen


def _of_all(exchange: Exchange, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of all ranks, on all of them."""
    counts = np.full(exchange.size, len(rows))
    received = exchange.counts(counts)
    return exchange.swap(np.concatenate([rows] * exchange.size), counts, received, int(received.max()))
