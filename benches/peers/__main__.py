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

AT_MOST = 3
"""How often a comparison is measured of which it is not clear on which side of its target it is."""


def copy_bandwidth():
    """Bytes a second, read and written, of a streaming copy of 256 MiB: the median of 9."""
    _, copy = roofline.streaming_copy(COPY_BYTES)
    return 2 * COPY_BYTES / measure.in_turn([copy], rounds=9)[0].median


def measured(made, rounds, before):
    """Check a comparison and time it; the timings, with the rounds of those of before."""
    made.equal()
    calls = [made.ours, made.theirs, *([made.limit] if made.limit else [])]
    timings = measure.in_turn(calls, made.samples, 0.0) if made.samples else measure.in_turn(calls, rounds)
    return [measure.joined(of_one) for of_one in zip(before, timings, strict=True)] if before else timings


def record_of(name, made, timings, bandwidth):
    """What timings say of a comparison, and whether its target holds."""
    ours, theirs, *limit = timings
    times = {
        "fastemb_ms": ours.median * 1e3,
        "peer_ms": theirs.median * 1e3,
        "roof": made.nbytes / ours.median / bandwidth if made.nbytes else None,
    }
    at_limit = theirs.ratio_to(limit[0])[:2] if limit else None
    return _record(name, made.case, made.peer, theirs.ratio_to(ours), made.target, at_limit, **times)


def _record(name, case, peer, ratios, target, limit, fastemb_ms=None, peer_ms=None, roof=None):
    """What is known of a comparison, given quartiles of its ratio, and the first two of that of the limit."""
    low, ratio, high = ratios
    low_limit, limit = limit or (None, None)
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
        "limit_q1": low_limit,
        "target": target,
        "holds": None if target is None else ratio >= target,
        "reachable": None if target is None else limit is None or limit >= target,
    }


def _geometric_mean(numbers):
    return math.exp(statistics.fmean(map(math.log, numbers)))


def means_of(records):
    """A record for each geometric mean over cases that has a target, as a list.

    Such a target and the least that it asks of every case are one: if the mean is out of reach, the records of the
    cases say so from then on too.
    """
    means = []
    for (name, peer), target in cases.MEANS.items():
        found = [r for r in records if (r["id"], r["peer"]) == (name, peer)]
        if len(found) < 2:
            continue
        ratios = [_geometric_mean([r[key] for r in found]) for key in ("ratio_q1", "ratio", "ratio_q3")]
        limit = None
        if all(r["limit"] for r in found):
            limit = [_geometric_mean([r[key] for r in found]) for key in ("limit_q1", "limit")]
        mean = _record(name, f"geometric mean of {len(found)} cases", peer, ratios, target, limit)
        for r in found:
            r["reachable"] = r["reachable"] and mean["reachable"]
        means.append(mean)
    return means


def _is_unclear(record):
    """Whether the quartiles of a ratio lie on both sides of its target, or where it is missed, those of the limit."""
    if not record["reachable"]:
        return False
    low, target, high = record["ratio_q1"], record["target"], record["ratio_q3"]
    hardly = not record["holds"] and record["limit"] is not None and record["limit_q1"] < target
    return hardly or low < target <= high


def compared(name, quick, rounds, bandwidth, tell):
    """The records of an id.

    What is unclear, or part of an unclear mean, is measured again when all others have been, for on a shared machine
    each minute is another one; the rounds of all times count.
    """
    timings, records, again = {}, {}, None
    for _ in range(AT_MOST):
        for k, made in enumerate(cases.CASES[name](quick)):
            if again is None or k in again:
                tell(made)
                timings[k] = measured(made, rounds, timings.get(k, []))
                records[k] = record_of(name, made, timings[k], bandwidth)
                gc.collect()
        means = means_of(records.values())
        unclear = {(r["id"], r["peer"]) for r in means if _is_unclear(r)}
        again = {k for k, r in records.items() if _is_unclear(r) or (r["id"], r["peer"]) in unclear}
        if not again:
            break
    return [*records.values(), *means]


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

            def tell(made, name=name):
                progress.update(task, description=f"{name}: {made.case}, {made.peer}")

            records += compared(name, options.quick, options.rounds, bandwidth, tell)
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
