"""RareTokenEmbedding on every device."""

import numpy as np
import pytest

from fastemb import optim
from fastemb.nn import RareTokenEmbedding

from .results import assert_close, assert_same_state

COUNTS = np.array([0, 0, 9, 9, 2, 9], np.int16)
OPTIONS = {"optimizer": optim.SGD(lr=0.5), "seed": 1}
BATCHES = [
    (np.array([2, 3, 5]), None),  # none is rare
    (np.array([1, 4, 4]), ["zyzzyva", "é", "ab"]),  # all are
    (np.array([1, 2, 1]), ["", "the", ""]),  # without a byte
    (np.array(4), "one"),
    (np.array([], np.int64), None),
]


@pytest.fixture
def layers(device):
    """The same layer on the host and on the device."""
    host = RareTokenEmbedding(6, 6, counts=COUNTS, **OPTIONS)
    return host, RareTokenEmbedding(6, 6, counts=device.put(COUNTS), device=device.name, **OPTIONS)


@pytest.mark.parametrize(("ids", "tokens"), BATCHES, ids=str)
def test_batches(device, layers, rng, ids, tokens):
    host, on_device = layers
    given = device.put(ids)
    device.same_bits(on_device.is_rare(given), host.is_rare(ids))
    expected = host(ids, tokens)
    assert_close(device, on_device(given, tokens), expected, 1e-5, 1e-6)
    dy = rng.standard_normal(expected.shape).astype(np.float32)
    host.fused_step(ids, dy, tokens)
    on_device.fused_step(given, device.put(dy), tokens)
    assert_same_state(on_device, host, exact=False)


@pytest.mark.parametrize(
    ("ids", "tokens", "error", "text"),
    [
        ([1, 2], None, ValueError, "tokens must be given"),
        ([1, 2], ["a"], ValueError, r"tokens must have the shape of ids, \(2,\), got \(1,\)"),
        ([1, 6], ["a", "b"], IndexError, r"\[0, 6\)"),
        ([1], [3], TypeError, "tokens must be str or bytes, got int"),
    ],
)
def test_batches_that_do_not_fit(device, layers, ids, tokens, error, text):
    with pytest.raises(error, match=text):
        layers[1](device.put(np.array(ids)), tokens)


def test_which_ids_are_rare_is_part_of_the_state(device, layers):
    _, on_device = layers
    other = RareTokenEmbedding(6, 6, device=device.name, **OPTIONS)
    assert not other.is_rare([4])[0]
    other.load_state_dict(layers[0].state_dict())
    assert other.is_rare([4])[0]
    assert repr(other) == repr(on_device) == repr(layers[0])
