"""``python -m benches.dashboard``: time the suite for the last commits of interest, and publish it as pages."""

import argparse
import contextlib
import subprocess
import sys
import time
from pathlib import Path

from .. import devices
from . import commits, suite, vendor

QUICK = r"LookupVsOneHot\.(time_lookup|track_speedup)"
FEW = ("repeat=5", "warmup_time=0.02")
"""What the quick form times, and how. One sample, as `asv --quick` takes, would be a cold call."""

FOLDER = suite.ROOT / ".asv"
RESULTS = {False: ".asv/results", True: ".asv/quick"}
"""Of the full and of the quick form: hasty points among careful ones would look like changes."""


def selection(regex):
    """A regex of asv for the benchmarks that one finds, without parameters that name a device that is not there.

    They would be left out anyway, but for the price of a process each: every second of them all.
    """
    here = []
    for device in devices.NAMES:
        with contextlib.suppress(NotImplementedError):
            devices.require(device)
            here.append(device)
    elsewhere = "".join(f"(?!.*'{device}')" for device in devices.NAMES if device not in here)
    return f"^{elsewhere}(?=.*?(?:{regex}))"


def publish(config, values):
    """Make the pages, whole without a network where npm is there, and the report with them."""
    suite.publish(config, values["results_dir"])
    if sentence := vendor.vendor(values["html_dir"], FOLDER / "npm"):
        print(sentence, flush=True)
    command = [sys.executable, "-m", "benches.page", "--asv", values["results_dir"]]
    if subprocess.run(command, cwd=suite.ROOT, check=False).returncode:
        msg = "the report could not be made; the output above says why"
        raise suite.AsvError(msg)


def _short(path):
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def how_to_open(html):
    """The line to type, and the address."""
    folder, python = _short(Path(html)), _short(Path(sys.executable))
    return (
        f"\nThe dashboard is {folder / 'index.html'}. It reads files, so it needs a server:\n\n"
        f"    {python} -m http.server --bind 127.0.0.1 --directory {folder} 8000\n\n"
        "and http://127.0.0.1:8000 in a browser. A click on a tile opens its graph, whose x-axis can be N."
    )


def main(arguments=None):
    """Run asv and publish; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benches.dashboard", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few samples of the headline, apart from the others")
    parser.add_argument("--commits", type=int, default=3, metavar="N", help="HEAD, and the last that changed code (3)")
    parser.add_argument("--head-only", action="store_true", help="time HEAD, again if need be, and do not publish")
    parser.add_argument("--bench", metavar="REGEX", help="the benchmarks whose names it finds (all)")
    options = parser.parse_args(arguments)
    if options.commits < 1:
        parser.error("commits must be >= 1")

    start = time.monotonic()
    wanted = 1 if options.head_only else options.commits
    chosen = commits.last(suite.ROOT, wanted)
    for sentence in commits.remarks(suite.ROOT, len(chosen), wanted):
        print(f"Note: {sentence}", flush=True)
    config = FOLDER / "dashboard.conf.json"
    results = RESULTS[options.quick]
    values = suite.configuration(config, branches=[commits.branch(suite.ROOT)], results_dir=results)
    # A second process for each would cost more than the samples that it adds are worth: most of it is setting up.
    what = [f"--attribute={setting}" for setting in ("rounds=1", *(FEW if options.quick else ()))]
    what += ["--bench", selection(options.bench or (QUICK if options.quick else ""))]
    if not options.head_only:
        what.append("--skip-existing-successful")
    try:
        machine = suite.name_machine()
        suite.run(config, machine, chosen, *what)
        suite.check(values["results_dir"], machine, chosen)
        if not options.head_only:
            publish(config, values)
    except suite.AsvError as error:
        print(f"\n{error}.", file=sys.stderr)
        return 2
    print(f"{(time.monotonic() - start) / 60:.1f} minutes.")
    print(f"Results: {results}; `make dashboard` shows them." if options.head_only else how_to_open(values["html_dir"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
