"""The workloads beyond the headline: sizes and index streams by name, and their arrays."""

import dataclasses

import numpy as np

from fastemb import _lines

from . import data


@dataclasses.dataclass(frozen=True)
class Rows:
    """`length` indices of a stream into a table of ``num_rows x width``."""

    num_rows: int
    width: int
    length: int
    stream: str = "uniform"

    def ids(self):
        """(length,) int64."""
        return data.STREAMS[self.stream](self.num_rows, self.length)


@dataclasses.dataclass(frozen=True)
class Bags:
    """`bags` bags of `hot` indices of a stream each, into a table of ``num_rows x width``."""

    num_rows: int
    width: int
    bags: int
    hot: int
    stream: str = "uniform"

    def problem(self):
        """(ids, offsets)."""
        ids = data.STREAMS[self.stream](self.num_rows, self.bags * self.hot)
        return ids, np.arange(0, ids.size, self.hot)


SMALL = {"1,000 x 64 L 32": Rows(1000, 64, 32)}
MID = {"50k x 64 L 4096": Rows(50_000, 64, 4096)}
_TABLES = {"1M x 128": (1_000_000, 128), "200k x 512": (200_000, 512), "1M x 33": (1_000_000, 33)}
LARGE = {
    f"{name} L 65,536 {stream}": Rows(*sizes, 65_536, stream)
    for name, sizes in _TABLES.items()
    for stream in ("uniform", "zipf", "text")
}

SCATTERS = {
    "50k x 64 L 4096 uniform": Rows(50_000, 64, 4096),
    "50k x 64 L 65,536 uniform": Rows(50_000, 64, 65_536),
    "50k x 64 L 65,536 zipf": Rows(50_000, 64, 65_536, "zipf"),
    "10 x 64 L 65,536 uniform": Rows(10, 64, 65_536),
    "1M x 128 L 65,536 uniform": Rows(1_000_000, 128, 65_536),
}

BAGS = {
    "1M x 128 B 4096 H 32 uniform": Bags(1_000_000, 128, 4096, 32),
    "1M x 128 B 4096 H 32 zipf": Bags(1_000_000, 128, 4096, 32, "zipf"),
    "1M x 64 B 8192 H 1 uniform": Bags(1_000_000, 64, 8192, 1),
    "1M x 64 B 8192 H 10 uniform": Bags(1_000_000, 64, 8192, 10),
    "50k x 64 B 4096 H 20 uniform": Bags(50_000, 64, 4096, 20),
}


def some(shapes, quick):
    """All of them, or the first alone."""
    return dict(list(shapes.items())[:1]) if quick else shapes


def table(num_rows, width, dtype=np.float32):
    """A table of small whole numbers, all rows different: sums of rows are exact in every order."""
    # One row everywhere but for two columns that number the rows in thousands: filled fast. It begins at a cache line,
    # as the tables of fastemb's, torch's and FBGEMM's layers do.
    made = _lines.empty((num_rows, width), np.dtype(dtype))
    made[:] = np.random.default_rng(1).integers(-8, 9, width)
    made[:, 0] = np.arange(num_rows) % 1000
    made[:, 1:2] = np.arange(num_rows)[:, np.newaxis] // 1000
    return made


def gradient(length, width):
    """Whole numbers: every order of addition gives the same sum, so results are compared exactly."""
    return np.random.default_rng(2).integers(-8, 9, (length, width)).astype(np.float32)


def moved(table, ids, written):
    """Bytes that a lookup has to move: every distinct row is read once, `written` rows are written."""
    return (np.unique(ids).size + written) * table.shape[1] * table.itemsize


def unaligned(table):
    """A copy at an odd address, which the compiled kernels do not take: operations on it run the reference kernels."""
    bytes_ = np.empty(table.nbytes + 1, np.uint8)[1:]
    copy = bytes_.view(table.dtype).reshape(table.shape)
    copy[:] = table
    return copy
