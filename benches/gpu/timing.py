"""Seconds on a device, by its own clock, and seconds that the host is kept by a call."""

import itertools
import statistics
import time

import numpy as np

from .. import measure

ROUNDS, LEAST_ROUNDS = 21, 5
"""Samples of each way, and how many there are where a case has used its time."""

FLUSH_BYTES = 1 << 30
"""Read before each sample: many times the largest L2. While that goes on, the host gets ahead of the device."""

COPY_BYTES = 1 << 30
WARM_CALLS = 10


class Events:
    """Times calls on the current stream by CUDA events.

    Parameters
    ----------
    xp : module
        CuPy.
    flush_bytes : int
        Read before a call that is to find none of its data in the L2.
    """

    def __init__(self, xp, flush_bytes=FLUSH_BYTES):
        self._xp = xp
        self._start, self._stop = xp.cuda.Event(), xp.cuda.Event()
        self._lines = xp.ones(flush_bytes // 4, np.int32)
        self._greatest = xp.empty((), np.int32)

    def seconds(self, call, flush=True):
        """Seconds from the start of the call's first kernel to the end of its last, on a device that is busy before."""
        if flush:
            self._lines.max(out=self._greatest)  # read, not written: nothing is left to be written back meanwhile
        self._start.record()
        call()
        self._stop.record()
        self._stop.synchronize()
        return self._xp.cuda.get_elapsed_time(self._start, self._stop) * 1e-3

    def synchronize(self):
        """Wait for everything."""
        self._xp.cuda.runtime.deviceSynchronize()


def in_turn(clock, calls, limit, rounds=ROUNDS, now=time.perf_counter):
    """Time calls in turn, each on a cold L2, their order turned by one every round; a `measure.Timing` for each.

    Fewer rounds where `limit` seconds are over, at least `LEAST_ROUNDS`. All calls have run before.
    """
    started, samples = now(), []
    while len(samples) < rounds and (len(samples) < LEAST_ROUNDS or now() - started < limit):
        row = np.empty(len(calls))
        for i in np.roll(np.arange(len(calls)), len(samples)):
            row[i] = clock.seconds(calls[i])
        samples.append(row)
    return [measure.Timing(of_one) for of_one in np.array(samples).T]


def spread(timing):
    """Distance of the quartiles over the median."""
    low, middle, high = np.quantile(timing.samples, (0.25, 0.5, 0.75))
    return float((high - low) / middle)


def warm(clock, call):
    """Seconds a call of several in a row, on what the one before has left in the L2: launches are not hidden."""

    def several():
        for _ in itertools.repeat(None, WARM_CALLS):
            call()

    return statistics.median(clock.seconds(several, flush=False) for _ in range(LEAST_ROUNDS)) / WARM_CALLS


def copy_bandwidth(clock, xp, nbytes):
    """Bytes a second, read and written, of a copy within the memory of the device: by the median time."""
    source, target = (xp.ones(nbytes // 4, np.float32) for _ in range(2))

    def copy():
        xp.copyto(target, source)

    copy()
    (timing,) = in_turn(clock, [copy], limit=float("inf"))
    return 2 * source.nbytes / timing.median


def host_seconds(clock, call, calls=20, batches=25, now=time.perf_counter):
    """Seconds that a call keeps the host: the median of batches so short that the queue of the device does not fill."""
    for _ in range(3):
        call()
    samples = []
    for _ in range(batches):
        clock.synchronize()
        started = now()
        for _ in itertools.repeat(None, calls):
            call()
        samples.append((now() - started) / calls)
    clock.synchronize()
    return statistics.median(samples)
