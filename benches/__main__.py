"""``python -m benches``: lookup against one-hot matmul, and what follows from it in training."""

import argparse
import json
import sys
from pathlib import Path

import rich.console
import rich.progress

from . import data, machine, measure, report, workloads


def records_of(case, stream, rounds):
    """Check a case, time its ways in turn, and say how fastemb's compares with each."""
    case.check()
    timings = measure.in_turn([way.call for way in case.ways], rounds)
    records = []
    for way, timing in zip(case.ways, timings, strict=True):
        own = timing is timings[0]
        low, mid, high = (None, None, None) if own else timing.ratio_to(timings[0])
        records.append(
            {
                "case": case.name,
                **case.sizes,
                "distinct": case.distinct,
                "stream": stream,
                "op": way.name,
                "median_s": timing.median,
                "speedup": mid,
                "speedup_q1": low,
                "speedup_q3": high,
                "input_bytes": way.input_bytes,
                "peak_bytes": measure.peak_bytes(way.call),
            }
        )
    return records


def main(arguments=None):
    """Run the headline benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benches", description=__doc__)
    parser.add_argument("--stream", choices=sorted(data.STREAMS), default="text", help="index stream (text)")
    parser.add_argument("--sizes", type=int, nargs="+", default=workloads.SIZES, metavar="N", help="table rows")
    parser.add_argument("--rounds", type=int, default=measure.ROUNDS, help=f"samples of each way ({measure.ROUNDS})")
    parser.add_argument("--seed", type=int, default=0, help="of the stream (0)")
    parser.add_argument("--output", type=Path, default=Path("build"), help="folder of onehot.json and .png (build)")
    options = parser.parse_args(arguments)
    if min(options.sizes) < 1 or options.rounds < 1:
        parser.error("sizes and rounds must be >= 1")

    console = rich.console.Console(width=None if sys.stdout.isatty() else 120)
    about = machine.machine()
    for sentence in machine.warnings_of(about):
        console.print(f"[bold]Note:[/bold] {sentence}")
    by_case = {}
    steps = [(make, n) for make in workloads.HEADLINE for n in options.sizes]
    with rich.progress.Progress(console=rich.console.Console(stderr=True)) as progress:
        task = progress.add_task("reading the stream", total=len(steps))
        for make, n in steps:
            ids = data.STREAMS[options.stream](n, workloads.LENGTH, options.seed)
            progress.update(task, description=f"{make.__name__} N={n:,}")
            case = make(n, ids)
            by_case.setdefault(case.name, []).extend(records_of(case, options.stream, options.rounds))
            progress.advance(task)

    subtitle = f"D {workloads.WIDTH}, L {workloads.LENGTH}, float32, {options.stream} stream"
    for name, records in by_case.items():
        console.print(report.table(name, records, subtitle))
    console.print(machine.one_line(about), highlight=False)
    console.print(report.headline(by_case["lookup"]), highlight=False)
    options.output.mkdir(parents=True, exist_ok=True)
    records = [record for part in by_case.values() for record in part]
    (options.output / "onehot.json").write_text(json.dumps({"machine": about, "records": records}, indent=1) + "\n")
    report.plot(options.output / "onehot.png", by_case, f"{subtitle}\n{machine.one_line(about)}")
    console.print(f"Written: {options.output / 'onehot.json'} and {options.output / 'onehot.png'}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
