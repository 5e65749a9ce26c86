"""Seed 000, the Embedding layer of sorix: every printed result that needs no other part of that framework."""

import re

import numpy as np
import pytest
from strategies import NOTE

import fastemb
from fastemb import Embedding


def test_row_selection():
    emb = Embedding(num_embeddings=10, embedding_dim=4, seed=0)
    assert emb.weight.shape == (10, 4)
    assert [p is emb.weight for p in emb.parameters()] == [True]
    indices = np.array([2, 0, 5])
    out = emb(indices)
    assert (out.shape, out.dtype) == ((3, 4), np.float32)
    assert np.array_equal(out, emb.weight[indices])
    assert not np.shares_memory(out, emb.weight)


def test_batched_lookup():
    emb = Embedding(num_embeddings=10, embedding_dim=4, seed=0)
    token_ids = np.array([[1, 5, 3, 0, 7], [2, 4, 1, 6, 8]])
    out = emb(token_ids)
    assert out.shape == (2, 5, 4)
    for b, k in np.ndindex(2, 5):
        assert np.array_equal(out[b, k], emb.weight[token_ids[b, k]])


@pytest.mark.parametrize("shape", [(), (0,), (7,), (2, 5), (2, 3, 4)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_hot_times_the_table_is_the_same(dtype, shape):
    emb = Embedding(10, 4, dtype=dtype, seed=0)
    ids = np.random.default_rng(0).integers(0, 10, shape)
    indicator = fastemb.one_hot(ids, 10, dtype)
    assert (indicator.shape, indicator.dtype) == ((*shape, 10), np.dtype(dtype))
    assert np.array_equal(indicator.sum(axis=-1), np.ones(shape))
    assert np.array_equal(indicator.argmax(axis=-1), ids)
    assert np.array_equal(indicator @ emb.weight, emb(ids))


@pytest.mark.parametrize(("num_rows", "width"), [(1, 10_000), (10, 1000), (10_000, 32)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_initial_values_fill_the_interval(dtype, num_rows, width):
    weight = Embedding(num_rows, width, dtype=dtype, seed=1).weight
    bound = np.sqrt(1 / num_rows)
    assert np.abs(weight).max() <= bound * (1 + np.finfo(dtype).eps)
    assert weight.min() < -0.999 * bound
    assert weight.max() > 0.999 * bound
    share = np.histogram(weight, bins=4, range=(-bound, bound))[0] / weight.size
    assert np.abs(share - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / weight.size)  # four standard deviations
    assert np.array_equal(weight, Embedding(num_rows, width, dtype=dtype, seed=1).weight)
    assert not np.array_equal(weight, Embedding(num_rows, width, dtype=dtype, seed=2).weight)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ([0, -1, 2], "must be in [0, 5), but got values in [-1, 2] (first at position 1)." + NOTE),
        ([0, 5], "must be in [0, 5), but got values in [0, 5] (first at position 1)."),
    ],
)
def test_index_validation(bad, text):
    emb_guard = Embedding(num_embeddings=5, embedding_dim=3)
    with pytest.raises(IndexError, match=rf"\A{re.escape('Embedding indices ' + text)}\Z"):
        emb_guard(np.array(bad))


def test_scatter_add_gradient():
    emb2 = Embedding(num_embeddings=5, embedding_dim=4, seed=0)
    idx = np.array([0, 2, 0])
    out2 = emb2(idx)
    emb2.backward(idx, np.full_like(out2, 1 / out2.size))  # of the mean of all outputs
    grad = emb2.grad.to_dense()
    assert str(grad[0]) == "[0.16666667 0.16666667 0.16666667 0.16666667]"
    assert str(grad[2]) == "[0.08333334 0.08333334 0.08333334 0.08333334]"
    assert str(grad[1]) == "[0. 0. 0. 0.]"
    assert np.array_equal(grad[0], 2 * grad[2])
    assert emb2.grad.rows.tolist() == [0, 2]

    wanted = np.zeros((5, 4), np.float32)
    np.add.at(wanted, idx, np.full_like(out2, 1 / out2.size))
    assert np.array_equal(grad, wanted)


def dense_adam(weight, epochs, lr):
    """The seed's training loop in float64, on dense gradients; returns the losses."""
    m, v, losses = np.zeros_like(weight), np.zeros_like(weight), []
    for t in range(1, epochs + 1):
        difference = weight[:3] - 1
        losses.append((difference**2).mean())
        grad = np.zeros_like(weight)
        grad[:3] = 2 * difference / difference.size
        m = 0.9 * m + 0.1 * grad
        v = 0.999 * v + 0.001 * grad**2
        weight -= lr * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-8)
    return losses


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-5), ("float64", 1e-12)])
def test_training_loop(dtype, rtol):
    emb3 = Embedding(5, 4, optimizer=fastemb.optim.Adam(lr=1e-2), dtype=dtype, seed=42)
    expected = emb3.weight.astype(np.float64)
    untrained = emb3.weight[3:].copy()
    target, idx_train, losses = np.ones((3, 4), dtype), np.array([0, 1, 2]), []
    for _ in range(50):
        emb3.zero_grad()
        out = emb3(idx_train)
        losses.append(((out - target) ** 2).mean())
        emb3.backward(idx_train, 2 * (out - target) / target.size)
        emb3.step()

    printed = [losses[epoch] for epoch in (0, 10, 20, 30, 40, 49)]
    assert printed == sorted(printed, reverse=True)
    assert len(set(printed)) == len(printed)
    np.testing.assert_allclose(losses, dense_adam(expected, 50, lr=1e-2), rtol=rtol, atol=0)
    np.testing.assert_allclose(emb3.weight[:3], expected[:3], rtol=rtol, atol=rtol)
    assert np.array_equal(emb3.weight[3:], untrained)
    assert emb3.state.step == 50


