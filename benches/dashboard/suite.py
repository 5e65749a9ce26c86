"""asv, run for given commits, its results and its pages."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "asv.conf.json"
ASV = (sys.executable, "-m", "asv")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
LIST = "benchmarks.json"
"""Where asv lists the benchmarks that it has just found; results of others may still be there."""


class AsvError(RuntimeError):
    """asv did not do what it was asked for."""


def configuration(path, **changes):
    """Write `asv.conf.json` with some values changed and its folders as absolute paths, and return the values."""
    from asv import util  # the environments in which asv imports this package have no asv

    values = util.load_json(CONFIG, js_comments=True) | changes
    for name in ("repo", "benchmark_dir", "env_dir", "results_dir", "html_dir"):
        values[name] = str(ROOT / values[name])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=1))
    return values


def asv(config, *arguments, accept=(0,)):
    """Run asv with a configuration, its output left to the terminal; raise unless it exits with what is accepted."""
    code = subprocess.run([*ASV, "--config", str(config), *arguments], check=False).returncode
    if code not in accept:
        msg = f"`asv {arguments[0]}` ended with exit code {code}; its output above says why"
        raise AsvError(msg)


def name_machine():
    """Tell asv about this machine, which `asv run` would ask for, and return its name: its CPU.

    The host name, which asv takes by itself, is another one in every container and on every CI runner.
    """
    from asv import machine

    about = machine.Machine.get_defaults()
    words = f"{about['cpu'] or about['arch']} {about['num_cpu']} cores"
    name = re.sub(r"[^\w.]+", "-", words).strip("-")
    machine.MachineCollection.save(name, about | {"machine": name})
    return name


def run(config, machine, commits, *arguments):
    """Time the suite of this checkout on builds of `commits`, in environments of the running Python version."""
    hashes = config.with_name("commits.txt")
    hashes.write_text("\n".join(commits) + "\n")
    where = ("--environment", f"virtualenv:{PYTHON}", "--machine", machine)
    # asv exits with 2 where some benchmark failed, as a new one does on a commit that lacks what it calls.
    asv(config, "run", *where, "--show-stderr", *arguments, f"HASHFILE:{hashes}", accept=(0, 2))


def _rows(path):
    return json.loads(path.read_text())["results"]


def outcomes(folder, commit):
    """What this Python has of a commit: name of benchmark -> whether it has a number and no parameters that failed.

    `folder` is that of a machine's results.
    """
    found = {}
    for path in folder.glob(f"{commit[:8]}-*.json"):
        if json.loads(path.read_text())["python"] != PYTHON:
            continue
        for name, row in _rows(path).items():
            values = row[0] if isinstance(row, list) else row
            values = values if isinstance(values, list) else [values]
            # null where it failed, NaN where it does not apply
            measured = any(v is not None and not math.isnan(v) for v in values)
            found[name] = found.get(name, False) or (measured and None not in values)
    return found


def publish(config, results):
    """Make the pages, of the benchmarks that have results: asv shows empty tiles for those that were left out."""
    listed = Path(results) / LIST
    benchmarks = json.loads(listed.read_text())
    measured = {name for path in Path(results).glob("*/*-*.json") for name in _rows(path)}
    kept = {name: value for name, value in benchmarks.items() if name in measured or name == "version"}
    listed.write_text(json.dumps(kept, indent=1))
    asv(config, "publish", "--no-pull")


def check(results, machine, commits):
    """Print a line for each commit; raise unless all have results, and those of the first one are whole."""
    listed = Path(results) / LIST
    current = json.loads(listed.read_text()) if listed.exists() else {}
    for commit in commits:
        found = {name: whole for name, whole in outcomes(Path(results, machine), commit).items() if name in current}
        failed = sorted(name for name, whole in found.items() if not whole)
        line = f"{commit[:8]}: {len(found) - len(failed)} benchmarks" + (f", {len(failed)} failed" if failed else "")
        print(line, flush=True)  # asv writes to the same place
        if len(failed) == len(found):
            msg = f"asv has no results for commit {commit[:8]}"
            raise AsvError(msg)
        if failed and commit == commits[0]:
            msg = f"failed for the newest commit, {commit[:8]}: {', '.join(failed)}"
            raise AsvError(msg)
