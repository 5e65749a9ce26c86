"""The gradient that holds the touched rows alone."""

import pickle
import re

import numpy as np
import pytest
from strategies import BFLOAT16, unchanged

import fastemb
from fastemb import RowGrad


def test_dense_form(rng):
    values = rng.standard_normal((3, 4))
    gradient = RowGrad([1, 3, 8], values, 10)
    assert gradient.shape == (10, 4)
    dense = gradient.to_dense()
    assert np.array_equal(dense[[1, 3, 8]], values)
    assert not np.delete(dense, [1, 3, 8], axis=0).any()


def test_owns_what_it_holds():
    rows, values = np.array([0, 2]), np.ones((2, 2))
    gradient = RowGrad(rows, values, 3)
    with unchanged(rows, values):
        gradient.values[:] = 7
    rows[:] = values[:] = 1
    assert gradient.rows.tolist() == [0, 2]
    assert (gradient.values == 7).all()


def test_its_rows_stay_what_they_are():
    gradients = RowGrad([0, 2], np.ones((2, 2)), 3), fastemb.embedding_grad([0, 2], np.ones((2, 2)), 3)
    for gradient in (*gradients, gradients[0] + gradients[1]):
        with pytest.raises(ValueError, match="read-only"):
            gradient.rows[0] = 1
        for name in ("rows", "values", "num_rows"):
            with pytest.raises(AttributeError):
                setattr(gradient, name, 0)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(protocol):
    gradient = RowGrad([0, 2], [[1.5, 2.0], [0.0, -1.0]], 3)
    other = pickle.loads(pickle.dumps(gradient, protocol))
    assert np.array_equal(other.to_dense(), gradient.to_dense())
    assert other.shape == gradient.shape


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [(np.float16, "f4"), (BFLOAT16, "f4"), (np.float32, "f4"), (np.float64, "f8"), (np.int64, "f8"), (">f4", "f4")],
    ids=str,
)
def test_dtypes(dtype, wanted):
    gradient = RowGrad(np.array([1], np.uint8), np.ones((1, 2)).astype(dtype), 3)
    assert gradient.values.dtype == wanted
    assert gradient.values.dtype.isnative
    assert gradient.rows.dtype == np.int64


@pytest.mark.parametrize(
    ("rows", "values", "num_rows", "error", "text"),
    [
        ([2, 1], np.ones((2, 1)), 3, ValueError, "rows must be ascending and distinct, got 1 after 2 at position 1"),
        ([0, 1, 1], np.ones((3, 1)), 3, ValueError, "rows must be ascending and distinct, got 1 after 1 at position 2"),
        ([0, 3], np.ones((2, 1)), 3, ValueError, "rows must be in [0, 3), got values in [0, 3]"),
        ([-1, 0], np.ones((2, 1)), 3, ValueError, "rows must be in [0, 3), got values in [-1, 0]"),
        (np.array([2**64 - 1], np.uint64), np.ones((1, 1)), 3, ValueError, "rows must be in [0, 3)"),
        ([0], np.ones((2, 1)), 3, ValueError, "rows must have shape (U,) and values (U, D), got (1,) and (2, 1)"),
        ([0], np.ones(1), 3, ValueError, "rows must have shape (U,) and values (U, D), got (1,) and (1,)"),
        ([[0]], np.ones((1, 1)), 3, ValueError, "rows must have shape (U,) and values (U, D), got (1, 1) and (1, 1)"),
        ([0.0], np.ones((1, 1)), 3, TypeError, "rows must be integers, got float64"),
        ([True], np.ones((1, 1)), 3, TypeError, "rows must be integers, got bool"),
        ([0], np.ones((1, 1), complex), 3, TypeError, "values must be real numbers that cast safely to float64"),
        ([0], np.ones((1, 1), bool), 3, TypeError, "values must be real numbers that cast safely to float64"),
        ([0], np.ones((1, 1)), -1, ValueError, "num_rows must be >= 0, got -1"),
        ([0], np.ones((1, 1)), 2**63, ValueError, f"num_rows must be <= {2**63 - 1}, got {2**63}"),
        ([0], np.ones((1, 1)), 1.0, TypeError, "num_rows must be an integer, got 1.0"),
    ],
)
def test_what_it_refuses(rows, values, num_rows, error, text):
    with pytest.raises(error, match="^" + re.escape(text)):
        RowGrad(rows, values, num_rows)