def test_the_six_losses_digit_for_digit():
    """The start is NumPy's legacy generator with seed 42, U(-sqrt(1/N), sqrt(1/N)), as float32."""
    bound = np.sqrt(1 / 5)
    start = np.random.RandomState(42).uniform(-bound, bound, (5, 4)).astype(np.float32)
    emb3 = Embedding.from_pretrained(start, freeze=False, optimizer=fastemb.optim.Adam(lr=1e-2))
    target, idx_train, printed = np.ones((3, 4), np.float32), np.array([0, 1, 2]), []
    for epoch in range(50):
        emb3.zero_grad()
        out = emb3(idx_train)
        loss = ((out - target) ** 2).mean()
        emb3.backward(idx_train, 2 * (out - target) / np.float32(target.size))
        emb3.step()
        if epoch % 10 == 0 or epoch == 49:
            printed.append(f"Epoch {epoch:3d} | loss = {float(loss):.6f}")
    assert printed == [
        "Epoch   0 | loss = 1.061576",
        "Epoch  10 | loss = 0.875063",
        "Epoch  20 | loss = 0.711495",
        "Epoch  30 | loss = 0.571944",
        "Epoch  40 | loss = 0.455625",
        "Epoch  49 | loss = 0.369055",
    ]


def test_every_optimizer_takes_its_parameters():
    """It works with Adam, SGD, RMSprop, ...: parameters() is what training changes."""
    for kind in (fastemb.optim.Adam, fastemb.optim.SGD, fastemb.optim.RMSprop, fastemb.optim.Adagrad):
        emb = Embedding(5, 4, optimizer=kind(lr=0.1), seed=0)
        (before,) = (p.copy() for p in emb.parameters())
        emb.backward([0, 2, 0], np.ones((3, 4), np.float32))
        emb.step()
        assert np.flatnonzero((emb.weight != before).any(axis=1)).tolist() == [0, 2]


def test_memory_of_one_hot_and_of_ids():
    """O(L * N) elements against O(L) integers, and N - 1 products with zero for each row."""
    length, num_rows = 1024, 50_000
    ids = np.arange(length)
    dense = fastemb.one_hot(ids, num_rows)
    assert dense.size == length * num_rows
    assert ids.size == length
    assert (dense == 0).sum() == length * (num_rows - 1)


def test_expected_length_of_initial_vectors_is_stable():
    """U(-sqrt(1/N), sqrt(1/N)) has variance 1 / (3 * N): vectors of D numbers have the length sqrt(D / (3 * N))."""
    for num_rows, width in ((10, 4096), (1000, 64), (50_000, 64)):
        weight = Embedding(num_rows, width, seed=0).weight
        length = np.sqrt((weight.astype(float) ** 2).sum(axis=1).mean())
        assert length == pytest.approx(np.sqrt(width / (3 * num_rows)), rel=0.01)


def test_fields_in_one_layer():
    layer = fastemb.nn.FieldEmbedding({"word": (10_000, 32), "cat": (50, 8)}, seed=0)
    word_ids, cat_ids = np.array([3, 14, 52, 7]), np.array([5, 12, 11, 23])
    w, c = layer.fields["word"](word_ids), layer.fields["cat"](cat_ids)
    combined = layer({"word": word_ids, "cat": cat_ids})
    assert (w.shape, c.shape, combined.shape) == ((4, 32), (4, 8), (4, 40))
    assert np.array_equal(combined, np.concatenate([w, c], axis=1))


def test_fields_side_by_side():
    word_emb, cat_emb = Embedding(10_000, 32, seed=0), Embedding(50, 8, seed=1)
    word_ids, cat_ids = np.array([3, 14, 52, 7]), np.array([5, 12, 11, 23])
    w, c = word_emb(word_ids), cat_emb(cat_ids)
    combined = np.concatenate([w, c], axis=1)
    assert (w.shape, c.shape, combined.shape) == ((4, 32), (4, 8), (4, 40))
    assert np.array_equal(combined[2], [*word_emb.weight[52], *cat_emb.weight[11]])


def test_inference_tracks_nothing():
    emb4 = Embedding(num_embeddings=10, embedding_dim=4, seed=0)
    before = emb4.weight.copy()
    out_eval = emb4(np.array([1, 3, 5]))
    assert np.array_equal(out_eval, before[[1, 3, 5]])
    assert emb4.grad is None
    assert np.array_equal(emb4.weight, before)
