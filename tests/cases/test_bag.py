"""Pooled lookup: what went wrong in other libraries."""

import numpy as np
import pytest
from strategies import FLOATS, exactly, out_of_range, same_bits

import fastemb

MODES = ["sum", "mean", "sqrtn", "max"]


@pytest.mark.parametrize("mode", MODES)
def test_an_index_out_of_range_is_found_by_the_lookup(mode):
    """https://github.com/pytorch/pytorch/issues/70170: the lookup took id N, and the gradient crashed."""
    table = np.ones((3, 2), np.float32)
    with pytest.raises(IndexError, match=out_of_range(3, 0, 100, 2)):
        fastemb.embedding_bag(table, [0, 2, 100, 2], [0], mode=mode)
    with pytest.raises(IndexError, match=out_of_range(3, 0, 3, 1)):
        fastemb.embedding_bag_grad(table, [0, 3], [0], np.ones((1, 2), np.float32), mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_halves_are_widened_before_they_are_added(mode):
    """https://github.com/meta-pytorch/torchrec/pull/3730: two rows met in float16 before the float32 sum."""
    table = np.array([[2048.0], [1.0]], np.float16)  # 2048 + 1 is not a float16
    expected = {"sum": 2050, "mean": 2050 / 3, "sqrtn": 2050 / 3**0.5, "max": 2048}[mode]
    assert fastemb.embedding_bag(table, [[0, 1, 1]], mode=mode)[0, 0] == np.float16(expected)


def test_offsets_are_checked_in_the_middle():
    """https://github.com/pytorch/pytorch/issues/175368, /55549: the first and the last alone were looked at."""
    with pytest.raises(ValueError, match=exactly("offsets must not decrease, got 0 after 2 at position 2")):
        fastemb.embedding_bag(np.ones((10, 5)), [], [0, 2, 0])
    with pytest.raises(ValueError, match=exactly("offsets must not decrease, got 1 after 99 at position 2")):
        fastemb.embedding_bag(np.ones((10, 5)), [1, 2, 3], [0, 99, 1])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_no_bags(mode, dtype):
    """https://github.com/pytorch/pytorch/pull/187104, /175487: a crash for float64 and for max, none for float32."""
    table = np.zeros((1, 10), dtype)
    with pytest.raises(ValueError, match=exactly("offsets must not be empty with 6 indices")):
        fastemb.embedding_bag(table, np.zeros(6, int), np.empty(0, int), mode=mode)
    empty = np.empty(0, int)
    assert fastemb.embedding_bag(table, empty, empty, mode=mode).shape == (0, 10)
    gradient = fastemb.embedding_bag_grad(table, empty, empty, np.empty((0, 10), np.float16), mode=mode)
    assert gradient.values.shape == (0, 10)


@pytest.mark.parametrize("mode", MODES)
def test_padding_is_no_part_of_a_bag(mode):
    """https://github.com/pytorch/pytorch/issues/3194, /47858, /56064: it skewed the mean; what of a bag of it alone?"""
    table = np.array([[9.0], [7.0], [-4.0]])
    assert fastemb.embedding_bag(table, [1], [0], mode=mode, padding_idx=1).tolist() == [[0]]
    expected = {"sum": -8, "mean": -4, "sqrtn": -8 / 2**0.5, "max": -4}[mode]
    assert fastemb.embedding_bag(table, [0, 2, 2], [0], mode=mode, padding_idx=0).tolist() == [[expected]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", ["contiguous", "strided"])
def test_padding_float64_and_strides_compute_the_same(rng, mode, dtype, columns):
    """EmbeddingBag.cpp of PyTorch at 00cdde88: each of the three leaves the vectorised kernel for another one."""
    table = rng.integers(-9, 10, (50, 6)).astype(dtype)
    ids = rng.integers(1, 50, (20, 7))
    given = table if columns == "contiguous" else np.repeat(table, 2, axis=1)[:, ::2]
    plain = fastemb.embedding_bag(table.astype(np.float64), ids, mode=mode)
    np.testing.assert_allclose(fastemb.embedding_bag(given, ids, mode=mode, padding_idx=0), plain, rtol=1e-6)
    padded = np.where(np.arange(14) % 2 == 1, np.repeat(ids, 2, axis=1), 0)
    assert same_bits(
        fastemb.embedding_bag(given, padded, mode=mode, padding_idx=0), fastemb.embedding_bag(table, ids, mode=mode)
    )


def test_the_last_row_of_a_huge_table_wins():
    """https://github.com/pytorch/pytorch/issues/188467: sizes counted in the width of the ids, the row got nothing."""
    row = np.arange(2**16, dtype=np.float32)
    table = np.broadcast_to(row, (2**15 + 1, 2**16))
    ids = np.array([2**15], np.int32)
    gradient = fastemb.embedding_bag_grad(table, ids, [0], np.ones((1, 2**16), np.float32), mode="max")
    assert gradient.rows.tolist() == [2**15]
    assert (gradient.values == 1).all()
    for mode in MODES:
        assert np.array_equal(fastemb.embedding_bag(table, ids, [0], mode=mode)[0], row)


@pytest.mark.parametrize("weights", [[1.0, -1.0], [0.0, 0.0]])
def test_weights_that_sum_to_zero(weights):
    """https://github.com/tensorflow/tensorflow/issues/36359, /14851: NaN. Zeros here, by definition."""
    table = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert fastemb.embedding_bag(table, [[0, 1]], per_sample_weights=[weights]).tolist() == [[0, 0]]
    if not any(weights):
        assert fastemb.embedding_bag(table, [[0, 1]], mode="sqrtn", per_sample_weights=[weights]).tolist() == [[0, 0]]


def test_empty_bags_anywhere():
    """https://github.com/snorkel-team/snorkel/issues/554: an empty sparse row ended the training."""
    table = np.arange(4.0).reshape(4, 1)
    out = fastemb.embedding_bag(table, [1, 2, 3], [0, 0, 1, 1, 3, 3], mode="sum")
    assert out.ravel().tolist() == [0, 1, 0, 5, 0, 0]


@pytest.mark.parametrize("mode", MODES[:3])
def test_weights_of_any_mode_and_of_a_narrower_dtype(mode):
    """check_arguments of PyTorch's EmbeddingBag.cpp: weights in sum alone, 1-D, of the dtype of the table."""
    table = np.array([[2.0], [4.0]], np.float32)
    expected = {"sum": 14, "mean": 3.5, "sqrtn": 14 / 10**0.5}[mode]
    for dtype in (np.float16, np.float32, np.int8):
        out = fastemb.embedding_bag(table, [[0, 1]], mode=mode, per_sample_weights=np.array([[1, 3]], dtype))
        assert out.dtype == np.float32
        np.testing.assert_allclose(out, [[expected]], rtol=1e-6)
    refused = "per_sample_weights must be real numbers that cast safely to float32, got float64; "
    with pytest.raises(
        TypeError, match=exactly(refused + "convert it yourself: per_sample_weights.astype(np.float32)")
    ):
        fastemb.embedding_bag(table, [[0, 1]], mode=mode, per_sample_weights=np.array([[1.0, 3.0]]))
