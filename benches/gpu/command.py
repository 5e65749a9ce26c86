"""The command: what it prints, what it writes, how it ends."""

import argparse
import faulthandler
import sys
import time
from pathlib import Path

from . import about, cases, report, run, suite

LIMIT = {False: 480.0, True: 150.0}
"""Seconds after which the process ends, with a trace of where it is, whatever it waits for; by --quick."""

BUDGET = {False: 440.0, True: 85.0}
"""Seconds in which all of it is to happen."""

TESTS = {False: 180.0, True: 40.0}
"""Seconds of these for the tests."""

CASE = {False: 0.4, True: 0.2}
"""Seconds for the samples of a case."""


def main(arguments=None):
    """Measure; 0, or 1 where tests fail or a case raises, or 2 where there is no GPU to measure."""
    parser = argparse.ArgumentParser(prog="python benches/device.py", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the most telling cases alone, in some 90 seconds")
    parser.add_argument("--output", type=Path, default=Path("build"), help="folder of device.json (build)")
    options = parser.parse_args(arguments)
    problem = about.problem()
    if problem:
        print(f"Nothing to measure: {problem}", file=sys.stderr)
        return 2
    faulthandler.dump_traceback_later(LIMIT[options.quick], exit=True, file=sys.__stderr__)
    try:
        return measure(options.quick, options.output)
    finally:
        faulthandler.cancel_dump_traceback_later()


def measure(quick, folder):
    """All of it, where there is a GPU."""
    started = time.monotonic()
    device, no_torch = about.device()
    document = run.Document(folder / "device.json", about.about(device.tools.xp, quick))
    print("\n".join(report.heading(document.values["about"])), flush=True)
    if no_torch:
        print(f"Missing: {no_torch}; its comparisons are left out.", flush=True)
    document.write(missing=[no_torch] if no_torch else [])
    say("the tests that need a GPU")
    document.write(tests=suite.run(folder / "device-tests.txt", TESTS[quick]))
    print(report.tests(document.values["tests"]), flush=True)
    budget = run.Budget(BUDGET[quick] - (time.monotonic() - started))
    run.measure(document, device, cases.ordered(quick), budget, CASE[quick], say)
    return conclude(document)


def say(line):
    """A line of progress."""
    print(line, file=sys.stderr, flush=True)


def conclude(document):
    """Print the tables, what to try next and what went wrong; the exit code."""
    print(report.text(document.values))
    print("\nWhere memory or the order of accesses is in doubt:")
    print("\n".join(about.sanitizers()))
    failures = list(report.failures(document.values))
    document.write(failures=failures)
    if failures:
        print("\nFailed:")
        print("\n".join(f"  {line}" for line in failures))
    print(f"\nWritten: {document.path}")
    return int(bool(failures))
