"""Gradients of a lookup: row-sparse, exact, with duplicates summed first."""

import tracemalloc

import numpy as np
import pytest
from strategies import exactly, unchanged

import fastemb
from fastemb.kernels import SUM_BLOCK


def dense_grad(ids, grad, num_rows):
    wanted = np.zeros((num_rows, grad.shape[-1]), grad.dtype)
    np.add.at(wanted, ids, grad)
    return wanted


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_only_the_touched_rows_exist(dtype):
    """Mitchell-Mirano/sorix nn/layers.py at da8ff9b9: zeros of the whole table and add.at at every step."""
    ids, grad = np.array([[4, 0], [4, 1]]), np.arange(12, dtype=dtype).reshape(2, 2, 3)
    with unchanged(ids, grad):
        result = fastemb.embedding_grad(ids, grad, 5)
    assert result.shape == (5, 3)
    assert (result.rows.tolist(), result.rows.dtype) == ([0, 1, 4], np.int64)
    assert (result.values.tolist(), result.values.dtype) == ([[3, 4, 5], [9, 10, 11], [6, 8, 10]], dtype)


def test_nothing_densifies_on_its_own():
    """https://github.com/tensorflow/tensorflow/issues/23558, https://github.com/tensorflow/privacy/issues/126.

    A sparse gradient silently became a dense one of 163,617,900 elements.
    """
    num_rows, ids, grad = 163_617_900 // 300, np.array([7, 545_392, 7]), np.ones((3, 300), np.float32)
    fastemb.embedding_grad(ids, grad, num_rows)  # compiles
    tracemalloc.start()
    try:
        result = fastemb.embedding_grad(ids, grad, num_rows)
        doubled = result + result
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000
    assert result.shape == (num_rows, 300)
    assert np.array_equal(doubled.values, np.repeat([[4.0], [2.0]], 300, axis=1))
    refused = "a RowGrad of shape (545393, 300) does not become a dense array on its own; call to_dense()"
    with pytest.raises(TypeError, match=exactly(refused)):
        np.asarray(result)
    with pytest.raises(TypeError):
        np.zeros((num_rows, 1)) + result


def test_dense_on_request():
    """https://github.com/tensorflow/tensorflow/issues/23558: the explicit way."""
    result = fastemb.RowGrad([1, 3], [[1.0], [2.0]], 5)
    assert result.to_dense().tolist() == [[0], [1], [0], [2], [0]]


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_micro_batches_add_up(index_type):
    """https://github.com/openxla/xla/issues/49143: merged gradients of two micro-batches, 109,628 wrong elements."""
    rng = np.random.default_rng(0)
    layer = fastemb.Embedding(1000, 256, init="zeros")
    ids = rng.integers(0, 1000, (2, 96, 35)).astype(index_type)
    dy = rng.integers(-4, 5, (2, 96, 35, 256)).astype(np.float32)
    with unchanged(ids, dy):
        for i, g in zip(ids, dy, strict=True):
            layer.backward(i, g)
    assert np.array_equal(layer.grad.to_dense(), dense_grad(ids, dy, 1000))


def test_a_long_run_is_summed_in_two_levels():
    """https://github.com/pytorch/pytorch/pull/22016: one flat sum over 100k rows was slow and inaccurate."""
    length, width = 100 * SUM_BLOCK, 8
    grad = np.random.default_rng(0).random((length, width), np.float32)
    result = fastemb.embedding_grad(np.full(length, 2), grad, 3).values[0]
    blocks = np.add.accumulate(grad.reshape(-1, SUM_BLOCK, width), axis=1)[:, -1]  # accumulate: one by one, in order
    assert np.array_equal(result, np.add.accumulate(blocks)[-1])
    true = grad.sum(axis=0, dtype=np.float64)
    flat = np.add.accumulate(grad)[-1]
    assert np.abs(result - true).max() < np.abs(flat - true).max() / 10


SCALED = {
    "twice": ([1, 1], [[1.0], [1.0]], [1], [[1.0]]),
    "four_times": ([1, 1, 1, 1], [[1.0], [2.0], [3.0], [6.0]], [1], [[3.0]]),
    "mixed": ([[2, 0], [2, 1]], [[[2.0], [5.0]], [[4.0], [7.0]]], [0, 1, 2], [[5.0], [7.0], [3.0]]),
}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("ids", "grad", "rows", "values"), SCALED.values(), ids=SCALED.keys())
def test_scale_grad_by_freq(ids, grad, rows, values, dtype):
    """https://github.com/pytorch/pytorch/issues/190061: the flag was accepted and ignored: 2, not 1.

    https://github.com/pytorch/pytorch/issues/84491: the division is by the count, not by its root.
    """
    grad, ids = np.array(grad, dtype), np.array(ids)
    result = fastemb.embedding_grad(ids, grad, 3, scale_grad_by_freq=True)
    assert (result.rows.tolist(), result.values.tolist()) == (rows, values)

    layer = fastemb.Embedding(3, 1, init="zeros", dtype=dtype, scale_grad_by_freq=True)
    layer.backward(ids, grad)
    assert (layer.grad.rows.tolist(), layer.grad.values.tolist()) == (rows, values)

    weight, sgd = np.zeros((3, 1), dtype), fastemb.optim.SGD(lr=1.0)
    sgd.step(weight, sgd.init(weight), ids, grad, scale_grad_by_freq=True)
    assert np.array_equal(weight, -result.to_dense())


def test_half_width_duplicates_are_summed_in_float32():
    """https://github.com/pytorch/pytorch/pull/36786: finite halves, 40000 twice, overflowed once they were summed."""
    ids, grad = np.array([3, 3]), np.full((2, 1), 40_000, np.float16)
    result = fastemb.embedding_grad(ids, grad, 5)
    assert (result.values.tolist(), result.values.dtype) == ([[80_000]], np.float32)
    layer = fastemb.Embedding(5, 1, dtype=np.float16)
    layer.backward(ids, grad)
    assert (layer.grad.values.tolist(), layer.grad.values.dtype) == ([[80_000]], np.float32)


def test_overflow_shows_after_the_sum():
    """https://github.com/pytorch/pytorch/pull/36786: the test for inf has to look at summed rows."""
    grad = np.array([[3e38], [3e38], [1]], np.float32)
    result = fastemb.embedding_grad([3, 3, 0], grad, 5)
    assert np.isfinite(grad).all()
    assert result.values.tolist() == [[1], [np.inf]]
    assert result.norm() == np.inf


def test_clipping_sees_summed_rows():
    """https://github.com/pytorch/tutorials/issues/2245, https://github.com/amzn/pecos/pull/288: clipping was skipped.

    The norm of the rows of [3, 3] summed, 10, is not that of the rows apart.
    """
    grad = np.array([[3.0, 4.0], [3.0, 4.0]], np.float32)
    result = fastemb.embedding_grad([3, 3], grad, 5)
    with unchanged(grad, result.values):
        assert result.norm() == 10.0
        assert result.clip_norm_(10.0) == 10.0  # at the limit: no bit changes
    with unchanged(grad):
        assert result.clip_norm_(5.0) == 10.0
    assert result.values.tolist() == [[3, 4]]
