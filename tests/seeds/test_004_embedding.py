"""Seed 004, the operation embedding@1: shapes, limits, inferred width, and the parameters of its three examples."""

import numpy as np
import pytest
from strategies import out_of_range

from fastemb import Embedding
from fastemb.nn import LearnedPositions, PointEmbedding


class Relu:
    def __call__(self, x):
        return np.maximum(x, 0)


class ClassToken:
    """A learned row before the sequence."""

    def __init__(self, width):
        self.row = Embedding(1, width, init="normal", seed=3)

    def __call__(self, x):
        first = np.broadcast_to(self.row([0]), (len(x), 1, x.shape[-1]))
        return np.concatenate([first, x], axis=1)

    def parameters(self):
        return self.row.parameters()


class Positions:
    """`pos_embed(n)`: a learned row for each place, added."""

    def __init__(self, length, width):
        self.places = LearnedPositions(length, width, init="normal", seed=4)

    def __call__(self, x):
        return self.places.add(x)

    def parameters(self):
        return self.places.parameters()


def run(layers, ids):
    """Shapes after each layer, and how many parameters there are."""
    shapes, x = [], ids
    for layer in layers:
        x = layer(x)
        shapes.append(x.shape)
    counted = sum(array.size for layer in layers if hasattr(layer, "parameters") for array in layer.parameters())
    return shapes, counted


def test_example_1():
    ids = np.random.default_rng(0).integers(0, 1000, (3, 16))
    shapes, parameters = run([Embedding(1000, 32, init="normal"), PointEmbedding(32, 8)], ids)
    assert shapes == [(3, 16, 32), (3, 16, 8)]
    assert f"{parameters:,}" == "32,264"


def test_example_2_the_width_is_inferred_from_the_output():
    output_shape = (3, 8, 5)
    emb = Embedding(64, init="normal")
    emb.bind(output_shape[-1])
    shapes, parameters = run([emb, Relu()], np.random.default_rng(0).integers(0, 64, (3, 8)))
    assert shapes == [(3, 8, 5), output_shape]
    assert parameters == 320


def test_the_width_is_inferred_from_a_consumer():
    emb, linear = Embedding(64, init="normal"), PointEmbedding(12, 3)
    emb.bind(linear)
    assert linear(emb([[1, 2]])).shape == (1, 2, 3)


def test_example_3():
    ids = np.random.default_rng(0).integers(0, 128, (2, 6))
    layers = [Embedding(128, 16, init="normal"), ClassToken(16), Positions(32, 16), PointEmbedding(16, 4)]
    shapes, parameters = run(layers, ids)
    assert shapes == [(2, 6, 16), (2, 7, 16), (2, 7, 16), (2, 7, 4)]
    assert f"{parameters:,}" == "2,644"


def test_out_is_weight_of_ids():
    emb = Embedding(100, 6, init="normal", seed=0)
    ids = np.random.default_rng(0).integers(0, 100, (4, 5))
    out = emb(ids)
    assert out.shape == (4, 5, 6)
    for b, t in np.ndindex(4, 5):
        assert np.array_equal(out[b, t], emb.weight[ids[b, t]])


def test_the_start_is_the_standard_normal_distribution():
    weight = Embedding(5000, 40, init="normal", seed=0).weight
    assert abs(weight.mean()) < 4 / np.sqrt(weight.size)
    assert weight.std() == pytest.approx(1, abs=0.01)
    assert (np.abs(weight) < 1).mean() == pytest.approx(0.6827, abs=0.005)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((0, 4), "num_embeddings must be >= 1, got 0"),
        ((4, 0), "embedding_dim must be >= 1, got 0"),
        ((2147483648, 4), "num_embeddings must be <= 2147483647, got 2147483648"),
        ((4, 2147483648), "embedding_dim must be <= 2147483647, got 2147483648"),
    ],
)
def test_limits(sizes, text):
    with pytest.raises(ValueError, match=f"^{text}$"):
        Embedding(*sizes)


def test_an_id_out_of_range_is_an_error_of_the_data():
    emb = Embedding(1000, 32)
    with pytest.raises(IndexError, match=out_of_range(1000, 3, 1000, 1)):
        emb([[3, 1000]])


def test_no_padding_and_no_clipping_unless_asked_for():
    emb = Embedding(10, 3, init=lambda rng, shape, dtype: np.full(shape, 100.0), seed=0)
    assert (emb(np.arange(10)) == 100).all()
    assert (emb.padding_idx, emb.max_norm) == (None, None)
    emb.backward([0], np.ones((1, 3), np.float32))
    assert emb.grad.rows.tolist() == [0]
