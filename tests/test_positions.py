"""Positions as vectors: sines against 50 digits, learned rows, distances, and rotations."""

import copy
import math
import re
from decimal import Decimal, localcontext

import numpy as np
import pytest
from oracles import PI, Once, exact_row, largest_error, numeric_gradient, sine_and_cosine
from strategies import FLOATS, INTEGERS, exactly, out_of_range, same_bits, strided, unchanged

import fastemb
from fastemb.nn import LearnedPositions, RelativePositions, SinusoidalPositions
from fastemb.optim import SGD, Adam

POSITIONS = [0, 1, 2, -7, 710, 999_999, 1_000_000, 2**31, -(2**31), 10**15 + 1, 2**63 - 1, -(2**63)]


def ramp(rows, width=2, start=1.0):
    """An init with a value of its own in every element."""
    return lambda rng, shape, dtype: np.arange(start, start + rows * width).reshape(shape)


def test_the_oracle_knows_sines():
    for angle in (0.5, -3.0, 100.0):
        sine, cosine = sine_and_cosine(Decimal(angle))
        assert (float(sine), float(cosine)) == pytest.approx((math.sin(angle), math.cos(angle)), abs=1e-15)
    with localcontext(prec=90):
        sine, cosine = sine_and_cosine(PI / 6 + 2 * PI * 10**12)
        assert abs(sine - Decimal("0.5")) < Decimal("1e-50")
        assert abs(cosine**2 - Decimal("0.75")) < Decimal("1e-50")


@pytest.mark.parametrize("width", [1, 2, 5, 64, 129])
def test_sines_are_right_to_1e15_in_float64_and_to_the_last_bit_or_so_in_float32(width):
    got = SinusoidalPositions(width, dtype="float64")(POSITIONS)
    single = SinusoidalPositions(width)(POSITIONS)
    assert (got.dtype, single.dtype) == (np.float64, np.float32)
    assert got.shape == single.shape == (len(POSITIONS), width)
    for position, row, row32 in zip(POSITIONS, got, single, strict=True):
        exact = exact_row(position, width)
        assert largest_error(row, exact) < 1e-15
        rounded = np.array(exact, np.float64).astype(np.float32)
        assert (np.abs(row32 - rounded) <= np.spacing(np.abs(rounded))).all()
    assert got[0].tolist() == [k % 2 for k in range(width)]


def test_an_odd_width_has_one_sine_more_than_cosines():
    vectors = SinusoidalPositions(5, dtype="float64")(np.arange(10))
    angles = np.arange(10)[:, np.newaxis] * 10000.0 ** (-2 * np.arange(3) / 5)
    np.testing.assert_allclose(vectors[:, 0::2], np.sin(angles), rtol=0, atol=1e-14)
    np.testing.assert_allclose(vectors[:, 1::2], np.cos(angles[:, :2]), rtol=0, atol=1e-14)


def test_the_table_that_everybody_makes():
    """https://arxiv.org/abs/1706.03762 as torch programs write it, in float64; in float32 it is off."""
    tables = []
    for dtype in (np.float64, np.float32):
        places = np.append(np.arange(5000), 1_000_000).astype(dtype)[:, np.newaxis]
        steps = np.exp(np.arange(0, 512, 2, dtype=dtype) * dtype(-math.log(10000.0) / 512))
        table = np.full((5001, 512), np.nan)
        table[:, 0::2], table[:, 1::2] = np.sin(places * steps), np.cos(places * steps)
        tables.append(table)
    got = SinusoidalPositions(512, dtype="float64")(np.append(np.arange(5000), 1_000_000))
    np.testing.assert_allclose(got[:-1], tables[0][:-1], rtol=0, atol=1e-11)
    np.testing.assert_allclose(got[-1], tables[0][-1], rtol=0, atol=2e-9)
    assert 0.02 < np.abs(got[-1] - tables[1][-1]).max() < 0.2  # as the docstring has it


