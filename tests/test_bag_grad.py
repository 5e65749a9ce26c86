"""Gradients of pooled lookups."""

import re

import numpy as np
import pytest
from strategies import (
    BACKENDS,
    BFLOAT16,
    FLOATS,
    THREADS,
    in_parallel,
    laid_out,
    out_of_range,
    same_bits,
    unchanged,
)

import fastemb
from fastemb._arrays import BLOCK
from fastemb.kernels import SUM_BLOCK, cpu, reference

MODES = ["sum", "mean", "sqrtn", "max"]
SUMS = MODES[:3]


def problem(rng, rows=30, bags=40, length=300):
    """(table, indices, bounds) of whole numbers: empty bags, repeated rows, rows that are not touched."""
    table = rng.integers(-9, 10, (rows, 5)).astype(np.float64)
    bounds = np.concatenate(([0, 0], np.sort(rng.integers(0, length + 1, bags - 2)), [length]))
    return table, rng.integers(0, rows - 3, length), bounds


def definition(table, indices, bounds, grad, mode, weights=None, padding=None, scale=False):
    """Dense gradient in float64, position by position."""
    dense = np.zeros(table.shape)
    weights = np.ones(len(indices)) if weights is None else weights.astype(float)
    counts = np.bincount(indices, minlength=len(table))
    for b in range(len(bounds) - 1):
        kept = [k for k in range(bounds[b], bounds[b + 1]) if indices[k] != padding]
        w = weights[kept]
        below = {"sum": 1.0, "max": 1.0, "mean": w.sum(), "sqrtn": np.sqrt((w**2).sum())}[mode]
        if not kept or below == 0:
            continue
        if mode == "max":
            for j in range(table.shape[1]):
                dense[indices[kept[int(np.argmax(table[indices[kept], j]))]], j] += grad[b, j]
            continue
        for k in kept:
            dense[indices[k]] += weights[k] / below * grad[b] / (counts[indices[k]] if scale else 1)
    return dense


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("padding", [None, 4, -27])
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("index_dtype", [np.int64, np.uint8])
def test_equals_the_definition(rng, mode, weighted, padding, scale, index_dtype):
    table, indices, bounds = problem(rng)
    grad = rng.integers(-8, 9, (len(bounds) - 1, 5)).astype(np.float64)
    weights = rng.integers(-2, 3, indices.size).astype(np.float64) if weighted else None
    options = {"mode": mode, "padding_idx": padding, "per_sample_weights": weights, "scale_grad_by_freq": scale}
    ids = indices.astype(index_dtype)
    if mode == "max" and (weighted or scale):
        with pytest.raises(ValueError, match="cannot be used with mode 'max'"):
            fastemb.embedding_bag_grad(table, ids, bounds[:-1], grad, **options)
        return
    expected = definition(table, indices, bounds, grad, mode, weights, None if padding is None else padding % 30, scale)
    with unchanged(table, ids, bounds, grad):
        result = fastemb.embedding_bag_grad(table, ids, bounds[:-1], grad, **options)
        again = fastemb.embedding_bag_grad(table, ids, bounds, grad, **options, include_last_offset=True)
    if mode in ("sum", "max") and not scale:
        assert np.array_equal(result.to_dense(), expected)
    np.testing.assert_allclose(result.to_dense(), expected, rtol=1e-12, atol=1e-12)
    assert same_bits(result.values, again.values)
    assert np.array_equal(result.rows, np.unique(result.rows))
    assert result.values.dtype == np.float64


@pytest.mark.parametrize("mode", SUMS)
def test_the_lookup_and_its_gradient_are_adjoint(rng, mode):
    """The lookup is linear in the table: <grad, bag(V)> = <dW, V> for every V, and likewise in the weights."""
    table, indices, bounds = problem(rng)
    grad = rng.standard_normal((len(bounds) - 1, 5))
    weights = rng.uniform(0.5, 2, indices.size)
    options = {"mode": mode, "per_sample_weights": weights, "padding_idx": 2}
    dense = fastemb.embedding_bag_grad(table, indices, bounds[:-1], grad, **options).to_dense()
    other = rng.standard_normal(table.shape)
    through = (fastemb.embedding_bag(other, indices, bounds[:-1], **options) * grad).sum()
    assert through == pytest.approx((dense * other).sum(), rel=1e-12)


