"""PrunedEmbedding on every device: rows given up and taken back."""

import numpy as np
import pytest

from fastemb import optim
from fastemb.nn import PrunedEmbedding

from .results import GPUS, assert_same_state, on_host

ROW_OF = np.array([0, 1, -1, 1, 2, 3, 4, 5], np.int16)
COUNTS = np.array([5, 1, 9, 1, 0, 7, 3, 4])
OPTIONS = {"row_of": ROW_OF, "optimizer": optim.Adam(lr=0.1), "seed": 1}


@pytest.fixture
def layers(device, rng):
    """The same layer on the host and on the device, trained for a step."""
    pair = PrunedEmbedding(8, 6, **OPTIONS), PrunedEmbedding(8, 6, device=device.name, **OPTIONS)
    dy = rng.standard_normal((3, 6)).astype(np.float32)
    pair[0].fused_step(np.array([0, 5, 7]), dy)
    pair[1].fused_step(device.put(np.array([0, 5, 7])), device.put(dy))
    return pair


def put(device, given):
    return {name: device.put(value) if isinstance(value, np.ndarray) else value for name, value in given.items()}


@pytest.mark.parametrize(
    "how",
    [
        {"ratio": 0.4},
        {"keep": 3},
        {"keep": 0},
        {"ratio": 0.0},
        {"keep": 4, "by": "frequency", "counts": COUNTS},
        {"ratio": 0.5, "by": "frequency", "counts": COUNTS.tolist()},
    ],
    ids=str,
)
def test_pruning(device, layers, rng, how):
    host, on_device = layers
    device.same_bits(on_device.prune(**put(device, how)), host.prune(**how))
    device.same_bits(on_device.row_of, host.row_of)
    assert_same_state(on_device, host, exact=True)
    ids = np.arange(8)
    device.same_bits(on_device(device.put(ids)), host(ids))
    dy = rng.standard_normal((8, 6)).astype(np.float32)
    host.fused_step(ids, dy)
    on_device.fused_step(device.put(ids), device.put(dy))
    assert_same_state(on_device, host, exact=True)


def test_counts_may_be_on_the_host(device, layers):
    host, on_device = layers
    how = {"keep": 2, "by": "frequency", "counts": COUNTS}
    device.same_bits(on_device.prune(**how), host.prune(**how))


def test_restoring(device, layers):
    host, on_device = layers
    for layer in layers:
        layer.prune(keep=2)
    values = np.arange(12, dtype=np.float16).reshape(2, 6)
    ids = np.array([[6, 7, 2, 6]], np.uint8)  # all but 7 are pruned
    device.same_bits(on_device.restore(device.put(ids), device.put(values)), host.restore(ids, values))
    device.same_bits(on_device.weight, host.weight)
    device.same_bits(on_device.restore(), host.restore())
    assert_same_state(on_device, host, exact=True)
    with pytest.raises(IndexError, match=r"\[0, 8\), but got values in \[1, 8\]"):
        on_device.restore(device.put(np.array([1, 8])))
    with pytest.raises(ValueError, match=r"values must have shape \(0, 6\), got \(1, 6\)"):
        on_device.restore(device.put(np.array([1])), device.put(np.ones((1, 6), np.float32)))
    assert_same_state(on_device, host, exact=True)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_around_an_existing_table(device, rng, dtype):
    weight = rng.standard_normal((6, 6)).astype(dtype)
    host = PrunedEmbedding.from_pretrained(weight, row_of=ROW_OF)
    for row_of in (ROW_OF, device.put(ROW_OF), ROW_OF.tolist()):
        on_device = PrunedEmbedding.from_pretrained(device.put(weight), row_of=row_of)
        assert on_device.device == device.name
        device.same_bits(on_device.row_of, host.row_of)
        device.same_bits(on_device.weight, weight)
        device.same_bits(on_device(device.put(np.arange(8))), host(np.arange(8)))
    assert PrunedEmbedding.from_pretrained(device.put(weight)).num_embeddings == 6


def test_state_of_a_layer_pruned_otherwise(device, layers):
    host, on_device = layers
    host.prune(keep=2)
    on_device.load_state_dict(host.state_dict())
    assert_same_state(on_device, host, exact=True)
    wrong = {**host.state_dict(), "weight": np.ones((3, 6), np.float32)}
    with pytest.raises(ValueError, match="weight must end with a row of zeros"):
        on_device.load_state_dict(wrong)
    assert_same_state(on_device, host, exact=True)


@pytest.mark.parametrize("ids", [[1, 8], [-1], [2**70]])
def test_an_id_out_of_range(device, layers, ids):
    before = on_host(layers[1].weight)
    for call in (layers[1], lambda ids: layers[1].backward(ids, device.xp.zeros((len(ids), 6), np.float32))):
        with pytest.raises(IndexError, match=r"\[0, 8\), but got values in"):
            call(ids)
    device.same_bits(layers[1].weight, before)


@pytest.mark.parametrize("device", GPUS, indirect=True)
def test_values_on_another_device(device, layers):
    for layer in layers:
        layer.prune(keep=2)
    values = np.ones((1, 6), np.float32)
    for layer, given in ((layers[0], device.put(values)), (layers[1], values)):
        with pytest.raises(TypeError, match=r"one device, got weight on .* and values on"):
            layer.restore([2], given)
        assert layer.num_rows == 2