@pytest.mark.parametrize("base", [2, 500_000.0, 1.0001])
def test_other_bases(base):
    layer = SinusoidalPositions(6, base=base, dtype="float64")
    for position in (3, -1_000_000):
        assert largest_error(layer(position), exact_row(position, 6, base)) < 1e-15


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_positions_of_every_integer_dtype_shape_and_layout(dtype):
    layer = SinusoidalPositions(7, dtype="float64")
    limits = np.iinfo(dtype)
    places = np.array([[0, 1, 100], [limits.min, limits.max, limits.max // 3]], dtype)
    rows = np.array([layer(int(p)) for p in places.flat]).reshape(2, 3, 7)
    for given in (places, strided(places), np.asfortranarray(places)):
        with unchanged(given):
            assert same_bits(layer(given), rows)
    for p in (limits.min, limits.max):
        assert largest_error(layer(np.array(p, dtype)), exact_row(int(p), 7)) < 1e-15
    assert layer(places[:, :0]).shape == (2, 0, 7)
    assert layer([]).shape == (0, 7)


def test_negative_positions_mirror_the_others():
    places = np.arange(2000) ** 5
    there, back = SinusoidalPositions(8, dtype="float64")(places), SinusoidalPositions(8, dtype="float64")(-places)
    assert np.array_equal(there[:, 0::2], -back[:, 0::2])
    assert np.array_equal(there[:, 1::2], back[:, 1::2])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_dtype_is_rounded_from_float64(dtype):
    exact = SinusoidalPositions(9, dtype="float64")(np.arange(1000))
    got = SinusoidalPositions(9, dtype=dtype)(np.arange(1000))
    assert same_bits(got, exact.astype(dtype))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: SinusoidalPositions(0), ValueError, "embedding_dim must be >= 1, got 0"),
        (lambda: SinusoidalPositions(2.0), TypeError, "embedding_dim must be an integer, got 2.0"),
        (lambda: SinusoidalPositions(2, base=1), ValueError, "base must be > 1, got 1"),
        (lambda: SinusoidalPositions(2, base=math.inf), ValueError, "base must be finite, got inf"),
        (lambda: SinusoidalPositions(2, base="2"), TypeError, "base must be a real number, got '2'"),
        (lambda: SinusoidalPositions(2)([0.5]), TypeError, "positions must be integers, got float64"),
        (lambda: SinusoidalPositions(2)(True), TypeError, "positions must be integers, got bool"),
        (lambda: SinusoidalPositions(2)([2**64]), ValueError, "positions must fit into 64 bits"),
        (lambda: LearnedPositions(0, 2), ValueError, "max_length must be >= 1, got 0"),
        (lambda: LearnedPositions(3, 0), ValueError, "embedding_dim must be >= 1, got 0"),
        (lambda: RelativePositions(-1, 2), ValueError, "max_distance must be >= 0, got -1"),
        (lambda: RelativePositions(1, 2)(-1), ValueError, "queries must be >= 0, got -1"),
        (lambda: RelativePositions(1, 2)(1, 2.0), TypeError, "keys must be an integer, got 2.0"),
    ],
)
def test_options_and_positions_that_do_not_fit(call, error, text):
    with pytest.raises(error, match=exactly(text)):
        call()
    with pytest.raises(TypeError, match=r"^dtype must be float16, bfloat16, float32 or float64, got int32$"):
        SinusoidalPositions(2, dtype="int32")


LAYERS = {
    "sines": lambda width, **o: SinusoidalPositions(width, **o),
    "learned": lambda width, **o: LearnedPositions(9, width, seed=0, init="normal", **o),
}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("scaled", [False, True])
def test_add(rng, kind, dtype, scaled):
    layer = LAYERS[kind](5, scale_by_sqrt_dim=scaled, dtype=dtype)
    wide = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    for lead in [(4,), (3, 4), (2, 3, 9), (2, 0), (0, 3)]:
        tokens = rng.standard_normal((*lead, 5)).astype(dtype)
        places = layer(np.arange(lead[-1])).astype(wide)
        for given in (tokens, strided(tokens), tokens.astype(wide)):
            expected = given.astype(wide) * wide.type(math.sqrt(5) if scaled else 1) + places
            with unchanged(given):
                got = layer.add(given)
            assert same_bits(got, expected.astype(dtype))
            assert not np.shares_memory(got, given)
    numbers = [[1, 2, 3, 4, 5], [0.5, 0, 0, 0, 0]]
    assert same_bits(layer.add(numbers), layer.add(np.array(numbers, wide)))
    assert same_bits(layer.add(Once(np.ones((2, 5), wide))), layer.add(np.ones((2, 5), np.int8)))


