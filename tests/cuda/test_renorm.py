"""Shrinking of rows on the device, run in the emulator."""

import numpy as np
import pytest

from fastemb.kernels import reference
from fastemb.kernels.cuda import check, launch
from fastemb.kernels.cuda.renorm import renorm, renorm_range

from . import launched
from .launched import emulated as emulated

WIDTHS = [1, 2, 3, 4, 8, 31, 33, 64, 257]
NORMS = [0.5, 1.0, 2.0, 3.0, np.inf]
NEAR = {"float16": 1e-3, "float32": 2e-7, "float64": 1e-12}

pytestmark = pytest.mark.usefixtures("emulated")


def problem(rng, width, dtype, num_rows=25, p=2.0):
    """A table, some of its rows in no order, and a limit that half of these are beyond."""
    weight = (rng.standard_normal((num_rows, width)) * np.geomspace(0.1, 10, num_rows)[:, np.newaxis]).astype(dtype)
    norms = np.abs(weight.astype(np.float64)).max(axis=1) * (1 if np.isinf(p) else width ** (1 / p))
    return weight, rng.permutation(num_rows)[: num_rows - 6], float(np.median(norms) / 2)


def compare(weight, rows, max_norm, p):
    """The table afterwards, once it has been compared with the reference."""
    given, before, expected = weight.copy(), rows.copy(), weight.copy()
    assert renorm(given, rows, max_norm, p) == reference.renorm(expected, rows, max_norm, p) == -1
    np.testing.assert_allclose(given, expected, rtol=NEAR[weight.dtype.name])
    same = (expected == weight).all(axis=1)
    assert 0 < same.sum() < len(weight)
    assert given[same].tobytes() == weight[same].tobytes()
    assert rows.tobytes() == before.tobytes()
    return given


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("p", NORMS)
def test_is_the_reference(rng, width, dtype, p):
    compare(*problem(rng, width, dtype, p=p), p)


@pytest.mark.parametrize("width", [3, 8, 33, 257])
@pytest.mark.parametrize("p", [1.0, 3.0])
def test_same_bits_for_any_grid_and_order_of_threads(rng, width, p, monkeypatch):
    weight, rows, max_norm = problem(rng, width, np.float32, num_rows=70, p=p)
    results = set()
    for seed, (threads, blocks) in enumerate([(256, 2048), (32, 1), (64, 3), (96, 2)]):
        monkeypatch.setattr(launch, "THREADS", threads)
        monkeypatch.setattr(launch, "MOST_BLOCKS", blocks)
        monkeypatch.setattr(launched.emulator, "seed", seed)
        results.add(compare(weight, rows.astype(np.int32 if seed % 2 else np.int64), max_norm, p).tobytes())
    assert len(results) == 1


@pytest.mark.parametrize("count", [0, 1, 31, 33, 300])
def test_numbers_of_rows(rng, count):
    weight = rng.standard_normal((400, 4))
    expected, rows = weight.copy(), rng.permutation(400)[:count]
    assert renorm(weight, rows, 1.0, 2.0) == reference.renorm(expected, rows, 1.0, 2.0) == -1
    np.testing.assert_allclose(weight, expected, rtol=1e-12)


@pytest.mark.parametrize("offset", [1, 2, 3])
@pytest.mark.parametrize("dtype", NEAR)
def test_tables_that_begin_anywhere(rng, offset, dtype):
    """The width of an access follows the address: the emulator stops at a misaligned one."""
    weight, rows, max_norm = problem(rng, 16, dtype)
    memory = np.full(weight.size + 2 * offset, np.nan, dtype)
    table = memory[offset:-offset].reshape(weight.shape)
    table[...] = weight
    expected = weight.copy()
    assert renorm(table, rows, max_norm, 2.0) == reference.renorm(expected, rows, max_norm, 2.0) == -1
    np.testing.assert_allclose(table, expected, rtol=NEAR[dtype])
    assert np.isnan(memory[[*range(offset), *range(-offset, 0)]]).all()


