"""Fresh processes in turn: base, head, head, base, ..."""

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from . import gate
from .processes import CommandError, run_together

COMPILING_SECONDS = 900
PROCESS_SECONDS = 180
"""After which a process is given up."""

BENCHES = Path(__file__).parents[1]

# What would let one process differ from the other, or take it away from its wheel.
_DROPPED = ("PYTHONPATH", "PYTHONHOME", "NUMBA_CACHE_DIR", "NUMBA_DISABLE_JIT", "FASTEMB_CACHE", "VIRTUAL_ENV")


@dataclasses.dataclass(frozen=True)
class Runner:
    """Runs `sample` with the Python of the base and of the head, on one copy of the benches.

    `cases` is another file of benches, or None.
    """

    pythons: tuple[Path, Path]
    folder: Path
    threads: int
    cases: Path | None = None

    def run(self, sides, names, timeout=PROCESS_SECONDS, extra=()):
        """What `sample` printed on each of the sides (0 the base, 1 the head), which are run at once."""
        options = ["--cases", self.cases.resolve()] if self.cases else []
        module = ["-m", "benches.regression.sample", *options, *extra, "--", *names]
        outs = run_together(
            [[self.pythons[side], *module] for side in sides],
            [f"timing the {('base', 'head')[side]}" for side in sides],
            cwd=self.folder,
            env=self._environment(),
            timeout=timeout,
        )
        return [json.loads(out.splitlines()[-1]) for out in outs]

    def _environment(self):
        kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
        limits = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        fixed = {"PYTHONPATH": str(self.folder), "PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1", "PYTHONHASHSEED": "0"}
        return kept | fixed | dict.fromkeys(limits, str(self.threads))


@contextlib.contextmanager
def runner(pythons, threads, cases=None):
    """A `Runner` on a copy of the benches without the folder fastemb/ beside them, which would hide the wheels."""
    with tempfile.TemporaryDirectory(prefix="regression-") as folder:
        for source in [*BENCHES.glob("*.py"), *Path(__file__).parent.glob("*.py")]:
            target = Path(folder, "benches", source.relative_to(BENCHES))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        yield Runner(tuple(pythons), Path(folder), threads, cases)


def compile_all(runner, names):
    """One run of each side that is not timed, both at once: kernels are compiled. Returns what `sample` printed."""
    return runner.run((0, 1), names, COMPILING_SECONDS, ("--samples", "1"))


def measure(runner, names, count, advance=lambda: None):
    """{name: [(base seconds, head seconds), ...]}: `count` pairs, the base first in every other one."""
    found = {name: [] for name in names}
    for k in range(count):
        seconds = {}
        for side in (0, 1) if k % 2 == 0 else (1, 0):
            (printed,) = runner.run((side,), names)
            seconds[side] = printed["seconds"]
            if printed["errors"]:
                side_name, (name, text) = ("base", "head")[side], next(iter(printed["errors"].items()))
                msg = f"{name!r} raised on the {side_name} in one process and not in another: {text}"
                raise CommandError(msg)
            advance()
        for name in names:
            found[name].append((seconds[0][name], seconds[1][name]))
    return found


def screen_and_confirm(measure: Callable, names, count, announce=lambda *_: None):
    """{name: `gate.Pairs`}: `count` first pairs of all benches, then fresh ones of the suspects alone.

    ``measure(names, count)`` is `measure` with a runner; `announce` is told of the suspects before they are measured.
    """
    pairs = {name: gate.Pairs(first) for name, first in measure(names, count).items()}
    while suspects := [name for name, of_this in pairs.items() if of_this.open()]:
        announce(suspects)
        for name, fresh in measure(suspects, gate.ROUND).items():
            pairs[name].fresh += fresh
    return pairs
