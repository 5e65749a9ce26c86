"""Rotary embeddings on every device."""

import numpy as np
import pytest

from fastemb.nn import apply_rotary, rotary_angles

from .results import GPUS, assert_close, on_host

CLOSE = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}


@pytest.mark.parametrize("dtype", CLOSE)
def test_angles(device, dtype):
    places = np.array([[0, -5], [2**62 + 1, 3]])
    for found, expected in zip(
        rotary_angles(device.put(places), 6, dtype=dtype), rotary_angles(places, 6, dtype=dtype), strict=True
    ):
        assert_close(device, found, expected, 0, CLOSE[dtype])


@pytest.mark.parametrize("angle_dtype", ["float32", "float64"])
@pytest.mark.parametrize("dtype", CLOSE)
def test_turned(device, rng, dtype, angle_dtype):
    x = rng.standard_normal((2, 3, 6)).astype(dtype)
    cos, sin = rotary_angles(np.arange(3), 6, dtype=angle_dtype)
    expected = apply_rotary(x, cos, sin)
    given = [device.put(array) for array in (x, cos, sin)]
    assert_close(device, apply_rotary(*given), expected, CLOSE[dtype], CLOSE[dtype])
    out = device.put(np.full((2, 3, 6), np.nan, dtype))
    assert apply_rotary(given[0], cos.tolist(), given[2], out=out) is out
    assert_close(device, out, expected, CLOSE[dtype], CLOSE[dtype])
    for array, before in zip(given, (x, cos, sin), strict=True):
        device.same_bits(array, before)


def test_nothing_is_written_after_an_error(device):
    x, angle = device.put(np.ones((2, 4), np.float32)), device.put(np.ones((2, 2), np.float32))
    for change, text in (
        ({"cos": angle[:, :1].repeat(3, axis=1)}, "cos must have a shape that broadcasts"),
        ({"out": x}, "out must not overlap x"),
        ({"out": device.xp.empty((2, 4))}, "out must have dtype float32, got float64"),
        ({"x": x[:, :3]}, "x must have an even last axis"),
    ):
        with pytest.raises(ValueError, match=text):
            apply_rotary(**{"x": x, "cos": angle, "sin": angle, **change})
    with pytest.raises(TypeError, match="sin must be float, got int64"):
        apply_rotary(x, angle, angle.astype(np.int64))
    device.same_bits(x, np.ones((2, 4), np.float32))


@pytest.mark.parametrize("device", GPUS, indirect=True)
def test_arrays_on_two_devices(device):
    host = {"x": np.ones((2, 4)), "cos": np.ones((2, 2)), "sin": np.ones((2, 2)), "out": np.zeros((2, 4))}
    there = {name: device.put(array) for name, array in host.items()}
    for right, wrong in ((host, there), (there, host)):
        for name in ("cos", "sin", "out"):
            with pytest.raises(TypeError, match=rf"one device, got .* and {name} on"):
                apply_rotary(**{**right, name: wrong[name]})
        assert not on_host(right["out"]).any()
