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


def floors_file(folder, *shown):
    """The file of machines that have shown some ratios."""
    path = folder / "floors.json"
    path.write_text(json.dumps({"machines": {f"m{k}": {"ratios": of_one} for k, of_one in enumerate(shown)}}))
    return path


@pytest.mark.parametrize(("floor", "code"), [(1e-9, 0), (1e9, 1)])
def test_floors(tmp_path, capsys, floor, code):
    path = floors_file(tmp_path, {"tiny": 2 * floor})
    assert ratios.check(CONSOLE, path=path, made={"tiny": tiny()}) == code
    out = capsys.readouterr().out
    assert ("Below its floor: tiny is" in out) == bool(code)
    assert ("fallen off its fast path?" in out) == bool(code)


def test_a_missing_floor(tmp_path, capsys):
    path = floors_file(tmp_path, {"another": 1.0})
    assert ratios.check(CONSOLE, path=path, made={"tiny": tiny()}) == 2
    assert "No floor for tiny" in capsys.readouterr().out


def test_floors_are_half_of_the_least_that_was_seen(tmp_path, monkeypatch):
    seen = iter([20.0, 12.345, 30.0])
    monkeypatch.setattr(ratios, "ratio_of", lambda make, rounds=1: next(seen))
    path = floors_file(tmp_path, {"tiny": 50.0, "other": 8.0}, {"other": 6.0})
    assert ratios.check(CONSOLE, write=True, path=path, made={"tiny": None}) == 0
    kept = json.loads(path.read_text())
    assert ratios.floors(kept) == {"tiny": 6.0, "other": 3.0}
    (added,) = (of_one for name, of_one in kept["machines"].items() if name not in ("m0", "m1"))
    assert added["ratios"] == {"tiny": 12}
    assert added["versions"]["numpy"] == np.__version__


def test_a_call_that_leaves_the_compiled_kernels_is_found(tmp_path, capsys):
    path = floors_file(tmp_path, {"half": 1e-9})
    assert ratios.check(CONSOLE, path=path, made={"half": tiny(dtype=np.float16)}) == 1
    assert "half is 0 times as fast" in capsys.readouterr().out


def test_one_retry_before_failing(tmp_path, monkeypatch):
    seen = iter([1.0, 30.0])
    monkeypatch.setattr(ratios, "ratio_of", lambda make, rounds=1: next(seen))
    path = floors_file(tmp_path, {"tiny": 40})
    assert ratios.check(CONSOLE, path=path, made={"tiny": None}) == 0


def test_every_case_has_a_floor():
    machines = json.loads(ratios.FLOORS.read_text())["machines"].values()
    assert all(set(of_one["ratios"]) == set(ratios.CASES) for of_one in machines)


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
            if not kernel.startswith("group"):  # which leaves what it likes in the rest of its arrays
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    replay()


def arrays_of(arguments):
    """Of the arguments of a kernel, tuples of state included."""
    flat = [a for argument in arguments for a in (argument if isinstance(argument, tuple) else (argument,))]
    return [a for a in flat if isinstance(a, np.ndarray)]
