"""The command for a GPU, without one: what it writes, prints and ends with."""

import contextlib
import importlib
import inspect
import json
import operator
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benches.gpu import about, cases, command, problems, records, report, run, suite, timing
from fastemb import _compat

from .device_fakes import ON_CPU, Clock, Time, case_of, device_of, measured

ROOT = Path(__file__).parents[2]


@pytest.fixture
def document(tmp_path):
    return run.Document(tmp_path / "build" / "device.json", {"device": {}})


@pytest.fixture
def small_copy(monkeypatch):
    monkeypatch.setattr(timing, "COPY_BYTES", 1 << 16)
    monkeypatch.setattr(records, "LAUNCH_CASES", records.LAUNCH_CASES[:1])


# Without a GPU


def test_without_a_gpu_one_line_and_exit_code_2(tmp_path):
    found = subprocess.run(
        [sys.executable, ROOT / "benches" / "device.py", "--quick"],
        cwd=tmp_path,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("Nothing to measure: arrays on a GPU need ")
    assert found.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_without_cupy_it_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert command.main([]) == 2
    assert "CuPy, which is not installed" in capsys.readouterr().err


def test_a_script_finds_no_modules_beside_it(tmp_path):
    """`data`, `report` or `train` in the folder of the script would hide modules of those names that others import."""
    code = f"import runpy, sys; sys.argv = ['device.py', '--help']; runpy.run_path({str(ROOT / 'benches/device.py')!r}"
    text = code + ", run_name='__main__')"
    found = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "--quick" in found.stdout
    source = (ROOT / "benches" / "device.py").read_text()
    assert "sys.path[0] = " in source


def test_the_parts_need_nothing_that_may_be_missing():
    missing = ["cupy", "hypothesis", "matplotlib", "rich", "scipy", "threadpoolctl", "torch"]
    code = f"import sys; sys.modules |= dict.fromkeys({missing}); import benches.device, benches.gpu.command"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


# Budget, memory, what is written


def test_what_does_not_fit_the_time_is_left_out_and_said(document, small_copy):
    now = Time()
    chosen = [case_of("gather", width=w) for w in (1, 2, 3, 4, 5)] + [case_of("bag", 4)]

    def say(line):
        now.now += 3.0 if "s left" in line else 0.0

    run.measure(document, device_of(), chosen, run.Budget(12.0, now), 0.1, say)
    values = document.values
    assert [r["status"] for r in values["records"]] == ["measured"] * 4 + ["left out"] * 2
    assert values["finished"]
    text = " ".join(report.text(values).split())
    assert f"1 of gather, for time {chosen[4]} 1 of bag, for time {chosen[5]} Losses" in text


def test_an_estimate_is_the_longest_of_the_last_few():
    now = Time()
    budget = run.Budget(100.0, now)
    assert budget.estimate("bag") == run.FIRST_GUESS
    for seconds in (50.0, 1, 2, 1, 1, 1):
        budget.taken("bag", seconds)
    assert budget.estimate("bag") == 2
    assert budget.estimate("gather") == run.FIRST_GUESS
    now.now = 60.0
    assert budget.left() == 40.0


def test_what_does_not_fit_the_memory_is_left_out_and_said(document, small_copy):
    huge = next(case for case in cases.ordered() if case.name == "N1")
    values = measured(document, [huge, case_of("gather")])
    assert [r["status"] for r in values["records"]] == ["left out", "measured"]
    assert "memory: it needs 1" in values["records"][0]["reason"]
    assert "1 of gather, for memory" in report.text(values)


def test_a_lost_device_does_not_lose_the_report(document, small_copy):
    def lost():
        msg = "an illegal memory access was encountered"
        raise RuntimeError(msg)

    device = about.Device(ON_CPU, Clock(), lost, lost)
    run.measure(document, device, [case_of("gather")], run.Budget(1e6), 0.1, lambda line: None)
    assert document.values["records"][0]["reason"] == "RuntimeError: an illegal memory access was encountered"
    assert "illegal memory access" in report.text(document.values)


def test_a_killed_run_leaves_what_it_had(document, small_copy):
    chosen = [case_of("gather"), case_of("scatter"), case_of("bag")]
    count = timing.ROUNDS * 2 + timing.LEAST_ROUNDS + timing.ROUNDS
    with pytest.raises(KeyboardInterrupt):
        measured(document, chosen, clock=Clock(after=count + 3))
    left = json.loads(document.path.read_text())
    assert [r["op"] for r in left["records"]] == ["gather"]
    assert left["copy_bytes_per_s"] > 0
    assert left["launches"]
    assert not left["finished"]
    assert [path.name for path in document.path.parent.iterdir()] == ["device.json"]


def test_a_file_is_whole_although_the_next_one_cannot_be_written(document):
    document.write(a=1)
    with pytest.raises(TypeError):
        document.write(b=object())
    assert json.loads(document.path.read_text())["a"] == 1


def test_launches_of_every_operation_and_every_check():
    modes = []

    @contextlib.contextmanager
    def index_check(when):
        modes.append(when)
        yield

    tools = problems.Tools(np, None, index_check)
    found = list(records.of_launches(tools, Clock()))
    assert list(dict.fromkeys(r["op"] for r in found)) == ["gather", "bag", "scatter", "update SGD", "update Adam"]
    assert all(r["host_us"] > 0 and not r["error"] for r in found)
    aimed = [r["way"] for r in found if r["target"] is not None]
    assert aimed == ["fastemb, check later"] * 5
    assert set(modes) == set(records.CHECKS)


def test_a_launch_that_raises_is_recorded(monkeypatch):
    monkeypatch.setattr("fastemb.gather", lambda *_, **__: 1 / 0)
    found = list(records.of_launches(ON_CPU, Clock()))
    assert {r["error"] for r in found if r["op"] == "gather" and r["way"].startswith("fastemb")} == {
        "ZeroDivisionError: division by zero"
    }
    assert any(not r["error"] for r in found)


# Tests, tables, exit codes


@pytest.mark.parametrize(
    ("code", "last", "outcome"),
    [
        (0, "3 passed, 7 deselected in 1.20s", "passed"),
        (0, "3 skipped, 7 deselected in 1.20s", "failed"),
        (1, "1 failed, 3 passed in 1.20s", "failed"),
        (5, "7 deselected in 0.02s", "failed"),
        (4, "ImportError: hypothesis", "failed"),
        (-11, "", "failed"),
    ],
)
def test_judgement_of_the_tests(code, last, outcome):
    found = suite.judged(code, f"...\n{last}\n", Path("log"))
    assert found["outcome"] == outcome
    assert ("reason" in found) == (outcome != "passed")
    assert (found.get("passed") == 3) == ("3 passed" in last)


def test_the_tests_run_in_a_process_of_their_own(tmp_path):
    folder = tmp_path / "tests" / "devices"
    folder.mkdir(parents=True)
    (tmp_path / "tests" / "test_needs_what_is_missing.py").write_text("import no_such_package\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu: a\n")
    marked = f"@pytest.{suite.MARK}\ndef test_it():\n    pass\n"
    text = f"import pytest\n{marked}def test_without_the_mark():\n    assert False\n"
    (folder / "test_one.py").write_text(text)
    found = suite.run(tmp_path / "out" / "log.txt", 60, tmp_path)
    assert found == {"outcome": "passed", "passed": 1, "deselected": 1}
    assert "1 passed" in (tmp_path / "out" / "log.txt").read_text()


def test_tests_that_do_not_end_are_stopped(tmp_path):
    (tmp_path / "tests").mkdir()
    text = f"import time\nimport pytest\ntime.sleep(60)\n@pytest.{suite.MARK}\ndef test_it():\n    pass\n"
    (tmp_path / "tests" / "test_one.py").write_text(text)
    found = suite.run(tmp_path / "log.txt", 0.1, tmp_path)
    assert found["outcome"] == "stopped"
    assert "not done after" in found["reason"]


def test_missing_packages_are_said(monkeypatch, tmp_path):
    monkeypatch.setattr(_compat, "optional", lambda name: None)
    assert suite.run(tmp_path / "log.txt", 1) == {"outcome": "not run", "reason": "pytest is not installed"}
    assert about.torch_problem(None) == "torch is not installed"


def test_files_with_the_mark(tmp_path):
    assert suite.run(tmp_path / "log.txt", 1, tmp_path)["outcome"] == "failed"
    (tmp_path / "tests" / "cuda").mkdir(parents=True)
    (tmp_path / "tests" / "cuda" / "test_a.py").write_text(f"@pytest.{suite.MARK}\n")
    (tmp_path / "tests" / "test_b.py").write_text("@pytest.mark.slow\n")
    assert suite.files(tmp_path) == [tmp_path / "tests" / "cuda" / "test_a.py"]


def made(status="measured", **more):
    if status == "measured":
        more = {
            "us": 1234.5,
            "spread": 0.012,
            "of_copy": 0.91,
            "of_copy_distinct": 0.7,
            "target": 0.9,
            "reached": True,
            "bits_of_cpu": True,
            "same_bits_again": True,
            "peers": [],
        } | more
    return records.empty_of(case_of(more.pop("op", "gather")), status, **more)


def peer_of(ratio, **more):
    common = {"name": "torch index_select", "us": 5.0, "spread": 0.1, "difference": None, "error": None}
    return common | {"ratio": ratio, "ratio_q1": ratio, "ratio_q3": ratio, "target": None, "reached": None} | more


def test_the_table_says_wins_and_losses():
    launch = {"op": "gather", "way": "fastemb, check later", "host_us": 20.0, "target": 15.0, "reached": False}
    document = {
        "copy_bytes_per_s": 4e12,
        "launches": [launch | {"error": None}, {"op": "bag", "way": "fastemb", "error": "KeyError: 1"}],
        "records": [
            made(peers=[peer_of(0.5), peer_of(3.0)]),
            made(reached=False, of_copy=0.3, bits_of_cpu=False),
            made("error", reason="ValueError: no"),
            made("left out", reason="time"),
            made(op="scatter", target=None, peers=[peer_of(1.5, target=2.0, reached=False)]),
        ],
        "tests": {"outcome": "failed", "failed": 1, "passed": 4, "reason": "exit code 1: x; see log"},
    }
    text = report.text(document)
    for part in (
        "4,000 GB/s",
        "0.9: reached",
        "0.9: NOT REACHED",
        "2: NOT REACHED",
        "15: NOT REACHED",
        "ERROR: ValueError: no",
        "ERROR: KeyError: 1",
        "torch index_select takes 0.5 of fastemb's time",
        "0.9 of copy bandwidth: reached in 1 of 2",
        "2 times torch: reached in 0 of 1",
        "15 us a launch: reached in 0 of 1",
        "near the CPU's",
        "1,234",
    ):
        assert part in text, part
    assert report.tests(document["tests"]) == ("pytest -m gpu: failed (1 failed, 4 passed; exit code 1: x; see log)")
    assert len(list(report.failures(document))) == 3
    heads = [line for line in text.splitlines() if line.startswith("case ")]
    assert len(heads) == 2  # a table for lookups, one for sums


def test_columns_line_up():
    rows = [("case", "way", "us"), ("a", "longer", "5"), ("longest", "b", "1,234")]
    assert list(report.columns(rows)) == ["case     way        us", "a        longer      5", "longest  b       1,234"]


def test_a_table_of_nothing():
    document = {"copy_bytes_per_s": None, "launches": [], "records": []}
    assert report.text(document).split() == ["Left", "out:", "none", "Losses:", "none", "Targets:", "none"]


ABOUT = {
    "device": {"name": "A GPU", "compute_capability": "90", "memory_bytes": 150e9, "l2_bytes": 50e6},
    "cuda": {"driver": 13000, "runtime": 13000},
    "versions": {"fastemb": "0.1.0", "torch": None},
    "date": "2026-01-01",
    "revision": "abc",
}


@pytest.mark.parametrize(
    ("tests", "op", "code"),
    [
        ("passed", "gather", 0),
        ("not run", "gather", 0),
        ("failed", "gather", 1),
        ("stopped", "gather", 1),
        ("passed", "no such operation", 1),
    ],
)
def test_exit_codes(tests, op, code, monkeypatch, tmp_path, capsys, small_copy):
    monkeypatch.setattr(about, "problem", lambda: None)
    monkeypatch.setattr(about, "device", lambda: (device_of(), "torch is not installed"))
    monkeypatch.setattr(about, "about", lambda cupy, quick: ABOUT)
    monkeypatch.setattr(suite, "run", lambda log, seconds: {"outcome": tests})
    monkeypatch.setattr(cases, "ordered", lambda quick: [case_of("bag", 4), case_of(op)])
    assert command.main(["--quick", "--output", str(tmp_path)]) == code
    shown = capsys.readouterr()
    for part in ("A GPU", "torch is not installed", f"pytest -m gpu: {tests}", "--tool racecheck", "bag"):
        assert part in shown.out, part
    assert "2 of 2" in shown.err
    values = json.loads((tmp_path / "device.json").read_text())
    assert values["finished"]
    assert values["missing"] == ["torch is not installed"]
    assert [r["status"] for r in values["records"]] == ["measured", "error" if op.startswith("no") else "measured"]
    assert bool(values["failures"]) == bool(code)
    assert ("Failed:" in shown.out) == bool(code)


@pytest.mark.skipif(sys.platform != "linux", reason="the environment of the tests has CuPy on Linux alone")
def test_cupy_has_what_is_asked_of_it():
    cupy = importlib.import_module("cupy")
    for name in (
        *("cuda.Event", "cuda.Event.record", "cuda.Event.synchronize", "cuda.get_elapsed_time", "cuda.set_allocator"),
        *(f"cuda.runtime.{name}" for name in ("memGetInfo", "deviceSynchronize", "getDeviceProperties", "getDevice")),
        *("cuda.runtime.driverGetVersion", "cuda.runtime.runtimeGetVersion", "cuda.Device", "__version__"),
        *("get_default_memory_pool", "cuda.MemoryPool.free_all_blocks", "ndarray.max", "ndarray.fill", "ndarray.get"),
        *("add.at", "arange", "array", "asarray", "copyto", "empty", "full", "ones", "sin", "take"),
    ):
        assert operator.attrgetter(name)(cupy) is not None
    assert list(inspect.signature(cupy.take).parameters) == ["a", "indices", "axis", "out"]


def test_what_is_said_about_a_device():
    class Runtime:
        getDevice = staticmethod(lambda: 0)
        driverGetVersion = runtimeGetVersion = staticmethod(lambda: 13000)
        getDeviceProperties = staticmethod(
            lambda number: {"name": b"A GPU", "totalGlobalMem": 5, "l2CacheSize": 7, "other": 1}
        )

    class Cupy:
        __version__ = "14.2.0"

        class cuda:
            runtime = Runtime

            class Device:
                compute_capability = "90"

                def __init__(self, number):
                    pass

    said = about.about(Cupy, True)
    assert said["device"] == {"name": "A GPU", "compute_capability": "90", "memory_bytes": 5, "l2_bytes": 7}
    assert said["versions"]["cupy"] == "14.2.0"
    assert json.loads(json.dumps(said)) == said
    assert any("A GPU" in line for line in report.heading(said))