def test_two_dimensional_indices(rng):
    table, grad = rng.integers(-9, 9, (6, 4)).astype(np.float32), rng.integers(-9, 9, (3, 4)).astype(np.float32)
    ids = np.array([[1, 5], [1, 1], [0, 5]])
    flat = fastemb.embedding_bag_grad(table, ids.ravel(), [0, 2, 4], grad, mode="sum")
    rows = fastemb.embedding_bag_grad(table, ids, None, grad, mode="sum")
    assert (rows.rows.tolist(), rows.values.tolist()) == (flat.rows.tolist(), flat.values.tolist())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weighted", [False, True])
def test_same_bits_for_any_number_of_threads(rng, mode, dtype, weighted):
    if mode == "max" and weighted:
        return
    table = rng.standard_normal((200, 33)).astype(dtype)
    lengths = np.concatenate((rng.integers(0, 50, 100), [3 * SUM_BLOCK, 0]))
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    indices = np.where(rng.random(bounds[-1]) < 0.3, 7, rng.integers(0, 200, bounds[-1]))
    grad = rng.standard_normal((lengths.size, 33)).astype(dtype)
    options = {"mode": mode, "include_last_offset": True}
    if weighted:
        options["per_sample_weights"] = rng.standard_normal(indices.size).astype(dtype)
    results = []
    for count in THREADS:
        with in_parallel(count):
            result = fastemb.embedding_bag_grad(table, indices, bounds, grad, **options)
        results.append(result.values)
    assert result.values.dtype == dtype
    assert all(same_bits(r, results[0]) for r in results)


@pytest.mark.parametrize("mode", ["mean", "sqrtn"])
@pytest.mark.parametrize("scale", [False, True])
def test_a_zero_divisor_has_no_gradient_not_even_of_nan(mode, scale):
    weights = {"mean": [1.0, -1.0, 2.0, 2.0], "sqrtn": [0.0, 0.0, 2.0, 2.0]}[mode]
    table = np.ones((6, 2))
    grad = np.array([[np.nan, np.inf], [4.0, 8.0]])
    result = fastemb.embedding_bag_grad(
        table, [1, 2, 3, 2], [0, 2], grad, mode=mode, per_sample_weights=weights, scale_grad_by_freq=scale
    )
    factor = {"mean": 0.5, "sqrtn": 2 / np.sqrt(8)}[mode]
    assert result.rows.tolist() == [2, 3]
    # row 2 occurs twice in the call, once in a bag without a gradient
    np.testing.assert_allclose(result.values, factor * grad[[1, 1]] / ([[2], [1]] if scale else 1), rtol=1e-15)
    weight_grad = fastemb.embedding_bag_weight_grad(
        table, [1, 2, 3, 2], [0, 2], grad, mode=mode, per_sample_weights=weights
    )
    assert weight_grad[:2].tolist() == [0, 0]
    assert np.isfinite(weight_grad).all()


def test_empty_and_padded_bags_have_no_gradient():
    grad = np.full((4, 2), np.nan)
    for mode in MODES:
        result = fastemb.embedding_bag_grad(np.ones((3, 2)), [1, 1], [0, 0, 2, 2], grad, mode=mode, padding_idx=1)
        assert (result.rows.size, result.values.shape, result.shape) == (0, (0, 2), (3, 2))


