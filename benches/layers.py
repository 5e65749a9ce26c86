"""asv: layers, forward and trained."""

import numpy as np

import fastemb
from fastemb import nn, optim

from . import data, devices

ROWS, WIDTH, BATCH, LENGTH = 50_000, 64, 64, 64


def _ids():
    return data.uniform(ROWS, BATCH * LENGTH).reshape(BATCH, LENGTH)


def embedding(rule):
    """Rows of one table."""
    layer, ids = fastemb.Embedding(ROWS, WIDTH, optimizer=rule, seed=0), _ids()
    return layer, (ids,), layer.weight[ids]


def embedding_bag(rule):
    """Their means."""
    layer, ids = fastemb.EmbeddingBag(ROWS, WIDTH, optimizer=rule, seed=0), _ids()
    return layer, (ids, None), layer.weight[ids].mean(axis=1)


def fields(rule):
    """Rows of two tables side by side."""
    layer = nn.FieldEmbedding({"user": (ROWS, 32), "item": (ROWS, 32)}, optimizer=rule, seed=0)
    ids = {"user": _ids(), "item": _ids()[::-1].copy()}
    rows = [layer.fields[name].weight[ids[name]] for name in ids]
    return layer, (ids,), np.concatenate(rows, axis=-1)


def hashed(rule):
    """Two hashed rows summed."""
    layer, ids = nn.HashEmbedding(ROWS, WIDTH, optimizer=rule, seed=0), _ids() * 1_000_003
    return layer, (ids,), layer.weight[layer.buckets(ids)].sum(axis=-2)


def pruned(rule):
    """Rows of a table half of which is pruned."""
    layer, ids = nn.PrunedEmbedding(ROWS, WIDTH, optimizer=rule, seed=0), _ids()
    layer.prune(keep=ROWS // 2)
    rows = layer.row_of[ids]
    return layer, (ids,), np.where(rows[..., np.newaxis] < 0, 0, layer.weight[rows])


def rare(rule):
    """Rows of a table without any rare token: what telling them apart costs."""
    layer, ids = nn.RareTokenEmbedding(ROWS, WIDTH, optimizer=rule, seed=0), np.maximum(_ids(), 2)
    return layer, (ids,), layer.weight[ids]


def points(rule):
    """The linear lift of points."""
    layer = nn.PointEmbedding(3, WIDTH, optimizer=rule, seed=0)
    places = np.random.default_rng(0).random((BATCH, LENGTH, 3), dtype=np.float32)
    return layer, (places,), places @ layer.weight.T + layer.bias


def fourier(rule):
    """Sines and cosines of points."""
    layer = nn.FourierFeatures(3, 10)
    places = np.random.default_rng(0).random((BATCH, LENGTH, 3), dtype=np.float32)
    turns = places.astype(np.float64) @ layer.frequencies.T
    return layer, (places,), np.concatenate([np.sin(2 * np.pi * turns), np.cos(2 * np.pi * turns)], axis=-1)


def sinusoidal(rule):
    """Vectors of positions."""
    layer, places = nn.SinusoidalPositions(WIDTH), np.arange(LENGTH)
    angles = places[:, np.newaxis] / 10_000 ** (np.arange(0, WIDTH, 2) / WIDTH)
    return layer, (places,), np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(LENGTH, WIDTH)


LAYERS = {
    "Embedding": embedding,
    "EmbeddingBag": embedding_bag,
    "FieldEmbedding": fields,
    "HashEmbedding": hashed,
    "PrunedEmbedding": pruned,
    "RareTokenEmbedding": rare,
    "PointEmbedding": points,
    "FourierFeatures": fourier,
    "SinusoidalPositions": sinusoidal,
}
UNTRAINED = {"FourierFeatures", "SinusoidalPositions"}


class _Layer:
    param_names = ("layer", "device")

    def setup(self, layer, device):
        """Check the result against NumPy."""
        devices.require_host(device)
        self.layer, self.batch, expected = LAYERS[layer](optim.Adam())
        self.result = self.layer(*self.batch)
        np.testing.assert_allclose(self.result, expected, rtol=1e-5, atol=1e-5)


class Layers(_Layer):
    """Time of a layer of 50,000 rows of 64 on 64 x 64 ids."""

    params = (list(LAYERS), devices.NAMES)

    def time_forward(self, layer, device):
        """``layer(*batch)``."""
        self.layer(*self.batch)


class LayerTraining(_Layer):
    """The same layers, those that have something to train, with a step of Adam."""

    params = ([name for name in LAYERS if name not in UNTRAINED], devices.NAMES)

    def setup(self, layer, device):
        """Compile what a step needs too."""
        super().setup(layer, device)
        self.grad = np.full_like(self.result, 3)
        self.time_step(layer, device)

    def time_step(self, layer, device):
        """``layer(*batch)``, ``layer.backward(*batch, grad)``, ``layer.step()``."""
        self.layer(*self.batch)
        self.layer.backward(*self.batch, self.grad)
        self.layer.step()
