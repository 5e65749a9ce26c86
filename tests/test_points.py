"""Points as vectors."""

import copy
import math
import pickle
import re

import numpy as np
import pytest
from oracles import numeric_gradient
from point_formulas import FEATURES, SHAPES, plain_features, tolerance
from strategies import FLOATS, big_endian, exactly, read_only, same_bits, strided, unchanged

from fastemb.nn import FourierFeatures, PointEmbedding
from fastemb.optim import SGD, Adam

each_features = pytest.mark.parametrize("features", FEATURES.values(), ids=FEATURES)


W = np.array([[0.5, -0.2, 0.1], [0.0, 0.3, 0.8], [-0.4, 0.6, 0.2], [0.7, 0.1, -0.5]])
B = np.array([0.1, 0.0, -0.2, 0.3])


@pytest.mark.parametrize("freeze", [True, False])
def test_seed_001(freeze):
    layer = PointEmbedding.from_pretrained(W, B, freeze=freeze)
    assert str(layer(np.array([1.0, 2.0, -1.0]))) == "[ 0.1 -0.2  0.4  1.7]"
    np.testing.assert_allclose(layer([[1, 2, -1]] * 2), [W @ [1, 2, -1] + B] * 2, rtol=1e-14)
    np.testing.assert_allclose(PointEmbedding.from_pretrained(W)([1.0, 2.0, -1.0]), W @ [1, 2, -1], rtol=1e-14)


@each_features
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_vectors_are_the_definition(rng, features, bias, dtype):
    waves = features(dtype=dtype)
    layer = PointEmbedding(3, 4, bias=bias, features=waves, dtype=dtype, seed=1)
    weight = layer.weight.astype(np.float64)
    for shape in SHAPES:
        points = rng.uniform(-1, 1, (*shape, 3)).astype(dtype)
        with unchanged(points, *layer.parameters()):
            found = layer(points)
        assert found.dtype == dtype
        assert found.shape == (*shape, 4)
        inputs = points.astype(np.float64) if waves is None else plain_features(waves, points)
        wanted = inputs @ weight.T + (layer.bias.astype(np.float64) if bias else 0)
        np.testing.assert_allclose(found.astype(np.float64), wanted, atol=3 * tolerance(dtype))


@each_features
@pytest.mark.parametrize("bias", [True, False])
def test_finite_differences(rng, features, bias):
    layer = PointEmbedding(3, 4, bias=bias, features=features(dtype="float64"), dtype="float64", seed=2)
    points, dy = rng.uniform(-1, 1, (2, 3, 3)), rng.standard_normal((2, 3, 4))

    def loss():
        return (layer(points) * dy).sum()

    with unchanged(points, dy):
        grad = layer.backward(points, dy)
    np.testing.assert_allclose(grad, numeric_gradient(points, loss), rtol=1e-6, atol=1e-8)
    assert set(layer.tables()) == ({"weight", "bias"} if bias else {"weight"})
    for table in layer.tables().values():
        np.testing.assert_allclose(table.grad.to_dense(), numeric_gradient(table.weight, loss), rtol=1e-6, atol=1e-8)
    before = {name: table.grad.to_dense() for name, table in layer.tables().items()}
    layer.backward(points, dy)  # adds up
    for name, table in layer.tables().items():
        assert np.array_equal(table.grad.to_dense(), 2 * before[name])
    layer.zero_grad()
    assert layer.backward(points[0, 0], dy[0, 0]).shape == (3,)
    assert layer.backward(points[:0], dy[:0]).shape == (0, 3, 3)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_gradients_have_the_accumulation_dtype(rng, dtype):
    layer = PointEmbedding(3, 2, dtype=dtype, features=FourierFeatures(3, 2, dtype=dtype), optimizer=SGD(lr=0.5))
    wanted = np.float64 if dtype == np.float64 else np.float32
    grad = layer.backward(rng.uniform(-1, 1, (5, 3)).astype(dtype), np.ones((5, 2), dtype))
    assert grad.dtype == wanted
    assert all(table.grad.values.dtype == wanted for table in layer.tables().values())
    before = layer.bias.copy()
    layer.step()
    assert np.array_equal(layer.bias, (before.astype(wanted) - 2.5).astype(dtype))


