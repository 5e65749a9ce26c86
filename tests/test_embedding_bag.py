"""The layer that pools rows of one table."""

import itertools
import pickle
import re

import numpy as np
import pytest
from strategies import FLOATS, out_of_range, same_bits, unchanged

import fastemb
from fastemb.optim import SGD, Adam

MODES = ["sum", "mean", "sqrtn", "max"]
IDS, OFFSETS = np.array([3, 1, 3, 0, 2]), np.array([0, 2, 2])


def test_lookup_and_attributes():
    layer = fastemb.EmbeddingBag(10, 4, seed=0)
    assert np.array_equal(layer(IDS, OFFSETS), fastemb.embedding_bag(layer.weight, IDS, OFFSETS))
    assert (layer.mode, layer.include_last_offset, layer.padding_idx) == ("mean", False, None)
    assert (layer.num_embeddings, layer.embedding_dim, layer.grad, layer.state) == (10, 4, None, None)
    assert repr(layer) == "EmbeddingBag(10, 4, mode='mean', dtype=float32)"
    layer = fastemb.EmbeddingBag(10, 4, mode="max", padding_idx=-1, max_norm=2, optimizer=SGD(lr=0.5))
    expected = "mode='max', padding_idx=9, max_norm=2.0, optimizer=SGD(lr=0.5, weight_decay=0.0)"
    assert repr(layer) == f"EmbeddingBag(10, 4, {expected}, dtype=float32)"
    assert not layer.weight[9].any()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_lookup_and_gradient_are_those_of_the_functions(rng, mode, dtype, last):
    layer = fastemb.EmbeddingBag(6, 3, mode=mode, padding_idx=0, include_last_offset=last, dtype=dtype, seed=1)
    offsets = [0, 2, 5] if last else [0, 2]
    weights = None if mode == "max" else rng.integers(1, 4, 5).astype(np.float16)
    options = {"mode": mode, "padding_idx": 0, "include_last_offset": last, "per_sample_weights": weights}
    dy = rng.integers(-4, 4, (2, 3)).astype(np.float32)
    with unchanged(IDS, dy):
        y = layer(IDS, offsets, weights)
        layer.backward(IDS, offsets, dy, weights)
        layer.backward(IDS, offsets, dy, per_sample_weights=weights)
    assert same_bits(y, fastemb.embedding_bag(layer.weight, IDS, offsets, **options))
    once = fastemb.embedding_bag_grad(layer.weight, IDS, offsets, dy, **options)
    assert layer.grad.rows.tolist() == once.rows.tolist()
    assert same_bits(layer.grad.values, 2 * once.values)
    layer.zero_grad()
    assert layer.grad is None


def test_scaled_by_frequency():
    layer = fastemb.EmbeddingBag(4, 1, mode="sum", scale_grad_by_freq=True)
    layer.backward([[1, 1], [1, 2]], None, [[6.0], [12.0]])
    assert layer.grad.values.tolist() == [[8], [12]]


@pytest.mark.parametrize("mode", MODES)
def test_training_lowers_the_loss(rng, mode):
    layer = fastemb.EmbeddingBag(20, 4, mode=mode, optimizer=Adam(lr=0.05), seed=0)
    ids, target = rng.integers(0, 20, (30, 3)), rng.standard_normal((30, 4)).astype(np.float32)
    losses = []
    for _ in range(30):
        y = layer(ids)
        losses.append(float(((y - target) ** 2).mean()))
        layer.backward(ids, None, 2 * (y - target) / y.size)
        layer.step()
    assert layer.grad is None
    assert layer.state.step == 30
    assert losses[-1] < 0.8 * losses[0]
    assert all(b < a for a, b in itertools.pairwise(losses))


