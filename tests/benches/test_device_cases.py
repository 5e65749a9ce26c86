"""The cases of the command for a GPU, on NumPy's arrays: results, bytes, and clocks that are made up."""

import importlib
import itertools
import sys

import numpy as np
import pytest

import fastemb
from benches.gpu import cases, check, problems, records, report, run, timing

from .device_fakes import EVERY, ON_CPU, Clock, Time, case_of, measured


@pytest.fixture
def document(tmp_path):
    return run.Document(tmp_path / "build" / "device.json", {"device": {}})


@pytest.fixture
def small_copy(monkeypatch):
    monkeypatch.setattr(timing, "COPY_BYTES", 1 << 16)
    monkeypatch.setattr(records, "LAUNCH_CASES", records.LAUNCH_CASES[:1])


# Cases


def test_the_whole_grid_once_and_the_definitions_first():
    every = cases.ordered()
    assert len(set(map(str, every))) == len(every) == len(set(every))
    names = list(dict.fromkeys(case.name for case in every))
    assert names == ["G1", "G2", "B1", "T1", "S1", "", "N1"]
    grid = [case for case in every if not case.name]
    for op in cases.OPERATIONS:
        hots = cases.HOT if op in ("bag", "update") else (1,)
        axes = itertools.product(cases.WIDTHS, cases.ROWS, cases.STREAMS, cases.DTYPES, hots)
        found = [(c.width, c.num_rows, c.stream, c.dtype, c.hot) for c in grid if c.op == op and c.rule in ("", "Adam")]
        assert sorted(found) == sorted(axes)
    assert {case.op for case in grid[: len(cases.OPERATIONS)]} == set(cases.OPERATIONS)
    quick = cases.ordered(quick=True)
    assert quick == every[: len(quick)]
    assert 20 < len(quick) < 50


@pytest.mark.parametrize("stream", ["uniform", "zipf 1.05", "zipf 1.15", "zipf 1.2", "one row"])
@pytest.mark.parametrize("num_rows", [1, 399, 100_000])
def test_indices(stream, num_rows):
    ids, distinct = cases.indices(stream, num_rows, 5000)
    assert ids.dtype == np.int64
    assert ids.shape == (5000,)
    assert 0 <= ids.min() <= ids.max() < num_rows
    assert distinct == np.unique(ids).size


def test_a_power_law_has_its_exponent():
    num_rows, length = 1000, 400_000
    counts = np.sort(np.bincount(cases.indices("zipf 1.15", num_rows, length)[0], minlength=num_rows))[::-1]
    edges = np.arange(1.0, num_rows + 1) ** -0.15
    expected = (edges[:-1] - edges[1:]) / (edges[0] - edges[-1])
    np.testing.assert_allclose(counts[:10] / length, expected[:10], rtol=0.05)


def test_all_rows_have_a_rank():
    assert np.unique(np.arange(1, 100_001) * cases.SPREAD % 100_000).size == 100_000


