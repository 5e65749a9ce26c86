"""Coordinates as waves."""

import pickle
import re

import numpy as np
import pytest
from oracles import numeric_gradient
from point_formulas import FEATURES, SHAPES, plain_features, tolerance
from strategies import FLOATS, same_bits, unchanged

from fastemb.nn import FourierFeatures

each_waves = pytest.mark.parametrize("waves", list(FEATURES.values())[1:], ids=list(FEATURES)[1:])


@each_waves
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_features_are_the_definition(rng, waves, dtype):
    layer = waves(dtype=dtype)
    assert layer.dtype == dtype
    assert layer.frequencies.dtype == (np.float64 if dtype == np.float64 else np.float32)
    for shape in SHAPES:
        points = rng.uniform(-1, 1, (*shape, 3)).astype(dtype)
        with unchanged(points):
            found = layer(points)
        assert found.dtype == dtype
        assert found.shape == (*shape, layer.out_features)
        np.testing.assert_allclose(found.astype(np.float64), plain_features(layer, points), atol=tolerance(dtype))


def test_frequencies_of_kind_log():
    layer = FourierFeatures(2, 3, dtype="float64")
    assert layer.frequencies.tolist() == [[0.5, 0], [1, 0], [2, 0], [0, 0.5], [0, 1], [0, 2]]
    assert (layer.in_features, layer.out_features, layer.include_input) == (2, 12, False)
    assert FourierFeatures(2, 3, include_input=True).out_features == 14
    with pytest.raises(ValueError, match="read-only"):
        layer.frequencies[0] = 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dyadic_points_are_exact(dtype):
    """Of a point ``n / 2**8`` the sines and cosines of quarters of a turn are whole, at any octave."""
    octaves = 20
    layer = FourierFeatures(1, octaves, dtype=dtype)
    numbers = np.arange(-1024, 1025)
    sine, cosine = np.split(layer((numbers / 256).astype(dtype)[:, np.newaxis]), 2, axis=1)
    for k in range(octaves):
        quarters, rest = np.divmod(numbers * 2**k, 128)  # of a turn of 512
        whole = rest == 0
        assert whole.any()
        assert np.array_equal(sine[whole, k], np.array([0, 1, 0, -1])[quarters[whole] % 4])
        assert np.array_equal(cosine[whole, k], np.array([1, 0, -1, 0])[quarters[whole] % 4])
        exact = 2 * np.pi * (numbers * 2**k % 512) / 512
        np.testing.assert_allclose(sine[:, k], np.sin(exact), atol=tolerance(dtype) / 10)
        np.testing.assert_allclose(cosine[:, k], np.cos(exact), atol=tolerance(dtype) / 10)
    assert not np.signbit(sine[numbers >= 0][sine[numbers >= 0] == 0]).any()  # no -0. where a person reads


def test_the_highest_octaves():
    layer = FourierFeatures(1, 129)
    assert np.isfinite(layer.frequencies).all()
    assert np.isfinite(layer([[0.7]])).all()
    assert FourierFeatures(1, 1025, dtype="float64").frequencies[-1, 0] == 2.0**1023
    for dtype, most in (("float32", 129), ("float16", 129), ("float64", 1025)):
        with pytest.raises(ValueError, match=f"^num_frequencies must be <= {most} for dtype {dtype}, got {most + 1}$"):
            FourierFeatures(1, most + 1, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gaussian_frequencies(dtype):
    def make(seed, scale=None):
        return FourierFeatures(4, 5000, kind="gaussian", scale=scale, dtype=dtype, seed=seed)

    a, b, c = make(1), make(1), make(2)
    assert same_bits(a.frequencies, b.frequencies)
    assert not np.array_equal(a.frequencies, c.frequencies)
    assert a.frequencies.shape == (5000, 4)
    assert a.out_features == 10_000
    assert a.frequencies.std() == pytest.approx(1, rel=0.02)
    assert abs(a.frequencies.mean()) < 0.02
    assert np.array_equal(make(1, 4).frequencies, a.frequencies * 4)
    again = FourierFeatures(4, 5000, kind="gaussian", dtype=dtype, seed=np.random.default_rng(1))
    assert same_bits(again.frequencies, a.frequencies)


@each_waves
def test_gradient_of_features(rng, waves):
    layer = waves(dtype="float64")
    points, dy = rng.uniform(-1, 1, (2, 3, 3)), rng.standard_normal((2, 3, layer.out_features))
    with unchanged(points, dy):
        grad = layer.backward(points, dy)
    numeric = numeric_gradient(points, lambda: (layer(points) * dy).sum())
    np.testing.assert_allclose(grad, numeric, rtol=1e-6, atol=1e-8)
    single = waves(dtype="float32")
    layer.load_state_dict({"frequencies": single.frequencies.astype(np.float64)})
    points, dy = points.astype("f4"), dy.astype("f4")
    found = single.backward(points, dy)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, layer.backward(points, dy), rtol=1e-4, atol=1e-4)
    for shape in SHAPES:
        zeros = np.zeros((*shape, layer.out_features))
        assert layer.backward(np.ones((*shape, 3)), zeros).tolist() == np.zeros((*shape, 3)).tolist()


def test_numbers_that_are_not_finite_stay_in_their_point():
    layer = FourierFeatures(2, 3, include_input=True)
    found = layer([[0.5, 0.5], [np.nan, 0.5], [np.inf, 0.5]])
    assert np.isfinite(found[0]).all()
    assert not np.isfinite(found[1:, 0]).any()


@pytest.mark.parametrize("kind", ["log", "gaussian"])
def test_state_of_features(kind):
    layer, other = (FourierFeatures(2, 3, kind=kind, seed=seed) for seed in (1, 2))
    saved = pickle.loads(pickle.dumps(layer.state_dict()))
    other.load_state_dict(saved)
    assert same_bits(layer.frequencies, other.frequencies)
    saved["frequencies"] += 1
    assert same_bits(layer.frequencies, other.frequencies)  # the layer's are its own
    assert not other.frequencies.flags.writeable
    if kind == "log":
        with pytest.raises(ValueError, match="^frequencies must be the octaves of kind 'log'$"):
            other.load_state_dict(saved)
    shape = re.escape(str(layer.frequencies.shape))
    for bad in (np.ones((4, 2), "f4"), layer.frequencies.astype("f8")):
        with pytest.raises(ValueError, match=rf"^frequencies must have shape {shape} and dtype float32, got "):
            other.load_state_dict({"frequencies": bad})
    with pytest.raises(ValueError, match=r"^state_dict must have the entries \['frequencies'\], got \[\]$"):
        other.load_state_dict({})
    with pytest.raises(TypeError, match="^state_dict must be a mapping, got NoneType$"):
        other.load_state_dict(None)
    assert same_bits(layer.frequencies, other.frequencies)
