"""Seconds of a lookup over any number of ranks, from what a machine takes for a message, a byte, an id and a row."""

import dataclasses
import math

import numpy as np

PHASES = ("dedup", "exchange", "gather", "expand")


@dataclasses.dataclass(frozen=True)
class Machine:
    """What the model has to know of one.

    `latency` is seconds of a message, `bandwidth` bytes a second that a rank sends while it receives as many, `dedup`
    seconds an id, `gather` seconds a byte of rows looked up for others or for itself, `expand` seconds a byte of the
    result. `cores` is how many ranks can work at once; more of them take turns.
    """

    latency: float
    bandwidth: float
    dedup: float
    gather: float
    expand: float
    cores: int | None = None


@dataclasses.dataclass(frozen=True)
class Lookup:
    """`ids` of each rank, `distinct` of them, `hot` of which every rank has, and rows of so many bytes."""

    ids: int
    distinct: float
    row_bytes: int
    hot: float = 0.0


def seconds(machine, lookup, ranks):
    """Seconds of each phase.

    Two collectives of few bytes, the agreement and the counts, take ``log2(ranks)`` messages one after the other; ids
    and rows go to each other rank in a message of their own. Nothing overlaps.
    """
    turns = 1 if machine.cores is None else max(1.0, ranks / machine.cores)
    rounds, cold = math.ceil(math.log2(ranks)), lookup.distinct - lookup.hot
    travels = cold * (ranks - 1) / ranks * (8 + lookup.row_bytes)
    counts = 8 * ranks * rounds / 2
    messages = 2 * rounds + 2 * (ranks - 1)
    return {
        "dedup": turns * lookup.ids * machine.dedup,
        "exchange": messages * machine.latency + turns * (travels + counts) / machine.bandwidth,
        "gather": turns * lookup.distinct * lookup.row_bytes * machine.gather,
        "expand": turns * lookup.ids * lookup.row_bytes * machine.expand,
    }


def distinct(num_rows, ids, exponent):
    """How many distinct rows to expect among `ids` of a power law over `num_rows`; exponent 0: uniform.

    ``sum over x of 1 - (1 - p(x))**ids`` with ``p(x) ~ x**-exponent``, summed one by one as far as it pays, then in
    steps that grow with x.
    """
    edges = np.unique(np.floor(np.geomspace(1, num_rows + 1, 20_000)))
    widths, middles = np.diff(edges), np.sqrt(edges[:-1] * (edges[1:] - 1))
    weights = middles**-exponent
    chances = weights / (weights * widths).sum()
    return float((widths * -np.expm1(ids * np.log1p(-np.minimum(chances, 1 - 1e-12)))).sum())
