"""``python -m benches.regression``: is a revision slower than another? The code of its kernels, that is.

Builds both as wheels, runs a short list of benches in alternating fresh processes, and prints a verdict for each.
Exit code: 0 no regression, 1 a regression, 2 it could not be measured. One thread unless told otherwise: with more, the
waits of OpenMP on a machine that does something else would be part of every figure.
"""

import argparse
import json
import signal
import sys
import time
import traceback
from pathlib import Path

import rich.console
import rich.progress

from fastemb import _info

from . import build, cases, gate, pairs, ratios, sample, selftest, summary
from .processes import CommandError

ROOT = Path(__file__).parents[2]


def parser():
    """Of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m benches.regression", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--base", metavar="REV", help="compare with this (where head left main, or the commit before it)")
    made.add_argument("--head", metavar="REV", default="HEAD", help="the revision in question (HEAD)")
    made.add_argument("--pairs", type=int, default=gate.PAIRS, help=f"first pairs of processes ({gate.PAIRS})")
    made.add_argument("--only", nargs="+", metavar="NAME", help="benches, or families of them, to run (all)")
    made.add_argument("--cases", type=Path, metavar="FILE", help="Python file with your own BENCHES, name to function")
    made.add_argument("--threads", type=int, default=1, help="of every process (1)")
    made.add_argument("--repo", type=Path, default=ROOT, help="repository of both revisions (this one)")
    made.add_argument("--builds", type=Path, default=ROOT / "build" / "regression", help="where wheels are kept")
    made.add_argument("--output", type=Path, default=Path("build"), help="folder of regression.json and .md (build)")
    made.add_argument("--ratios", action="store_true", help="instead: fastemb / NumPy in this process against floors")
    made.add_argument("--write", action="store_true", help="with --ratios: write down what this machine shows")
    made.add_argument("--selftest", action="store_true", help="instead: ten gates whose verdicts are known")
    made.add_argument(
        "--times", type=int, default=selftest.TIMES, help=f"with --selftest: gates of each kind ({selftest.TIMES})"
    )
    return made


def chosen(only, names):
    """The names that `only` has, or whose family, what stands before the colon, it has; ValueError if it has others."""
    if not only:
        return list(names)
    families = {name.partition(":")[0] for name in names}
    if unknown := [name for name in only if name not in {*names, *families}]:
        msg = f"no bench {unknown[0]!r}: choose from {sorted(families)} or {list(names)}"
        raise ValueError(msg)
    return [name for name in names if name in only or name.partition(":")[0] in only]


def judge(runner, names, count, progress):
    """Rows of a gate: compile, see what runs on both sides, measure that."""
    task = progress.add_task("compiling", total=None)
    base, head = pairs.compile_all(runner, names)
    common = [name for name in names if name not in base["errors"] and name not in head["errors"]]
    progress.update(task, description="first pairs", total=2 * count, completed=0)

    def announce(suspects):
        progress.update(task, description=f"again: {', '.join(suspects)}"[:60], total=2 * gate.ROUND, completed=0)

    def measure(some, number):
        return pairs.measure(runner, some, number, lambda: progress.advance(task))

    found = pairs.screen_and_confirm(measure, common, count, announce) if common else {}
    return summary.rows_of(found, base["errors"], head["errors"]), head["versions"]


def compare(options, names, console):
    """Build, measure, report; the exit code."""
    began = time.monotonic()
    about, rows = {"threads": options.threads}, []
    footer = "head over base, one pair of fresh processes after the other"
    try:
        head = build.resolve(options.repo, options.head)
        base = build.resolve(options.repo, options.base or build.default_base(options.repo, options.head))
        about |= {"base": vars(base), "head": vars(head), "cpu": _info.cpu()["model"]}
        console.print(f"base {base}, head {head}", highlight=False, markup=False)
        if build.uncommitted(options.repo):
            console.print("[bold]Note:[/bold] changes that are not committed are not measured.")
        with rich.progress.Progress(console=rich.console.Console(stderr=True), transient=True) as progress:
            task = progress.add_task("building wheels", total=2)
            pythons = build.environments(options.repo, (base, head), options.builds, lambda: progress.advance(task))
            progress.update(task, completed=2)
            with pairs.runner(pythons, options.threads, options.cases) as runner:
                rows, about["versions"] = judge(runner, names, options.pairs, progress)
        sentence, code = summary.conclusion(rows)
        versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
        footer = f"base {base}, head {head}; {about['cpu']}, threads {options.threads}; {versions}; {footer}"
    except CommandError as error:
        sentence, code = f"Could not be measured: {error}", 2
    about["seconds"] = round(time.monotonic() - began, 1)
    write(options.output, sentence, code, rows, about, footer)
    if rows:
        console.print(summary.table(rows))
    for row in rows:
        if row.error:
            console.print(f"{row.name}: {row.error}", highlight=False, markup=False)
    console.print(f"{sentence}  ({about['seconds']:.0f} s)", style="bold", highlight=False, markup=False)
    return code


def write(folder, sentence, code, rows, about, footer):
    """regression.json and regression.md."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "regression.json").write_text(json.dumps(summary.document(sentence, code, rows, about), indent=1) + "\n")
    (folder / "regression.md").write_text(summary.markdown(sentence, rows, footer))


def main(arguments=None):
    """Run the gate, the ratios or the self-test; returns the exit code."""
    own = parser()
    options = own.parse_args(arguments)
    console = rich.console.Console(width=None if sys.stdout.isatty() else 140)
    if options.pairs < gate.PAIRS:
        own.error(f"--pairs must be >= {gate.PAIRS}: fewer cannot be significant")
    if options.threads < 1 or options.times < 1:
        own.error("--threads and --times must be >= 1")
    if options.write and not options.ratios:
        own.error("--write goes with --ratios")
    if options.ratios:
        return ratios.check(console, write=options.write)
    if options.selftest:
        return selftest.run(console, options.repo.resolve(), options.builds.resolve(), options.times)
    try:
        benches = sample.benches_of(options.cases) if options.cases else cases.BENCHES
        startup = () if options.cases else cases.STARTUP
        names = chosen(options.only, [*benches, *startup])
    except (OSError, KeyError, ValueError) as error:
        own.error(f"{options.cases} has no {error}" if isinstance(error, KeyError) else str(error))
    return compare(options, names, console)


def _stop(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # not again on the way out
    raise SystemExit(143)


def command():
    """`main`, but an error of the gate itself is 2: Python's own 1 would say "regression"."""
    signal.signal(signal.SIGTERM, _stop)  # as an interrupt: what was started is ended on the way out
    try:
        return main()
    except Exception:  # noqa: BLE001
        traceback.print_exc()
        return 2


if __name__ == "__main__":
    sys.exit(command())