@pytest.mark.parametrize(
    ("row", "max_norm", "p", "norm"),
    [
        ([3e200, 4e200], 5.0, 2.0, 5e200),
        ([1e308, 1e308], 5.0, 2.0, np.sqrt(2) * 1e308),
        ([3e-200, 4e-200], 1e-201, 2.0, 5e-200),
        ([3e-160, 4e-160], 1e-161, 2.0, 5e-160),
        ([3e-310, 4e-310], 1e-311, 2.0, 5e-310),
        ([5e-4, 5e-4], 1e-5, 100.0, 5e-4 * 2**0.01),
        ([0.5, 0.5, 0.5, 0.5], 0.1, 1e308, 0.5),
        ([1.0, 0.5], 0.1, 1e308, 1.0),
        ([30.0, 40.0], 5.0, 300.0, 40.0),
    ],
)
def test_norms_whose_powers_leave_the_range_of_floats(row, max_norm, p, norm):
    weight = np.array([row, row])
    assert renorm(weight, np.array([1]), max_norm, p) == -1
    assert weight[0].tolist() == row
    np.testing.assert_allclose(weight[1], np.array(row) * (max_norm / (norm + 1e-7)), rtol=1e-12)


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("dtype", NEAR)
def test_nan_zero_and_infinity(p, dtype):
    weight = np.zeros((6, 5), dtype)
    weight[0, 3], weight[1, :2], weight[2, 4], weight[3] = np.nan, (np.inf, np.nan), np.inf, -0.0
    weight[4, 1], weight[5, 4] = -9, 3
    expected, before = weight.copy(), weight.copy()
    for kernel, table in ((reference.renorm, expected), (renorm, weight)):
        kernel(table, np.arange(6), 3.0, p)
    np.testing.assert_allclose(weight, expected, rtol=NEAR[dtype])
    for row in (0, 1, 3, 5):
        assert weight[row].tobytes() == before[row].tobytes()
    assert np.isnan(weight[2, 4])  # inf times 0


def test_norms_of_half_width_rows_are_not_half_width():
    weight = np.full((2, 4096), 30.0, np.float16)  # 4096 * 900 is beyond float16
    assert renorm(weight, np.array([1]), 192.0, 2.0) == -1
    assert (weight[0] == 30).all()
    assert (weight[1] == np.float16(192.0 / 64)).all()


def test_limits_at_the_ends():
    weight = np.ones((2, 3))
    assert renorm(weight, np.array([0]), np.inf, 2.0) == -1
    assert (weight == 1).all()
    assert renorm(weight, np.array([0]), 0.0, 2.0) == -1
    assert weight.tolist() == [[0, 0, 0], [1, 1, 1]]
    assert renorm(np.ones((3, 0)), np.arange(3), 0.0, 2.0) == -1


@pytest.mark.parametrize("bad", [-1, 25, 2**40, -(2**63)])
def test_a_bad_row_changes_nothing(rng, bad):
    weight, rows, _ = problem(rng, 8, np.float32)
    rows[[5, 12]] = bad
    before = weight.tobytes()
    assert renorm(weight, rows, 0.0, 2.0) == 5
    with check.mode("later") as answers:
        assert renorm(weight, rows, 0.0, 2.0) == -1
    assert answers.first_bad()[0] is rows
    assert weight.tobytes() == before


def test_a_part_of_the_rows(rng):
    weight, rows, _ = problem(rng, 8, np.float32)
    before = weight.copy()
    rows[3] = 99
    assert renorm_range(weight, rows, 0.0, 2.0, 5, 9) == -1
    assert set(np.flatnonzero((weight != before).any(axis=1))) == set(rows[5:9])
    assert (weight[rows[5:9]] == 0).all()
    assert renorm_range(weight, rows, 0.0, 2.0, 2, 9) == 3
