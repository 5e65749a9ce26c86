"""asv: how times grow with indices L, width D and table rows N: exponents of fitted power laws."""

import statistics

import numba
import numpy as np
import threadpoolctl

import fastemb
from fastemb import _lines, optim

from . import devices, measure, roofline, shapes

SMALLEST = {"L": 1 << 14, "D": 128, "N": 1024}
"""Of a sweep, and what the other two are meanwhile."""

FITS, ROUNDS = 3, 7
STEPS = 4
"""Sizes of a sweep, each twice the one before."""

DISTINCT = 4
"""Rows that the indices name: few, so that they stay in one cache however wide they are."""

HOT = 8
"""Indices of a bag."""

NEXT_TO_NOTHING = 16
"""Indices, or columns, of a problem whose time is the fixed cost of a call."""


def sizes(axis):
    """The problems of a sweep, L, D and N each: smallest first, in L and D after one of `NEXT_TO_NOTHING`."""
    if axis != "N":
        yield SMALLEST | {axis: NEXT_TO_NOTHING}
    for k in range(STEPS):
        yield SMALLEST | {axis: SMALLEST[axis] << k}


def _ids(length, num_rows):
    return np.random.default_rng(0).permutation(num_rows)[np.arange(length) % DISTINCT]


class FarMemory:
    """Arrays of ones that no cache holds, for what grows with a problem: else a line bends wherever a cache ends."""

    def __init__(self):
        self._all = _lines.empty((roofline.FAR // 4,), np.dtype(np.float32))
        self._all[:] = 1
        self._at = 0

    def take(self, length, width):
        """A (length, width) array behind the one taken before, from the begin again after the last."""
        if self._at + length * width > self._all.size:
            self._at = 0
        begin, self._at = self._at, self._at + length * width
        return self._all[begin : self._at].reshape(length, width)


def lookup(length, width, num_rows, memory):
    """A lookup into memory that is there, of more indices than the others: the smallest too is written past the caches.

    (On an EPYC rows of 2 KiB and more are written into the caches at half the speed of narrower ones, by NumPy too.)
    """
    length *= 4
    table, ids = shapes.table(num_rows, width), _ids(length, num_rows)
    return lambda: fastemb.gather(table, ids, out=memory.take(length, width))


def scatter_add(length, width, num_rows, memory):
    """Rows added into a table."""
    table, ids = shapes.table(num_rows, width), _ids(length, num_rows)
    return lambda: fastemb.scatter_add(table, ids, memory.take(length, width))


def bag(length, width, num_rows, memory):
    """Sums of 8 rows each."""
    table, ids, offsets = shapes.table(num_rows, width), _ids(length, num_rows), np.arange(0, length, HOT)
    return lambda: fastemb.embedding_bag(table, ids, offsets, mode="sum", out=memory.take(offsets.size, width))


def step(length, width, num_rows, memory):
    """A step of Adam."""
    rule, table, ids = optim.Adam(), shapes.table(num_rows, width), _ids(length, num_rows)
    state = rule.init(table)
    return lambda: rule.step(table, state, ids, memory.take(length, width))


def one_hot(length, width, num_rows, memory):
    """The product with a one-hot matrix, of fewer indices than the others, for it takes so much longer."""
    length //= 256
    table, matrix = shapes.table(num_rows, width), fastemb.one_hot(_ids(length, num_rows), num_rows)
    return lambda: np.matmul(matrix, table, out=memory.take(length, width))


def slope(amounts, times, axis):
    """Exponent p of ``time ~ amount**p``, the slope of a line through the logarithms by least squares.

    In L and D of what the problems take beyond the first of them, so that the fixed cost of a call bends no line: 1 for
    any cost that grows in proportion. In N, where lookups do not grow at all, of the times themselves.
    """
    amounts, times = np.array(amounts, float), np.array(times, float)
    if axis != "N":
        amounts, times = amounts[1:] - amounts[0], np.maximum(times[1:] - times[0], times[0] * 1e-3)
    return float(np.polyfit(np.log(amounts), np.log(times), 1)[0])


def exponent(make, axis, rounds=ROUNDS):
    """Fitted exponent of an operation along one axis: the median of `FITS`, each of the least times of some rounds.

    On one thread: where a second one begins to help, a line bends.
    """
    problems, memory = list(sizes(axis)), FarMemory()
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with threadpoolctl.threadpool_limits(1):
            # Each fit has arrays of its own, all kept: where they lie in the caches' sets is worth a tenth.
            calls = [[make(p["L"], p["D"], p["N"], memory) for p in problems] for _ in range(FITS)]
            fits = [measure.in_turn(of_this, rounds) for of_this in calls]
    finally:
        numba.set_num_threads(before)
    amounts = [p[axis] for p in problems]
    return statistics.median(slope(amounts, [timing.samples.min() for timing in fit], axis) for fit in fits)


class Growth:
    """Exponents of the time of each operation in L, D and N; those of the one-hot product beside them."""

    params = (["L", "D", "N"], devices.NAMES)
    param_names = ("axis", "device")
    unit = "exponent"

    def setup(self, axis, device):
        """Nothing to make ready: each problem is warm before it is timed."""
        devices.require_host(device)

    def track_lookup(self, axis, device):
        """Expected: 1 in L, 1 in D, 0 in N."""
        return exponent(lookup, axis)

    def track_scatter_add(self, axis, device):
        """Expected: 1 in L, 1 in D, 0 in N."""
        return exponent(scatter_add, axis)

    def track_bag(self, axis, device):
        """Expected: 1 in L, 1 in D, 0 in N."""
        return exponent(bag, axis)

    def track_step(self, axis, device):
        """Expected: 1 in L, 1 in D, 0 in N."""
        return exponent(step, axis)

    def track_one_hot(self, axis, device):
        """Expected: 1 in L, 1 in D, 1 in N."""
        return exponent(one_hot, axis)
