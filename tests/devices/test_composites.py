"""Layers of several tables on every device: training, moving, state, and what is refused."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from fastemb import nn, optim

from .results import GPUS, assert_close, assert_same_state, leaves

TOKENS = [["the", "zyzzyva", "", "a"], ["é", "zyzzyva", "cat", "the"]]


class Case(NamedTuple):
    """How to make a layer, what it is given, and whether all sums are those of kernels."""

    make: Callable[..., Any]
    given: np.ndarray
    extra: dict = {}
    exact: bool = True


def hashed(**shape):
    return Case(
        lambda **options: nn.HashEmbedding(20, 6, **shape, **options),
        np.array([[-(2**62), 3, 11], [2**62, 3, 3]]),
        exact="weighted" not in shape,
    )


def points(features=None):
    return Case(
        lambda **options: nn.PointEmbedding(3, 6, features=features, **options),
        np.random.default_rng(1).standard_normal((2, 5, 3)).astype(np.float32),
        exact=False,
    )


CASES = {
    "fields": Case(
        lambda **options: nn.FieldEmbedding({"a": (9, 6), "b": (4, 2)}, share={"c": "a"}, **options),
        np.array([[[8, 3, 0], [8, 0, 8]], [[1, 3, 1], [0, 1, 2]]]),
    ),
    "one hash": hashed(num_hashes=1),
    "two hashes": hashed(),
    "weighted hashes": hashed(weighted=True, num_weights=30),
    "pruned": Case(
        lambda **options: nn.PrunedEmbedding(9, 6, row_of=[0, 1, -1, 1, 2, 3, -1, 4, 5], **options),
        np.array([[8, 3, 1], [2, 2, 0]], np.uint8),
    ),
    "rare": Case(
        lambda **options: nn.RareTokenEmbedding(9, 6, counts=[0, 0, 9, 9, 2, 9, 9, 9, 9], **options),
        np.array([[2, 1, 4, 0], [1, 4, 8, 2]]),
        {"tokens": TOKENS},
        exact=False,
    ),
    "points": points(),
    "waves": points(nn.FourierFeatures(3, 2, include_input=True)),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def options(**changed):
    return {"optimizer": optim.SGD(lr=0.5), "seed": 5, **changed}


def gradient(rng, shape):
    return rng.standard_normal(shape).astype(np.float32)


def step(layer, case, given, dy):
    """Everything that trains."""
    layer.backward(given, dy, **case.extra)
    layer.step()
    if hasattr(layer, "fused_step"):
        layer.fused_step(given, dy, **case.extra)


def test_training(device, rng, case):
    host, on_device = case.make(**options()), case.make(device=device.name, **options())
    assert on_device.device == device.name
    given = device.put(case.given)
    for _ in range(2):
        expected, found = host(case.given, **case.extra), on_device(given, **case.extra)
        if case.exact:
            device.same_bits(found, expected)
        else:
            assert_close(device, found, expected, 1e-5, 1e-6)
        dy = gradient(rng, expected.shape)
        step(host, case, case.given, dy)
        step(on_device, case, given, device.put(dy))
    for name, value in leaves(on_device.state_dict()).items():
        assert isinstance(value, (int, np.ndarray if name == "features.frequencies" else device.xp.ndarray)), name
    assert_same_state(on_device, host, exact=case.exact)
    device.same_bits(given, case.given)


def test_moves_with_all_that_it_has(device, rng, case):
    exact = options(optimizer=optim.Momentum(lr=0.1, mode="exact"))
    host, moved = case.make(**exact), case.make(**exact)
    dy = gradient(rng, host(case.given, **case.extra).shape)
    for place in (device.name, "cpu"):
        assert moved.to(place) is moved
        assert moved.device == place
        assert all(table.device == place for table in moved.tables().values())
        put = device.put if place == device.name else np.array
        step(host, case, case.given, dy)
        step(moved, case, put(case.given), put(dy))
        for layer, array in ((host, np.array), (moved, put)):
            layer.backward(array(case.given), array(dy), **case.extra)  # to be pending when it is moved
    moved.flush()
    host.flush()
    assert_same_state(moved, host, exact=case.exact)


def test_state_dict_goes_from_any_device_to_any(device, rng, case):
    host, on_device = case.make(**options()), case.make(device=device.name, **options(seed=6))
    step(host, case, case.given, gradient(rng, host(case.given, **case.extra).shape))
    on_device.load_state_dict(host.state_dict())
    assert on_device.device == device.name
    assert_same_state(on_device, host, exact=True)
    other = case.make(**options(seed=7))
    other.load_state_dict(on_device.state_dict())
    assert_same_state(other, host, exact=True)
    expected, found = host(case.given, **case.extra), on_device(device.put(case.given), **case.extra)
    assert_close(device, found, expected, 1e-5, 1e-6)


def test_numbers_go_where_the_tables_are(device, rng, case):
    host, on_device = case.make(**options()), case.make(device=device.name, **options())
    expected = host(case.given, **case.extra)
    assert_close(device, on_device(case.given.tolist(), **case.extra), expected, 1e-5, 1e-6)
    dy = gradient(rng, expected.shape)
    host.backward(case.given, dy, **case.extra)
    on_device.backward(case.given.tolist(), dy.tolist(), **case.extra)
    host.step()
    on_device.step()
    assert_same_state(on_device, host, exact=False)


def shown(layer):
    return {name: str(value) for name, value in leaves(layer.state_dict()).items()}


@pytest.mark.parametrize("device", GPUS, indirect=True)
def test_arrays_on_two_devices(device, rng, case):
    host, on_device = case.make(**options()), case.make(device=device.name, **options())
    dy = gradient(rng, host(case.given, **case.extra).shape)
    before = shown(on_device)
    on_gpu = device.put(case.given), device.put(dy)
    for layer, right, wrong in ((on_device, on_gpu, (case.given, dy)), (host, (case.given, dy), on_gpu)):
        with pytest.raises(TypeError, match=r"one device, got weight on .* and ids|points|array"):
            layer(wrong[0], **case.extra)
        trains = [layer.backward, layer.fused_step] if hasattr(layer, "fused_step") else [layer.backward]
        for call in trains:
            with pytest.raises(TypeError, match=r"one device, got .*(cpu.*cuda|cuda.*cpu)"):
                call(wrong[0], right[1], **case.extra)
            with pytest.raises(TypeError, match=r"one device, got weight on .* and (dy|grad) on"):
                call(right[0], wrong[1], **case.extra)
    assert shown(on_device) == before
    assert all(table.grad is None for table in (*on_device.tables().values(), *host.tables().values()))


def test_a_device_that_is_none(case):
    layer = case.make(**options())
    for call in (lambda: case.make(device="gpu"), lambda: layer.to("gpu")):
        with pytest.raises(ValueError, match="device must be 'cpu', 'cuda' or 'cuda:<number>', got 'gpu'"):
            call()
    assert layer.device == "cpu"
