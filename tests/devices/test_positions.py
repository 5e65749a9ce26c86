"""Vectors of positions on every device: sines, learned rows, distances."""

import numpy as np
import pytest

from fastemb import optim
from fastemb.nn import LearnedPositions, RelativePositions, SinusoidalPositions

from ..cuda import standin
from .results import GPUS, assert_close, on_host

PLACES = [
    np.array([[0, 1, -1], [5, 127, -128]], np.int8),
    np.array([-(2**63), 2**63 - 1, 2**40 + 1]),
    np.array([2**63 + 5, 2**64 - 1], np.uint64),
    np.array(7, np.int32),
    np.array([], np.int64),
]
CLOSE = {"float16": 1e-3, "float32": 2e-7, "float64": 4e-15}


@pytest.mark.parametrize("places", PLACES, ids=str)
@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("width", [1, 7])
def test_sines(device, width, dtype, places):
    layer = SinusoidalPositions(width, dtype=dtype)
    assert_close(device, layer(device.put(places)), layer(places), 0, CLOSE[dtype])


@pytest.mark.parametrize("dtype", ["int16", "float16", "float32"])
def test_sines_are_added_where_the_tokens_are(device, rng, dtype):
    layer = SinusoidalPositions(6, scale_by_sqrt_dim=True)
    tokens = rng.integers(-9, 9, (2, 4, 6)).astype(dtype)
    given = device.put(tokens)
    assert_close(device, layer.add(given), layer.add(tokens), 1e-6, 1e-6)
    device.same_bits(given, tokens)


def test_numbers_without_tables_stay_on_the_host():
    layer = SinusoidalPositions(6)
    assert isinstance(layer([0, 1]), np.ndarray)
    with pytest.raises(ValueError, match="positions must fit into 64 bits"):
        layer([2**64])


@pytest.mark.parametrize("scaled", [False, True])
def test_learned_rows(device, rng, scaled):
    options = {"optimizer": optim.SGD(lr=1.0), "seed": 1, "scale_by_sqrt_dim": scaled}
    host, on_device = LearnedPositions(5, 6, **options), LearnedPositions(5, 6, device=device.name, **options)
    tokens = rng.standard_normal((2, 3, 6)).astype(np.float32)
    device.same_bits(on_device.add(device.put(tokens)), host.add(tokens))
    device.same_bits(on_device.add(tokens.astype(float).tolist()), host.add(tokens))
    for layer, dy in ((host, tokens), (on_device, device.put(tokens))):
        layer.add_backward(dy)
        layer.step()
    device.same_bits(on_device.weight, host.weight)
    with pytest.raises(IndexError, match=r"\[0, 5\), but got values in \[0, 5\]"):
        on_device.add(device.put(np.ones((6, 6), np.float32)))


def test_distances(device, rng):
    options = {"optimizer": optim.SGD(lr=1.0), "seed": 1}
    host, on_device = RelativePositions(2, 6, **options), RelativePositions(2, 6, device=device.name, **options)
    device.same_bits(on_device.rows(3, 7), host.rows(3, 7))
    device.same_bits(on_device(3), host(3))
    device.same_bits(on_device(0, 4), host(0, 4))
    device.same_bits(on_device.bias(3, 7), host.bias(3, 7))
    dy = rng.standard_normal((2, 6, 3, 7)).astype(np.float32)
    for layer, given in ((host, dy), (on_device, device.put(dy))):
        layer.bias_backward(given)
        layer.step()
        layer.bias_backward(given[0])
        layer.step()
    device.same_bits(on_device.weight, host.weight)


def test_distances_are_not_checked_on_a_gpu(stand_in):
    layer = RelativePositions(2, 6, device="cuda")
    with standin.waits(0):
        layer(3)


@pytest.mark.parametrize("device", GPUS, indirect=True)
def test_arrays_on_another_device(device):
    rows = np.ones((2, 6), np.float32)
    heads = np.ones((6, 2, 2), np.float32)
    for where, put in ((device.name, np.array), ("cpu", device.put)):
        learned, relative = LearnedPositions(5, 6, device=where), RelativePositions(2, 6, device=where)
        before = on_host(learned.weight)
        for call, given, name in (
            (learned.add, rows, "tokens"),
            (learned.add_backward, rows, "dy"),
            (relative.bias_backward, heads, "dy"),
        ):
            with pytest.raises(TypeError, match=rf"one device, got weight on .* and {name} on"):
                call(put(given))
        np.testing.assert_array_equal(on_host(learned.weight), before)
        assert learned.grad is relative.grad is None
