"""Pooled lookup: forward. Gradients are in test_bag_grad.py."""

import math
import re

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from strategies import (
    BACKENDS,
    FLOATS,
    INTEGERS,
    LAYOUTS,
    THREADS,
    WIDTHS,
    in_parallel,
    laid_out,
    no_coefficients,
    out_of_range,
    same_bits,
    strided,
    unaligned,
    unchanged,
)

import fastemb
from fastemb._arrays import BLOCK
from fastemb.kernels import SUM_BLOCK, accumulator, cpu, reference
from fastemb.kernels.cpu import bag as cpu_bag

MODES = ["sum", "mean", "sqrtn", "max"]


def bounds_of(rng, length, bags):
    """(B + 1,) offsets, some bags empty."""
    inner = np.sort(rng.integers(0, length + 1, max(bags - 1, 0)))
    return np.concatenate(([0], inner, [length]))


def pooled(table, indices, bounds, mode, weights=None, padding=None):
    """The definition, bag by bag and column by column, for sums that are exact."""
    table = np.ascontiguousarray(table)
    acc = accumulator(table.dtype.newbyteorder("="))
    out = np.zeros((len(bounds) - 1, table.shape[1]), table.dtype.newbyteorder("="))
    for b in range(len(out)):
        kept = [k for k in range(bounds[b], bounds[b + 1]) if padding is None or int(indices[k]) != padding]
        w = [1.0 if weights is None else float(weights[k]) for k in kept]
        below = {"sum": 1.0, "max": 1.0, "mean": sum(w), "sqrtn": math.sqrt(sum(x * x for x in w))}[mode]
        if not kept or below == 0:
            continue
        for j in range(table.shape[1]):
            column = [float(table[int(indices[k]), j]) for k in kept]
            if mode == "max":
                out[b, j] = max(column)
            else:
                out[b, j] = acc.type(sum(x * y for x, y in zip(w, column, strict=True))) / acc.type(below)
    return out


