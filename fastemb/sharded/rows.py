"""The rows of one rank, and the ways of ids, rows and gradients between it and the others."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import _options
from .._devices import HOST, device_of, empty, namespace, to_device
from .._groups import Groups
from ..functional import gather
from ..nn import Embedding
from ..optim import Optimizer
from ..rowgrad import RowGrad, hand_over
from .exchange import Counts, Exchange
from .initial import Fill
from .partition import Partition

CHUNK_ROWS = 1 << 16
"""Rows that a new table is filled with at a time."""

Places = NDArray[np.int64]


class Shard(Embedding):
    """Rows of a table that lie on one rank, as a layer of their own."""

    def __init__(self, weight: NDArray[Any], optimizer: Optimizer | None, **options: Any) -> None:
        self._set_options(len(weight), scale_grad_by_freq=False, **options)
        self._own(weight, optimizer, frozen=False)


class Distinct(NamedTuple):
    """Ascending places (U,), and which of them each position has; U where padding is left out."""

    places: Places
    numbers: NDArray[np.int64]


class Rows:
    """The rows of this rank.

    Parameters
    ----------
    exchange : Exchange
        The ranks.
    partition : Partition
        Which of them owns what.
    width : int
        D.
    dtype : dtype
        Of the table.
    padding : int, optional
        The place of the padding row.
    optimizer : Optimizer, optional
        The rule of `apply`.
    fill : callable
        Writes the rows as they begin.
    limits : dict
        `max_norm` and `norm_type`.

    Attributes
    ----------
    shard, hot : Shard
        The rows that this rank alone owns, and the hot ones, of which every rank has a copy.
    first : int
        The place of the first row of `shard`.
    """

    def __init__(
        self,
        exchange: Exchange,
        partition: Partition,
        width: int,
        dtype: np.dtype[Any],
        padding: int | None,
        optimizer: Optimizer | None,
        fill: Fill,
        limits: dict[str, Any],
    ) -> None:
        self._exchange, self._partition, self._width = exchange, partition, width

        def shard(first: int, stop: int) -> Shard:
            _options.integer("the number of rows of a rank", stop - first, at_least=0, at_most=2**31 - 1)
            table = np.empty((stop - first, width), dtype)
            for start in range(first, stop, CHUNK_ROWS):
                end = min(start + CHUNK_ROWS, stop)
                fill(table[start - first : end - first], np.arange(start, end))
            local = padding - first if padding is not None and first <= padding < stop else None
            return Shard(table, optimizer, padding_idx=local, **limits)

        self.first, stop = (int(bound) for bound in partition.bounds[exchange.rank : exchange.rank + 2])
        self.shard = shard(self.first, stop)
        self.hot = shard(partition.cold, partition.num_rows)

    def to(self, device: str) -> None:
        """Move rows and their state: ids stay on the host, which has to know where they go."""
        self.shard.to(device)
        self.hot.to(device)

    def here(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array on the device of the rows."""
        return to_device(array, device_of(self.shard.weight))

    def distinct(self, places: Places, padding: int | None = None) -> Distinct:
        """Each place once; positions with `padding` are left out."""
        groups = Groups.of(places, self._partition.num_rows, padding)
        numbers = np.full(places.size, groups.rows.size)
        numbers[groups.positions] = groups.runs()
        return Distinct(groups.rows, numbers.reshape(places.shape))

    def largest(self, places: Places) -> int:
        """The greatest number of ascending places that one other rank owns."""
        return int(self._exchange.without_own(self._split(places)[1]).max())

    def _split(self, places: Places) -> tuple[int, Counts]:
        """How many ascending places are of cold rows, and how many of them each rank owns."""
        cold = int(np.searchsorted(places, self._partition.cold))
        return cold, self._partition.counts(places[:cold])

    def fetch(self, places: Places, largest: int, spare: int = 0) -> NDArray[Any]:
        """The rows at distinct places, from all ranks, in a new array with room for some more.

        `largest` is that of all ranks. What this rank has itself is looked up while the others' rows travel.
        """
        exchange, table = self._exchange, self.shard.weight
        cold, counts = self._split(places)
        asked = exchange.without_own(exchange.counts(counts))
        wanted = np.empty(int(asked.sum()), np.int64)
        exchange.start(places[:cold], counts, wanted, asked, largest).wait()
        wanted -= self.first
        between = exchange.own(counts)
        own, hot = places[between] - self.first, places[cold:] - self._partition.cold
        self._make_ready(np.concatenate((wanted, own)), hot)
        rows = empty((len(places) + spare, self._width), table.dtype, table)
        travelling = exchange.start(gather(table, self.here(wanted)), asked, rows[:cold], counts, largest)
        gather(table, self.here(own), out=rows[between])
        gather(self.hot.weight, self.here(hot), out=rows[cold : len(places)])
        travelling.wait()
        return rows

    def _make_ready(self, cold: Places, hot: Places) -> None:
        """What comes before a lookup, once for each row that any rank looks up, or copies of hot rows would differ."""
        if self.shard.writes_at_lookup:
            self.shard.make_ready(self.here(cold))
            self.hot.make_ready(self.here(np.flatnonzero(self._touched(hot))))

    def _touched(self, hot: Places) -> NDArray[np.bool]:
        """Which hot rows any rank has named."""
        mask = np.zeros(len(self.hot.weight), np.bool)
        mask[hot] = True
        return self._exchange.any(mask) if mask.size else mask

    def apply(self, grad: RowGrad, largest: int, lr: float | None, limit: float | None) -> None:
        """Send the gradient of some places to their owners, who add in the order of ranks and apply the rule once."""
        exchange = self._exchange
        places = to_device(grad.rows, HOST)
        cold, counts = self._split(places)
        received = exchange.counts(counts)
        rows = self.here(exchange.swap(places[:cold], counts, received, largest) - self.first)
        terms = exchange.swap(grad.values[:cold], counts, received, largest)
        self.hot.grad = self._sum_of_hot(places[cold:] - self._partition.cold, grad.values[cold:])
        if limit is None:
            self.shard.fused_step(rows, terms, lr=lr)
            self.hot.step(lr=lr)
            return
        self.shard.backward(rows, terms)
        shares = [part.grad.norm() for part in (self.shard, self.hot) if part.grad is not None]
        norm = math.hypot(*exchange.numbers_of_all(shares[:1])[:, 0], shares[1])
        clips = math.isfinite(norm) and norm > limit
        for part, share in zip((self.shard, self.hot), shares, strict=True):
            part.step(lr=lr, max_grad_norm=share * (limit / norm) if clips else None)

    def _sum_of_hot(self, rows: Places, values: NDArray[Any]) -> RowGrad:
        """The gradient of the hot rows over all ranks, on all of them."""
        count = len(self.hot.weight)
        touched = np.flatnonzero(self._touched(rows))
        dense = namespace(values).zeros((touched.size, self._width), values.dtype)
        dense[self.here(np.searchsorted(touched, rows))] = values
        return hand_over(self.here(touched), self._exchange.sum(dense) if count else dense, count)

    def gather(self, root: int) -> NDArray[Any] | None:
        """All rows on the host of one rank, in the order of places; None on the others."""
        exchange, table = self._exchange, to_device(self.shard.weight, HOST)
        shares = np.diff(self._partition.bounds)
        counts = np.zeros_like(shares)
        counts[root] = len(table)
        received = shares if exchange.rank == root else np.zeros_like(shares)
        rows = exchange.swap(table, counts, received, int(shares.max()))
        return np.concatenate((rows, to_device(self.hot.weight, HOST))) if exchange.rank == root else None
