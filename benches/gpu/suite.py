"""The tests that need a GPU, in a process of their own."""

import re
import subprocess
import sys
from pathlib import Path

from fastemb import _compat

ROOT = Path(__file__).parents[2]
MARK = "mark.gpu"


def files(root=ROOT):
    """The folder that is about devices and every other file that has the mark: the rest may need what is not here."""
    tests = root / "tests"
    folder = tests / "devices"
    others = (path for path in sorted(tests.rglob("test_*.py")) if folder not in path.parents)
    return [*([folder] if folder.is_dir() else []), *(path for path in others if MARK in path.read_text())]


def run(log, seconds, root=ROOT):
    """Run ``pytest -m gpu``, its output in the file `log`; what came of it, as plain values.

    Returns
    -------
    dict
        "outcome": "passed", "failed", "stopped" after so many seconds or "not run"; the counts of its last line; and
        "reason", unless it passed.
    """
    if _compat.optional("pytest") is None:
        return {"outcome": "not run", "reason": "pytest is not installed"}
    found = files(root)
    if not found:
        return {"outcome": "failed", "reason": f"no file in {root / 'tests'} has the mark"}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", *map(str, found)]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        try:
            done = subprocess.run(
                command, cwd=root, stdout=output, stderr=subprocess.STDOUT, timeout=max(1.0, seconds), check=False
            )
        except subprocess.TimeoutExpired:
            return {"outcome": "stopped", "reason": f"not done after {seconds:.0f} s: see {log}"}
    return judged(done.returncode, log.read_text(errors="replace"), log)


def judged(code, text, log):
    """What an exit code and the last line of an output say: tests that all were skipped have not passed."""
    lines = text.strip().splitlines() or [""]
    counts = {what: int(number) for number, what in re.findall(r"(\d+) (\w+)", lines[-1].partition(" in ")[0])}
    if code == 0 and counts.get("passed"):
        return {"outcome": "passed", **counts}
    why = "no test has run" if code in (0, 5) else f"exit code {code}"
    return {"outcome": "failed", **counts, "reason": f"{why}: {lines[-1]}; see {log}"}
