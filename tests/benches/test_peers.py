"""The peer comparison: what it records, how it judges, and that it says what is missing."""

import json

import numba
import numpy as np
import pytest
import threadpoolctl

from benches.peers import __main__ as peers
from benches.peers import cases, comparison


def run(tmp_path, *arguments):
    """(exit code, records) of a run."""
    file = tmp_path / "peers.json"
    code = peers.main(["--threads", "1", "--rounds", "15", "--json", str(file), "--output", str(tmp_path), *arguments])
    return code, json.loads(file.read_text())


def made_of(ours, theirs, target):
    return comparison.Comparison("case", "peer", ours, theirs, target, lambda: None, samples=15)


def spin(count):
    def work():
        total = 0
        for i in range(count):
            total += i
        return total

    return work


@pytest.fixture(autouse=True)
def _same_threads_afterwards():
    before = numba.get_num_threads()
    with threadpoolctl.threadpool_limits():
        yield
    numba.set_num_threads(before)


@pytest.fixture
def cheap_copy(monkeypatch):
    monkeypatch.setattr(peers, "COPY_BYTES", 1 << 20)


@pytest.mark.usefixtures("cheap_copy")
def test_records(tmp_path, capsys):
    code, result = run(tmp_path, "--quick", "--ids", "gather-small,scatter")
    assert code == 0
    assert {r["id"] for r in result["records"]} == {"gather-small", "scatter"}
    assert result["threads"] == 1
    assert result["copy_bytes_per_s"] > 0
    for r in result["records"]:
        assert r["fastemb_ms"] > 0
        assert r["peer_ms"] > 0
        assert r["ratio_q1"] <= r["ratio"] <= r["ratio_q3"]
        assert r["holds"] is (None if r["target"] is None else r["ratio"] >= r["target"])
        assert r["roof"] > 0
    assert (tmp_path / "peers.png").read_bytes().startswith(b"\x89PNG")
    text = capsys.readouterr().out
    assert "W[ids]" in text
    assert "np.add.at" in text
    assert ("Missing: torch is not installed" in text) == (not comparison.has("torch"))


@pytest.mark.usefixtures("cheap_copy")
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(("slow", "fast", "target"), [(2000, 200, 2.0), (200, 2000, 2.0), (200, 2000, None)])
def test_judgement(tmp_path, monkeypatch, capsys, check, slow, fast, target):
    monkeypatch.setattr(cases, "CASES", {"one": lambda quick: iter([made_of(spin(fast), spin(slow), target)])})
    code, result = run(tmp_path, "--ids", "one", *(["--check"] if check else []))
    missed = target is not None and slow < fast
    assert code == int(check and missed)
    assert result["records"][0]["holds"] is (None if target is None else not missed)
    assert ("Not reached: one, case, peer" in capsys.readouterr().out) == missed


@pytest.mark.usefixtures("cheap_copy")
def test_unequal_results_are_not_timed(tmp_path, monkeypatch):
    wrong = comparison.Comparison(
        "case", "peer", list, list, None, comparison.same(lambda: np.zeros(3), lambda: np.ones(3))
    )
    monkeypatch.setattr(cases, "CASES", {"one": lambda quick: iter([wrong])})
    with pytest.raises(AssertionError):
        run(tmp_path, "--ids", "one")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--ids", "gather-smal"], "unknown ids ['gather-smal']"),
        (["--rounds", "3"], "--rounds must be >= 15"),
        (["--threads", "0"], "--threads must be in [1, "),
    ],
)
def test_arguments(arguments, text, capsys):
    with pytest.raises(SystemExit) as stop:
        peers.main(arguments)
    assert stop.value.code == 2
    assert text in capsys.readouterr().err


def test_every_case_is_equal_before_it_is_timed():
    for name in set(cases.CASES) - {"start"}:
        for made in cases.CASES[name](True):
            made.equal()


def test_a_wrong_lookup_is_found(monkeypatch):
    monkeypatch.setattr("fastemb.gather", lambda table, ids, out=None: np.zeros((ids.size, table.shape[1]), "f4"))
    for name in ("gather-small", "gather-mid", "roof"):
        for made in cases.CASES[name](True):
            if made.peer != "scaling the rows":
                with pytest.raises(AssertionError):
                    made.equal()


def test_a_wrong_row_pass_is_found(monkeypatch):
    monkeypatch.setattr("fastemb.kernels.cpu.sgd", lambda *_: -1)
    (made,) = (made for made in cases.CASES["roof"](True) if made.peer == "scaling the rows")
    with pytest.raises(AssertionError):
        made.equal()


def test_means_and_what_they_would_be_at_the_least():
    def record(case, peer, ratio):
        return {
            "id": "update",
            "case": case,
            "peer": peer,
            "ratio": ratio,
            "ratio_q1": ratio / 2,
            "ratio_q3": ratio * 2,
        }

    sgd = "torch sparse SGD"
    both = [record("a", sgd, 2.0), record("a", cases.LEAST, 0.5), record("b", sgd, 8.0)]
    mean, *others = peers.means_of(both)
    assert (mean["ratio_q1"], mean["ratio"], mean["ratio_q3"]) == pytest.approx((2.0, 4.0, 8.0))
    assert (mean["target"], mean["holds"]) == (5.0, False)
    assert not others  # of one case nobody knows the least
    mean, least = peers.means_of([*both, record("b", cases.LEAST, 0.5)])
    assert (least["peer"], least["ratio"], least["target"], least["holds"]) == (sgd, pytest.approx(8.0), None, None)
