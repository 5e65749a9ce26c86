"""How the rows of a sharded table begin: the same for any number of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..nn.initialisers import Initialiser, make_table, uniform_fan
from .exchange import Exchange
from .partition import Partition

BLOCK_ROWS = 256
"""Rows that are drawn at once, from a generator of their own."""

Fill = Callable[[NDArray[Any], NDArray[np.int64]], None]
"""Writes rows of a new table, given their ascending places."""

FillOf = Callable[[Exchange, Partition, int | None], Fill]
"""Makes a `Fill`, given the ranks, the places and that of the padding row. Collective."""


def drawn(init: str | Initialiser, seed: int | None) -> FillOf:
    """Rows from `init`, with the seed of rank 0; the padding row is zeros."""

    def fill_of(exchange: Exchange, partition: Partition, padding: int | None) -> Fill:
        with exchange.together("the constructor"):
            entropy = np.random.SeedSequence(seed).entropy
        draw = _Drawn(init, exchange.of_root(entropy), partition.num_rows)

        def fill(out: NDArray[Any], places: NDArray[np.int64]) -> None:
            draw(out, partition.permuted_of(places))
            out[places == padding] = 0

        return fill

    return fill_of


def copied(table: NDArray[Any]) -> FillOf:
    """Rows of a table that every rank has, or has mapped."""

    def fill_of(_exchange: Exchange, partition: Partition, _padding: int | None) -> Fill:
        def fill(out: NDArray[Any], places: NDArray[np.int64]) -> None:
            with np.errstate(all="ignore"):
                out[...] = table[partition.ids(places)]

        return fill

    return fill_of


class _Drawn:
    """Rows drawn in blocks: block b of N rows has the generator ``SeedSequence(seed, spawn_key=(b,))``."""

    def __init__(self, init: str | Initialiser, seed: int, num_rows: int) -> None:
        self._seed, self._num_rows = seed, num_rows
        self._init = self._fan if init == "uniform_fan" else init

    def __call__(self, out: NDArray[Any], rows: NDArray[np.int64]) -> None:
        """Fill `out` with some of the N rows, which are ascending."""
        blocks = rows // BLOCK_ROWS
        cuts = np.flatnonzero(np.diff(blocks)) + 1
        for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
            if start < stop:
                block = int(blocks[start])
                out[start:stop] = self._block(block, out)[rows[start:stop] - block * BLOCK_ROWS]

    def _block(self, block: int, like: NDArray[Any]) -> NDArray[Any]:
        count = min(BLOCK_ROWS, self._num_rows - block * BLOCK_ROWS)
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(self._seed, spawn_key=(block,))))
        return make_table(self._init, rng, (count, like.shape[1]), like.dtype)

    def _fan(self, rng: np.random.Generator, shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """``U(-sqrt(1/N), sqrt(1/N))`` with the N of the whole table."""
        block = uniform_fan(rng, shape, dtype)
        block *= math.sqrt(shape[0] / self._num_rows)
        return block