def test_the_bias_of_many_points_is_not_lost():
    layer = PointEmbedding(1, 1)
    count = 1 << 18
    layer.backward(np.zeros((count, 1), "f4"), np.full((count, 1), 0.1, "f4"))
    assert layer.tables()["bias"].grad.values[0, 0] == np.float32(np.float64(np.float32(0.1)) * count)


def test_layouts_of_points(rng):
    layer = PointEmbedding(3, 4, features=FourierFeatures(3, 2), seed=1)
    points = rng.integers(-3, 4, (6, 3)).astype(np.float32)
    wanted = layer(points)
    for given in (points.tolist(), points.astype(np.int8), points.astype(np.float16), big_endian(points)):
        assert same_bits(layer(given), wanted)
    for layout in (strided, read_only, np.asfortranarray):
        assert same_bits(layer(layout(points)), wanted)


BAD = [
    (np.ones((5, 2), "f4"), ValueError, "points must have shape (5, 3), got (5, 2)"),
    (np.ones((3, 1), "f4"), ValueError, "points must have shape (3, 3), got (3, 1)"),
    (np.float32(1), ValueError, "points must have shape (3,), got ()"),
    (np.ones((5, 3)), TypeError, "points must be real numbers that cast safely to float32, got float64; convert it "),
    (np.ones((5, 3), int), TypeError, "points must be real numbers that cast safely to float32, got int64"),
    (np.ones((5, 3), bool), TypeError, "points must be real numbers that cast safely to float32, got bool"),
    ([[True, False, True]], TypeError, "points must be real numbers that cast safely to float32, got a list that "),
    (np.ones((5, 3), complex), TypeError, "points must be real numbers that cast safely to float32, got complex128"),
    ([["a", "b", "c"]], TypeError, "points must be real numbers that cast safely to float32, got <U1"),
]


@pytest.mark.parametrize(("points", "error", "text"), BAD)
def test_points_that_do_not_fit(points, error, text):
    waves = FourierFeatures(3, 2)
    layer = PointEmbedding(3, 4, features=waves)
    count = np.shape(points)[:-1]
    for call in (
        waves,
        layer,
        lambda p: waves.backward(p, np.ones((*count, 12), "f4")),
        lambda p: layer.backward(p, np.ones((*count, 4), "f4")),
    ):
        with pytest.raises(error, match="^" + re.escape(text)):
            call(points)
    assert not any(table.grad for table in layer.tables().values())


def test_gradients_that_do_not_fit():
    waves, points = FourierFeatures(3, 2), np.ones((5, 3), "f4")
    layer = PointEmbedding(3, 4)
    with pytest.raises(ValueError, match=exactly("dy must have shape (5, 12), got (5, 4)")):
        waves.backward(points, np.ones((5, 4), "f4"))
    with pytest.raises(ValueError, match=exactly("dy must have shape (5, 4), got (4, 4)")):
        layer.backward(points, np.ones((4, 4), "f4"))
    with pytest.raises(TypeError, match="^dy must be real numbers that cast safely to float32, got float64"):
        layer.backward(points, np.ones((5, 4)))
    assert not any(table.grad for table in layer.tables().values())


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: FourierFeatures(0, 2), ValueError, "in_features must be >= 1, got 0"),
        (lambda: FourierFeatures(2, 0), ValueError, "num_frequencies must be >= 1, got 0"),
        (lambda: FourierFeatures(2, 2.0), TypeError, "num_frequencies must be an integer, got 2.0"),
        (lambda: FourierFeatures(2, 2, kind="lin"), ValueError, "kind must be one of 'log', 'gaussian', got 'lin'"),
        (lambda: FourierFeatures(2, 2, scale=2), ValueError, "scale is for kind 'gaussian' alone, got 2"),
        (lambda: FourierFeatures(2, 2, kind="gaussian", scale=0), ValueError, "scale must be > 0, got 0"),
        (lambda: FourierFeatures(2, 2, dtype="i4"), TypeError, "dtype must be float16, bfloat16, float32 or float64, "),
        (lambda: PointEmbedding(0, 2), ValueError, "in_features must be >= 1, got 0"),
        (lambda: PointEmbedding(2, 0), ValueError, "embedding_dim must be >= 1, got 0"),
        (lambda: PointEmbedding(2, 2, init="ones"), ValueError, "init must be one of ['normal', "),
        (lambda: PointEmbedding(2, 2, features=3), TypeError, "features must be a FourierFeatures, got int"),
        (lambda: PointEmbedding(3, 2, features=FourierFeatures(2, 1)), ValueError, "features must have in_features 3"),
        (
            lambda: PointEmbedding(2, 2, features=FourierFeatures(2, 1), dtype="f8"),
            ValueError,
            "features must have the dtype of the layer, float64, got float32",
        ),
        (lambda: PointEmbedding.from_pretrained(W, B[:3]), ValueError, "bias must have shape (4,), got (3,)"),
        (lambda: PointEmbedding.from_pretrained(W, B[:, None]), ValueError, "bias must have shape (4,), got (4, 1)"),
        (lambda: PointEmbedding.from_pretrained(W, B.tolist()), TypeError, "bias must be an array, got list"),
        (lambda: PointEmbedding.from_pretrained(W, np.arange(4)), TypeError, "bias must be float16, bfloat16, "),
        (lambda: PointEmbedding.from_pretrained(B), ValueError, "weight must be 2-D (N, D), got shape (4,)"),
        (lambda: PointEmbedding.from_pretrained(W[:0]), ValueError, "embedding_dim must be >= 1, got 0"),
        (
            lambda: PointEmbedding.from_pretrained(W, features=FourierFeatures(1, 2, dtype="f8")),
            ValueError,
            "weight must have the width of the features, 4, got 3",
        ),
    ],
)
def test_options_out_of_range(make, error, text):
    with pytest.raises(error, match="^" + re.escape(text)):
        make()


