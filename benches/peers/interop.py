"""Training steps of torch's layers against the drop-in: with the same optimizer, with RowOptimizer, and fused."""

import functools

import numpy as np

from fastemb import optim

from .. import shapes
from ..update import LR
from .comparison import Comparison, has, same

WAYS = {"the same optimizer": 1.0, "RowOptimizer": 3.0, "fused": 5.0}
"""How the table is updated, and the least geometric mean of the ratios over the cases."""

RULES = {"SGD": optim.SGD(lr=LR), "Adagrad": optim.Adagrad(lr=LR), "SparseAdam": optim.Adam(lr=LR)}
"""By the names of torch's optimizers for sparse gradients."""

FORWARD = 1 / 1.5
SMALL = "32 indices, forward"

MEANS = {("interop", f"torch, against {way}"): target for way, target in WAYS.items()}


def _layer(nn, kind, table):
    import torch

    options = {"mode": "sum"} if kind == "EmbeddingBag" else {}
    return getattr(nn, kind)(*table.shape, sparse=True, _weight=torch.from_numpy(table), **options)


def _optimizer(layer, name, way):
    import torch

    from fastemb.interop.torch import RowOptimizer, fuse

    if way == "fused":
        return fuse(layer, RULES[name])
    if way == "RowOptimizer":
        return RowOptimizer(layer.parameters(), RULES[name])
    return getattr(torch.optim, name)(layer.parameters(), lr=LR)


def _step(layer, optimizer, inputs, dy):
    def step():
        optimizer.zero_grad()
        layer(*inputs).backward(dy)
        optimizer.step()

    return step


def _same_tables(ours, theirs, table, other):
    """A check that one step of each from one table leads to one table, as near as single precision is."""

    def check():
        other[:] = table
        ours()
        theirs()
        np.testing.assert_allclose(table, other, rtol=1e-5, atol=1e-5)

    return check


def _steps(kind, name, shape):
    import torch

    from fastemb.interop import torch as drop_in

    ids, offsets = shape.problem()
    bags = kind == "EmbeddingBag"
    dy = torch.from_numpy(shapes.gradient(shape.bags if bags else ids.size, shape.width))
    inputs = [torch.from_numpy(a) for a in ((ids, offsets) if bags else (ids,))]
    for rule in RULES:
        for way in WAYS:
            table, other = (shapes.table(shape.num_rows, shape.width) for _ in range(2))
            mine, theirs = _layer(drop_in, kind, table), _layer(torch.nn, kind, other)
            ours = _step(mine, _optimizer(mine, rule, way), inputs, dy)
            peer = _step(theirs, _optimizer(theirs, rule, "torch"), inputs, dy)
            yield Comparison(
                f"{kind} {name}, {rule}",
                f"torch, against {way}",
                ours,
                peer,
                None,
                _same_tables(ours, peer, table, other),
            )


def _forwards():
    import torch

    from fastemb.interop import torch as drop_in

    ((_, shape),) = shapes.SMALL.items()
    table, ids = shapes.table(shape.num_rows, shape.width), torch.from_numpy(shape.ids())
    offsets = torch.arange(0, len(ids), 4)
    for kind, inputs in (("Embedding", (ids,)), ("EmbeddingBag", (ids, offsets))):
        ours, theirs = (_layer(nn, kind, table) for nn in (drop_in, torch.nn))
        for way, context in (("training", torch.enable_grad), ("no_grad", torch.no_grad)):
            mine, peer = (functools.partial(_in, context, layer, inputs) for layer in (ours, theirs))
            yield Comparison(f"{kind} {SMALL}, {way}", "torch", mine, peer, FORWARD, same(mine, peer))


def _in(context, layer, inputs):
    with context():
        return layer(*inputs).detach()


def interop(quick):
    """Forward, backward and optimizer on the cases of `update`; and a forward so small that overhead is all."""
    if not has("torch"):
        return
    yield from _forwards()
    for name, shape in shapes.some(shapes.BAGS, quick).items():
        yield from _steps("EmbeddingBag", name, shape)
    if not quick:
        name = "1M x 64 B 8192 H 10 uniform"
        yield from _steps("Embedding", name, shapes.BAGS[name])
