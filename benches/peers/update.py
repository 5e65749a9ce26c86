"""A training step of pooled lookups: forward, backward and optimizer, against torch's sparse gradients and FBGEMM."""

import functools

import numpy as np

import fastemb
from fastemb import optim

from .. import roofline, shapes
from ..update import LR
from .bags import table_batched
from .comparison import Comparison, has

# Names of torch.optim and of FBGEMM's EmbOptimType; targets of the geometric means over the cases.
RULES = [
    (optim.SGD(lr=LR), "SGD", 5.0, "EXACT_SGD", 2.5),
    (optim.Adagrad(lr=LR), "Adagrad", 10.0, None, None),
    (optim.RowWiseAdagrad(lr=LR), None, None, "EXACT_ROWWISE_ADAGRAD", 8.0),
    (optim.Adam(lr=LR), "SparseAdam", 12.0, None, None),
]
TORCH = {name: f"torch sparse {name}" for _, name, *_ in RULES if name}
FBGEMM = {name: f"FBGEMM TBE {name.removeprefix('EXACT_')}" for *_, name, _ in RULES if name}
MEANS = {("update", TORCH[name]): target for _, name, target, *_ in RULES if name}
MEANS |= {("update", FBGEMM[name]): target for *_, name, target in RULES if name}


def _fastemb_step(rule, table, ids, offsets, dy):
    state = rule.init(table)

    def step():
        pooled = fastemb.embedding_bag(table, ids, offsets, mode="sum")
        rule.step_bag(table, state, ids, offsets, dy)
        return pooled

    return step


def _torch_step(name, table, ids, offsets, dy):
    import torch

    layer = torch.nn.EmbeddingBag(*table.shape, mode="sum", sparse=True, _weight=torch.from_numpy(table))
    optimizer = getattr(torch.optim, name)(layer.parameters(), lr=LR)
    ids, offsets, dy = torch.from_numpy(ids), torch.from_numpy(offsets), torch.from_numpy(dy)

    def step():
        optimizer.zero_grad()
        pooled = layer(ids, offsets)
        pooled.backward(dy)
        optimizer.step()
        return pooled

    return step


def _fbgemm_step(name, table, ids, offsets, dy):
    import torch
    from fbgemm_gpu.split_embedding_configs import EmbOptimType

    module = table_batched(table, optimizer=EmbOptimType[name], learning_rate=LR, eps=1e-8)
    ids, dy = torch.from_numpy(ids), torch.from_numpy(dy)
    bounds = torch.from_numpy(np.append(offsets, ids.numel()))

    def step():
        pooled = module(ids, bounds)
        pooled.backward(dy)
        return pooled

    return step


def _limit(table, arrays, ids):
    """What no step can do without: read the rows, then read and write the distinct ones with their state.

    Nothing of what it is to find out about indices or to compute, and no row of a gradient.
    """
    read, scale = roofline.reading(table, ids), roofline.scaling([table, *arrays], np.unique(ids))

    def call():
        read()
        scale()

    return call


def _same_tables(ours, theirs, table, other):
    """A check that one step of each from one table leads to one table, as near as single precision is."""

    def check():
        other[:] = table
        ours()
        theirs()
        np.testing.assert_allclose(table, other, rtol=1e-5, atol=1e-5)

    return check


def update(quick):
    """Sums of bags, their gradient given, and the rule."""
    for name, shape in shapes.some(shapes.BAGS, quick).items():
        ids, offsets = shape.problem()
        dy = shapes.gradient(shape.bags, shape.width)
        for rule, torch_name, torch_target, fbgemm_name, fbgemm_target in RULES[:1] if quick else RULES:
            peers = []
            if torch_name and has("torch"):
                peers.append((TORCH[torch_name], torch_target, functools.partial(_torch_step, torch_name)))
            if fbgemm_name and has("fbgemm_gpu"):
                peers.append((FBGEMM[fbgemm_name], fbgemm_target, functools.partial(_fbgemm_step, fbgemm_name)))
            case = f"{name}, {type(rule).__name__}"
            table, other = (shapes.table(shape.num_rows, shape.width) for _ in range(2))
            arrays = [array.reshape(shape.num_rows, -1) for array in rule.init(table).arrays().values()]
            # the pooled rows, the gradient, and twice what the rule holds of each distinct row
            distinct = 2 * (shape.width + sum(array.shape[1] for array in arrays)) * np.unique(ids).size
            nbytes = shapes.moved(table, ids, shape.bags) + (shape.bags * shape.width + distinct) * 4
            for peer, target, make in peers:
                ours = _fastemb_step(rule, table, ids, offsets, dy)
                theirs = make(other, ids, offsets, dy)
                equal = _same_tables(ours, theirs, table, other)
                limit = _limit(table, arrays, ids)
                yield Comparison(case, peer, ours, theirs, target / 2, equal, nbytes, limit=limit)
