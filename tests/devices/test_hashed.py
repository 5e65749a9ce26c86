"""HashEmbedding on every device: ids of all kinds hash to the same rows."""

import numpy as np
import pytest

from fastemb.nn import HashEmbedding

from ..cuda import standin

NUMBERS = [
    np.array([[0, 1], [-1, -128]], np.int8),
    np.array([0, 255], np.uint8),
    np.array([-(2**31), 7], np.int32),
    np.array([-(2**63), 2**63 - 1, 0]),
    np.array([2**63, 2**64 - 1], np.uint64),
    np.array([], np.int64),
    np.array(5),
]


@pytest.fixture
def layers(device):
    """The same layer on the host and on the device."""
    options = {"num_hashes": 4, "hash_seed": 2**40 + 3, "seed": 1}
    return HashEmbedding(1009, 6, **options), HashEmbedding(1009, 6, device=device.name, **options)


@pytest.mark.parametrize("ids", NUMBERS, ids=str)
def test_numbers(device, layers, ids):
    host, on_device = layers
    given = device.put(ids)
    device.same_bits(on_device.buckets(given), host.buckets(ids))
    device.same_bits(on_device(given), host(ids))
    device.same_bits(given, ids)
    device.same_bits(on_device.buckets(ids.tolist()), host.buckets(ids))


def test_strides(device, layers):
    ids = np.arange(-6, 6).reshape(3, 4)
    device.same_bits(layers[1].buckets(device.put(ids).T[::2]), layers[0].buckets(ids.T[::2]))


@pytest.mark.parametrize("ids", [["cat", "é"], [["a\0"], [b"b"]], "cat", np.array(["cat", "dog"]), [2**64 - 1, -1]])
def test_what_is_on_the_host(device, layers, ids):
    host, on_device = layers
    device.same_bits(on_device.buckets(ids), host.buckets(ids))
    device.same_bits(on_device(ids), host(ids))


@pytest.mark.parametrize(
    ("ids", "error", "text"),
    [
        (lambda xp: xp.zeros(3), TypeError, "ids must be integers, got float64"),
        (lambda xp: xp.zeros(3, bool), TypeError, "ids must be integers, got bool"),
        (lambda xp: [2**64], ValueError, f"ids must fit into 64 bits, got {2**64}"),
        (lambda xp: ["a", 1], TypeError, "ids must be all integers or all text, got text and int"),
    ],
)
def test_wrong_ids(device, layers, ids, error, text):
    with pytest.raises(error, match=text):
        layers[1](ids(device.xp))


@pytest.mark.parametrize("shape", [{"num_hashes": 1}, {"num_hashes": 2}])
def test_a_lookup_does_not_wait_for_the_device(stand_in, shape):
    words = HashEmbedding(50, 6, device="cuda", **shape)
    ids = stand_in.arange(5)
    with standin.waits(0):
        words(ids)