@pytest.mark.parametrize("kind", LAYERS)
def test_tokens_that_do_not_fit(kind):
    layer = LAYERS[kind](4)
    for tokens, error, text in [
        (np.ones(4, "f4"), ValueError, "tokens must have shape (..., T, 4), got (4,)"),
        (1.0, ValueError, "tokens must have shape (..., T, 4), got ()"),
        (np.ones((2, 5), "f4"), ValueError, "tokens must have shape (2, 4), got (2, 5)"),
        (np.ones((2, 4)), TypeError, "tokens must be real numbers that cast safely to float32, got float64"),
        (np.ma.ones((2, 4)), TypeError, "tokens must be a NumPy array without a mask, got MaskedArray"),
        (Once(np.ones(4, "f4")), ValueError, "tokens must have shape (..., T, 4), got (4,)"),
    ]:
        with pytest.raises(error, match=rf"\A{re.escape(text)}"):
            layer.add(tokens)


def test_add_lets_what_is_not_finite_pass_without_a_warning():
    tokens = np.array([[np.inf, np.nan, 3e38, -np.inf]], np.float32)
    got = SinusoidalPositions(4, scale_by_sqrt_dim=True).add(tokens)
    assert np.array_equal(got, [[np.inf, np.nan, np.inf, -np.inf]], equal_nan=True)


def test_reprs():
    assert repr(SinusoidalPositions(4)) == "SinusoidalPositions(4, dtype=float32)"
    layer = SinusoidalPositions(5, base=1_000_000.5, scale_by_sqrt_dim=True, dtype="float16")
    assert repr(layer) == "SinusoidalPositions(5, base=1000000.5, scale_by_sqrt_dim=True, dtype=float16)"
    assert repr(LearnedPositions(32, 2, padding_idx=0)) == "LearnedPositions(32, 2, padding_idx=0, dtype=float32)"
    layer = RelativePositions(1, 3, optimizer=SGD(lr=1.0))
    assert repr(layer) == f"RelativePositions(1, 3, optimizer={SGD(lr=1.0)!r}, dtype=float32)"


def test_learned_positions_are_rows():
    layer = LearnedPositions(6, 2, init=ramp(6))
    assert layer([[5, 0]]).tolist() == [[[11, 12], [1, 2]]]
    assert (layer.num_embeddings, layer.embedding_dim, layer.scale_by_sqrt_dim) == (6, 2, False)
    assert layer.add(np.zeros((6, 2), np.float32)).tolist() == layer.weight.tolist()


def test_a_position_beyond_the_last():
    layer = LearnedPositions(1024, 3)
    long = np.ones((2, 1025, 3), np.float32)
    layer.add_backward(np.ones((1, 3), np.float32))
    pending = layer.grad
    calls = (lambda: layer([0, 1024]), lambda: layer.add(long), lambda: layer.add_backward(long))
    for call, first in zip(calls, (1, 1024, 1024), strict=True):
        with unchanged(layer.weight), pytest.raises(IndexError, match=out_of_range(1024, 0, 1024, first)):
            call()
    with pytest.raises(IndexError, match=out_of_range(1024, -1, -1, 0)):
        layer([-1])
    with pytest.raises(ValueError, match=exactly("dy must have shape (2, 3), got (2, 4)")):
        layer.add_backward(np.ones((2, 4), np.float32))
    with pytest.raises(TypeError, match="^dy must be real numbers that cast safely to float32, got float64"):
        layer.add_backward(np.ones((2, 3)))
    assert layer.grad is pending


@pytest.mark.parametrize("lead", [(3,), (4, 3), (2, 2, 3), (0, 3), (5, 0)])
def test_add_backward_sums_over_sequences(rng, lead):
    layer = LearnedPositions(5, 2, dtype="float64")
    dy = rng.integers(-9, 9, (*lead, 2)).astype(np.float64)
    with unchanged(dy):
        layer.add_backward(dy)
        layer.add_backward(strided(dy))
    expected = np.zeros((5, 2))
    expected[: lead[-1]] = 2 * dy.sum(axis=tuple(range(len(lead) - 1)))
    assert np.array_equal(layer.grad.to_dense(), expected)


