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


def copy_bandwidth():
    """Bytes a second, read and written, of a streaming copy of 256 MiB: the median of 9."""
    _, copy = roofline.streaming_copy(COPY_BYTES)
    return 2 * COPY_BYTES / measure.in_turn([copy], rounds=9)[0].median


def record_of(name, made, rounds, bandwidth):
    """Check a comparison, time it, and say whether its target holds."""
    made.equal()
    if made.samples:
        ours, theirs = measure.in_turn([made.ours, made.theirs], made.samples, 0.0)
    else:
        ours, theirs = measure.in_turn([made.ours, made.theirs], rounds)
    low, ratio, high = theirs.ratio_to(ours)
    return {
        "id": name,
        "case": made.case,
        "peer": made.peer,
        "fastemb_ms": ours.median * 1e3,
        "peer_ms": theirs.median * 1e3,
        "ratio": ratio,
        "ratio_q1": low,
        "ratio_q3": high,
        "roof": made.nbytes / ours.median / bandwidth if made.nbytes else None,
        "target": made.target,
        "holds": None if made.target is None else ratio >= made.target,
    }


def _mean(name, case, peer, ratios, target=None):
    """A record for the geometric means of (quartile, median, quartile) ratios."""
    low, ratio, high = (math.exp(statistics.fmean(map(math.log, of_each))) for of_each in zip(*ratios, strict=True))
    return {
        "id": name,
        "case": case,
        "peer": peer,
        "fastemb_ms": None,
        "peer_ms": None,
        "ratio": ratio,
        "ratio_q1": low,
        "ratio_q3": high,
        "roof": None,
        "target": target,
        "holds": None if target is None else ratio >= target,
    }


def means_of(records):
    """A record for each geometric mean over the cases of an id that has a target of its own.

    And where cases say the least time that they could take, for the mean that would then be there.
    """
    least = {r["case"]: r["ratio"] for r in records if r["peer"] == cases.LEAST}
    for (name, peer), target in cases.MEANS.items():
        found = [r for r in records if (r["id"], r["peer"]) == (name, peer)]
        if len(found) > 1:
            ratios = [(r["ratio_q1"], r["ratio"], r["ratio_q3"]) for r in found]
            yield _mean(name, f"geometric mean of {len(found)} cases", peer, ratios, target)
            if all(r["case"] in least for r in found):
                best = [[ratio / least[r["case"]] for ratio in of_one] for r, of_one in zip(found, ratios, strict=True)]
                yield _mean(name, f"the same in the time of {cases.LEAST}", peer, best)


def main(arguments=None):
    """Run the comparisons; with --check the exit code says whether all targets hold."""
    parser = argparse.ArgumentParser(prog="python -m benches.peers", description=__doc__)
    parser.add_argument("--ids", default=",".join(cases.CASES), help="rows of the table of targets (all)")
    parser.add_argument("--threads", type=int, default=2, help="of fastemb and of every peer (2)")
    parser.add_argument("--rounds", type=int, default=21, help="pairs of samples (21, at least 15)")
    parser.add_argument("--quick", action="store_true", help="one case of each id")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the records")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target does not hold")
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
            records += [*of_this, *means_of(of_this)]
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
        console.print(
            f"Not reached: {r['id']}, {r['case']}, {r['peer']}: {r['ratio']:.3g} of {r['target']:.3g}", highlight=False
        )
    return int(options.check and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