def test_max_norm_shrinks_what_is_looked_up_once_all_is_checked():
    def make():
        layer = fastemb.EmbeddingBag(5, 2, mode="sum", max_norm=1.0, padding_idx=4)
        layer.weight[:] = [3.0, 4.0]
        return layer

    layer = make()
    y = layer([1, 1, 4], [0])
    shrunk = layer.weight[1]
    np.testing.assert_allclose(shrunk, [0.6, 0.8], rtol=1e-6)
    assert np.array_equal(y, [shrunk + shrunk])
    assert (layer.weight[[0, 2, 3, 4]] == [3, 4]).all()  # the padding row is not looked up
    layer = make()
    before = layer.weight.copy()
    for arguments, error in (
        (([1, 5], [0]), IndexError),
        (([1, 1], [0, 3]), ValueError),
        (([1, 1], [0], [1.0]), ValueError),
        (([1, 1], [0.0]), TypeError),
    ):
        with pytest.raises(error):
            layer(*arguments)
        assert np.array_equal(layer.weight, before)


def test_from_pretrained():
    table = np.arange(8.0).reshape(4, 2)
    layer = fastemb.EmbeddingBag.from_pretrained(table, mode="sum", padding_idx=0, include_last_offset=True)
    assert layer.weight is table
    assert table[0].tolist() == [0, 1]
    assert layer([0, 1, 3], [0, 2, 3]).tolist() == [[2, 3], [6, 7]]
    layer.backward([0, 1, 3], [0, 2, 3], np.ones((2, 2)))
    layer.step()
    assert layer.grad is None
    assert layer.parameters() == []
    trained = fastemb.EmbeddingBag.from_pretrained(table, freeze=False, mode="max", optimizer=SGD(lr=1.0))
    with unchanged(table):
        trained.backward([[1, 2]], None, np.ones((1, 2)))
        trained.step()
    assert trained.weight.tolist() == [[0, 1], [2, 3], [3, 4], [6, 7]]


@pytest.mark.parametrize("make", [fastemb.EmbeddingBag, fastemb.EmbeddingBag.from_pretrained])
def test_options_out_of_range(make):
    sizes = (np.ones((4, 2)),) if make is not fastemb.EmbeddingBag else (4, 2)
    for options, text in (
        ({"mode": "median"}, "mode must be one of 'sum', 'mean', 'sqrtn', 'max', got 'median'"),
        ({"mode": "max", "scale_grad_by_freq": True}, "scale_grad_by_freq cannot be used with mode 'max'"),
        ({"padding_idx": 4}, "padding_idx must be in [-4, 4), got 4"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
            make(*sizes, **options)
    with pytest.raises(ValueError, match="^num_embeddings must be >= 1, got 0$"):
        fastemb.EmbeddingBag(0, 4)


def test_errors_leave_the_pending_gradient_alone():
    layer = fastemb.EmbeddingBag(4, 2, mode="sum")
    layer.backward([[1]], None, np.ones((1, 2), np.float32))
    pending = layer.grad
    with pytest.raises(IndexError, match=out_of_range(4, 4, 4, 0)):
        layer.backward([[4]], None, np.ones((1, 2), np.float32))
    with pytest.raises(ValueError, match=r"dy must have shape \(1, 2\), got \(2, 2\)"):
        layer.backward([[1]], None, np.ones((2, 2), np.float32))
    assert layer.grad is pending
    with pytest.raises(RuntimeError, match=re.escape("as in EmbeddingBag(N, D, optimizer=fastemb.optim.SGD(lr=0.1))")):
        layer.step()


def test_state_and_pickles():
    layer = fastemb.EmbeddingBag(4, 2, optimizer=Adam(), mode="sqrtn", seed=0)
    layer.backward([[1, 2]], None, np.ones((1, 2), np.float32))
    layer.step()
    other = fastemb.EmbeddingBag(4, 2, optimizer=Adam(), mode="sqrtn", seed=5)
    other.load_state_dict(layer.state_dict())
    for copy in (other, pickle.loads(pickle.dumps(layer))):
        assert (copy.state.step, copy.mode) == (1, "sqrtn")
        assert np.array_equal(copy([[1, 2]]), layer([[1, 2]]))
