"""Layers that step with a batch at once."""

import numpy as np
import pytest
from optim_formulas import RULES
from strategies import same_bits, unchanged

import fastemb
from fastemb.optim import SGD, Adam


def twins(kind, rule, **options):
    return [kind(30, 4, optimizer=rule, seed=3, padding_idx=2, **options) for _ in range(2)]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_has_the_bits_of_backward_and_step(rng, name, scale, dtype):
    one, two = twins(fastemb.Embedding, RULES[name][0], scale_grad_by_freq=scale, dtype=dtype)
    for lr in (None, 0.125, 0.25):
        ids, dy = rng.integers(0, 30, (4, 9)), rng.standard_normal((4, 9, 4)).astype(dtype)
        with unchanged(ids, dy):
            one.fused_step(ids, dy, lr=lr)
        assert one.grad is None
        two.backward(ids, dy)
        two.step(lr=lr)
    assert same_bits(one.weight, two.weight)
    assert one.state.step == two.state.step == 3
    for a, b in zip(one.state.arrays().values(), two.state.arrays().values(), strict=True):
        assert same_bits(a, b)


@pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn", "max"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_of_bags_too(rng, mode, weighted, last):
    if mode == "max" and weighted:
        return
    options = {"mode": mode, "include_last_offset": last, "scale_grad_by_freq": mode != "max"}
    one, two = twins(fastemb.EmbeddingBag, Adam(lr=0.1), **options)
    for _ in range(3):
        ids, dy = rng.integers(0, 30, 40), rng.standard_normal((4, 4), dtype=np.float32)
        offsets = np.array([0, 5, 5, 30, 40][: 5 if last else 4])
        weights = rng.uniform(1, 2, 40).astype(np.float32) if weighted else None
        one.fused_step(ids, offsets, dy, weights, lr=0.5)
        assert one.grad is None
        two.backward(ids, offsets, dy, weights)
        two.step(lr=0.5)
    assert same_bits(one.weight, two.weight)
    assert one.state.step == 3


def test_what_is_pending_is_part_of_the_step():
    layer = fastemb.Embedding(5, 1, optimizer=SGD(lr=1.0), init="zeros")
    layer.backward([1], np.ones((1, 1), np.float32))
    layer.fused_step([1, 2], np.full((2, 1), 2, np.float32))
    assert layer.weight[:, 0].tolist() == [0, -3, -2, 0, 0]
    assert (layer.grad, layer.state.step) == (None, 1)


@pytest.mark.parametrize("pending", [False, True])
def test_nothing_changes_after_an_error(pending):
    layer = fastemb.Embedding(5, 1, optimizer=Adam(), init="zeros")
    bag = fastemb.EmbeddingBag(5, 1, optimizer=Adam(), init="zeros")
    dy = np.ones((2, 1), np.float32)
    if pending:
        layer.backward([1], dy[:1])
        bag.backward([1], [0], dy[:1])
    before = layer.grad, bag.grad
    with unchanged(layer.weight, bag.weight):
        for error, call in [
            (IndexError, lambda: layer.fused_step([0, 5], dy)),
            (ValueError, lambda: layer.fused_step([0], dy)),
            (ValueError, lambda: layer.fused_step([0, 1], dy, lr=-1)),
            (TypeError, lambda: layer.fused_step([0.0, 1.0], dy)),
            (IndexError, lambda: bag.fused_step([0, 5], [0, 1], dy)),
            (ValueError, lambda: bag.fused_step([0, 1], [0, 3], dy)),
            (ValueError, lambda: bag.fused_step([0, 1], [0, 1], dy, lr=-1)),
        ]:
            with pytest.raises(error):
                call()
    assert (layer.grad, bag.grad) == before
    assert layer.state.step == bag.state.step == 0


def test_without_an_optimizer_and_frozen():
    dy = np.ones((1, 1), np.float32)
    with pytest.raises(RuntimeError, match=r"^this layer has no optimizer: pass one, as in Embedding\(N, D"):
        fastemb.Embedding(5, 1).fused_step([0], dy)
    with pytest.raises(RuntimeError, match=r"^this layer has no optimizer: pass one, as in EmbeddingBag\(N, D"):
        fastemb.EmbeddingBag(5, 1).fused_step([0], [0], dy)
    weight = np.ones((5, 1), np.float32)
    with unchanged(weight):
        fastemb.Embedding.from_pretrained(weight, optimizer=SGD()).fused_step([0], dy)
        fastemb.EmbeddingBag.from_pretrained(weight, optimizer=SGD()).fused_step([0], [0], dy)
