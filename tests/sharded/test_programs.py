"""The example and the benchmark, under mpiexec, and the benchmark's model."""

import json

import numpy as np
import pytest
from sharded.launch import ROOT, mpiexec

from benches.sharded import model

PHASES = {"dedup", "exchange", "gather", "expand"}


def test_the_example_learns_and_goes_on(tmp_path):
    common = ["-m", "fastemb.examples.sharded_training", "--rows", 300, "--width", 8, "--batch", 200, "--hot", 5]
    losses = []
    for ranks, steps in ((2, 20), (3, 40)):
        done = mpiexec(ranks, *common, "--steps", steps, "--folder", tmp_path / "checkpoint")
        assert done.returncode == 0, done.stdout
        first, *lines = done.stdout.splitlines()
        assert first == f"300 rows on {ranks} ranks, 5 on all; from step {steps - 20}"
        assert [line.split()[1] for line in lines] == [str(steps - 10), str(steps)]
        losses += [float(line.split()[3]) for line in lines]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 2


def test_an_error_of_the_example_ends_all_ranks():
    done = mpiexec(2, "-m", "fastemb.examples.sharded_training", "--rows", 0)
    assert done.returncode != 0
    assert "num_embeddings must be >= 1, got 0" in done.stdout


def test_the_benchmark(tmp_path):
    sizes = ["--rows", 3000, "--width", 8, "--ids", 400, "--rounds", 2, "--hot", 50, "--ranks", 10]
    done = mpiexec(2, "-m", "benches.sharded", *sizes, "--output", tmp_path, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stdout
    assert "Lookup over ranks (N 3,000, D 8, L 400 on each rank, float32)" in done.stdout
    assert "within a factor of" in done.stdout
    assert (tmp_path / "sharded.png").read_bytes().startswith(b"\x89PNG")
    written = json.loads((tmp_path / "sharded.json").read_text())
    ways = [(r["ranks"], r["stream"], r["way"]) for r in written["records"]]
    streams, kinds = ("zipf", "uniform"), ("dedup", "no dedup", "hot rows")
    assert ways == [(n, stream, kind) for n in (1, 2) for stream in streams for kind in kinds]
    for record in written["records"]:
        counts = 8 * (record["ranks"] - 1)
        assert record["seconds"] > 0
        assert set(record["model"] or PHASES) == PHASES
        if record["way"] == "no dedup":
            assert record["sent_bytes"] >= record["least_bytes"] + counts
        else:
            assert record["sent_bytes"] == record["least_bytes"] + counts
        assert (record["least_bytes"] > 0) == (record["ranks"] > 1)
    assert {r["ranks"] for r in written["extrapolated"]} == {1, 3, 10}


MACHINE = model.Machine(latency=1e-6, bandwidth=1e9, dedup=1e-8, gather=1e-10, expand=2e-10, cores=2)


def test_the_model_by_hand():
    lookup = model.Lookup(ids=1000, distinct=800, row_bytes=512, hot=100)
    alone, four = model.seconds(MACHINE, lookup, 1), model.seconds(MACHINE, lookup, 4)
    expected = {"dedup": 1e-5, "exchange": 0, "gather": 800 * 512e-10, "expand": 1000 * 1024e-10}
    assert alone == pytest.approx(expected, rel=1e-12)
    travels = 700 * 3 / 4 * 520 + 8 * 4 * 2 / 2
    expected = {name: 2 * expected[name] for name in expected} | {"exchange": 10e-6 + 2 * travels / 1e9}
    assert four == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("num_rows", "ids"), [(1, 5), (10, 30), (1000, 300), (50_000, 2000)])
@pytest.mark.parametrize("exponent", [0.0, 1.05])
def test_expected_distinct_rows(num_rows, ids, exponent):
    chances = np.arange(1, num_rows + 1.0) ** -exponent
    chances /= chances.sum()
    exact = (1 - (1 - chances) ** ids).sum()
    assert model.distinct(num_rows, ids, exponent) == pytest.approx(exact, rel=0.01)


def test_many_more_rows_than_ids():
    assert model.distinct(10**10, 65_536, 0.0) == pytest.approx(65_536, rel=1e-3)
    assert 20_000 < model.distinct(10**10, 65_536, 1.05) < 50_000