def test_max_gives_to_the_row_that_won():
    table = np.array([[1.0, 5.0, np.nan], [1.0, 2.0, 3.0], [0.0, 9.0, 1.0], [-1.0, -1.0, -1.0]])
    grad = np.array([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])
    result = fastemb.embedding_bag_grad(table, [1, 0, 3, 3, 2, 0, 2], [0, 4], grad, mode="max")
    # bag 0: ties go to the first (row 1), NaN wins (row 0); row 3 never wins and is not there
    assert result.rows.tolist() == [0, 1, 2]
    assert result.values.tolist() == [[8, 2, 36], [1, 0, 0], [0, 16, 0]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("grad_dtype", [np.int8, np.float16, BFLOAT16, ">f4"], ids=str)
def test_other_dtypes_give_the_bits_of_the_cast_arrays(rng, mode, dtype, grad_dtype):
    length = 2 * BLOCK + 100
    table = rng.integers(-9, 10, (20, 3)).astype(dtype)
    indices = np.where(rng.random(length) < 0.6, 5, rng.integers(0, 20, length))
    bounds = np.sort(np.concatenate(([0], rng.integers(0, length, 500), [length])))
    grad = laid_out(rng.integers(-9, 10, (501, 3)).astype(grad_dtype), "strided")
    acc = np.float64 if dtype == np.float64 else np.float32
    options = {"mode": mode, "include_last_offset": True}
    if mode != "max":
        options["per_sample_weights"] = rng.integers(1, 4, length).astype(np.float16)
    with unchanged(grad):
        ours = fastemb.embedding_bag_grad(table, indices, bounds, grad, **options)
    plain = fastemb.embedding_bag_grad(table.astype(acc), indices, bounds, grad.astype(acc), **options)
    assert same_bits(ours.values, plain.values)
    assert ours.rows.tolist() == plain.rows.tolist()


@pytest.mark.parametrize("mode", SUMS)
@pytest.mark.parametrize("shape", ["1-D", "2-D"])
@pytest.mark.parametrize("padding", [None, 3])
def test_gradient_of_the_weights_by_finite_differences(rng, mode, shape, padding):
    table = rng.standard_normal((8, 6))
    ids = rng.integers(0, 8, (5, 4))
    offsets = None
    if shape == "1-D":
        ids, offsets = ids.ravel(), np.array([0, 0, 3, 9, 20])
    weights = rng.uniform(0.5, 2, ids.shape)
    grad = rng.standard_normal((5, 6))

    def loss(w):
        options = {"mode": mode, "per_sample_weights": w, "padding_idx": padding}
        return (fastemb.embedding_bag(table, ids, offsets, **options) * grad).sum()

    result = fastemb.embedding_bag_weight_grad(
        table, ids, offsets, grad, mode=mode, per_sample_weights=weights, padding_idx=padding
    )
    assert result.shape == ids.shape
    for position in np.ndindex(ids.shape):
        step = np.zeros(ids.shape)
        step[position] = 1e-6
        slope = (loss(weights + step) - loss(weights - step)) / 2e-6
        assert result[position] == pytest.approx(slope, rel=1e-6, abs=1e-8)
    if padding is not None:
        assert not result[ids == padding].any()


@pytest.mark.parametrize("mode", SUMS)
def test_padding_weights_are_not_read(mode):
    weights = [np.nan, 1.0, 2.0]
    result = fastemb.embedding_bag_weight_grad(
        np.ones((3, 2)), [0, 1, 2], [0], np.ones((1, 2)), mode=mode, per_sample_weights=weights, padding_idx=0
    )
    assert np.isfinite(result).all()
    assert result[0] == 0


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_gradient_of_ones(dtype):
    table = np.array([[1, 2], [3, 4], [5, 6]], dtype)
    result = fastemb.embedding_bag_weight_grad(table, [0, 2, 1], [0, 2], np.array([[1, 10], [2, 0]], dtype))
    assert result.tolist() == [21, 65, 6]
    assert result.dtype == (np.float64 if dtype == np.float64 else np.float32)


@pytest.mark.parametrize("count", THREADS)
def test_kernels_agree_with_the_reference(rng, count):
    table = rng.integers(-9, 10, (50, 40)).astype(np.float32)
    bounds = np.concatenate(([0, 0], np.sort(rng.integers(0, 4001, 60)), [4000]))
    indices = rng.integers(0, 50, 4000)
    grad = rng.integers(-9, 10, (bounds.size - 1, 40)).astype(np.float32)
    places = rng.integers(0, 9, 4000)
    results = []
    for kernels in (reference, cpu):
        winners = np.full(grad.shape, -7, np.int64)
        values, dots = np.full((9, 40), np.nan, np.float32), np.full(4000, np.nan, np.float32)
        with in_parallel(count), unchanged(table, indices, bounds, grad, places):
            assert kernels.bag_winners(winners, table, indices, bounds, 3) == -1
            assert kernels.bag_max_grad(values, grad, winners, places) == -1
            assert kernels.bag_dots(dots, table, indices, bounds, grad, 3) == -1
        results.append((winners, values, dots))
    for ours, expected in zip(*results, strict=True):
        assert np.array_equal(ours, expected)


@pytest.mark.parametrize("name", BACKENDS)
def test_range_forms_do_their_part_alone(rng, name):
    kernels = BACKENDS[name]
    table, grad = rng.standard_normal((20, 3)), rng.standard_normal((4, 3))
    bounds, indices = np.array([0, 2, 2, 4, 6]), np.array([99, 1, 4, 5, -1, 5])
    winners, dots = np.full((4, 3), -7), np.full(6, np.nan)
    assert kernels.bag_winners_range(winners, table, indices, bounds, 4, 1, 3) == -1
    assert winners.tolist() == [[-7] * 3, [-1] * 3, [3] * 3, [-7] * 3]
    assert kernels.bag_dots_range(dots, table, indices, bounds, grad, 4, 1, 3) == -1
    assert np.isnan(dots[[0, 1, 4, 5]]).all()
    np.testing.assert_allclose(dots[2:4], [0, grad[2] @ table[5]], rtol=1e-12)
    values = np.full((2, 3), np.nan)
    assert kernels.bag_max_grad_range(values, grad[:2], np.array([[0, 1, -1]] * 2), np.array([1, 0]), 1, 3) == -1
    assert np.isnan(values[:, 0]).all()
    np.testing.assert_allclose(values[:, 1:], [[grad[:2, 1].sum(), 0], [0, 0]])


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("count", [1, 3])
def test_the_first_bad_position_is_returned_and_nothing_written(name, count):
    kernels, table, bounds = BACKENDS[name], np.ones((5, 3)), np.array([0, 2, 4])
    winners, dots = np.full((2, 3), -7), np.full(4, np.nan)
    with in_parallel(count):
        assert kernels.bag_winners(winners, table, np.array([0, 1, 5, -1]), bounds, -1) == 2
        assert kernels.bag_dots(dots, table, np.array([0, 1, 5, -1]), bounds, np.ones((2, 3)), -1) == 2
    assert (winners == -7).all()
    assert np.isnan(dots).all()


@pytest.mark.parametrize("mode", MODES)
def test_bad_indices(mode):
    table = np.ones((4, 2))
    with pytest.raises(IndexError, match=out_of_range(4, 0, 4, 1)):
        fastemb.embedding_bag_grad(table, [0, 4], [0], np.ones((1, 2)), mode=mode)
    if mode != "max":
        with pytest.raises(IndexError, match=out_of_range(4, -1, 0, 1)):
            fastemb.embedding_bag_weight_grad(table, [0, -1], [0], np.ones((1, 2)), mode=mode)


@pytest.mark.parametrize(
    ("grad", "mode", "error", "text"),
    [
        (np.ones((2, 2)), "sum", ValueError, "grad must have shape (1, 2), got (2, 2)"),
        (
            np.ones((1, 2), complex),
            "sum",
            TypeError,
            "grad must be real numbers that cast safely to float64, got complex128",
        ),
        (np.ones((1, 2)), "last", ValueError, "mode must be one of 'sum', 'mean', 'sqrtn', 'max', got 'last'"),
    ],
)
@pytest.mark.parametrize("gradient", [fastemb.embedding_bag_grad, fastemb.embedding_bag_weight_grad])
def test_bad_input(gradient, grad, mode, error, text):
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        gradient(np.ones((4, 2)), [0, 1], [0], grad, mode=mode)


def test_greatest_elements_have_no_weights():
    with pytest.raises(ValueError, match="^mode 'max' has no per_sample_weights$"):
        fastemb.embedding_bag_weight_grad(np.ones((4, 2)), [0, 1], [0], np.ones((1, 2)), mode="max")


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("in_place", [False, True])
def test_bags_of_positions(rng, name, in_place):
    kernels, offsets = BACKENDS[name], np.array([0, 0, 7, 7, 30, 31, 31])
    positions = rng.permutation(31)
    numbers = positions.copy() if in_place else np.full(31, -7)
    with unchanged(offsets):
        assert kernels.bag_numbers(numbers, numbers if in_place else positions, offsets) == -1
    wanted = [next(b for b in range(6) if offsets[b] <= p < offsets[b + 1]) for p in positions]
    assert numbers.tolist() == wanted
    part = np.full(31, -7)
    assert kernels.bag_numbers_range(part, positions, offsets, 4, 9) == -1
    assert part.tolist() == [-7] * 4 + wanted[4:9] + [-7] * 22
    for bad in (-1, 31, 2**40):
        positions[20] = bad
        with unchanged(part):
            assert kernels.bag_numbers(part, positions, offsets) == 20
    for none in (np.array([0]), np.array([0, 0])):
        assert kernels.bag_numbers(part[:0], positions[:0], none) == -1
        assert kernels.bag_numbers(part[:1], positions[:1], none) == 0
