"""Layers around one table: backward against central differences of a loss, in float64."""

import numpy as np
import pytest
from oracles import numeric_gradient

from fastemb import Embedding, EmbeddingBag
from fastemb.nn import LearnedPositions, PrunedEmbedding

IDS = np.array([[3, 1, 1], [0, 4, 3]])


def table_of(layer):
    return getattr(layer, "_table", layer).weight


def check(layer, forward, backward, shape, rng):
    factors = rng.standard_normal(shape)
    backward(factors)
    wanted = numeric_gradient(table_of(layer), lambda: (forward() * factors).sum())
    np.testing.assert_allclose(layer.grad.to_dense(), wanted, rtol=1e-7, atol=1e-9)


def test_embedding(rng):
    layer = Embedding(6, 3, dtype="float64", init="normal", seed=0)
    check(layer, lambda: layer(IDS), lambda dy: layer.backward(IDS, dy), (2, 3, 3), rng)


@pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn", "max"])
@pytest.mark.parametrize("weighted", [False, True])
def test_embedding_bag(rng, mode, weighted):
    if mode == "max" and weighted:
        return
    layer = EmbeddingBag(6, 3, mode=mode, dtype="float64", init="normal", seed=0)
    weights = rng.uniform(0.5, 2, IDS.shape) if weighted else None
    check(layer, lambda: layer(IDS, None, weights), lambda dy: layer.backward(IDS, None, dy, weights), (2, 3), rng)


def test_pruned_and_shared_rows(rng):
    layer = PrunedEmbedding.from_pretrained(rng.standard_normal((4, 3)), row_of=[0, 1, 1, 2, 3])
    layer.prune(keep=3)
    factors = rng.standard_normal((2, 3, 3))
    layer.backward(IDS, factors)
    wanted = numeric_gradient(layer._table.weight[:-1], lambda: (layer(IDS) * factors).sum())
    np.testing.assert_allclose(layer.grad.to_dense()[:-1], wanted, rtol=1e-7, atol=1e-9)
    assert (layer.grad.to_dense()[-1] == 0).all()


def test_learned_positions_added_to_tokens(rng):
    layer = LearnedPositions(5, 3, dtype="float64", init="normal", seed=0)
    tokens = rng.standard_normal((2, 4, 3))
    check(layer, lambda: layer.add(tokens), layer.add_backward, (2, 4, 3), rng)
