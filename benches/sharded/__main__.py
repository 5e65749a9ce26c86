"""``mpiexec -n 4 python -m benches.sharded``: bytes and seconds of lookups over ranks, and a model of many more."""

import argparse
import json
import sys
from pathlib import Path

import numba
import rich.console

from .. import machine
from . import measure, report


def arguments(given=None):
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="mpiexec -n 4 python -m benches.sharded", description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="of the table that is measured (500,000)")
    parser.add_argument("--width", type=int, default=128, help="of a row, float32 (128)")
    parser.add_argument("--ids", type=int, default=16_384, help="of a lookup, on each rank (16,384)")
    parser.add_argument("--hot", type=int, default=1024, help="rows on every rank, for the way 'hot rows' (1024)")
    parser.add_argument("--rounds", type=int, default=15, help="lookups that are timed (15)")
    parser.add_argument("--streams", nargs="+", default=["zipf", "uniform"], choices=["zipf", "uniform"])
    parser.add_argument("--latency", type=float, default=2e-6, help="of the large machine, seconds a message (2e-6)")
    parser.add_argument("--bandwidth", type=float, default=25e9, help="of it, bytes a second and rank (25e9)")
    parser.add_argument("--parameters", type=float, default=1e12, help="of the table on it (1e12)")
    parser.add_argument("--ranks", type=int, default=1000, help="how many it has (1000)")
    parser.add_argument("--output", type=Path, default=Path("build"), help="folder of sharded.json and .png (build)")
    options = parser.parse_args(given)
    if min(options.rows, options.width, options.ids, options.rounds, options.ranks) < 1 or options.hot < 0:
        parser.error("rows, width, ids, rounds and ranks must be >= 1, hot >= 0")
    return options


def measured(comm, options):
    """Records of all streams and ways, on one rank, two and so on."""
    sizes = options.rows, options.width, options.ids, options.hot
    records = []
    for count in range(1, comm.size + 1):
        for stream in options.streams:
            for way in measure.WAYS:

                def lookups(part, stream=stream, way=way):
                    return measure.lookups(part, stream, way, sizes, options.rounds)

                records.append(measure.with_first(comm, count, lookups))
    return records


def main(given=None):
    """Run the benchmark; returns the exit code."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    options = arguments(given)
    numba.set_num_threads(1)
    records = measured(comm, options)
    latencies = [measure.with_first(comm, count, measure.latency) for count in range(1, comm.size + 1)]
    about = machine.machine()
    rate = measure.with_first(comm, min(2, comm.size), measure.bandwidth)
    if comm.rank:
        return 0
    row_bytes, cores = 4 * options.width, about["cpu"]["cores"]
    machines = {way: report.local_machine(records, rate, row_bytes, cores, way) for way in ("dedup", "hot rows")}
    for record in records:
        record["model"] = report.modelled(machines, latencies, record, row_bytes)
    local = machines["dedup"]
    far = report.extrapolated(local, options)
    console = rich.console.Console(width=None if sys.stdout.isatty() else 120)
    console.print(report.table(records, options))
    console.print(report.about(local, latencies, records), highlight=False)
    console.print(report.far_table(far, options))
    console.print(f"{machine.one_line(about)}; {MPI.Get_library_version().splitlines()[0]}", highlight=False)
    options.output.mkdir(parents=True, exist_ok=True)
    written = {"machine": about, "latencies": latencies, "bandwidth": rate, "records": records, "extrapolated": far}
    (options.output / "sharded.json").write_text(json.dumps(written, indent=1) + "\n")
    report.plot(options.output / "sharded.png", records, far, options)
    console.print(f"Written: {options.output / 'sharded.json'} and {options.output / 'sharded.png'}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
