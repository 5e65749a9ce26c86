"""Timing in turn, and peak memory."""

import dataclasses
import itertools
import math
import time
import tracemalloc

import numpy as np

from fastemb import buffers

ROUNDS = 15
SAMPLE_SECONDS = 2e-3
"""A sample repeats a call until it lasts about this long."""

WARM_SECONDS = 10e-3
"""A shorter call runs about so long before each sample, untimed.

A core that the call before did not use takes milliseconds until it works at its speed again (on the virtual machine
measured, a step of 0.3 ms takes 1 ms after 30 ms of one-threaded work, and its fourth repetition 0.3).
"""


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds a call: one sample for each round."""

    samples: np.ndarray

    @property
    def median(self):
        """Median seconds."""
        return float(np.median(self.samples))

    def ratio_to(self, other):
        """Quartiles (25 %, 50 %, 75 %) of this one's seconds over the other's, round by round."""
        return tuple(float(q) for q in np.quantile(self.samples / other.samples, (0.25, 0.5, 0.75)))


def joined(timings):
    """The samples of several timings of one call as one timing."""
    return Timing(np.concatenate([timing.samples for timing in timings]))


def _seconds(call, number):
    start = time.perf_counter()
    for _ in itertools.repeat(None, number):
        call()
    return (time.perf_counter() - start) / number


def in_turn(calls, rounds=ROUNDS, sample_seconds=SAMPLE_SECONDS):
    """Time callables in turn, so that what disturbs the machine disturbs all of them; a `Timing` for each.

    Each is called twice first. The order is turned by one every round: none always follows the same other. With
    `sample_seconds` 0 every call is a sample, and none is warmed up.
    """
    numbers, before = [], []
    for call in calls:
        call()
        once = max(_seconds(call, 1), 1e-9)
        numbers.append(max(1, math.ceil(sample_seconds / once)))
        before.append(WARM_SECONDS if sample_seconds > 0 and once < WARM_SECONDS else 0)
    samples = np.empty((len(calls), rounds))
    for r in range(rounds):
        for i in np.roll(np.arange(len(calls)), r):
            until = time.perf_counter() + before[i]
            while time.perf_counter() < until:
                calls[i]()
            samples[i, r] = _seconds(calls[i], numbers[i])
    return [Timing(row) for row in samples]


def peak_bytes(call):
    """Most memory that one call holds beyond what there was before, in bytes, as Python and NumPy allocate it."""
    recycled = buffers.limit()
    buffers.set_limit(0)  # recycled memory is memory too
    call()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        call()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        buffers.set_limit(recycled)
    return peak - before