def test_initialisers():
    layer = PointEmbedding(5, 4000, features=FourierFeatures(5, 2, include_input=True), seed=3)
    bound = math.sqrt(1 / 25)
    for array in (layer.weight, layer.bias):
        assert 0.99 * bound < np.abs(array).max() <= bound * 1.0001
        assert abs(array.mean()) < 0.05 * bound
    assert np.abs(PointEmbedding(4, 1000).weight).max() == pytest.approx(0.5, rel=0.01)
    a, b, c = (PointEmbedding(2, 3, seed=seed) for seed in (1, 1, 2))
    assert same_bits(a.weight, b.weight)
    assert same_bits(a.bias, b.bias)
    assert not np.array_equal(a.weight, c.weight)
    layer = PointEmbedding(2, 3, init=lambda rng, shape, dtype: np.arange(6.0).reshape(shape))
    assert layer.weight.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert layer.bias.tolist() == [0, 0, 0]
    assert PointEmbedding(2, 3, init="normal", seed=1).bias.tolist() == [0, 0, 0]


def test_attributes():
    waves = FourierFeatures(3, 2, kind="gaussian", scale=10, include_input=True)
    layer = PointEmbedding(3, 4, bias=False, features=waves)
    assert (layer.in_features, layer.embedding_dim, layer.weight.shape) == (3, 4, (4, 7))
    assert layer.features is waves
    assert layer.bias is None
    assert repr(waves) == "FourierFeatures(3, 2, kind='gaussian', scale=10, include_input=True, dtype=float32)"
    assert repr(layer) == f"PointEmbedding(3, 4, bias=False, features={waves!r}, dtype=float32)"
    assert repr(FourierFeatures(3, 2)) == "FourierFeatures(3, 2, kind='log', dtype=float32)"
    layer = PointEmbedding(3, 4, dtype="float64")
    assert repr(layer) == "PointEmbedding(3, 4, dtype=float64)"
    assert [a.shape for a in layer.parameters()] == [(4, 3), (4, 1)]
    layer.bias[1] = 7  # a view
    assert layer.tables()["bias"].weight[1, 0] == 7
    assert layer.features is None
    assert pickle.loads(pickle.dumps(layer)).bias[1] == 7


