"""What the gate times: `BENCHES` has for a name, ``family: what``, a function that makes arrays and returns the call.

Both revisions run this file, so whatever an older one may lack is named inside of functions alone. Sizes are such that
a process of them all takes two seconds, on tables that no core's own caches hold.
"""

import functools

import numpy as np

import fastemb
from fastemb import optim

from .. import shapes
from ..update import LR

IMPORT, FIRST_LOOKUP = "startup: import fastemb", "startup: first lookup"
STARTUP = (IMPORT, FIRST_LOOKUP)
"""Timed once in each process, before anything else, by `sample`."""

LARGE = shapes.Rows(200_000, 64, 81_920)  # more output than STREAM_ABOVE of the kernel
BAGS = shapes.BAGS["50k x 64 B 4096 H 20 uniform"]
SCATTER = shapes.SCATTERS["50k x 64 L 65,536 zipf"]


@functools.cache
def _table(num_rows, width):
    """Of the benches that only read."""
    return shapes.table(num_rows, width)


@functools.cache
def _bags():
    """(table, ids, offsets, gradient of the pooled rows, weights of the positions)."""
    ids, offsets = BAGS.problem()
    weights = np.random.default_rng(3).random(ids.size, np.float32)
    return _table(BAGS.num_rows, BAGS.width), ids, offsets, shapes.gradient(BAGS.bags, BAGS.width), weights


def _lookup(shape, *, out_given=False):
    table, ids = _table(shape.num_rows, shape.width), shape.ids()
    out = np.zeros((ids.size, shape.width), np.float32) if out_given else None
    return functools.partial(fastemb.gather, table, ids, out=out)


def _scatter():
    ids, updates = SCATTER.ids(), shapes.gradient(SCATTER.length, SCATTER.width)
    return functools.partial(fastemb.scatter_add, np.zeros((SCATTER.num_rows, SCATTER.width), np.float32), ids, updates)


def _pool(mode):
    table, ids, offsets, _, _ = _bags()
    return functools.partial(fastemb.embedding_bag, table, ids, offsets, mode=mode)


def _bag_gradient():
    table, ids, offsets, dy, weights = _bags()
    return lambda: fastemb.embedding_bag_grad(table, ids, offsets, dy, mode="sum", per_sample_weights=weights)


def _step_bag(rule):
    table, ids, offsets, dy, _ = _bags()
    own = table.copy()
    return functools.partial(rule.step_bag, own, rule.init(own), ids, offsets, dy)


def _step(rule):
    table = shapes.table(SCATTER.num_rows, SCATTER.width)
    dy = shapes.gradient(SCATTER.length, SCATTER.width)
    return functools.partial(rule.step, table, rule.init(table), SCATTER.ids(), dy)


def _exact():
    """Two batches in turn: the rows of one make up for the step of the other."""
    rule = optim.Adam(lr=LR, mode="exact")
    layer = fastemb.Embedding(50_000, 64, optimizer=rule, seed=0)
    ids = shapes.MID["50k x 64 L 4096"].ids()
    batches = ids, (ids + 25_000) % 50_000
    dy = shapes.gradient(ids.size, 64)

    def call():
        for batch in batches:
            layer(batch)
            layer.fused_step(batch, dy)

    return call


def _embedding():
    layer = fastemb.Embedding(SCATTER.num_rows, SCATTER.width, optimizer=optim.Adagrad(lr=LR), padding_idx=0, seed=0)
    ids, dy = SCATTER.ids(), shapes.gradient(SCATTER.length, SCATTER.width)

    def call():
        layer(ids)
        layer.backward(ids, dy)
        layer.step()

    return call


def _embedding_bag():
    _, ids, offsets, dy, weights = _bags()
    rule = optim.SGD(lr=LR)
    layer = fastemb.EmbeddingBag(BAGS.num_rows, BAGS.width, mode="mean", optimizer=rule, padding_idx=0, seed=0)

    def call():
        layer(ids, offsets, weights)
        layer.fused_step(ids, offsets, dy, per_sample_weights=weights)

    return call


def _hashed():
    layer = fastemb.nn.HashEmbedding(50_000, 64, optimizer=optim.SGD(lr=LR), seed=0)
    shape = shapes.MID["50k x 64 L 4096"]
    ids, dy = shape.ids(), shapes.gradient(shape.length, shape.width)

    def call():
        layer(ids)
        layer.fused_step(ids, dy)

    return call


BENCHES = {
    "lookup: 1,000 x 64 L 32": functools.partial(_lookup, shapes.SMALL["1,000 x 64 L 32"]),
    "lookup: 50k x 64 L 4096": functools.partial(_lookup, shapes.MID["50k x 64 L 4096"]),
    "lookup: 200k x 64 L 81,920, out given": functools.partial(_lookup, LARGE, out_given=True),
    "scatter: scatter_add, zipf": _scatter,
    "bag: sum": functools.partial(_pool, "sum"),
    "bag: max": functools.partial(_pool, "max"),
    "bag backward: weighted sum": _bag_gradient,
    "update: SGD.step_bag": lambda: _step_bag(optim.SGD(lr=LR)),
    "update: RowWiseAdagrad.step_bag": lambda: _step_bag(optim.RowWiseAdagrad(lr=LR)),
    "update: Adam.step, zipf": lambda: _step(optim.Adam(lr=LR)),
    "exact: Adam, lookup and fused_step": _exact,
    "layer: Embedding, backward and step": _embedding,
    "layer: EmbeddingBag, weighted mean": _embedding_bag,
    "layer: HashEmbedding": _hashed,
}
