"""Made-up devices and clocks, and few rows, for the tests of ``benches/device.py``."""

import contextlib

import numpy as np

from benches.gpu import about, cases, problems, run

FEW = {"num_rows": 700, "width": 24, "bags": 60}
ON_CPU = problems.Tools(np, None, lambda when: contextlib.nullcontext())


def case_of(op, hot=1, **more):
    """A case of few rows."""
    rule = more.pop("rule", "Adam" if op == "update" else "")
    return cases.Case(op, hot=hot, rule=rule, **(FEW | more))


EVERY = [
    case_of(op, hot, stream=stream, dtype=dtype, rule=rule)
    for op in cases.OPERATIONS
    for hot in ((1, 16) if op in ("bag", "update") else (1,))
    for stream in ("uniform", "zipf 1.15", "one row")
    for dtype in cases.DTYPES
    for rule in ((*cases.RULES, "Adagrad") if op == "update" else ("",))
]


class Clock:
    """Every call takes about a millisecond; the one after `after` calls is never made."""

    def __init__(self, after=None):
        self.calls, self.after = 0, after

    def seconds(self, call, **_options):
        self.calls += 1
        if self.after is not None and self.calls > self.after:
            raise KeyboardInterrupt
        call()
        return 0.001 * (1 + self.calls % 3 / 100)

    def synchronize(self):
        pass


class Time:
    """A clock that is moved by hand, or by so much each time that it is read."""

    def __init__(self, step=0.0):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def device_of(clock=None):
    """A device of 16 GB."""
    return about.Device(ON_CPU, clock or Clock(), lambda: 1 << 34, lambda: None)


def measured(document, chosen, clock=None):
    """What a run with time enough records of cases."""
    run.measure(document, device_of(clock), chosen, run.Budget(1e6), 0.1, lambda line: None)
    document.write(tests={"outcome": "passed", "passed": 3})
    return document.values
