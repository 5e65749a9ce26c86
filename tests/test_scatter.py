"""Duplicate-safe scatter-add, and the gradient of a lookup."""

import sys

import numpy as np
import pytest
from hypothesis import given
from strategies import (
    BACKENDS,
    BFLOAT16,
    FLOATS,
    THREADS,
    grouped,
    in_parallel,
    laid_out,
    lookups,
    no_coefficients,
    same_bits,
    unchanged,
)

import fastemb
from fastemb._arrays import BLOCK
from fastemb.kernels import SUM_BLOCK, cpu, reference


@given(lookups())
def test_equals_add_at_where_sums_are_exact(arrays):
    table, indices = arrays
    target = np.ascontiguousarray(table).astype(table.dtype.newbyteorder("="))
    expected = target.astype(np.float64)
    updates = np.random.default_rng(indices.size).integers(-2, 3, (*indices.shape, table.shape[1])).astype(target.dtype)
    np.add.at(expected, indices.astype(np.int64), updates.astype(np.float64))
    with unchanged(indices, updates):
        assert fastemb.scatter_add(target, indices, updates) is target
    assert np.array_equal(target.astype(np.float64), expected)


cpu_scatter = sys.modules[cpu.scatter_add.__module__]


def skewed(rng, rows=50):
    """Indices with long runs, short runs, and rows that are not touched."""
    return np.concatenate([np.zeros(3 * SUM_BLOCK + 5, int), rng.integers(0, rows - 5, 2000), np.full(SUM_BLOCK, 7)])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("count", THREADS)