def test_frozen_layers_share_and_give_the_gradient_of_points_alone():
    weight, bias = W.copy(), B.copy()
    layer = PointEmbedding.from_pretrained(weight, bias, optimizer=SGD(lr=1.0))
    assert layer.weight is weight
    assert np.shares_memory(layer.bias, bias)
    with unchanged(weight, bias):
        np.testing.assert_allclose(layer.backward([1.0, 2.0, 3.0], np.eye(4)[1]), W[1])
        layer.step()
    assert not any(table.grad for table in layer.tables().values())
    assert layer.parameters() == []
    layer = PointEmbedding.from_pretrained(weight, bias, freeze=False, optimizer=SGD(lr=1.0))
    with unchanged(weight, bias):
        layer.backward([1.0, 2.0, 3.0], np.eye(4)[1])
        layer.step()
    np.testing.assert_allclose(layer.weight, W - np.outer(np.eye(4)[1], [1, 2, 3]))
    np.testing.assert_allclose(layer.bias, B - np.eye(4)[1])
    converted = PointEmbedding.from_pretrained(big_endian(weight), bias.astype("f4"), dtype="float32")
    assert converted.weight.dtype == converted.bias.dtype == np.float32
    np.testing.assert_allclose(converted([1.0, 2.0, -1.0]), [0.1, -0.2, 0.4, 1.7], rtol=1e-5)
    swapped = PointEmbedding.from_pretrained(big_endian(weight), big_endian(bias))
    assert swapped([1.0, 2.0, -1.0]).dtype.isnative
    with pytest.raises(RuntimeError, match="^this layer has no optimizer"):
        PointEmbedding(3, 4).step()


def train(layer, points, target, steps):
    for _ in range(steps):
        error = layer(points) - target
        layer.backward(points, 2 * error / error.size)
        layer.step()
    return float(((layer(points) - target) ** 2).mean())


def test_state_dict_resumes_with_the_same_bits(rng):
    points, target = rng.uniform(-1, 1, (20, 2)).astype("f4"), rng.standard_normal((20, 3)).astype("f4")

    def make(seed):
        waves = FourierFeatures(2, 3, kind="gaussian", seed=seed)
        return PointEmbedding(2, 3, features=waves, optimizer=Adam(lr=0.1), seed=seed)

    layer, resumed = make(1), make(2)
    train(layer, points, target, 5)
    saved = pickle.loads(pickle.dumps(layer.state_dict()))
    assert set(saved) == {"weight", "bias", "features"}
    resumed.load_state_dict(saved)
    assert same_bits(layer.features.frequencies, resumed.features.frequencies)
    assert train(layer, points, target, 5) == train(resumed, points, target, 5)
    assert same_bits(layer.weight, resumed.weight)
    assert same_bits(layer.bias, resumed.bias)
    plain = PointEmbedding(2, 3, bias=False)
    assert set(plain.state_dict()) == {"weight"}
    plain.load_state_dict(plain.state_dict())


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda s: s.pop("features"), ValueError, "state_dict must have the entries ['bias', 'features', 'weight']"),
        (lambda s: s.pop("bias"), ValueError, "state_dict must have the entries ['bias', 'features', 'weight']"),
        (lambda s: s["features"].clear(), ValueError, "state_dict must have the entries ['frequencies'], got []"),
        (lambda s: s["bias"].update(weight=np.ones(3, "f4")), ValueError, "weight must have shape (3, 1) and dtype"),
        (lambda s: s["weight"].update(weight=np.ones((3, 6))), ValueError, "weight must have shape (3, 6) and dtype"),
    ],
)
def test_state_dicts_that_do_not_fit(change, error, text):
    layer = PointEmbedding(2, 3, features=FourierFeatures(2, 3, kind="gaussian"))
    saved = copy.deepcopy(layer.state_dict())
    saved["weight"]["weight"] = saved["weight"]["weight"] + 1
    saved["features"]["frequencies"] = saved["features"]["frequencies"] + 1
    change(saved)
    frequencies = layer.features.frequencies
    with unchanged(*layer.parameters()), pytest.raises(error, match="^" + re.escape(text)):
        layer.load_state_dict(saved)
    assert layer.features.frequencies is frequencies


def test_a_sharp_edge_needs_waves():
    """Between two close points the target jumps: a linear map cannot follow, waves can (seed 001)."""
    points = np.linspace(0, 1, 64, dtype=np.float32)[:, np.newaxis]
    target = (points > 0.5).astype(np.float32)
    loss, jump = {}, {}
    for waves in (None, FourierFeatures(1, 128, kind="gaussian", scale=16, seed=0)):
        layer = PointEmbedding(1, 1, features=waves, optimizer=Adam(lr=0.02), seed=0)
        loss[waves] = train(layer, points, target, 300)
        jump[waves] = float((layer(points[32]) - layer(points[31]))[0])
    line = np.polynomial.Polynomial.fit(points[:, 0], target[:, 0], 1)
    best = float(((line(points[:, 0]) - target[:, 0]) ** 2).mean())
    assert loss[None] == pytest.approx(best, rel=0.05)
    assert loss[waves] < best / 1000
    assert jump[waves] > 0.9 > 10 * jump[None]
