"""Embedding and EmbeddingBag on every device."""

import numpy as np
import pytest

import fastemb
from fastemb import optim

LAYERS = {
    "Embedding": (fastemb.Embedding, ([3, 1, 3, 7],)),
    "EmbeddingBag": (fastemb.EmbeddingBag, ([3, 1, 3, 7], [0, 3])),
}
OPTIONS = [
    {},
    {"padding_idx": 3, "scale_grad_by_freq": True},
    {"max_norm": 0.1, "padding_idx": 1},
    {"optimizer": optim.Adam(lr=0.1)},
    {"optimizer": optim.Momentum(lr=0.1, mode="exact")},
]


@pytest.fixture(params=LAYERS)
def kind(request):
    return LAYERS[request.param]


def gradient(rng, rows):
    return rng.standard_normal((rows, 6)).astype(np.float32)


def pair(device, layer, **options):
    """The same layer on the host and on a device."""
    options = {"optimizer": optim.SGD(lr=0.5), "seed": 5, **options}
    on_device = layer(10, 6, device=device.name, **options)
    assert on_device.device == device.name
    return layer(10, 6, **options), on_device


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_training(device, rng, kind, options):
    layer, batch = kind
    host, on_device = pair(device, layer, **options)
    given = [device.put(np.array(part)) for part in batch]
    close = options.get("max_norm") is not None  # norms are sums in another order
    for _ in range(3):
        expected, found = host(*batch), on_device(*given)
        grad = gradient(rng, len(expected))
        host.backward(*batch, grad)
        on_device.backward(*given, device.put(grad))
        if not close:
            device.same_bits(found, expected)
            device.same_rows(on_device.grad, host.grad)
        host.step()
        on_device.step()
        host.fused_step(*batch, grad)
        on_device.fused_step(*given, device.put(grad))
    host.flush()
    on_device.flush()
    if close:
        on_device.to("cpu")
        np.testing.assert_allclose(on_device.weight, host.weight, rtol=1e-5, atol=1e-7)
    else:
        device.same_bits(on_device.weight, host.weight)


def test_moves_with_all_that_it_has(device, rng, kind):
    layer, batch = kind
    host, moved = layer(10, 6, seed=5, optimizer=optim.Adam(lr=0.1, mode="exact")), None
    moved = layer(10, 6, seed=5, optimizer=optim.Adam(lr=0.1, mode="exact"))
    grad = gradient(rng, len(host(*batch)))
    for place in (device.name, "cpu", device.name):
        assert moved.to(place) is moved
        assert moved.device == place
        put = device.put if place == device.name else np.array
        given = [put(np.array(part)) for part in batch]
        for one, arrays, dy in ((host, batch, grad), (moved, given, put(grad))):
            one.fused_step(*arrays, dy)
            one.backward(*arrays, dy)
    moved.to("cpu")
    np.testing.assert_array_equal(moved.grad.values, host.grad.values)
    for one in (host, moved):
        one.step()
        one.flush()
    np.testing.assert_array_equal(moved.weight, host.weight)


def test_state_dict_goes_from_any_device_to_any(device, rng, kind):
    layer, batch = kind
    host, on_device = pair(device, layer, optimizer=optim.Adam(lr=0.1))
    host.fused_step(*batch, gradient(rng, len(host(*batch))))
    on_device.load_state_dict(host.state_dict())
    device.same_bits(on_device.weight, host.weight)
    device.same_bits(on_device.state.m, host.state.m)
    other = layer(10, 6, optimizer=optim.Adam(lr=0.1))
    other.load_state_dict(on_device.state_dict())
    np.testing.assert_array_equal(other.weight, host.weight)
    np.testing.assert_array_equal(other.state.v, host.state.v)


def test_around_an_existing_table(device, rng, kind):
    layer, batch = kind
    weight = device.put(rng.standard_normal((10, 6)))
    frozen = layer.from_pretrained(weight)
    assert frozen.weight is weight
    assert frozen.device == device.name
    trained = layer.from_pretrained(weight, freeze=False, dtype="float32", optimizer=optim.SGD(lr=1.0))
    rows = len(trained(*([device.put(np.array(part)) for part in batch])))
    trained.fused_step(*batch, device.put(gradient(rng, rows)))  # lists go where the table is
    assert trained.weight.dtype == np.float32
    assert isinstance(trained.state, optim.State)


def test_bound_later(device):
    emb = fastemb.Embedding(10, device=device.name, seed=1)
    assert emb.device == device.name
    emb.bind(6)
    device.same_bits(emb.weight, fastemb.Embedding(10, 6, seed=1).weight)


def test_repr_does_not_care(device):
    assert repr(fastemb.Embedding(10, 6, device=device.name)) == repr(fastemb.Embedding(10, 6))