def test_empty():
    gradient = RowGrad([], np.empty((0, 4), np.float32), 7)
    assert (gradient.shape, gradient.norm(), gradient.clip_norm_(0.0)) == ((7, 4), 0.0, 0.0)
    assert gradient.to_dense().shape == (7, 4)
    assert (gradient + gradient).rows.size == 0


def test_sum(rng):
    a = RowGrad([0, 2, 5], rng.integers(-9, 9, (3, 2)).astype(np.float32), 6)
    b = RowGrad([1, 2], rng.integers(-9, 9, (2, 2)).astype(np.float64), 6)
    with unchanged(a.values, b.values, a.rows, b.rows):
        total = a + b
    assert total.rows.tolist() == [0, 1, 2, 5]
    assert total.values.dtype == np.float64
    assert np.array_equal(total.to_dense(), a.to_dense() + b.to_dense())
    with pytest.raises(ValueError, match=r"one shape to be added, got \(6, 2\) and \(7, 2\)"):
        a + RowGrad([0], np.ones((1, 2)), 7)
    with pytest.raises(TypeError):
        a + 1


def test_norm():
    assert RowGrad([0, 1], [[3.0, 0.0], [0.0, 4.0]], 2).norm() == 5.0
    assert RowGrad([0], np.full((1, 4), 2.0**100, np.float32), 2).norm() == 2.0**101  # squares beyond float32
    assert RowGrad([0], [[3e300, 4e300]], 2).norm() == pytest.approx(5e300, rel=1e-15)  # and beyond float64
    assert RowGrad([0], [[3e-200, 4e-200]], 2).norm() == pytest.approx(5e-200, rel=1e-15)
    assert RowGrad([0], [[3e-160, 4e-160]], 2).norm() == pytest.approx(5e-160, rel=1e-15)
    assert np.isnan(RowGrad([0], [[np.nan, 1.0]], 2).norm())
    assert RowGrad([0], [[-np.inf, 1.0]], 2).norm() == np.inf


def test_clipping():
    gradient = RowGrad([0, 1], [[3.0, 0.0], [0.0, 4.0]], 2)
    with unchanged(gradient.values):
        assert gradient.clip_norm_(5.0) == 5.0
    assert gradient.clip_norm_(2.5) == 5.0
    assert gradient.values.tolist() == [[1.5, 0.0], [0.0, 2.0]]
    assert gradient.norm() == 2.5
    gradient.clip_norm_(0.0)
    assert not gradient.values.any()
    for bad in (np.nan, np.inf):
        gradient.values[:] = [[bad, 1.0], [0.0, 9.0]]
        with unchanged(gradient.values):
            assert not np.isfinite(gradient.clip_norm_(1.0))
    for limit in (-1.0, np.nan):
        with pytest.raises(ValueError, match=f"^max_norm must be >= 0, got {limit}$"):
            gradient.clip_norm_(limit)


def test_clipping_works_on_summed_rows():
    gradient = fastemb.embedding_grad([3, 3], np.array([[3.0], [1.0]]), 5)
    assert gradient.norm() == 4.0


def test_nothing_densifies_it_silently():
    gradient = RowGrad([0], np.ones((1, 2)), 2)
    with pytest.raises(TypeError, match="call to_dense"):
        np.asarray(gradient)
    with pytest.raises(TypeError):
        np.ones((2, 2)) + gradient
    assert repr(gradient) == "RowGrad(1 of 2 rows, width 2, float64)"