@st.composite
def pooled_lookups(draw):
    """(table, indices, offsets or None, options): any dtype and layout, whole numbers, in range."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_rows, layouts = draw(st.integers(1, 30)), st.sampled_from(sorted(LAYOUTS))
    table = rng.integers(-32, 32, (num_rows, draw(st.sampled_from(WIDTHS)))).astype(draw(st.sampled_from(FLOATS)))
    shape = draw(st.sampled_from([(0,), (1,), (9,), (60,), (3, 5), (4, 1), (2, 0), (0, 3)]))
    indices = rng.integers(0, num_rows, shape).astype(draw(st.sampled_from(INTEGERS)))
    options = {"mode": draw(st.sampled_from(MODES))}
    offsets = None
    if len(shape) == 1:
        options["include_last_offset"] = draw(st.booleans())
        offsets = bounds_of(rng, shape[0], draw(st.integers(1, 6)))
        if not options["include_last_offset"]:
            offsets = offsets[:-1]
        offsets = laid_out(offsets.astype(draw(st.sampled_from(INTEGERS))), draw(layouts))
    if options["mode"] != "max" and draw(st.booleans()):
        weights = rng.integers(-2, 4, shape).astype(draw(st.sampled_from([np.float32, np.float16, np.int8])))
        options["per_sample_weights"] = laid_out(weights, draw(layouts))
    if draw(st.booleans()):
        options["padding_idx"] = draw(st.integers(-num_rows, num_rows - 1))
    return laid_out(table, draw(layouts)), laid_out(indices, draw(layouts)), offsets, options


def plain(table, indices, offsets, options):
    """The arguments of `pooled` for those of `embedding_bag`."""
    if indices.ndim == 2:
        bounds = np.arange(len(indices) + 1) * indices.shape[1]
    else:
        bounds = [int(x) for x in offsets] + ([] if options.get("include_last_offset") else [indices.size])
    weights = options.get("per_sample_weights")
    padding = options.get("padding_idx")
    flat = np.ascontiguousarray(indices).astype(np.int64).ravel()
    weights = None if weights is None else np.ascontiguousarray(weights).astype(float).ravel()
    return table, flat, bounds, options["mode"], weights, None if padding is None else padding % len(table)


@given(pooled_lookups())
def test_equals_the_definition(arguments):
    table, indices, offsets, options = arguments
    expected = pooled(*plain(*arguments))
    read = [a for a in (table, indices, offsets, options.get("per_sample_weights")) if a is not None]
    out = np.full(expected.shape, np.nan, expected.dtype)
    with unchanged(*read):
        result = fastemb.embedding_bag(table, indices, offsets, **options)
        assert fastemb.embedding_bag(table, indices, offsets, **options, out=out) is out
    for ours in (result, out):
        assert ours.dtype == expected.dtype
        assert ours.shape == expected.shape
        np.testing.assert_array_equal(ours, expected)


def test_the_default_is_the_mean(rng):
    table = rng.integers(-8, 8, (5, 3)).astype(np.float32)
    assert np.array_equal(fastemb.embedding_bag(table, [[1, 2]]), (table[[1]] + table[[2]]) / 2)


def test_lists_are_arrays():
    table = np.array([[1.0], [2.0], [4.0]])
    assert fastemb.embedding_bag(table, [0, 1, 2], [0, 0, 2], mode="sum").tolist() == [[0], [3], [4]]
    assert fastemb.embedding_bag(table, [], [], mode="sum").shape == (0, 1)
    assert fastemb.embedding_bag(table, [[0, 1]], mode="sum", per_sample_weights=[[2, 3]]).tolist() == [[8]]


def kernel_problem(rng, dtype, index_dtype, layout="C", width=70):
    """(table, indices, bounds, weights): a bag of several blocks, short ones, empty ones."""
    table = laid_out(rng.standard_normal((300, width)).astype(dtype), layout)
    lengths = np.concatenate(([0, 2 * SUM_BLOCK + 7, 0], rng.integers(0, 60, 80), [SUM_BLOCK, 0]))
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    indices = rng.integers(0, len(table), bounds[-1]).astype(index_dtype)
    return table, indices, bounds, rng.standard_normal(indices.size).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("layout", ["C", "F", "reversed"])
def test_sums_have_the_bits_of_the_reference_for_any_number_of_threads(
    rng, dtype, index_dtype, weighted, divided, layout
):
    table, indices, bounds, factors = kernel_problem(rng, dtype, index_dtype, layout)
    factors = factors if weighted else no_coefficients(dtype)
    divisors = rng.integers(0, 4, bounds.size - 1).astype(dtype) if divided else no_coefficients(dtype)
    arguments = table, indices, bounds, factors, divisors, 7
    expected = np.full((bounds.size - 1, table.shape[1]), np.nan, dtype)
    assert reference.bag_sum(expected, *arguments) == -1
    for count in THREADS:
        out = np.full_like(expected, np.nan)
        with in_parallel(count), unchanged(*arguments[:-1]):
            assert cpu.bag_sum(out, *arguments) == -1
        assert same_bits(out, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_greatest_elements_have_the_bits_of_the_reference(rng, dtype, layout):
    table, indices, bounds, _ = kernel_problem(rng, dtype, np.int64, layout)
    table[rng.random(table.shape) < 0.02] = np.nan
    table[rng.random(table.shape) < 0.3] = 0.0
    table[rng.random(table.shape) < 0.3] = -0.0
    table[rng.random(table.shape) < 0.1] = -np.inf
    expected = np.full((bounds.size - 1, table.shape[1]), 7, dtype)
    assert reference.bag_max(expected, table, indices, bounds, 7) == -1
    for count in THREADS:
        out = np.full_like(expected, 7)
        with in_parallel(count), unchanged(table, indices, bounds):
            assert cpu.bag_max(out, table, indices, bounds, 7) == -1
        assert same_bits(out, expected)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_divisors(rng, name, squared, weighted, dtype):
    _, indices, bounds, factors = kernel_problem(rng, dtype, np.int64)
    given_weights = factors if weighted else no_coefficients(dtype)
    divisors = np.full(bounds.size - 1, np.nan, dtype)
    assert BACKENDS[name].bag_divisors(divisors, indices, bounds, given_weights, 7, squared) == -1
    w = (factors.astype(float) if weighted else np.ones(indices.size)) * (indices != 7)
    for b, divisor in enumerate(divisors):
        part = w[bounds[b] : bounds[b + 1]]
        exact = math.sqrt(math.fsum(part**2)) if squared else math.fsum(part)
        assert divisor == pytest.approx(exact, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", BACKENDS)
def test_range_forms_do_their_bags_alone(rng, name):
    kernels = BACKENDS[name]
    table, none = rng.standard_normal((20, 3)), no_coefficients("float64")
    bounds = np.array([0, 2, 2, 5, 9])
    indices = np.array([99, 1, 4, 4, 19, 3, -1, 99, 5])  # out of range in the first and the last bag
    out = np.full((4, 3), np.nan)
    assert kernels.bag_sum_range(out, table, indices, bounds, none, none, -1, 1, 3) == -1
    np.testing.assert_allclose(out[1:3], [np.zeros(3), 2 * table[4] + table[19]])
    assert np.isnan(out[[0, 3]]).all()
    out[:] = np.nan
    assert kernels.bag_max_range(out, table, indices, bounds, -1, 1, 3) == -1
    assert np.array_equal(out[1:3], [np.zeros(3), np.maximum(table[4], table[19])])
    assert np.isnan(out[[0, 3]]).all()
    divisors = np.full(4, np.nan)
    assert kernels.bag_divisors_range(divisors, indices, bounds, none, 4, False, 1, 3) == -1
    assert divisors[1:3].tolist() == [0, 1]
    assert np.isnan(divisors[[0, 3]]).all()


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("bad", [-1, 300])
def test_the_first_bad_position_is_returned_and_nothing_written(rng, name, count, bad):
    table, indices, bounds, _ = kernel_problem(rng, "float32", np.int32)
    none = no_coefficients("float32")
    indices[[1717, 2900]] = bad
    out = np.full((bounds.size - 1, table.shape[1]), np.nan, np.float32)
    with in_parallel(count):
        assert BACKENDS[name].bag_sum(out, table, indices, bounds, none, none, -2) == 1717
        assert BACKENDS[name].bag_max(out, table, indices, bounds, -2) == 1717
    assert np.isnan(out).all()


def test_sums_are_cut_at_fixed_places():
    # 2**24 + 1 is not a float32: whether the ones survive shows where the partial sums end.
    table = np.array([[2.0**24], [1.0]], np.float32)
    indices = np.ones((1, 2 * SUM_BLOCK), int)
    indices[0, 0] = 0
    assert fastemb.embedding_bag(table, indices, mode="sum")[0, 0] == 2**24 + SUM_BLOCK


def test_threads_share_bags_or_columns():
    even = cpu_bag._shares(np.arange(0, 101, 10), 64, 4, 2)
    assert even.tolist() == [[0, 5, 0, 64], [5, 10, 0, 64]]
    one_bag = cpu_bag._shares(np.array([0, 0, 1000, 1001]), 40, 4, 2)
    assert one_bag.tolist() == [[0, 3, 0, 16], [0, 3, 16, 40]]
    for parts in THREADS:
        for bounds in (np.array([0]), np.zeros(50, int), np.array([0, 7]), np.array([0, 0, 5, 5, 9])):
            for width in (0, 1, 16, 100):
                covered = np.zeros((bounds.size - 1, width), int)
                for start, stop, low, high in cpu_bag._shares(bounds, width, 4, parts):
                    covered[start:stop, low:high] += 1
                assert (covered == 1).all()


@pytest.mark.parametrize("mode", MODES)
def test_nan_and_inf_stay_in_their_bag(mode):
    table = np.array([[np.nan, 1.0], [np.inf, 1.0], [2.0, 3.0]])
    with np.errstate(all="raise"):
        out = fastemb.embedding_bag(table, [0, 2, 1, 2, 2], [0, 2, 4], mode=mode)
    assert np.isnan(out[0, 0])
    assert out[1, 0] == np.inf
    assert np.isfinite(out[:, 1]).all()
    assert out[2].tolist() == [2, 3]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_padding_is_not_read(mode, dtype):
    table = np.full((3, 5), np.nan, dtype)
    table[1:] = np.array([[1], [4]])
    out = fastemb.embedding_bag(table, [0, 1, 0, 1, 0, 0], [0, 4, 5], mode=mode, padding_idx=-3)
    expected = {"sum": 2, "mean": 1, "sqrtn": 2 / math.sqrt(2), "max": 1}[mode]
    np.testing.assert_allclose(out.astype(float), [[expected] * 5, [0] * 5, [0] * 5], rtol=1e-2)


def test_half_width_tables_are_summed_in_float32():
    table = np.array([[2048.0], [1.0]], np.float16)  # 2048 + 1 is not a float16
    ids = np.ones((1, 2049), int)
    ids[0, 0] = 0
    assert fastemb.embedding_bag(table, ids, mode="sum")[0, 0] == 4096


def test_many_indices_of_other_dtypes_go_block_by_block(rng):
    table = rng.integers(-4, 4, (200, 3)).astype(np.float32)
    indices = rng.integers(0, 200, 5 * BLOCK).astype(np.uint8)
    bounds = np.concatenate(([0, 0, 2 * BLOCK], np.sort(rng.integers(2 * BLOCK, 5 * BLOCK, 300))))
    weights = rng.integers(-2, 3, indices.size).astype(np.int8)
    for given_ids in (indices, strided(indices), indices.astype(">i8")):
        for mode in MODES:
            given_weights = None if mode == "max" else weights
            ours = fastemb.embedding_bag(table, given_ids, bounds, mode=mode, per_sample_weights=given_weights)
            wide = fastemb.embedding_bag(
                table, indices.astype(int), bounds, mode=mode, per_sample_weights=given_weights
            )
            assert same_bits(ours, wide)


TABLE = np.ones((4, 3), np.float32)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        (([0, 1],), {}, ValueError, "offsets must be given for 1-D indices"),
        (([[0, 1]], [0]), {}, ValueError, "offsets must be None for 2-D indices: each row is a bag"),
        ((3, [0]), {}, ValueError, "indices must be 1-D with offsets, or 2-D, got shape ()"),
        ((np.zeros((1, 2, 3), int),), {}, ValueError, "indices must be 1-D with offsets, or 2-D, got shape (1, 2, 3)"),
        (([0, 1], [[0]]), {}, ValueError, "offsets must be 1-D, got shape (1, 1)"),
        (([0, 1], [0.0]), {}, TypeError, "offsets must be integers, got float64"),
        (([0, 1], [False]), {}, TypeError, "offsets must be integers, got bool"),
        (([0, 1], []), {}, ValueError, "offsets must not be empty with 2 indices"),
        (([], []), {"include_last_offset": True}, ValueError, "offsets must not be empty with include_last_offset"),
        (([0, 1], [1]), {}, ValueError, "offsets must begin with 0, got 1 at position 0"),
        (([0, 1], [-1, 0]), {}, ValueError, "offsets must begin with 0, got -1 at position 0"),
        (([0, 1], [0, 9, 1]), {}, ValueError, "offsets must not decrease, got 1 after 9 at position 2"),
        (
            ([0, 1], np.array([0, 2, 1, 0], np.uint64)),
            {},
            ValueError,
            "offsets must not decrease, got 1 after 2 at position 2",
        ),
        (([0, 1], [0, 3]), {}, ValueError, "offsets must be at most the number of indices, 2, got 3 at position 1"),
        (
            ([0, 1], [0, 2**70]),
            {},
            ValueError,
            f"offsets must be at most the number of indices, 2, got {2**70} at position 1",
        ),
        (
            ([0, 1], [0, 1]),
            {"include_last_offset": True},
            ValueError,
            "offsets must end with the number of indices, 2, got 1 at position 1",
        ),
        (([0], [0]), {"mode": "median"}, ValueError, "mode must be one of 'sum', 'mean', 'sqrtn', 'max', got 'median'"),
        (([0], [0]), {"padding_idx": 4}, ValueError, "padding_idx must be in [-4, 4), got 4"),
        (
            ([0], [0]),
            {"mode": "max", "per_sample_weights": [1.0]},
            ValueError,
            "per_sample_weights cannot be used with mode 'max'",
        ),
        (
            ([0, 1], [0]),
            {"per_sample_weights": [1.0]},
            ValueError,
            "per_sample_weights must have shape (2,), got (1,)",
        ),
        (
            ([[0, 1]],),
            {"per_sample_weights": [1.0, 2.0]},
            ValueError,
            "per_sample_weights must have shape (1, 2), got (2,)",
        ),
        (
            ([0], [0]),
            {"per_sample_weights": np.ones(1)},
            TypeError,
            "per_sample_weights must be real numbers that cast safely to float32, got float64; "
            "convert it yourself: per_sample_weights.astype(np.float32)",
        ),
        (([0.0], [0]), {}, TypeError, "indices must be integers, got float64"),
        (([0], [0]), {"out": np.ones((1, 3))}, ValueError, "out must have dtype float32, got float64"),
        (([0], [0]), {"out": np.ones((2, 3), "f4")}, ValueError, "out must have shape (1, 3), got (2, 3)"),
    ],
)
def test_bad_input(arguments, options, error, text):
    with unchanged(TABLE), pytest.raises(error, match=f"^{re.escape(text)}$"):
        fastemb.embedding_bag(TABLE, *arguments, **options)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("convert", [np.int64, np.int32, np.int8, ">i2"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_bad_index_leaves_out_alone(mode, convert, dtype):
    out = np.full((2, 3), 7, dtype)
    ids = np.array([0, 3, 4, -2]).astype(convert)
    with unchanged(out), pytest.raises(IndexError, match=out_of_range(4, -2, 4, 2)):
        fastemb.embedding_bag(TABLE.astype(dtype), ids, [0, 1], mode=mode, out=out)


def test_out_must_not_overlap_the_inputs():
    memory = np.zeros((6, 3))
    with pytest.raises(ValueError, match="out must not overlap weight in memory"):
        fastemb.embedding_bag(memory, [[0]], out=memory[:1])
    weights = np.ones((1, 3))
    with pytest.raises(ValueError, match="out must not overlap per_sample_weights in memory"):
        fastemb.embedding_bag(np.zeros((2, 3)), [[0, 1, 1]], per_sample_weights=weights, out=weights)
    ids = np.zeros((1, 3), np.int64)
    with pytest.raises(ValueError, match="out must not overlap indices in memory"):
        fastemb.embedding_bag(np.zeros((2, 3)), ids, out=ids.view(np.float64))


def test_unaligned_weights_and_modes_of_other_kinds(rng):
    table, weights = rng.integers(-4, 5, (6, 3)).astype(np.float32), unaligned(np.array([[1, 2, 3]], np.float32))
    ours = fastemb.embedding_bag(table, [[0, 1, 5]], mode="sum", per_sample_weights=weights)
    assert np.array_equal(ours, [table[0] + 2 * table[1] + 3 * table[5]])
    for mode in (None, np.array(["sum", "max"]), 0):
        with pytest.raises(ValueError, match="^mode must be one of"):
            fastemb.embedding_bag(table, np.array([0, 1]), np.array([0]), mode=mode)


def test_empty_tables():
    assert fastemb.embedding_bag(np.ones((0, 3)), [], [0, 0]).tolist() == [[0] * 3] * 2
    assert fastemb.embedding_bag(np.ones((0, 3)), np.empty((0, 4), int)).shape == (0, 3)
    assert fastemb.embedding_bag(np.ones((2, 0)), [[0, 1]], mode="max").shape == (1, 0)
    with pytest.raises(IndexError):
        fastemb.embedding_bag(np.ones((0, 3)), [[0]])


@pytest.mark.parametrize("name", BACKENDS)
def test_weights_are_added_one_by_one(name):
    """Python's own sum keeps what rounding lost, from 3.12 on."""
    weights, bounds, ids = np.array([1e16, 1.0, -1e16]), np.array([0, 3]), np.arange(3)
    divisors = np.full(1, np.nan)
    assert BACKENDS[name].bag_divisors(divisors, ids, bounds, weights, -1, False) == -1
    assert divisors.tolist() == [0.0]
