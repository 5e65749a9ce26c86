"""Ratios of fastemb to its reference, against floors."""

import copy
import json

import numpy as np
import pytest
import rich.console

import fastemb
from benches import shapes
from benches.regression import ratios
from fastemb.kernels import cpu

CONSOLE = rich.console.Console(width=140)


def tiny(function=fastemb.gather, dtype=np.float32):
    """A case: enough rows that a kernel is called."""
    return lambda: lambda: function(np.ones((4096, 32), dtype), np.arange(4096))


@pytest.mark.parametrize(("floor", "code"), [(1e-9, 0), (1e9, 1)])
def test_floors(tmp_path, capsys, floor, code):
    path = tmp_path / "floors.json"
    path.write_text(json.dumps({"floors": {"tiny": floor}}))
    assert ratios.check(CONSOLE, path=path, made={"tiny": tiny()}) == code
    out = capsys.readouterr().out
    assert ("Below its floor: tiny is" in out) == bool(code)
    assert ("fallen off its fast path?" in out) == bool(code)


def test_a_missing_floor(tmp_path, capsys):
    (tmp_path / "floors.json").write_text(json.dumps({"floors": {}}))
    assert ratios.check(CONSOLE, path=tmp_path / "floors.json", made={"tiny": tiny()}) == 2
    assert "No floor for tiny" in capsys.readouterr().out


def test_floors_are_half_of_what_was_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(ratios, "ratio_of", lambda make, rounds=1: 12.345)
    assert ratios.check(CONSOLE, write=True, path=tmp_path / "floors.json", made={"tiny": None}) == 0
    kept = json.loads((tmp_path / "floors.json").read_text())
    assert kept["floors"] == {"tiny": 6.2}
    assert kept["machine"]
    assert kept["versions"]["numpy"] == np.__version__


def test_a_call_that_leaves_the_compiled_kernels_is_found(tmp_path, capsys):
    (tmp_path / "floors.json").write_text(json.dumps({"floors": {"half": 1e-9}}))
    assert ratios.check(CONSOLE, path=tmp_path / "floors.json", made={"half": tiny(dtype=np.float16)}) == 1
    assert "half is 0 times as fast" in capsys.readouterr().out


def test_one_retry_before_failing(tmp_path, monkeypatch):
    seen = iter([1.0, 30.0])
    monkeypatch.setattr(ratios, "ratio_of", lambda make, rounds=1: next(seen))
    (tmp_path / "floors.json").write_text(json.dumps({"floors": {"tiny": 20}}))
    assert ratios.check(CONSOLE, path=tmp_path / "floors.json", made={"tiny": None}) == 0


def test_every_case_has_a_floor():
    assert set(json.loads(ratios.FLOORS.read_text())["floors"]) == set(ratios.CASES)


@pytest.mark.parametrize("name", ratios.CASES)
def test_the_reference_does_what_the_call_does(name, monkeypatch):
    monkeypatch.setattr(ratios, "ROWS", shapes.Rows(3000, 64, 2048, "zipf"))
    monkeypatch.setattr(ratios, "BAGS", shapes.Bags(3000, 64, 60, 20))
    replay = ratios.Replay(ratios.CASES[name]())
    compiled = copy.deepcopy(replay.calls)
    for kernel, arguments in compiled:
        assert getattr(cpu, kernel)(*arguments) == -1
    replay()
    for (kernel, found), (_, expected) in zip(replay.calls, compiled, strict=True):
        for one, other in zip(arrays_of(found), arrays_of(expected), strict=True):
            if kernel != "group":  # which leaves what it likes in the rest of its arrays
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    replay()


def arrays_of(arguments):
    """Of the arguments of a kernel, tuples of state included."""
    flat = [a for argument in arguments for a in (argument if isinstance(argument, tuple) else (argument,))]
    return [a for a in flat if isinstance(a, np.ndarray)]