@pytest.mark.parametrize("scaled", [False, True])
def test_gradients_of_learned_positions_by_differences(rng, scaled):
    layer = LearnedPositions(5, 3, scale_by_sqrt_dim=scaled, dtype="float64", seed=1)
    tokens, c = rng.standard_normal((2, 2, 4, 3))
    layer.add_backward(c * np.cos(layer.add(tokens)))
    numeric = numeric_gradient(layer.weight, lambda: (c * np.sin(layer.add(tokens))).sum())
    np.testing.assert_allclose(layer.grad.to_dense(), numeric, rtol=1e-8, atol=1e-9)
    dy = c * np.cos(layer.add(tokens)) * (math.sqrt(3) if scaled else 1)  # of the tokens, as the docstring has it
    numeric = numeric_gradient(tokens, lambda: (c * np.sin(layer.add(tokens))).sum())
    np.testing.assert_allclose(dy, numeric, rtol=1e-8, atol=1e-9)


def test_learned_positions_in_mode_exact_move_before_they_are_added():
    layers = [LearnedPositions(4, 2, optimizer=Adam(lr=0.1, mode="exact"), seed=1, dtype="float64") for _ in "ab"]
    for layer in layers:
        layer.add_backward(np.ones((3, 2)))
        layer.step()
        layer.fused_step([0], np.ones((1, 2)))
    stale = layers[1].weight.copy()
    layers[1].flush()
    assert not np.array_equal(stale[1], layers[1].weight[1])
    assert same_bits(layers[0].add(np.zeros((3, 2))), layers[1].weight[:3])
    norm = LearnedPositions(4, 2, max_norm=1.0, init=ramp(4), dtype="float64")
    assert (np.linalg.norm(norm.add(np.zeros((2, 3, 2))), axis=-1) <= 1).all()
    assert norm.weight[3].tolist() == [7, 8]


@pytest.mark.parametrize("reach", [0, 1, 2, 10])
@pytest.mark.parametrize(("queries", "keys"), [(4, 4), (3, 7), (7, 3), (1, 1), (0, 0), (0, 5), (5, 0), (6, None)])
def test_relative_positions(reach, queries, keys):
    layer = RelativePositions(reach, 3, seed=0)
    assert (layer.max_distance, layer.num_embeddings) == (reach, 2 * reach + 1)
    others = queries if keys is None else keys
    rows = [[min(max(j - i, -reach), reach) + reach for j in range(others)] for i in range(queries)]
    rows = np.array(rows, np.int64).reshape(queries, others)
    with unchanged(layer.weight):
        assert same_bits(layer.rows(queries, keys), rows)
        assert same_bits(layer(queries, keys), layer.weight[rows])
        assert same_bits(layer.bias(queries, keys), layer.weight[rows].transpose(2, 0, 1))
    assert layer.rows(queries, keys).size == 0 or 0 <= rows.min() <= rows.max() <= 2 * reach


