"""``python -m benches.peers``: fastemb against NumPy, scipy, torch and FBGEMM, in one process, in turn."""

import argparse
import gc
import json
import math
import statistics
import sys
from pathlib import Path

import numba
import rich.console
import rich.progress

from .. import machine, measure, roofline
from . import cases, comparison, report

COPY_BYTES = 1 << 28

LONGER = 3
"""How many times as long a comparison is measured whose quartiles lie on both sides of its target."""


def copy_bandwidth():
    """Bytes a second, read and written, of a streaming copy of 256 MiB: the median of 9."""
    _, copy = roofline.streaming_copy(COPY_BYTES)
    return 2 * COPY_BYTES / measure.in_turn([copy], rounds=9)[0].median


def record_of(name, made, rounds, bandwidth):
    """Check a comparison, time it, and say whether its target holds."""
    made.equal()
    calls = [made.ours, made.theirs, *([made.limit] if made.limit else [])]
    how = {"rounds": made.samples, "sample_seconds": 0.0} if made.samples else {"rounds": rounds}
    ours, theirs, *limit = timings = measure.in_turn(calls, **how)
    low, _, high = theirs.ratio_to(ours)
    if made.target is not None and low < made.target <= high and not made.samples:  # not clear on which side it is
        more = [measure.in_turn(calls, **how) for _ in range(LONGER - 1)]
        ours, theirs, *limit = (measure.joined(of_one) for of_one in zip(timings, *more, strict=True))
    times = {
        "fastemb_ms": ours.median * 1e3,
        "peer_ms": theirs.median * 1e3,
        "roof": made.nbytes / ours.median / bandwidth if made.nbytes else None,
    }
    at_limit = theirs.ratio_to(limit[0])[1] if limit else None
    return _record(name, made.case, made.peer, theirs.ratio_to(ours), made.target, at_limit, **times)


def _record(name, case, peer, ratios, target, limit, fastemb_ms=None, peer_ms=None, roof=None):
    """What is known of a comparison, given (quartile, median, quartile) of its ratio; `limit` is that of the limit."""
    low, ratio, high = ratios
    return {
        "id": name,
        "case": case,
        "peer": peer,
        "fastemb_ms": fastemb_ms,
        "peer_ms": peer_ms,
        "ratio": ratio,
        "ratio_q1": low,
        "ratio_q3": high,
        "roof": roof,
        "limit": limit,
        "target": target,
        "holds": None if target is None else ratio >= target,
        "reachable": None if target is None else limit is None or limit >= target,
    }


def _geometric_mean(numbers):
    return math.exp(statistics.fmean(map(math.log, numbers)))


def with_means(records):
    """The records of an id, and one for each geometric mean over its cases that has a target.

    Such a target and the least that it asks of every case are one: if the mean is out of reach, so are they.
    """
    means = []
    for (name, peer), target in cases.MEANS.items():
        found = [r for r in records if (r["id"], r["peer"]) == (name, peer)]
        if len(found) < 2:
            continue
        ratios = tuple(_geometric_mean([r[key] for r in found]) for key in ("ratio_q1", "ratio", "ratio_q3"))
        limits = [r["limit"] for r in found]
        limit = None if None in limits else _geometric_mean(limits)
        mean = _record(name, f"geometric mean of {len(found)} cases", peer, ratios, target, limit)
        means.append(mean)
        for r in found:
            r["reachable"] = r["reachable"] and mean["reachable"]
    return [*records, *means]


def main(arguments=None):
    """Run the comparisons; with --check the exit code says whether all targets within reach hold."""
    parser = argparse.ArgumentParser(prog="python -m benches.peers", description=__doc__)
    parser.add_argument("--ids", default=",".join(cases.CASES), help="rows of the table of targets (all)")
    parser.add_argument("--threads", type=int, default=2, help="of fastemb and of every peer (2)")
    parser.add_argument("--rounds", type=int, default=21, help="pairs of samples (21, at least 15)")
    parser.add_argument("--quick", action="store_true", help="one case of each id")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the records")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target within reach does not hold")
    parser.add_argument("--output", type=Path, default=Path("build"), help="folder of peers.png (build)")
    options = parser.parse_args(arguments)
    wanted = options.ids.split(",")
    if unknown := set(wanted) - set(cases.CASES):
        parser.error(f"unknown ids {sorted(unknown)}: choose from {sorted(cases.CASES)}")
    if options.rounds < 15:
        parser.error("--rounds must be >= 15")
    if not 1 <= options.threads <= numba.config.NUMBA_NUM_THREADS:
        parser.error(f"--threads must be in [1, {numba.config.NUMBA_NUM_THREADS}]")

    console = rich.console.Console(width=None if sys.stdout.isatty() else 196)
    comparison.set_threads(options.threads)
    for peer, remedy in comparison.PEERS.items():
        if not comparison.has(peer):
            console.print(f"[bold]Missing:[/bold] {peer} is not installed, its comparisons are left out ({remedy}).")
    bandwidth = copy_bandwidth()
    records = []
    with rich.progress.Progress(console=rich.console.Console(stderr=True)) as progress:
        task = progress.add_task("comparing", total=len(wanted))
        for name in wanted:
            of_this = []
            for made in cases.CASES[name](options.quick):
                progress.update(task, description=f"{name}: {made.case}, {made.peer}")
                of_this.append(record_of(name, made, options.rounds, bandwidth))
                gc.collect()
            records += with_means(of_this)
            progress.advance(task)

    about = machine.machine()
    footer = f"{options.threads} threads each; streaming copy {bandwidth / 1e9:.1f} GB/s; {machine.one_line(about)}"
    console.print(report.table(records))
    console.print(footer, highlight=False)
    options.output.mkdir(parents=True, exist_ok=True)
    report.plot(options.output / "peers.png", records, footer)
    console.print(f"Written: {options.output / 'peers.png'}", highlight=False)
    if options.json:
        document = {"machine": about, "threads": options.threads, "copy_bytes_per_s": bandwidth, "records": records}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    missed = [r for r in records if r["holds"] is False]
    for r in missed:
        limit = "" if r["limit"] is None else f", {r['limit']:.3g} at the limit"
        told = f"{r['id']}, {r['case']}, {r['peer']}: {r['ratio']:.3g} of {r['target']:.3g}{limit}"
        console.print(f"{report.words_of(r).capitalize()}: {told}", highlight=False)
    return int(options.check and any(r["reachable"] for r in missed))


if __name__ == "__main__":
    sys.exit(main())
