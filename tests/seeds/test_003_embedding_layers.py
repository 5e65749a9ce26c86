"""Seed 003, embedding layers: each of its classes, as its code says, with fastemb's in its place."""

import math

import numpy as np
import pytest

import fastemb
from fastemb import Embedding
from fastemb.nn import (
    LearnedPositions,
    PrunedEmbedding,
    RareTokenEmbedding,
    RelativePositions,
    SinusoidalPositions,
    normalize_,
)


def test_basic_embedding_layer():
    embedding = Embedding(30_000, 512, padding_idx=0, init="normal", seed=0)
    x = np.random.default_rng(0).integers(0, 30_000, (2, 7))
    assert embedding(x).shape == (2, 7, 512)
    assert (embedding([0]) == 0).all()


def sinusoidal_table(d_model, max_seq_len):
    """`SinusoidalPositionalEmbedding.__init__`, in NumPy and float64."""
    pe = np.zeros((max_seq_len, d_model))
    position = np.arange(max_seq_len)[:, np.newaxis]
    div_term = np.exp(np.arange(0, d_model, 2) * -math.log(10000.0) / d_model)
    pe[:, 0::2] = np.sin(position * div_term)
    pe[:, 1::2] = np.cos(position * div_term)
    return pe


@pytest.mark.parametrize("d_model", [2, 16, 512])
def test_sinusoidal_positions(d_model):
    positions = SinusoidalPositions(d_model, dtype="float64")
    np.testing.assert_allclose(positions(np.arange(5000)), sinusoidal_table(d_model, 5000), rtol=0, atol=2e-12)
    x = np.zeros((2, 7, d_model))
    assert positions(np.arange(x.shape[1]))[np.newaxis].shape == (1, 7, d_model)
    assert np.array_equal(positions.add(x), np.broadcast_to(positions(np.arange(7)), x.shape))


def test_learned_positions():
    layer = LearnedPositions(5000, 16, init="normal", seed=0)
    x = np.zeros((3, 10, 16), np.float32)
    position_ids = np.broadcast_to(np.arange(10), (3, 10))
    assert layer(position_ids).shape == (3, 10, 16)
    assert np.array_equal(layer.add(x), layer(position_ids))
    assert np.array_equal(layer(position_ids), layer.weight[position_ids])


@pytest.mark.parametrize("seq_len", [1, 4, 9])
def test_relative_positions(seq_len):
    max_len = 3
    layer = RelativePositions(max_len, 5, init="normal", seed=0)
    assert layer.weight.shape == (2 * max_len + 1, 5)
    pos = np.arange(seq_len)
    rel_pos = np.clip(pos[np.newaxis] - pos[:, np.newaxis], -max_len, max_len) + max_len
    assert np.array_equal(layer(seq_len), layer.weight[rel_pos])
    assert layer(seq_len).shape == (seq_len, seq_len, 5)


@pytest.mark.parametrize("ratio", [0.1, 0.5])
def test_pruning(ratio):
    weight = np.random.default_rng(0).standard_normal((200, 8))
    magnitudes = np.abs(weight).sum(axis=1)
    mask = magnitudes >= np.quantile(magnitudes, ratio)
    layer = PrunedEmbedding.from_pretrained(weight)
    layer.prune(ratio=ratio)
    x = np.random.default_rng(1).integers(0, 200, (3, 50))
    assert np.array_equal(layer(x), (weight * mask[:, np.newaxis])[x])
    assert layer.num_rows == mask.sum() == 200 * (1 - ratio)


def test_rare_tokens():
    """Ids that are 1 are made of characters: embedded, convolved with 3 neighbours, averaged; others are looked up."""
    layer = RareTokenEmbedding(30, 8, dtype="float64", seed=0)
    x, words = np.array([[5, 1, 0], [1, 7, 2]]), [["five", "rare", "pad"], ["tokens", "seven", "two"]]
    output = layer(x, words)
    for (b, t), word in (((0, 1), "rare"), ((1, 0), "tokens")):
        char_emb = layer.byte_weight[list(word.encode())]
        padded = np.vstack([np.zeros(8), char_emb, np.zeros(8)])  # Conv1d(D, D, 3, padding=1)
        windows = np.stack([padded[:-2], padded[1:-1], padded[2:]], axis=-1)
        char_conv = np.einsum("tdj,odj->to", windows, layer.conv) + layer.bias
        np.testing.assert_allclose(output[b, t], char_conv.mean(axis=0), rtol=1e-12)
    assert np.array_equal(output[0, 0], layer.weight[5])
    assert (output[0, 2] == 0).all()


def test_normalised_embeddings():
    """`weight.div_(weight.norm(dim=1, keepdim=True).clamp(min=max_norm))`."""
    weight = np.random.default_rng(0).standard_normal((100, 4))
    for max_norm in (0.5, 1.0, 3.0):
        norm = np.linalg.norm(weight, axis=1, keepdims=True)
        wanted = weight / np.clip(norm, max_norm, None)
        np.testing.assert_allclose(normalize_(weight.copy(), max_norm=max_norm), wanted, rtol=1e-14)
    unit = normalize_(weight.copy())
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-14)
    similar = fastemb.nn.nearest(unit, unit[3], k=2)
    assert similar.rows[0] == 3


def test_tip_scale_by_the_root_of_the_width():
    tokens = np.random.default_rng(0).standard_normal((2, 5, 16))
    positions = SinusoidalPositions(16, scale_by_sqrt_dim=True, dtype="float64")
    np.testing.assert_allclose(positions.add(tokens), 4 * tokens + sinusoidal_table(16, 5), rtol=1e-12, atol=1e-14)
