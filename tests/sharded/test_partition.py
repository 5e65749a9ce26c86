"""Partitions: which rank owns which row."""

import subprocess
import sys

import numpy as np
import pytest

from fastemb.sharded.partition import PARTITIONS, Partition


def make(kind, num_rows, size, hot=()):
    return Partition(kind, num_rows, size, np.array(hot, np.int64))


@pytest.mark.parametrize("num_rows", [1, 2, 3, 7, 64, 100, 1023])
@pytest.mark.parametrize("kind", PARTITIONS)
def test_places_are_a_permutation(kind, num_rows):
    hot = np.random.default_rng(0).permutation(num_rows)[:5] if kind == "replicate-hot" else []
    part = make(kind, num_rows, 3, hot)
    ids = np.arange(num_rows)
    places = part.places(ids)
    np.testing.assert_array_equal(np.sort(places), ids)
    np.testing.assert_array_equal(part.ids(places), ids)
    np.testing.assert_array_equal(part.places(part.ids(ids)), ids)
    assert set(places[hot]) == set(range(num_rows - len(hot), num_rows))
    assert (part.bounds[0], part.bounds[-1], part.cold) == (0, part.cold, num_rows - len(hot))
    assert np.ptp(np.diff(part.bounds)) <= 1
    assert kind != "range" or np.array_equal(places, ids)


@pytest.mark.parametrize("kind", PARTITIONS)
def test_places_do_not_depend_on_the_number_of_ranks(kind):
    hot = [1, 5] if kind == "replicate-hot" else []
    ids = np.arange(50)
    expected = make(kind, 50, 1, hot).places(ids)
    for size in (2, 3, 64):
        np.testing.assert_array_equal(make(kind, 50, size, hot).places(ids), expected)


def test_hot_rows_do_not_move_others_past_each_other():
    ids = np.arange(1000)
    plain, hot = make("hash", 1000, 4), make("replicate-hot", 1000, 4, [3, 700])
    rest = np.delete(ids, [3, 700])
    np.testing.assert_array_equal(np.argsort(plain.places(rest)), np.argsort(hot.places(rest)))
    np.testing.assert_array_equal(hot.permuted_of(hot.places(ids)), plain.places(ids))


@pytest.mark.parametrize("num_rows", [10**6, 2**31 + 11, 10**12 + 7, 2**62 + 5])
@pytest.mark.parametrize("stride", [1, 64, 1000, 4096])
def test_the_hash_spreads_patterns(num_rows, stride):
    part = make("hash", num_rows, 8)
    ids = np.arange(4000) * min(stride, num_rows // 4000)
    places = part.places(ids)
    np.testing.assert_array_equal(part.ids(places), ids)
    counts = part.counts(np.sort(places))
    assert counts.sum() == 4000
    assert np.abs(counts - 500).max() < 5 * np.sqrt(500)


def test_counts():
    part = make("range", 10, 4)
    np.testing.assert_array_equal(part.bounds, [0, 2, 5, 7, 10])
    np.testing.assert_array_equal(part.counts(np.array([0, 1, 2, 6, 9, 9])), [2, 1, 1, 2])
    np.testing.assert_array_equal(part.counts(np.array([], np.int64)), [0, 0, 0, 0])


def test_ids_keep_their_shape_and_their_array():
    part = make("hash", 100, 2)
    for ids in (np.array(7), np.array([[1, 2], [3, 4]], np.uint8), np.empty((0, 3), np.int64)):
        before = ids.copy()
        assert part.places(ids).shape == ids.shape
        assert part.places(ids).dtype == np.int64
        np.testing.assert_array_equal(ids, before)


def test_without_mpi4py():
    code = "import sys; sys.modules['mpi4py'] = None; import fastemb.sharded as s; s.ShardedEmbedding(3, 2, comm=None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    expected = "ImportError: fastemb.sharded needs the package mpi4py and an MPI: pip install fastemb[mpi]"
    assert done.stderr.splitlines()[-1] == expected


def test_importing_starts_no_mpi():
    code = "import sys, fastemb.sharded; assert 'mpi4py' not in sys.modules; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True)
