"""All measurements within a budget of time and memory, each written down as soon as it is there."""

import gc
import json
import time

from . import check, problems, records, timing

FIRST_GUESS = 4.0
"""Seconds that the first case of an operation may take: its kernels are compiled then."""

FREE_SHARE = 0.9
"""Of the free memory of a device that a case may take."""


class Budget:
    """Seconds from now on, and what the cases of each operation have taken of them."""

    def __init__(self, seconds, now=time.monotonic):
        self._now, self._end = now, now() + seconds
        self._taken = {}

    def left(self):
        """Seconds until the end."""
        return self._end - self._now()

    def estimate(self, op):
        """Seconds that the next case of an operation takes, if it is as long as the longest of the last few."""
        return max(self._taken.get(op, [FIRST_GUESS])[-5:])

    def taken(self, op, seconds):
        """One more case has taken so many seconds."""
        self._taken.setdefault(op, []).append(seconds)


class Document:
    """What a run has found so far, as one JSON file that is whole at any time."""

    def __init__(self, path, about):
        self.path = path
        self.values = {"about": about, "tests": None, "copy_bytes_per_s": None, "launches": [], "records": []}
        self.values |= {"finished": False}

    def write(self, **changes):
        """Take values in and write all of it."""
        self.values |= changes
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = self.path.with_suffix(".part")
        whole.write_text(json.dumps(self.values, indent=1) + "\n")
        whole.replace(self.path)

    def add(self, kind, record):
        """One more of a list of records."""
        self.values[kind].append(record)
        self.write()


def measure(document, device, chosen, budget, case_seconds, say):
    """Copy bandwidth, launches, then cases as long as the budget lasts.

    Parameters
    ----------
    document : Document
        Written after every step.
    device : Device
        What is measured: see `about.Device`.
    chosen : list of Case
        By importance. Those that do not fit the time or the memory that is left are recorded as left out.
    budget : Budget
        Of time.
    case_seconds : float
        For the samples of one case.
    say : callable
        Takes a line of progress.
    """
    say("copy bandwidth")
    bandwidth = timing.copy_bandwidth(device.clock, device.tools.xp, timing.COPY_BYTES)
    _clean_up(device)
    document.write(copy_bytes_per_s=bandwidth)
    for launch in records.of_launches(device.tools, device.clock):
        say(f"launch overhead: {launch['op']}, {launch['way']}")
        document.add("launches", launch)
    _clean_up(device)
    for number, case in enumerate(chosen, 1):
        say(f"{number} of {len(chosen)}, {budget.left():.0f} s left: {case}")
        if budget.left() < budget.estimate(case.op):
            document.add("records", records.empty_of(case, "left out", reason="time"))
            continue
        started = budget.left()
        record, error = check.attempt(_fitting, case, device, bandwidth, case_seconds)
        document.add("records", record or records.empty_of(case, "error", reason=error))
        _clean_up(device)
        budget.taken(case.op, started - budget.left())
    document.write(finished=True)


def _fitting(case, device, bandwidth, case_seconds):
    free, needed = device.free_bytes(), problems.memory(case)
    if needed > FREE_SHARE * free:
        text = f"memory: it needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free"
        return records.empty_of(case, "left out", reason=text)
    return records.of_case(case, device.tools, device.clock, bandwidth, case_seconds)


def _clean_up(device):
    """Give memory back; a device that has been lost cannot, and the cases that follow say so."""
    gc.collect()
    check.attempt(device.free)
