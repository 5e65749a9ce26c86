"""The regression gate: its statistics, its verdicts and exit codes, and what it does when something is broken."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import rich.console

import fastemb
from benches.regression import __main__ as regression
from benches.regression import build, cases, gate, pairs, processes, sample, selftest

ROOT = Path(__file__).parents[2]
CONSOLE = rich.console.Console(width=140)


class Fake:
    """Stands for processes: seconds of each bench on base and head, or the text of an error."""

    def __init__(self, base, head):
        self.sides, self.log = (base, head), []

    def run(self, sides, names, *_):
        self.log.append((sides, list(names)))
        printed = []
        for side in sides:
            of_side = {name: self.sides[side][name] for name in names}
            errors = {name: value for name, value in of_side.items() if isinstance(value, str)}
            seconds = {name: value for name, value in of_side.items() if name not in errors}
            printed.append({"seconds": seconds, "errors": errors, "versions": {"numpy": "2"}})
        return printed


def run_gate(monkeypatch, tmp_path, base, head):
    """(exit code, regression.json, regression.md, the fake) of a gate on fake processes."""
    fake = Fake(base, head)
    monkeypatch.setattr(build, "environments", lambda *_: ("base", "head"))
    monkeypatch.setattr(pairs, "runner", lambda *_: contextlib.nullcontext(fake))
    monkeypatch.setattr(cases, "BENCHES", dict.fromkeys(base))
    monkeypatch.setattr(cases, "STARTUP", ())
    code = regression.main(["--base", "HEAD", "--output", str(tmp_path)])
    return code, json.loads((tmp_path / "regression.json").read_text()), (tmp_path / "regression.md").read_text(), fake


def test_a_gate_without_a_regression(monkeypatch, tmp_path, capsys):
    code, found, text, fake = run_gate(monkeypatch, tmp_path, {"a: x": 2e-3, "b": 1e-3}, {"a: x": 2e-3, "b": 0.5e-3})
    assert code == found["exit_code"] == 0
    assert [(row["name"], row["verdict"], row["pairs"]) for row in found["benches"]] == [
        ("b", "faster", 9),
        ("a: x", "same", 9),
    ]
    assert "No regression in 2 benches" in capsys.readouterr().out
    assert "| a: x | 2 ms | 2 ms | 1.000 | 1.00 to 1.00 | 9 | 1 | same |" in text
    order = [side for sides, _ in fake.log[1:] for side in sides]
    assert order == [0, 1, 1, 0] * 4 + [0, 1]
    assert fake.log[0] == ((0, 1), ["a: x", "b"])


def test_a_regression_fails_and_is_named(monkeypatch, tmp_path, capsys):
    head = {"a|b": 3e-3, "slower": 1.1e-3, "same": 1e-3}
    code, found, text, fake = run_gate(monkeypatch, tmp_path, {"a|b": 2e-3, "slower": 1e-3, "same": 1e-3}, head)
    assert code == 1
    assert [(row["name"], row["verdict"]) for row in found["benches"]] == [
        ("a|b", "regression"),
        ("slower", "slower"),
        ("same", "same"),
    ]
    assert found["benches"][0]["ratio"] == pytest.approx(1.5)
    assert "Regression: a|b" in capsys.readouterr().out
    assert text.startswith("### Regression: a\\|b\n")
    assert {tuple(names) for _, names in fake.log[19:]} == {("a|b", "slower")}  # the suspects alone, again
    assert len(fake.log) == 1 + 2 * (gate.PAIRS + gate.ROUND)


def test_slower_is_reported_without_failing(monkeypatch, tmp_path, capsys):
    code, *_ = run_gate(monkeypatch, tmp_path, {"a": 1.0}, {"a": 1.1})
    assert code == 0
    assert "Slower, without failing: a" in capsys.readouterr().out


def test_a_bench_that_the_base_lacks(monkeypatch, tmp_path, capsys):
    base = {"new": "AttributeError: no `f`\n", "a": 1.0}
    code, found, text, _ = run_gate(monkeypatch, tmp_path, base, {"new": 1.0, "a": 1.0})
    assert code == 0
    assert [row["verdict"] for row in found["benches"]] == ["not in base", "same"]
    assert "new: AttributeError: no `f`" in capsys.readouterr().out
    assert "- new: `AttributeError: no 'f'`" in text


@pytest.mark.parametrize("base", [{"a": 1.0, "b": 1.0}, {"a": 1.0, "b": "ValueError: as well"}])
def test_a_bench_that_fails_on_the_head(monkeypatch, tmp_path, capsys, base):
    code, found, *_ = run_gate(monkeypatch, tmp_path, base, {"a": 1.0, "b": "ValueError: odd"})
    assert code == 2
    assert [row["verdict"] for row in found["benches"]] == ["failed", "same"]
    assert "Could not be measured: b" in capsys.readouterr().out


def test_nothing_measured_is_no_success(monkeypatch, tmp_path):
    code, *_ = run_gate(monkeypatch, tmp_path, {"a": "KeyError: 'a'"}, {"a": 1.0})
    assert code == 2


def test_an_error_in_the_midst_of_pairs(monkeypatch, tmp_path, capsys):
    class Flaky(Fake):
        def run(self, sides, names, *_):
            if len(self.log) == 5:
                self.sides[1]["a"] = "OSError: gone"
            return super().run(sides, names)

    monkeypatch.setattr(sys.modules[__name__], "Fake", Flaky)
    code, found, text, _ = run_gate(monkeypatch, tmp_path, {"a": 1.0}, {"a": 1.0})
    assert code == 2
    assert found["benches"] == []
    assert "'a' raised on the head in one process and not in another: OSError: gone" in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--pairs", "8"], "--pairs must be >= 9"),
        (["--threads", "0"], "must be >= 1"),
        (["--write"], "--write goes with --ratios"),
        (["--only", "lookup: none"], "no bench 'lookup: none': choose from"),
        (["--cases", "none.py"], "No such file"),
    ],
)
def test_options_that_make_no_sense(arguments, text, capsys):
    with pytest.raises(SystemExit) as stop:
        regression.main(arguments)
    assert stop.value.code == 2
    assert text in capsys.readouterr().err


def test_benches_of_another_project(tmp_path, capsys):
    (tmp_path / "beside_the_benches.py").write_text("def make():\n    return dict\n")
    file = tmp_path / "own.py"
    file.write_text("import beside_the_benches\nBENCHES = {'mine': beside_the_benches.make}\n")
    assert sample.benches_of(file)["mine"]() is dict
    file.write_text("BENCH = {}")
    with pytest.raises(SystemExit):
        regression.main(["--cases", str(file)])
    assert "own.py has no 'BENCHES'" in capsys.readouterr().err


def test_the_example_in_the_readme(tmp_path):
    text = (ROOT / "benches" / "README.md").read_text()
    (block,) = (b.split("```")[0] for b in text.split("```sh\n")[1:] if "fastemb_gate.py" in b)
    assert len(block.splitlines()) == 10
    file = tmp_path / "fastemb_gate.py"
    file.write_text(block.partition("<<'END'\n")[2].partition("END\n")[0])
    ((name, make),) = sample.benches_of(file).items()
    assert name == "mean of titles"
    assert make()().shape == (1000, 300)


def test_an_error_of_the_gate_itself_is_not_a_regression(tmp_path):
    (tmp_path / "own.py").write_text("1 / 0")
    command = [sys.executable, "-m", "benches.regression", "--cases", str(tmp_path / "own.py")]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "ZeroDivisionError" in ended.stderr


def test_names_and_families():
    names = ["a: x", "b: x", "a: y"]
    assert regression.chosen(None, names) == names
    assert regression.chosen(["a"], names) == ["a: x", "a: y"]
    assert regression.chosen(["b: x", "a: y"], names) == ["b: x", "a: y"]


def test_every_bench_runs():
    for name, make in cases.BENCHES.items():
        call = make()
        call()
        call()
        assert ":" in name
    families = {name.partition(":")[0] for name in [*cases.BENCHES, *cases.STARTUP]}
    assert families == {"lookup", "scatter", "bag", "bag backward", "update", "exact", "layer", "startup"}
    assert set(selftest.BENCHES) <= set(cases.BENCHES)


def repository(folder):
    """A git repository with one commit on main, and a function that makes commits in it."""

    def git(*arguments):
        identity = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", folder, *identity, *arguments], check=True, capture_output=True)

    git("init", "--quiet", "--initial-branch=main")
    (folder / "pyproject.toml").write_text("[build-system]\nrequires = 3\n")
    git("add", "--all")
    git("commit", "--quiet", "--message=one")
    return git


def test_a_revision_that_cannot_be_built(tmp_path, capsys):
    repository(tmp_path)
    options = ["--repo", str(tmp_path), "--base", "main", "--builds", str(tmp_path / "builds")]
    assert regression.main([*options, "--output", str(tmp_path / "out")]) == 2
    out = capsys.readouterr().out
    assert "Could not be measured: building a wheel of HEAD" in out
    assert "pyproject.toml" in out
    assert list((tmp_path / "builds").iterdir()) == []  # nothing half-made
    assert "building a wheel" in (tmp_path / "out" / "regression.md").read_text()
    assert json.loads((tmp_path / "out" / "regression.json").read_text())["exit_code"] == 2


def test_a_revision_that_does_not_exist(tmp_path, capsys):
    repository(tmp_path)
    options = ["--repo", str(tmp_path), "--base", "never", "--output", str(tmp_path / "out")]
    assert regression.main(options) == 2
    assert "has no revision 'never'" in capsys.readouterr().out


def test_where_the_base_is_unless_named(tmp_path):
    git = repository(tmp_path)
    one = build.resolve(tmp_path, "HEAD").commit
    git("checkout", "--quiet", "-b", "topic")
    git("commit", "--quiet", "--allow-empty", "--message=two")
    git("commit", "--quiet", "--allow-empty", "--message=three")
    assert build.default_base(tmp_path, "HEAD") == one
    assert build.default_base(tmp_path, "main") == "main~1"
    assert not build.uncommitted(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    assert build.uncommitted(tmp_path)
    assert str(build.resolve(tmp_path, "main")) == f"main ({one[:9]})"
    assert str(build.resolve(tmp_path, one)) == one[:9]


def test_old_environments_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "KEPT", 2)
    for age, name in enumerate(["newest", "newer", "older", "oldest"]):
        (tmp_path / name / "env").mkdir(parents=True)
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    (tmp_path / "part-of-another-gate").mkdir()
    build._forget_oldest(tmp_path)
    assert {place.name for place in tmp_path.iterdir()} == {"newest", "newer", "part-of-another-gate"}


def test_a_checkout_in_the_way_of_the_wheel_is_found(tmp_path):
    if Path(fastemb.__file__).is_relative_to(sys.prefix):
        pytest.skip("fastemb is installed as a wheel")
    with pairs.runner((sys.executable, sys.executable), 1) as runner:
        with pytest.raises(processes.CommandError, match=r"not from the environment of the wheel"):
            runner.run((0,), ["bag: sum"])
        assert not (runner.folder / "fastemb").exists()


def test_samples_are_the_fastest_of_their_round():
    ticks = iter(np.cumsum([0, 6e-3, 1, 8e-3, 1, 5e-3, 1, 7e-3]))
    assert sample.fastest({"a": lambda: None}, 3, lambda: next(ticks)) == {"a": pytest.approx(5e-3)}


def test_a_sample_is_long_enough():
    now = [0.0]

    def call():
        now[0] += 1e-6

    number = sample.repeats(call, lambda: now[0])
    assert sample.SAMPLE_SECONDS <= number * 1e-6 <= 2 * sample.SAMPLE_SECONDS


def test_waiting_for_a_core_does_not_count_but_sleeping_does():
    began = sample.own_clock()
    time.sleep(0.02)
    assert sample.own_clock() - began >= 0.015


def test_children_end_with_an_error(tmp_path):
    pid = tmp_path / "pid"
    command = ["sh", "-c", f"sleep 100 & echo $! > {pid}; wait"]
    with pytest.raises(processes.CommandError, match="sleeping: not done after 1 s"):
        processes.run_together([command], ["sleeping"], timeout=1)
    deadline = time.monotonic() + 5
    while _alive(int(pid.read_text())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _alive(int(pid.read_text()))


def _alive(pid):
    try:
        os.kill(pid, 0)
        return not Path("/proc").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_the_load_ends():
    with selftest.load(wanted=True):
        children = subprocess.check_output(["ps", "-A", "-o", "pid=,ppid=,args="], text=True).splitlines()
    own = [line.split(maxsplit=2) for line in children if line.split()[1] == str(os.getpid())]
    spinning = [int(pid) for pid, _, command in own if "getppid" in command]
    assert len(spinning) == 1
    assert not _alive(spinning[0])


def test_a_command_says_how_it_failed():
    with pytest.raises(processes.CommandError, match=r"(?s)speaking: exit 3.*the reason"):
        processes.run_together([[sys.executable, "-c", "import sys; print('the reason'); sys.exit(3)"]], ["speaking"])
    assert processes.run_together([["echo", "a"], ["echo", "b"]], "ab") == ["a\n", "b\n"]


# Ratios


@pytest.mark.slow
def test_an_interrupt_leaves_no_process(tmp_path):
    command = [sys.executable, "-m", "benches.regression", "--base", "HEAD", "--output", str(tmp_path)]
    gate_process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (children := descendants(gate_process.pid)):
        assert gate_process.poll() is None
        time.sleep(0.01)
    gate_process.send_signal(signal.SIGTERM)
    assert gate_process.wait(timeout=60) == 143
    assert not [pid for pid in children if _alive(pid)]


def descendants(pid):
    """Processes that one has started and that run Python."""
    listed = subprocess.check_output(["ps", "-A", "-o", "pid=,ppid=,args="], text=True).splitlines()
    rows = [line.split(maxsplit=2) for line in listed]
    return [int(row[0]) for row in rows if int(row[1]) == pid and "python" in row[2]]


@pytest.mark.gate
def test_the_gate_proves_itself(capsys):
    assert regression.main(["--selftest"]) == 0
    out = capsys.readouterr().out
    with capsys.disabled():
        print(out)
    assert "10 of 10 verdicts are right" in out
