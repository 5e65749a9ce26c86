"""The benchmark programs: streams, workloads, and what the headline writes."""

import datetime
import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benches import data, machine, measure, report, workloads

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("stream", data.STREAMS)
@pytest.mark.parametrize("num_rows", [1, 10, 50_000])
def test_streams(stream, num_rows):
    make = data.STREAMS[stream]
    ids = make(num_rows, 2000, seed=3)
    assert ids.shape == (2000,)
    assert ids.dtype == np.int64
    assert 0 <= ids.min() <= ids.max() < num_rows
    assert np.array_equal(ids, make(num_rows, 2000, seed=3))
    assert num_rows == 1 or not np.array_equal(ids, make(num_rows, 2000, seed=4))


def test_zipf_is_the_bounded_power_law():
    num_rows, length = 1000, 400_000
    counts = np.sort(np.bincount(data.zipf(num_rows, length), minlength=num_rows))[::-1]
    edges = np.arange(1.0, num_rows + 1) ** -0.05
    expected = (edges[:-1] - edges[1:]) / (edges[0] - edges[-1])  # of the ranks [k, k + 1)
    np.testing.assert_allclose(counts[:20] / length, expected[:20], rtol=0.05)


def test_text_is_running_text():
    ids = data.text(50_000, 100_000)
    smaller = data.text(10, 100_000)
    assert np.array_equal(smaller, np.minimum(ids, 9))
    counts = np.bincount(data.text(1000, 500_000), minlength=1000)
    assert counts[0] > counts[100] > counts[900] > 0
    words = data._word_ranks()
    assert words.max() + 1 == np.unique(words).size > 20_000


@pytest.mark.parametrize("make", workloads.HEADLINE, ids=lambda m: m.__name__)
@pytest.mark.parametrize("num_rows", [1, 10, 700])
def test_all_ways_give_one_result(make, num_rows):
    case = make(num_rows, data.text(num_rows, 64), width=5)
    case.check()
    case.check()
    assert case.sizes == {"N": num_rows, "D": 5, "L": 64}
    assert all(way.input_bytes > 0 for way in case.ways)


@pytest.mark.parametrize("make", workloads.HEADLINE, ids=lambda m: m.__name__)
def test_a_wrong_way_is_found(make, monkeypatch):
    case = make(50, data.uniform(50, 64), width=5)
    monkeypatch.setattr("fastemb.gather", lambda table, ids: table[ids] + 1)
    monkeypatch.setattr("fastemb.scatter_add", lambda target, ids, grad: None)
    monkeypatch.setattr("fastemb.optim.Adam.step", lambda *arguments: None)
    with pytest.raises(AssertionError):
        case.check()


def test_timing_in_turn_turns_the_order():
    order = []
    timings = measure.in_turn([lambda i=i: order.append(i) for i in range(3)], rounds=3, sample_seconds=0)
    assert order == [0, 0, 1, 1, 2, 2, 0, 1, 2, 2, 0, 1, 1, 2, 0]
    assert [t.samples.size for t in timings] == [3, 3, 3]
    low, mid, high = timings[1].ratio_to(timings[0])
    assert 0 < low <= mid <= high


def test_short_calls_are_warmed_up_before_each_sample(monkeypatch):
    clock = itertools.count(step=2.0)  # a call of 2 seconds between two looks at it
    monkeypatch.setattr(measure.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(measure, "WARM_SECONDS", 6.5)
    monkeypatch.setattr(measure, "_seconds", lambda call, number: [call() for _ in range(number)].pop())
    calls = {"short": 0, "long": 0}

    def call(name, seconds):
        calls[name] += 1
        return seconds

    short, long = measure.in_turn([lambda: call("short", 2.0), lambda: call("long", 7.0)], rounds=4, sample_seconds=5.0)
    assert calls == {"short": 2 + 4 * (3 + 3), "long": 2 + 4}  # as many to warm up as there are in a sample
    assert short.samples.tolist() == [2.0] * 4
    assert long.samples.tolist() == [7.0] * 4


def test_ratios_are_of_pairs():
    slow, fast = measure.Timing(np.array([4.0, 40.0, 8.0])), measure.Timing(np.array([1.0, 20.0, 2.0]))
    assert slow.ratio_to(fast)[1] == 4.0
    assert slow.median == 8.0


def test_peak_memory():
    assert 8_000_000 <= measure.peak_bytes(lambda: np.ones(1_000_000)) < 8_010_000


@pytest.mark.parametrize(("value", "text"), [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (1.5e-6, "1.5 us"), (3e-8, "30 ns")])
def test_durations(value, text):
    assert report.seconds(value) == text


def test_headline(tmp_path):
    command = [sys.executable, "-m", "benches", "--sizes", "10", "200", "--rounds", "2", "--output", str(tmp_path)]
    out = subprocess.check_output(command, cwd=ROOT, text=True, timeout=300, stderr=subprocess.DEVNULL)
    for text in ("Row lookup", "W[ids]", "np.add.at", "Adam.step", "At N = 200 the one-hot matmul alone takes"):
        assert text in out
    result = json.loads((tmp_path / "onehot.json").read_text())
    assert result["machine"]["versions"]["numpy"] == np.__version__
    ways = {(r["case"], r["N"], r["op"]) for r in result["records"]}
    assert len(ways) == len(result["records"]) == 2 * (5 + 3 + 3)
    for record in result["records"]:
        assert record["median_s"] > 0
        own = record["op"].startswith("fastemb")
        assert (record["speedup"] is None) == own
        assert own or record["speedup_q1"] <= record["speedup"] <= record["speedup_q3"]
    assert (tmp_path / "onehot.png").read_bytes().startswith(b"\x89PNG")


def test_figures_say_when_and_of_what():
    about = machine.machine()
    assert datetime.datetime.fromisoformat(about["date"]).tzinfo is not None
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert about["revision"] == "unknown" or commit.startswith(about["revision"].removesuffix("-dirty"))


def test_outside_of_git(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.machine()["revision"] == "unknown"
