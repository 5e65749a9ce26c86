"""The gate on a copy of the repository whose head is slower on purpose, and on one whose head is the same code."""

import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import rich.box
import rich.progress
import rich.table

from .build import git
from .processes import CommandError, end

TIMES = 5

PLANTED = "lookup: 50k x 64 L 4096"
BENCHES = (PLANTED, "scatter: scatter_add, zipf", "bag: sum", "update: Adam.step, zipf")
"""What the gates run: the bench of the slow kernel, and three that must not be named."""

SLOWER = '''

_whole = gather


def gather(out, weight, indices):
    """The kernel with the first half of its work done twice."""
    half = indices.size // 2
    _whole(out[:half], weight, indices[:half])
    return _whole(out, weight, indices)
'''

HEADS = {"slower": SLOWER, "same": "\n# the same code\n"}
"""What is appended to the kernel of `gather` in each kind of head."""

ROOT = Path(__file__).parents[2]

# It ends when this process is gone, however that came about.
_SPIN = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"


def planted(repo, folder):
    """A copy of a repository's HEAD with a branch for each of `HEADS`, two wheels that differ in one file."""
    copy = folder / "copy"
    git(repo, "clone", "--quiet", "--no-hardlinks", repo, copy)
    identity = ("-c", "user.name=selftest", "-c", "user.email=selftest@localhost", "-c", "commit.gpgsign=false")
    commit = (*identity, "-c", "core.hooksPath=/dev/null", "commit", "--quiet", "--all")
    start = git(copy, "rev-parse", "HEAD")
    kernel = copy / "kernels" / "cpu" / "gather.py"
    original = kernel.read_text()
    git(copy, "tag", "base", start)
    for name, code in HEADS.items():
        git(copy, "checkout", "--quiet", "-b", name, start)
        kernel.write_text(original + code)
        git(copy, *commit, f"--message={name}")
    return copy


@contextlib.contextmanager
def load(wanted):
    """Another process that keeps one core busy meanwhile."""
    if not wanted:
        yield
        return
    process = subprocess.Popen(
        [sys.executable, "-c", _SPIN], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield
    finally:
        end(process)


def one(copy, builds, head, output, *, loaded):
    """Run the gate as a command; (whether it is right, what it said)."""
    options = ["--repo", copy, "--builds", builds, "--base", "base", "--head", head, "--output", output]
    command = [sys.executable, "-m", "benches.regression", *options, "--only", *BENCHES]
    with load(loaded):
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=ROOT,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            out, err = process.communicate()
        except BaseException:
            process.terminate()  # it ends what it has started
            process.wait()
            raise
    try:
        found = json.loads((output / "regression.json").read_text())
    except OSError:
        return False, {"conclusion": (err or out).strip()[-500:], "seconds": 0.0, "benches": []}
    named = {row["name"] for row in found["benches"] if row["verdict"] == "regression"}
    expected = (1, {PLANTED}) if head == "slower" else (0, set())
    return (process.returncode, named) == expected, found


def run(console, repo, builds, times=TIMES):
    """All gates, every second one beside a process that loads a core; prints the verdicts, 0 if all are right."""
    grid = rich.table.Table(box=rich.box.SIMPLE_HEAD)
    for column in ("head", "load", "time", "planted bench", "verdict", ""):
        grid.add_column(column, no_wrap=column != "verdict")
    right = 0
    plan = [(head, bool(k % 2)) for k in range(times) for head in HEADS]
    progress = rich.progress.Progress(console=rich.console.Console(stderr=True))
    try:
        with tempfile.TemporaryDirectory(prefix="selftest-") as folder, progress:
            copy = planted(repo, Path(folder))
            task = progress.add_task("gates", total=len(plan))
            for number, (head, loaded) in enumerate(plan):
                is_right, found = one(copy, builds, head, Path(folder, str(number)), loaded=loaded)
                right += is_right
                ratio = next((f"{r['ratio']:.3f}" for r in found["benches"] if r["name"] == PLANTED and r["ratio"]), "")
                cells = head, "one core" if loaded else "", f"{found['seconds']:.0f} s", ratio, found["conclusion"]
                grid.add_row(*map(rich.markup.escape, cells), "right" if is_right else "[bold red]WRONG[/bold red]")
                progress.advance(task)
    except CommandError as error:
        console.print(f"Could not be measured: {error}", style="bold", highlight=False, markup=False)
        return 2
    console.print(grid)
    console.print(f"{right} of {len(plan)} verdicts are right", style="bold", highlight=False)
    return int(right < len(plan))
