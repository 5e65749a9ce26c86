"""What is measured, the most telling first: definitions that have published figures, then a grid of sizes."""

import dataclasses
import functools
import itertools

import numpy as np

from .. import data

WIDTHS = (128, 64, 256, 32)
ROWS = (10_000_000, 1_000_000)
STREAMS = ("uniform", "zipf 1.05", "zipf 1.15")
HOT = (16, 64, 1)
DTYPES = ("float32", "float16")
RULES = ("Adam", "SGD", "RowWiseAdagrad")
"""The values of each axis of the grid, the one that says most first."""

LOOKUPS, BAGS = 1 << 20, 1 << 15
"""Indices of a lookup or a sum; bags of a pooled lookup or a step."""

OPERATIONS = ("gather", "bag", "scatter", "update")

SPREAD = 2_654_435_761
"""A prime above every number of rows: ranks times it, modulo that number, are the rows in some order."""


@dataclasses.dataclass(frozen=True)
class Case:
    """An operation on `bags` bags of `hot` indices each, into a table of ``num_rows x width``.

    Indices of lookups and sums are bags of one. `rule` is that of a step; `name` is that of a published definition.
    """

    op: str
    num_rows: int
    width: int
    bags: int
    hot: int = 1
    stream: str = "uniform"
    dtype: str = "float32"
    rule: str = ""
    name: str = ""

    @property
    def length(self):
        """Indices in all."""
        return self.bags * self.hot

    @property
    def row_bytes(self):
        """Of a row of the table."""
        return self.width * np.dtype(self.dtype).itemsize

    def __str__(self):
        pooled = self.op in ("bag", "update")
        size = f"B {self.bags:,} H {self.hot}" if pooled else f"L {self.length:,}"
        table = f"{_count(self.num_rows)} x {self.width}"
        words = (self.name, self.op, self.rule, table, size, self.stream, self.dtype)
        return " ".join(word for word in words if word)


def _count(number):
    return f"{number / 1e6:g}M" if number % 100_000 == 0 else f"{number:,}"


def named():
    """Published definitions, tables of several as one table with the rows of all."""
    ten_tables = {"num_rows": 10_000_000, "width": 128, "bags": 1_048_570, "stream": "zipf 1.05"}
    yield Case("gather", **ten_tables, name="G1")
    for rule in RULES:
        yield Case("update", **ten_tables, rule=rule, name="G2")
    yield Case("bag", 10_000_000, 256, 65_536, 64, "zipf 1.15", "float16", name="B1")
    for stream in ("uniform", "zipf 1.2"):
        yield Case("bag", 3_200_000, 128, 16_384, 20, stream, "float16", name="T1")
    yield Case("scatter", 1_000_000, 128, LOOKUPS, stream="one row", name="S1")
    yield Case("scatter", 399, 128, 40_960, name="S1")


def huge():
    """Published lookups in a table of 128 GiB, and in half of it: where the memory is there."""
    for num_rows in (1 << 28, 1 << 27):
        yield Case("gather", num_rows, 128, 262_144, stream="zipf 1.05", name="N1")


def grid():
    """(rank, case) of all combinations: 0 where each axis has its first value, one more for each place behind it."""
    axes = (WIDTHS, ROWS, STREAMS, DTYPES)
    for op in OPERATIONS:
        pooled = op in ("bag", "update")
        more = (HOT if pooled else (1,), RULES if op == "update" else ("",))
        for places in itertools.product(*(range(len(axis)) for axis in (*axes, *more))):
            values = (axis[place] for axis, place in zip((*axes, *more), places, strict=True))
            width, num_rows, stream, dtype, hot, rule = values
            if rule in RULES[1:] and width != WIDTHS[0]:
                continue  # what a rule adds to a step hardly depends on the width
            bags = BAGS if pooled else LOOKUPS
            yield sum(places), Case(op, num_rows, width, bags, hot, stream, dtype, rule)


def ordered(quick=False):
    """All cases by importance, or the few at the front."""
    ranked = sorted(grid(), key=lambda pair: pair[0])
    if quick:
        return [*named(), *(case for rank, case in ranked if rank <= 1)]
    return [*named(), *(case for rank, case in ranked if rank <= 1), *huge(), *(case for r, case in ranked if r > 1)]


@functools.lru_cache(maxsize=32)
def indices(stream, num_rows, length):
    """(ids, how many are different): (length,) int64 on the host, the same in every run; bags may repeat an id.

    "zipf a" draws ranks by inverting the bounded power law, as `data.zipf` does, and orders the rows without a
    permutation in memory, which 268 million of them would take a while to make.
    """
    kind, _, exponent = stream.partition(" ")
    if kind == "uniform":
        ids = data.uniform(num_rows, length)
    elif kind == "one":
        ids = np.zeros(length, np.int64)
    else:
        power = 1 - float(exponent)
        drawn = np.random.default_rng(0).random(length)
        ranks = ((drawn * (float(num_rows) ** power - 1) + 1) ** (1 / power)).astype(np.int64)
        ids = np.minimum(ranks, num_rows) * SPREAD % num_rows
    seen = np.zeros(num_rows, bool)
    seen[ids] = True
    return ids, int(np.count_nonzero(seen))
