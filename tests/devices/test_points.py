"""PointEmbedding and FourierFeatures on every device."""

import numpy as np
import pytest

from fastemb.nn import FourierFeatures, PointEmbedding

from .results import GPUS, assert_close, on_host

KINDS = [{}, {"kind": "gaussian", "scale": 3.0, "seed": 1}, {"include_input": True}]


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_features(device, rng, dtype, options):
    waves = FourierFeatures(3, 4, dtype=dtype, **options)
    wide = "float64" if dtype == "float64" else "float32"
    points = rng.integers(-40, 40, (2, 5, 3)).astype(dtype) / 8
    close = 1e-3 if dtype == "float16" else 1e-6 if dtype == "float32" else 1e-14
    expected = waves(points)
    assert_close(device, waves(device.put(points)), expected, close, close)
    dy = rng.standard_normal(expected.shape).astype(wide)
    assert_close(
        device,
        waves.backward(device.put(points), device.put(dy)),
        waves.backward(points, dy),
        1e-14 if wide == "float64" else 1e-5,
        1e-12 if wide == "float64" else 1e-4,  # of products with up to 2 * pi * 8 that cancel
    )


def test_quarters_of_a_turn_are_exact(device):
    points = np.arange(-8.0, 9.0, dtype=np.float32)[:, np.newaxis] / 2
    found = on_host(FourierFeatures(1, 1)(device.put(points)))
    np.testing.assert_array_equal(found[:, 0], [0, 1, 0, -1] * 4 + [0])
    np.testing.assert_array_equal(found[:, 1], [1, 0, -1, 0] * 4 + [1])
    assert not np.signbit(found[found == 0]).any()


def test_no_points(device):
    waves = FourierFeatures(3, 2)
    device.same_bits(waves(device.xp.zeros((0, 3), np.float32)), np.zeros((0, 12), np.float32))
    layer = PointEmbedding(3, 6, device=device.name)
    device.same_bits(layer(device.xp.zeros((2, 0, 3), np.float32)), np.zeros((2, 0, 6), np.float32))
    layer.backward(device.xp.zeros((0, 3), np.float32), device.xp.zeros((0, 6), np.float32))
    device.same_bits(layer.tables()["weight"].grad.values, np.zeros((6, 3), np.float32))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_points_of_any_strides_and_dtype(device, rng, dtype):
    options = {"dtype": dtype, "seed": 1, "features": FourierFeatures(3, 2, dtype=dtype)}
    host, on_device = PointEmbedding(3, 6, **options), PointEmbedding(3, 6, device=device.name, **options)
    points = rng.integers(-9, 9, (3, 8)).astype(np.int8)
    close = 1e-2 if dtype == "float16" else 1e-13
    assert_close(device, on_device(device.put(points).T[::2]), host(points.T[::2]), close, close)


def test_around_existing_arrays(device, rng):
    weight, bias = device.put(rng.standard_normal((4, 3))), device.put(rng.standard_normal(4))
    layer = PointEmbedding.from_pretrained(weight, bias)
    assert layer.device == device.name
    assert layer.weight is weight
    points = rng.standard_normal((5, 3))
    expected = points @ on_host(weight).T + on_host(bias)
    assert_close(device, layer(device.put(points)), expected, 1e-13, 1e-13)
    trained = PointEmbedding.from_pretrained(weight, freeze=False, dtype="float32")
    assert isinstance(trained.weight, device.xp.ndarray)
    assert trained.weight.dtype == np.float32


@pytest.mark.parametrize("device", GPUS, indirect=True)
def test_arrays_on_two_devices(device):
    weight, bias = np.ones((4, 3)), np.ones(4)
    for first, second in ((device.put(weight), bias), (weight, device.put(bias))):
        with pytest.raises(TypeError, match=r"one device, got weight on .* and bias on"):
            PointEmbedding.from_pretrained(first, second)
    waves = FourierFeatures(3, 2)
    points, dy = np.ones((1, 3), np.float32), np.ones((1, 12), np.float32)
    for first, second in ((device.put(points), dy), (points, device.put(dy))):
        with pytest.raises(TypeError, match=r"one device, got points on .* and dy on"):
            waves.backward(first, second)


@pytest.mark.parametrize("device", GPUS, indirect=True)
def test_bfloat16_is_not_for_a_gpu(device):
    pytest.importorskip("ml_dtypes")
    text = "must be float16, float32 or float64 on a GPU, got bfloat16"
    with pytest.raises(TypeError, match=f"dtype {text}"):
        PointEmbedding(3, 6, dtype="bfloat16", device=device.name)
    layer = PointEmbedding(3, 6, dtype="bfloat16")
    with pytest.raises(TypeError, match=f"weight {text}"):
        layer.to(device.name)
    assert layer.device == "cpu"
    assert isinstance(layer.bias, np.ndarray)
