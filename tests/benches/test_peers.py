"""The peer comparison: what it records, how it judges, and that it says what is missing."""

import json

import numba
import numpy as np
import pytest
import threadpoolctl

from benches import measure
from benches.peers import __main__ as peers
from benches.peers import cases, comparison


def run(tmp_path, *arguments):
    """(exit code, records) of a run."""
    file = tmp_path / "peers.json"
    code = peers.main(["--threads", "1", "--rounds", "15", "--json", str(file), "--output", str(tmp_path), *arguments])
    return code, json.loads(file.read_text())


def made_of(ours, theirs, target, limit=None, samples=15):
    return comparison.Comparison("case", "peer", ours, theirs, target, lambda: None, samples=samples, limit=limit)


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
@pytest.mark.parametrize(
    ("slow", "fast", "target", "limit", "word"),
    [
        (2000, 200, 2.0, None, None),
        (2000, 200, 2.0, 4000, None),  # what was reached was within reach
        (200, 2000, 2.0, None, "Not reached"),
        (200, 2000, 2.0, 20, "Not reached"),
        (200, 2000, 2.0, 1000, "Out of reach"),
        (200, 2000, None, 1000, None),
    ],
)
def test_judgement(tmp_path, monkeypatch, capsys, check, slow, fast, target, limit, word):
    made = made_of(spin(fast), spin(slow), target, limit and spin(limit))
    monkeypatch.setattr(cases, "CASES", {"one": lambda quick: iter([made])})
    code, result = run(tmp_path, "--ids", "one", *(["--check"] if check else []))
    assert code == int(check and word == "Not reached")
    (record,) = result["records"]
    assert record["holds"] is (None if target is None else word is None)
    assert (record["limit"] is None) == (limit is None)
    told = capsys.readouterr().out
    for other in ("Not reached", "Out of reach"):
        assert (f"{other}: one, case, peer" in told) == (other == word)


@pytest.mark.parametrize(
    ("ratios", "limits", "times"),
    [
        ([1.0, 3.0], [4], 3),
        ([2.5, 3.0], [4], 1),
        ([1.0, 1.5], [4], 1),
        ([1.0, 2.0], [4], 3),
        ([1.0, 3.0], [1], 1),
        ([1.0, 1.5], [1.5, 2.1, 2.5, 2.5], 3),  # missed, if it is within reach
        ([1.0, 1.5], [1.5, 1.5, 1.9, 2.5], 1),
        ([2.5, 3.0], [1.5, 2.1, 2.5, 2.5], 1),
    ],
)
def test_what_is_not_clear_is_measured_again(monkeypatch, ratios, limits, times):
    """Quartiles on both sides of a target within reach: once more after all others, and all rounds count."""
    theirs = np.resize(np.array(ratios), 20)
    asked = []

    def in_turn(calls, rounds):
        asked.append(rounds)
        return [
            measure.Timing(np.ones(20)),
            measure.Timing(theirs),
            measure.Timing(theirs / np.resize(np.array(limits), 20)),
        ]

    monkeypatch.setattr(measure, "in_turn", in_turn)
    clear = made_of(list, list, None, list, samples=0)
    monkeypatch.setitem(cases.CASES, "one", lambda quick: iter([made_of(list, list, 2.0, list, samples=0), clear]))
    told = []
    records = peers.compared("one", False, 20, 1.0, told.append)
    assert asked == [20] * (times + 1)
    assert [made.target for made in told] == [2.0, None] + [2.0] * (times - 1)
    assert [r["target"] for r in records] == [2.0, None]
    assert records[0]["ratio"] == np.median(ratios)


def test_cases_of_a_mean_that_is_not_clear_are_measured_again(monkeypatch):
    ratios = {"a": 3.0, "b": 9.0}
    asked = []

    def of(case):
        return comparison.Comparison(case, "torch sparse SGD", case, None, 2.5, lambda: None)

    def in_turn(calls, rounds):
        asked.append(calls[0])
        spread = np.linspace(0.9, 1.1, 21) * (1 if len(asked) < 5 else 2)
        return [measure.Timing(np.ones(21)), measure.Timing(ratios[calls[0]] * spread)]

    monkeypatch.setattr(measure, "in_turn", in_turn)
    monkeypatch.setitem(cases.CASES, "update", lambda quick: map(of, ratios))
    *_, mean = peers.compared("update", False, 21, 1.0, lambda made: None)
    assert asked == ["a", "b"] * 3
    assert mean["ratio"] == pytest.approx(27**0.5 * 1.06, rel=0.02)


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
            if made.limit:
                made.limit()
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


def test_means_and_their_limits():
    sgd = "torch sparse SGD"

    def with_means(limits):
        both = zip("ab", (2.0, 8.0), limits, strict=True)
        records = [
            peers._record("update", case, sgd, (r / 2, r, r * 2), 2.5, limit and (limit, limit))
            for case, r, limit in both
        ]
        return [*records, *peers.means_of(records)]

    *both, mean = with_means((4.0, 16.0))
    assert (mean["ratio_q1"], mean["ratio"], mean["ratio_q3"], mean["limit"]) == pytest.approx((2.0, 4.0, 8.0, 8.0))
    assert (mean["target"], mean["holds"], mean["reachable"]) == (5.0, False, True)
    assert [(r["holds"], r["reachable"]) for r in both] == [(False, True), (True, True)]
    *both, mean = with_means((2.4, 16.0))  # of one case the limit is below its least
    assert [r["reachable"] for r in (*both, mean)] == [False, True, True]
    *both, mean = with_means((3.0, 8.0))  # of the mean: nothing is asked of the cases
    assert mean["limit"] == pytest.approx(24**0.5)
    assert [r["reachable"] for r in (*both, mean)] == [False, False, False]
    *both, mean = with_means((3.0, None))  # of one case nobody knows it
    assert (mean["limit"], mean["reachable"]) == (None, True)
    assert not peers.means_of(both[:1])
