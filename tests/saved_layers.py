"""Layers of every class that can be saved, something to train each with, and what they hold."""

import json

import numpy as np
from strategies import same_bits

from fastemb import nn
from fastemb.io.layers import flatten
from fastemb.optim import SGD, Adagrad, Adam, Ftrl, Momentum, RMSprop, RowWiseAdagrad

RULES = {
    "none": None,
    "SGD": SGD(lr=0.1, weight_decay=0.5),
    "Momentum": Momentum(nesterov=True),
    "Momentum-exact": Momentum(mode="exact", dampening=0.25),
    "Adagrad": Adagrad(lr_decay=0.1, initial_accumulator=0.3),
    "RowWiseAdagrad": RowWiseAdagrad(eps=1e-7),
    "RMSprop": RMSprop(centered=True, momentum=0.5),
    "RMSprop-plain": RMSprop(),
    "Adam": Adam(betas=(0.7, 0.9), weight_decay=0.1),
    "Adam-exact": Adam(mode="exact", weight_decay=0.1),
    "Ftrl": Ftrl(l1=0.01, l2_shrinkage=0.1),
}


def _fields(rule):
    shared = nn.Embedding(7, 3, padding_idx=-1, max_norm=0.5, optimizer=rule, seed=2)
    other = nn.LearnedPositions(9, 2, scale_by_sqrt_dim=True, optimizer=None if rule is None else SGD(), seed=3)
    return nn.FieldEmbedding({"from.a": shared, "%2E": other, "to": shared, "weight": (5, 1)}, optimizer=rule, seed=4)


def _pruned(rule):
    layer = nn.PrunedEmbedding(12, 3, max_norm=2.0, norm_type=1.0, optimizer=rule, seed=8)
    layer.prune(keep=5)
    layer.restore([0, 1])
    return layer


def _points(rule):
    waves = nn.FourierFeatures(2, 3, kind="gaussian", scale=0.5, include_input=True, seed=6)
    return nn.PointEmbedding(2, 4, features=waves, optimizer=rule, seed=7)


def _rare(rule):
    counts = np.arange(12)
    return nn.RareTokenEmbedding(12, 4, unk_idx=2, counts=counts, min_freq=6, optimizer=rule, seed=9)


LAYERS = {
    "Embedding": lambda rule: nn.Embedding(
        20, 3, padding_idx=4, max_norm=0.3, norm_type=np.inf, scale_grad_by_freq=True, optimizer=rule, seed=0
    ),
    "EmbeddingBag": lambda rule: nn.EmbeddingBag(
        20, 3, mode="sqrtn", include_last_offset=True, padding_idx=0, optimizer=rule, seed=1
    ),
    "FieldEmbedding": _fields,
    "HashEmbedding": lambda rule: nn.HashEmbedding(
        16, 3, num_hashes=3, weighted=True, num_weights=8, hash_seed=2**62 + 1, optimizer=rule, seed=5
    ),
    "HashEmbedding-plain": lambda rule: nn.HashEmbedding(16, 3, num_hashes=1, optimizer=rule, seed=5),
    "LearnedPositions": lambda rule: nn.LearnedPositions(9, 3, scale_by_sqrt_dim=True, optimizer=rule, seed=3),
    "PointEmbedding": _points,
    "PointEmbedding-plain": lambda rule: nn.PointEmbedding(2, 4, bias=False, optimizer=rule, seed=7),
    "PrunedEmbedding": _pruned,
    "RareTokenEmbedding": _rare,
    "RelativePositions": lambda rule: nn.RelativePositions(3, 4, optimizer=rule, seed=10),
}


def train(layer, seed):
    """A lookup, which may move rows, and a step; the same for the same seed."""
    rng = np.random.default_rng(seed)
    kind = type(layer).__name__
    if kind == "PointEmbedding":
        points = rng.standard_normal((5, 2), np.float32)
        layer.backward(points, np.ones_like(layer(points)))
        layer.step()
        return
    if kind == "FieldEmbedding":
        batch = [{name: rng.integers(0, table.num_embeddings, 6) for name, table in layer.fields.items()}]
        width = layer.embedding_dim
    elif kind == "EmbeddingBag":
        batch = [rng.integers(0, layer.num_embeddings, 6), [0, 2, 4, 6]]
        width = layer.embedding_dim
    else:
        count = 2**40 if kind == "HashEmbedding" else layer.num_embeddings
        batch = [rng.integers(0, count, 6)]
        width = layer.embedding_dim
    extra = [[f"token{i}" for i in range(6)]] if kind == "RareTokenEmbedding" else []
    if kind == "RelativePositions":
        layer(2)
    else:
        layer(*batch, *extra)
    layer.fused_step(*batch, rng.standard_normal((3 if kind == "EmbeddingBag" else 6, width), np.float32), *extra)


def held(layer):
    """Copies of the arrays of a layer, its numbers, and how it prints."""
    arrays, numbers = flatten(layer.state_dict())
    return {name: array.copy() for name, array in arrays.items()}, numbers, repr(layer)


def same(a, b):
    """Whether two results of `held` agree to the bit."""
    return (
        a[1:] == b[1:]
        and a[0].keys() == b[0].keys()
        and all(same_bits(array, b[0][name]) for name, array in a[0].items())
    )


def metadata(path):
    """What a file says of itself."""
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    return header, json.loads(header["__metadata__"]["fastemb"])
