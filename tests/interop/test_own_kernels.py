"""fastemb's kernels in a user's own compiled code: the examples of kernels/README.md, and what the contract says."""

import concurrent.futures
import itertools

import numba
import numpy as np
import pytest

from fastemb.kernels import cpu


@numba.njit(nogil=True)
def energy(rows, weight, indices):
    """The sum of squares of the rows that are looked up, some at a time; the first bad position, or -1, before it."""
    total = 0.0
    for start in range(0, indices.size, len(rows)):
        part = indices[start : start + len(rows)]
        bad = cpu.gather_range(rows, weight, part, 0, part.size)
        if bad >= 0:
            return start + bad, total
        for k in range(part.size):
            for j in range(rows.shape[1]):
                total += rows[k, j] ** 2
    return -1, total


@numba.njit(parallel=True)
def gather_in_parts(out, weight, indices, parts):
    """A lookup over threads; a part with a bad index is not written. The first bad position, or -1."""
    bad = np.empty(parts, np.int64)
    for c in numba.prange(parts):
        start, stop = indices.size * c // parts, indices.size * (c + 1) // parts
        bad[c] = cpu.gather_range(out, weight, indices, start, stop)
    for c in range(parts):
        if bad[c] >= 0:
            return bad[c]
    return -1


def problem(length=100, width=7):
    rng = np.random.default_rng(0)
    weight = rng.integers(-8, 8, (20, width)).astype(np.float64)
    return np.full((length, width), np.nan), weight, rng.integers(0, 20, length)


@pytest.mark.parametrize("some", [1, 32, 100, 1000])
def test_a_loop_over_parts(some):
    _, weight, indices = problem()
    before = weight.copy(), indices.copy()
    rows = np.full((some, 7), np.nan)
    assert energy(rows, weight, indices) == (-1, (weight[indices] ** 2).sum())
    np.testing.assert_array_equal(weight, before[0])
    np.testing.assert_array_equal(indices, before[1])
    for bad in (20, -1, 2**63 - 1, -(2**63)):
        indices[70] = bad
        rows[:] = np.nan
        position, total = energy(rows, weight, indices)
        start = 70 // some * some
        assert position == 70
        assert total == (weight[indices[:start]] ** 2).sum()
        assert np.isnan(rows).all() == (start == 0)
    assert energy(rows, weight, indices[:0]) == (-1, 0.0)


@pytest.mark.parametrize("parts", [1, 3, 8, 200])
def test_a_parallel_loop(parts):
    out, weight, indices = problem()
    assert gather_in_parts(out, weight, indices, parts) == -1
    np.testing.assert_array_equal(out, weight[indices])
    indices[[40, 95]] = 20, -1
    out[:] = np.nan
    assert gather_in_parts(out, weight, indices, parts) == 40
    written = ~np.isnan(out).any(axis=1)
    bounds = [100 * c // parts for c in range(parts + 1)]
    for start, stop in itertools.pairwise(bounds):
        part = range(start, stop)
        assert (written[start:stop] == (40 not in part and 95 not in part)).all()
    np.testing.assert_array_equal(out[written], weight[indices[written]])


def test_threads_of_the_user():
    out, weight, indices = problem(10_000)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        starts = range(0, 10_000, 1000)
        found = list(pool.map(lambda start: cpu.gather_range(out, weight, indices, start, start + 1000), starts))
    assert found == [-1] * 10
    np.testing.assert_array_equal(out, weight[indices])