@pytest.mark.parametrize("batch", [(), (1,), (4,), (0,)])
@pytest.mark.parametrize(("queries", "keys"), [(3, 7), (7, 3), (0, 2), (4, 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bias_backward(rng, batch, queries, keys, dtype):
    layer = RelativePositions(2, 3, dtype=dtype)
    dy = rng.integers(-9, 9, (*batch, 3, queries, keys)).astype(dtype)
    with unchanged(dy):
        layer.bias_backward(dy)
        layer.bias_backward(Once(np.asfortranarray(dy)))
    expected = np.zeros((5, 3), dtype)
    rows = np.broadcast_to(layer.rows(queries, keys), (*batch, queries, keys))
    np.add.at(expected, rows, 2 * np.moveaxis(dy, -3, -1))
    assert same_bits(layer.grad.to_dense() + 0, expected + 0)


def test_gradients_of_a_bias_that_do_not_fit():
    layer = RelativePositions(2, 3)
    layer.bias_backward(np.ones((3, 2, 2), np.float32))
    pending = layer.grad
    for dy, error, text in [
        (np.ones((3, 2), "f4"), ValueError, "dy must have shape (3, Q, K) or with a batch before it, got (3, 2)"),
        (np.ones((2, 4, 4), "f4"), ValueError, "dy must have shape (3, 4, 4), got (2, 4, 4)"),
        (np.ones((5, 2, 4, 4), "f4"), ValueError, "dy must have shape (5, 3, 4, 4), got (5, 2, 4, 4)"),
        (np.ones((1, 1, 3, 4, 4), "f4"), ValueError, "dy must have shape (3, Q, K) or with a batch before it, got "),
        (np.ones((3, 4, 4)), TypeError, "dy must be real numbers that cast safely to float32, got float64"),
    ]:
        with pytest.raises(error, match=rf"\A{re.escape(text)}"):
            layer.bias_backward(dy)
    assert layer.grad is pending


def test_gradients_of_relative_positions_by_differences(rng):
    layer = RelativePositions(2, 2, dtype="float64", seed=1)
    c = rng.standard_normal((5, 4, 2))
    layer.backward(layer.rows(5, 4), c * np.cos(layer(5, 4)))
    numeric = numeric_gradient(layer.weight, lambda: (c * np.sin(layer(5, 4))).sum())
    np.testing.assert_allclose(layer.grad.to_dense(), numeric, rtol=1e-8, atol=1e-9)
    layer.zero_grad()
    c = rng.standard_normal((3, 2, 5, 4))
    layer.bias_backward(c * np.cos(layer.bias(5, 4)))
    numeric = numeric_gradient(layer.weight, lambda: (c * np.sin(layer.bias(5, 4))).sum())
    np.testing.assert_allclose(layer.grad.to_dense(), numeric, rtol=1e-8, atol=1e-9)


KINDS = {"learned": lambda **o: LearnedPositions(5, 3, **o), "relative": lambda **o: RelativePositions(2, 3, **o)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", [SGD(lr=0.5), Adam(lr=0.1), Adam(lr=0.1, mode="exact")], ids=["SGD", "Adam", "exact"])
def test_steps_and_state_are_those_of_an_embedding(rng, kind, rule):
    one, two, other = (KINDS[kind](optimizer=rule, seed=seed) for seed in (1, 1, 2))
    table = fastemb.Embedding.from_pretrained(one.weight, freeze=False, optimizer=rule)
    for t in range(6):
        ids, dy = rng.integers(0, 5, (4, 3)), rng.standard_normal((4, 3, 3), dtype=np.float32)
        for layer in (one, table):
            layer.backward(ids, dy)
            layer.step(lr=0.25)
        two.fused_step(ids, dy, lr=0.25)
        assert one.grad is two.grad is None
        if t == 2:
            other.load_state_dict(copy.deepcopy(one.state_dict()))
        if t > 2:
            other.fused_step(ids, dy, lr=0.25)
    for layer in (two, table, other):
        layer.flush()
        one.flush()
        assert same_bits(layer.weight, one.weight)
        assert layer.state.step == one.state.step == 6
    assert one.parameters()[0] is one.weight
    clone = copy.deepcopy(one)
    assert type(clone) is type(one)
    assert same_bits(clone.weight, one.weight)


def test_positions_from_pretrained(rng):
    weight = rng.standard_normal((5, 3))
    for kind in (LearnedPositions, RelativePositions):
        frozen = kind.from_pretrained(weight)
        trained = kind.from_pretrained(weight, freeze=False, optimizer=SGD(lr=1.0), dtype="float32")
        assert type(frozen) is type(trained) is kind
        assert frozen.weight is weight
        with unchanged(weight):
            for layer in (frozen, trained):
                layer.fused_step([1], np.ones((1, 3), np.float32))
        np.testing.assert_allclose(trained.weight[:2], weight[:2] - [[0], [1]], rtol=1e-6)
        assert frozen.parameters() == []
    learned = LearnedPositions.from_pretrained(weight)
    learned.add_backward(np.ones((2, 3)))
    assert (learned.grad, learned.scale_by_sqrt_dim) == (None, False)
    assert np.array_equal(learned.add(np.ones((5, 3))), weight + 1)
    learned.scale_by_sqrt_dim = True
    assert np.array_equal(learned.add(np.ones((5, 3))), math.sqrt(3) + weight)
    relative = RelativePositions.from_pretrained(weight)
    assert relative.max_distance == 2
    assert np.array_equal(relative(9)[0], weight[[2, 3, 4, 4, 4, 4, 4, 4, 4]])
    for rows in (0, 4):
        text = f"weight must have an odd number of rows, 2 * max_distance + 1, got {rows}"
        with pytest.raises(ValueError, match=exactly(text)):
            RelativePositions.from_pretrained(np.ones((rows, 3)))
    with pytest.raises(TypeError, match="^weight must be an array, got list$"):
        RelativePositions.from_pretrained([[1.0]])
