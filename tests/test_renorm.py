"""Shrinking of rows to a greatest norm."""

import numpy as np
import pytest
from strategies import BACKENDS, BFLOAT16, THREADS, in_parallel, same_bits, unchanged

import fastemb

NORMS = [0.5, 1.0, 1.5, 2.0, 3.0, np.inf]


def expected(weight, rows, max_norm, p):
    """Row by row in float64."""
    result = weight.astype(np.float64)
    for r in set(rows):
        row = result[r]
        norm = np.abs(row).max() if np.isinf(p) else (np.abs(row) ** p).sum() ** (1 / p)
        if norm > max_norm:
            result[r] = row * (max_norm / (norm + 1e-7))
    return result


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 3])
def test_shrinks_long_rows_once(rng, p, dtype, count):
    weight = (rng.standard_normal((30, 9)) * np.geomspace(0.01, 10, 30)[:, np.newaxis]).astype(dtype)
    indices = rng.integers(0, 25, (10, 8))
    before = weight.copy()
    with in_parallel(count), unchanged(indices):
        assert fastemb.renorm_(weight, indices, 1.5, p) is weight
    wanted = expected(before, indices.ravel().tolist(), 1.5, p)
    np.testing.assert_allclose(weight, wanted, rtol=1e-6 if dtype == "float32" else 1e-13)
    kept = (wanted == before).all(axis=1)
    assert 3 < kept.sum() < 27
    assert same_bits(weight[kept], before[kept])


@pytest.mark.parametrize("count", THREADS)
@pytest.mark.parametrize("p", NORMS)
def test_same_bits_for_any_number_of_threads(rng, count, p):
    weight = rng.standard_normal((500, 33), dtype=np.float32)
    one = weight.copy()
    with in_parallel(1):
        fastemb.renorm_(one, np.arange(500), 2.0, p)
    with in_parallel(count):
        fastemb.renorm_(weight, np.arange(500), 2.0, p)
    assert same_bits(weight, one)


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16], ids=str)
def test_norms_of_half_width_rows_are_not_half_width(dtype):
    weight = np.full((2, 4096), 30.0, dtype)  # 4096 * 900 is beyond float16
    fastemb.renorm_(weight, [1], 192.0)
    assert (weight[0] == 30).all()
    assert (weight[1] == np.asarray(192.0 / 64, dtype)).all()


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    ("row", "max_norm", "p", "norm"),
    [
        ([3e200, 4e200], 5.0, 2.0, 5e200),
        ([1e308, 1e308], 5.0, 2.0, np.sqrt(2) * 1e308),
        ([3e-200, 4e-200], 1e-201, 2.0, 5e-200),
        ([3e-160, 4e-160], 1e-161, 2.0, 5e-160),
        ([5e-4, 5e-4], 1e-5, 100.0, 5e-4 * 2**0.01),
        ([0.5, 0.5, 0.5, 0.5], 0.1, 1e308, 0.5),
        ([30.0, 40.0], 5.0, 300.0, 40.0),
    ],
)
def test_norms_whose_powers_leave_the_range_of_floats(name, row, max_norm, p, norm):
    weight = np.array([row, row])
    assert BACKENDS[name].renorm(weight, np.array([1]), max_norm, p) == -1
    assert weight[0].tolist() == row
    np.testing.assert_allclose(weight[1], np.array(row) * (max_norm / (norm + 1e-7)), rtol=1e-12)


@pytest.mark.parametrize("p", NORMS)
def test_rows_with_nan_are_left_alone_and_zero_rows_stay(p):
    weight = np.array([[np.nan, 5.0], [0.0, 0.0], [9.0, 0.0]])
    before = weight.copy()
    fastemb.renorm_(weight, [0, 1, 2], 3.0, p)
    assert same_bits(weight[:2], before[:2])
    np.testing.assert_allclose(weight[2], [3, 0], rtol=1e-6)


def test_limits_at_the_ends():
    weight = np.ones((2, 3))
    assert (fastemb.renorm_(weight, [0], np.inf) == 1).all()
    assert fastemb.renorm_(weight, [0], 0).tolist() == [[0, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_norm": -0.5}, "max_norm must be >= 0, got -0.5"),
        ({"max_norm": np.nan}, "max_norm must be >= 0, got nan"),
        ({"max_norm": 1, "norm_type": 0}, "norm_type must be > 0, got 0"),
        ({"max_norm": 1, "norm_type": -1}, "norm_type must be > 0, got -1"),
    ],
)
def test_options_out_of_range(options, text):
    weight = np.full((2, 2), 9.0)
    with unchanged(weight), pytest.raises(ValueError, match=f"^{text}$"):
        fastemb.renorm_(weight, [0], **options)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("count", [1, 3])
def test_a_bad_row_changes_nothing(name, count):
    weight = np.full((4, 2), 9.0)
    with in_parallel(count), unchanged(weight):
        assert BACKENDS[name].renorm(weight, np.array([0, 1, 4]), 1.0, 2.0) == 2
    with unchanged(weight), pytest.raises(IndexError):
        fastemb.renorm_(weight, [0, 4], 1.0)