@pytest.mark.parametrize("width", [1, 16, 17, 64, 131])
def test_same_bits_as_add_at_for_any_number_of_threads(rng, dtype, index_dtype, count, width):
    rows = 20_000 // width  # more than the first cache holds, so that threads are used
    indices = rng.permutation(skewed(rng, rows)).astype(index_dtype)
    updates = rng.standard_normal((indices.size, width)).astype(dtype)
    expected = rng.standard_normal((rows, width)).astype(dtype)
    target = expected.copy()
    np.add.at(expected, indices, updates)
    with in_parallel(count), unchanged(indices, updates):
        fastemb.scatter_add(target, indices, updates)
    assert same_bits(target, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", THREADS)
@pytest.mark.parametrize("width", [1, 40, 131])
@pytest.mark.parametrize("offset", [0, 1, 5])
def test_a_hot_row_has_the_same_bits_too(rng, dtype, count, width, offset):
    rows = 20_000 // width
    indices = np.where(rng.random(5000) < 0.02, rng.integers(0, rows, 5000), rows // 3)
    updates = rng.standard_normal((indices.size, width)).astype(dtype)
    expected = rng.standard_normal(rows * width + offset).astype(dtype)[offset:].reshape(rows, width)
    target = np.concatenate((np.zeros(offset, dtype), expected.ravel()))[offset:].reshape(rows, width)
    np.add.at(expected, indices, updates)
    with in_parallel(count), unchanged(indices, updates):
        fastemb.scatter_add(target, indices, updates)
    assert same_bits(target, expected)


@pytest.mark.parametrize("offset", [0, 1, 5])
def test_threads_share_rows_or_the_columns_of_a_hot_one(rng, offset):
    target = np.zeros(1000 * 100 + offset, np.float32)[offset:].reshape(1000, 100)
    evenly = cpu_scatter._shares(rng.integers(0, 1000, 5000), target, 2)
    assert evenly[:, 2:].tolist() == [[0, 100], [0, 100]]
    assert evenly[0, 0] == 0
    assert evenly[1, 1] == 1000
    assert 450 < evenly[0, 1] == evenly[1, 0] < 550
    for parts in THREADS:
        for indices in (np.full(5000, 333), np.append(np.full(5000, 999), 0), rng.integers(0, 3, 5000)):
            covered = np.zeros(target.shape, int)
            for low, high, first, last in cpu_scatter._shares(indices, target, parts):
                covered[low:high, first:last] += 1
            assert (covered == 1).all()
    for hot in (0, 333, 999):
        halves = cpu_scatter._shares(np.full(5000, hot), target, 2)
        assert halves[:, :2].tolist() == [[0, 1000], [0, 1000]]
        assert 0 < halves[0, 3] == halves[1, 2] < 100
        assert target[hot, halves[0, 3] :].ctypes.data % 64 == 0  # no line belongs to two threads


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_backends_add_the_same_bits(rng, dtype):
    indices = rng.permutation(skewed(rng))
    target = rng.standard_normal((50, 3)).astype(dtype)
    updates = rng.standard_normal((indices.size, 3)).astype(dtype)
    wide = target.astype(np.float64 if dtype == np.float64 else np.float32)
    assert reference.scatter_add(target, indices, updates) == -1
    assert cpu.scatter_add(wide, indices, updates.astype(wide.dtype)) == -1
    assert np.array_equal(target, wide.astype(dtype))


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("count", [1, 3])
def test_a_bad_index_writes_nothing(rng, name, count):
    target = rng.standard_normal((5000, 3))
    indices = rng.integers(0, 5000, 3000)
    indices[[1234, 2000]] = -1, 5000
    with in_parallel(count), unchanged(target):
        assert BACKENDS[name].scatter_add(target, indices, np.ones((3000, 3))) == 1234
        assert BACKENDS[name].scatter_add_range(target, indices, np.ones((3000, 3)), 1235, 3000) == 2000


@pytest.mark.parametrize("name", BACKENDS)
def test_range_form_adds_its_positions_alone(name):
    target, updates = np.zeros((6, 2)), np.arange(10.0).reshape(5, 2)
    indices = np.array([99, 3, 4, 3, -1])
    assert BACKENDS[name].scatter_add_range(target, indices, updates, 1, 4) == -1
    assert target.tolist() == [[0, 0], [0, 0], [0, 0], [8, 10], [4, 5], [0, 0]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", THREADS)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_segment_sums_have_the_bits_of_the_reference_for_any_number_of_threads(
    rng, dtype, count, scale, weighted, layout
):
    indices = skewed(rng)
    updates = np.asarray(rng.standard_normal((indices.size, 17)), dtype, order=layout)
    runs = grouped(indices, 50)
    factors = rng.standard_normal(indices.size).astype(dtype) if weighted else no_coefficients(dtype)
    results = []
    for kernels in (reference, cpu):
        values = np.full((50, 17), np.nan, dtype)
        with in_parallel(count), unchanged(updates, *runs, factors):
            assert kernels.segment_sum(values, updates, *runs, factors, scale) == -1
        results.append(values)
    assert same_bits(*results)
    assert np.isnan(np.delete(results[0], runs[0], axis=0)).all()


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("count", [1, 3])
def test_a_bad_row_writes_nothing(rng, name, count):
    values = rng.standard_normal((5, 3))
    rows, starts, positions, none = np.array([0, 4, 5]), np.arange(4), np.arange(3), no_coefficients("float64")
    with in_parallel(count), unchanged(values):
        assert BACKENDS[name].segment_sum(values, np.ones((3, 3)), rows, starts, positions, none, False) == 2
        assert BACKENDS[name].segment_sum(values, np.ones((3, 3)), rows - 1, starts, positions, none, False) == 0


@pytest.mark.parametrize("name", BACKENDS)
def test_range_form_sums_its_runs_alone(name):
    values, updates = np.zeros((6, 2)), np.arange(10.0).reshape(5, 2)
    rows, starts, positions = np.array([1, 3, 4]), np.array([0, 2, 3, 5]), np.array([0, 4, 1, 2, 3])
    factors = np.array([7.0, 7.0, 3.0, 6.0, 3.0])
    assert BACKENDS[name].segment_sum_range(values, updates, rows, starts, positions, factors, False, 1, 3) == -1
    assert values.tolist() == [[0, 0], [0, 0], [0, 0], [6, 9], [42, 51], [0, 0]]


def test_sums_of_gradients_are_cut_at_fixed_boundaries():
    # 2**24 + 1 is not a float32: whether the ones survive shows where the partial sums end.
    grad = np.ones((2 * SUM_BLOCK, 1), np.float32)
    grad[0] = 2**24
    indices = np.zeros(2 * SUM_BLOCK, int)
    assert fastemb.embedding_grad(indices, grad, 1).values[0, 0] == 2**24 + SUM_BLOCK
    assert fastemb.scatter_add(np.zeros((1, 1), np.float32), indices, grad)[0, 0] == 2**24


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_half_width_targets_are_rounded_once(dtype):
    ones = np.full((3000, 2), 0.25, np.float32)
    target = fastemb.scatter_add(np.ones((4, 2), dtype), np.full(3000, 2), ones)
    assert np.array_equal(target, np.array([[1, 1], [1, 1], [751, 751], [1, 1]]).astype(dtype))


ODD_GRADIENTS = [np.int8, np.uint16, np.float16, BFLOAT16, ">f4", ">i2"]


@pytest.mark.parametrize("dtype", ODD_GRADIENTS, ids=str)
@pytest.mark.parametrize("layout", ["C", "strided", "unaligned"])
def test_gradients_of_other_dtypes_and_layouts_give_the_bits_of_the_cast_array(rng, dtype, layout):
    indices = np.concatenate([np.full(BLOCK + 3000, 1), rng.integers(0, 30, 5000)])
    updates = laid_out(rng.integers(-100, 100, (indices.size, 3)).astype(dtype), layout)
    if np.dtype(dtype).kind in "fV":
        updates /= np.asarray(7, updates.dtype)
    cast = np.ascontiguousarray(updates, np.float32)
    a, b = np.full((2, 30, 3), 0.1, np.float32)
    with unchanged(updates):
        fastemb.scatter_add(a, indices, updates)
    assert same_bits(a, fastemb.scatter_add(b, indices, cast))
    for scale in (False, True):
        ours, plain = (fastemb.embedding_grad(indices, g, 30, scale_grad_by_freq=scale) for g in (updates, cast))
        assert same_bits(ours.values, plain.values)


def test_strides_that_no_matrix_has(rng):
    indices = rng.integers(0, 9, (4, 5))
    updates = rng.standard_normal((5, 4, 3)).transpose(1, 0, 2)
    a, b = np.zeros((2, 9, 3))
    assert same_bits(fastemb.scatter_add(a, indices, updates), fastemb.scatter_add(b, indices, updates.copy()))
    scalar = np.frombuffer(b"\0" + np.float32([1, 2, 3]).tobytes(), np.uint8)[1:].view(np.float32)
    assert fastemb.scatter_add(np.zeros((2, 3)), 1, scalar).tolist() == [[0, 0, 0], [1, 2, 3]]


@pytest.mark.parametrize("padding", [None, 2, -1])
@pytest.mark.parametrize("scale", [False, True])
def test_gradient_of_a_lookup(rng, padding, scale):
    indices = rng.integers(0, 8, (5, 8))
    grad = rng.integers(-8, 8, (5, 8, 3)).astype(np.float32) * 840  # divisible by every count up to 8
    dense = np.zeros((8, 3))
    counts = np.bincount(indices.ravel(), minlength=8)
    for position in np.ndindex(indices.shape):
        r = indices[position]
        if padding is None or r != padding % 8:
            dense[r] += grad[position].astype(np.float64) / (counts[r] if scale else 1)
    with unchanged(indices, grad):
        result = fastemb.embedding_grad(indices, grad, 8, padding_idx=padding, scale_grad_by_freq=scale)
    assert result.rows.tolist() == [r for r in np.unique(indices) if padding is None or r != padding % 8]
    assert result.values.dtype == np.float32
    np.testing.assert_allclose(result.to_dense(), dense, rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [(np.float16, "f4"), (BFLOAT16, "f4"), (np.int16, "f4"), (np.float32, "f4"), (np.int32, "f8"), (np.float64, "f8")],
)
def test_dtype_of_a_gradient(dtype, wanted):
    assert fastemb.embedding_grad([0], np.ones((1, 2), dtype), 3).values.dtype == wanted


def test_a_gradient_owns_its_values(rng):
    grad = rng.standard_normal((3, 4), dtype=np.float32)
    with unchanged(grad):
        fastemb.embedding_grad([0, 1, 2], grad, 3).values[:] = 0


def test_targets_whose_rows_lie_apart(rng):
    memory = np.full((6, 8), 7.0)
    target = memory[::2, 1:5]
    fastemb.scatter_add(target, [0, 2, 0], np.ones((3, 4)))
    assert (target == [[9], [7], [8]]).all()
    assert (memory[1::2] == 7).all()
    assert (memory[:, [0, 5, 6, 7]] == 7).all()


def test_nan_and_inf_stay_in_their_row():
    updates = np.array([[1.0, np.nan], [np.inf, 1.0], [-np.inf, 1.0], [1.0, 1.0]])
    target = fastemb.scatter_add(np.zeros((4, 2)), [0, 1, 2, 3], updates)
    assert np.array_equal(target, updates, equal_nan=True)