def test_bytes_by_hand():
    ids, distinct = cases.indices("zipf 1.15", 700, 120)
    assert ids.size == 120
    row = 24 * 4
    for op, hot, algorithmic, once in (
        ("gather", 1, 120 * (8 + 2 * row), 120 * (8 + row) + distinct * row),
        ("bag", 4, 120 * (8 + row) + 30 * (8 + row), 120 * 8 + 30 * (8 + row) + distinct * row),
        ("scatter", 1, 120 * (8 + 3 * row), 120 * (8 + row) + 2 * distinct * row),
        ("update", 4, 120 * (8 + row) + 6 * distinct * row, 120 * 8 + 30 * row + 6 * distinct * row),
    ):
        case = case_of(op, hot, stream="zipf 1.15", bags=120 // hot)
        assert problems.moved(case) == (algorithmic, once), op
    half = case_of("update", 4, stream="zipf 1.15", dtype="float16", bags=30)
    assert problems.state_bytes(half) == 2 * 24 * 4  # sums of half-width tables are kept in float32


@pytest.mark.parametrize("case", EVERY, ids=str)
def test_every_case_is_that_of_numpy(case):
    same_bits, wrong = check.compare(case, ON_CPU)
    assert same_bits
    assert not wrong
    assert check.same_bits_again(case, ON_CPU)


def test_small_problems_are_small():
    for case in cases.ordered():
        few = problems.small(case)
        assert few.num_rows <= 500
        assert few.length <= 2048
        assert (few.op, few.width, few.dtype, few.hot, few.rule) == (
            case.op,
            case.width,
            case.dtype,
            case.hot,
            case.rule,
        )


@pytest.mark.skipif(sys.platform != "linux", reason="the stand-in for CuPy runs kernels in an emulator for Linux")
@pytest.mark.parametrize("op", ["gather", "scatter", "update"])
def test_cases_on_arrays_that_are_not_of_the_host(op, monkeypatch):
    launched = importlib.import_module("tests.cuda.launched")
    from fastemb.kernels.cuda import launch, scatter

    monkeypatch.setattr(launch, "compiler", launched.emulator)
    with launched.standin.installed(monkeypatch) as cupy:
        tools = problems.Tools(cupy, None, fastemb.index_check, scatter.scatter_add_unordered)
        case = case_of(op, 4 if op in ("bag", "update") else 1, num_rows=90, bags=20, stream="zipf 1.05")
        record = records.of_case(case, tools, Clock(), 1e9, 0.1)
    assert record["bits_of_cpu"]
    assert record["same_bits_again"]
    assert all(not peer["error"] and not peer["difference"] for peer in record["peers"])


# Wrong results


def off_by_one(function):
    def call(*arguments, **options):
        result = function(*arguments, **options)
        target = options.get("out")
        target = arguments[0] if target is None else target
        target += 1
        return result

    return call


@pytest.mark.parametrize(
    ("op", "where", "name"),
    [
        ("gather", "fastemb", "gather"),
        ("bag", "fastemb", "embedding_bag"),
        ("scatter", "fastemb", "scatter_add"),
        ("update", "fastemb.kernels.cpu", "adam"),
    ],
)
def test_wrong_results_are_not_timed(op, where, name, monkeypatch, document, small_copy):
    module = importlib.import_module(where)
    right = getattr(module, name)
    monkeypatch.setattr(module, name, off_by_one(right))
    record = measured(document, [case_of(op)])["records"][0]
    assert record["status"] == "error"
    assert "numbers are wrong" in record["reason"]
    assert "us" not in record


@pytest.mark.parametrize("op", ["scatter", "update"])
def test_bits_that_differ_from_run_to_run_are_found(op, monkeypatch, document, small_copy):
    right, noise = problems.device_arrays, itertools.count()

    def shuffled(case, xp):
        arrays = right(case, xp)
        arrays.grad[0, 0] += next(noise)
        return arrays

    monkeypatch.setattr(problems, "device_arrays", shuffled)
    values = measured(document, [case_of(op, 16 if op == "update" else 1)])
    assert not values["records"][0]["same_bits_again"]
    assert "DIFFER FROM RUN TO RUN" in report.text(values)
    assert any("bits differ" in line for line in report.failures(values))


def test_a_result_of_another_kind_is_wrong():
    case = case_of("gather")
    assert "was due" in check._difference(case, [np.zeros(3)], [np.zeros(3, np.float32)])
    assert "was due" in check._difference(case, [np.zeros((3, 1))], [np.zeros(3)])
    assert check._difference(case, [np.full(3, np.nan)], [np.zeros(3)]) == "3 of 3 numbers are wrong"


def test_a_peer_that_raises_or_differs_stops_nothing(monkeypatch, document, small_copy):
    right = problems.ways

    def with_peers(case, arrays, tools):
        def refuses():
            msg = "no such dtype"
            raise NotImplementedError(msg)

        (ours, *_) = right(case, arrays, tools)
        return [
            ours,
            problems.Way("refuses", refuses, ours.arrays),
            problems.Way("does nothing", lambda: None, ours.arrays),
        ]

    monkeypatch.setattr(problems, "ways", with_peers)
    values = measured(document, [case_of("gather")])
    does_nothing, refuses = values["records"][0]["peers"]
    assert refuses["error"] == "NotImplementedError: no such dtype"
    assert does_nothing["difference"] == f"{60 * 24:,} of {60 * 24:,} numbers are wrong"
    text = report.text(values)
    assert "refuses: NotImplementedError: no such dtype" in text
    assert "another result" in text
    assert not list(report.failures(values))


# Timing


class FakeCuda:
    """Events that read a clock, and an array whose reading takes a while."""

    def __init__(self):
        self.time, self.log = Time(), []
        self.cuda = self
        self.runtime = self

    def Event(self):
        return FakeEvent(self)

    def get_elapsed_time(self, start, stop):
        return 1e3 * (stop.at - start.at)

    def ones(self, size, dtype):
        return FakeLines(self, size * np.dtype(dtype).itemsize)

    def empty(self, *_arguments):
        return None


class FakeEvent:
    def __init__(self, cuda):
        self.cuda = cuda

    def record(self):
        self.at = self.cuda.time.now
        self.cuda.log.append("event")

    def synchronize(self):
        self.cuda.log.append("wait")


class FakeLines:
    def __init__(self, cuda, nbytes):
        self.cuda, self.nbytes = cuda, nbytes

    def max(self, **_options):
        self.cuda.log.append(f"flush {self.nbytes}")
        self.cuda.time.now += 5


def test_events_are_around_the_call_and_behind_the_flush():
    fake = FakeCuda()
    clock = timing.Events(fake, flush_bytes=4096)

    def call():
        fake.log.append("call")
        fake.time.now += 0.25

    assert clock.seconds(call) == pytest.approx(0.25)
    assert fake.log == ["flush 4096", "event", "call", "event", "wait"]
    fake.log.clear()
    assert timing.warm(clock, call) == pytest.approx(0.25)
    assert fake.log[: timing.WARM_CALLS + 3] == ["event", *["call"] * timing.WARM_CALLS, "event", "wait"]


def test_calls_take_turns():
    order = []
    timings = timing.in_turn(Clock(), [lambda i=i: order.append(i) for i in range(3)], limit=1.0, rounds=3)
    assert order == [0, 1, 2, 2, 0, 1, 1, 2, 0]
    assert [t.samples.size for t in timings] == [3, 3, 3]


@pytest.mark.parametrize(("step", "rounds"), [(0.0, timing.ROUNDS), (0.1, 15), (10.0, timing.LEAST_ROUNDS)])
def test_a_case_ends_with_its_time(step, rounds):
    (samples,) = timing.in_turn(Clock(), [lambda: None], limit=1.0, now=Time(step))
    assert abs(samples.samples.size - rounds) <= 1


def test_statistics():
    ours, other = (
        timing.measure.Timing(np.array([1.0, 2.0, 4.0, 1.0])),
        timing.measure.Timing(np.array([3.0, 6, 12, 3])),
    )
    assert other.ratio_to(ours) == (3.0, 3.0, 3.0)
    assert timing.spread(ours) == pytest.approx(1.5 / 1.5)
    peer = records._peer(case_of("scatter"), "torch index_add_", ours, other, None)
    assert (peer["ratio"], peer["target"], peer["reached"]) == (3.0, 2.0, True)
    peer = records._peer(case_of("scatter"), "torch index_add_", other, ours, None)
    assert (peer["ratio"], peer["reached"]) == (pytest.approx(1 / 3), False)
    assert records._peer(case_of("gather"), "torch index_select", ours, other, None)["target"] is None
    assert records._peer(case_of("scatter"), "cupyx.scatter_add", ours, other, None)["target"] is None


def test_seconds_of_the_host_are_those_of_a_call():
    now = Time()

    def call():
        now.now += 0.5

    class Waits(Clock):
        def synchronize(self):
            now.now += 100

    assert timing.host_seconds(Waits(), call, now=now) == 0.5


def test_copy_bandwidth_counts_both_ways():
    class Fixed(Clock):
        def seconds(self, call, **_options):
            call()
            return 0.5

    assert timing.copy_bandwidth(Fixed(), np, nbytes=1000) == 2 * 1000 / 0.5


def test_shares_of_copy(monkeypatch):
    monkeypatch.setattr(records, "OF_COPY_FROM", 0)
    case = case_of("gather", stream="one row")
    algorithmic, distinct = problems.moved(case)
    for bandwidth, reached in ((algorithmic / 0.00102 / 0.95, True), (algorithmic / 0.00102 / 0.8, False)):
        record = records.of_case(case, ON_CPU, Clock(), bandwidth, 0.1)
        assert record["of_copy"] == pytest.approx(algorithmic / record["us"] * 1e6 / bandwidth)
        assert record["of_copy_distinct"] == pytest.approx(distinct / record["us"] * 1e6 / bandwidth)
        assert record["reached"] is reached
    monkeypatch.undo()
    assert records.of_case(case, ON_CPU, Clock(), 1e9, 0.1)["target"] is None  # too short to be a matter of bandwidth
