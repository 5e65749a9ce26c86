"""Pooled lookup against torch's embedding_bag and FBGEMM's table-batched one."""

import functools

import numpy as np

import fastemb
from fastemb.kernels import cpu

from .. import shapes
from .comparison import Comparison, filled, has, same

PADDED = 10
"""Every so many-th index is the padding row, where there is one."""


def _torch_bag(table, ids, offsets, **options):
    import torch

    weight, indices, begins = torch.from_numpy(table), torch.from_numpy(ids), torch.from_numpy(offsets)
    return functools.partial(torch.nn.functional.embedding_bag, indices, weight, begins, **options)


def table_batched(table, **options):
    """FBGEMM's module for one table on a CPU, on the memory of `table`."""
    import torch
    from fbgemm_gpu.split_embedding_configs import SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    specification = (*table.shape, EmbeddingLocation.HOST, ComputeDevice.CPU)
    module = SplitTableBatchedEmbeddingBagsCodegen(
        [specification], pooling_mode=PoolingMode.SUM, weights_precision=SparseType.FP32, **options
    )
    module.weights_host.data = torch.from_numpy(table.reshape(-1))
    return module


def _fbgemm_bag(table, ids, offsets):
    import torch

    module = table_batched(table)
    indices, bounds = torch.from_numpy(ids), torch.from_numpy(np.append(offsets, ids.size))

    def call():
        with torch.no_grad():
            return module(indices, bounds)

    return call


def bag(quick):
    """Sums of bags, output allocated."""
    for name, shape in shapes.some(shapes.BAGS, quick).items():
        table = shapes.table(shape.num_rows, shape.width)
        ids, offsets = shape.problem()
        ours = functools.partial(fastemb.embedding_bag, table, ids, offsets, mode="sum")
        nbytes = shapes.moved(table, ids, shape.bags)
        out, none = fastemb.buffers.empty((shape.bags, shape.width), table.dtype), np.empty(0, table.dtype)
        bounds = np.append(offsets, ids.size)
        kernel = functools.partial(cpu.bag_sum, out, table, ids, bounds, none, none, -1)
        yield Comparison(name, "the kernel alone", ours, kernel, None, filled(ours, kernel, out), nbytes)
        if has("torch"):
            theirs = _torch_bag(table, ids, offsets, mode="sum")
            yield Comparison(name, "torch embedding_bag", ours, theirs, 1.0, same(ours, theirs), nbytes)
        if has("fbgemm_gpu"):
            theirs = _fbgemm_bag(table, ids, offsets)
            yield Comparison(name, "FBGEMM TBE", ours, theirs, 2.0, same(ours, theirs), nbytes)


def bag_slow(quick):
    """The same with padding, with means in float64, and with greatest elements."""
    if not has("torch"):
        return
    for name, shape in shapes.some(shapes.BAGS, quick).items():
        ids, offsets = shape.problem()
        padded = np.where(np.arange(ids.size) % PADDED == 0, 0, ids)
        for what, dtype, indices, options in (
            ("padding", np.float32, padded, {"mode": "sum", "padding_idx": 0}),
            ("float64 mean", np.float64, ids, {"mode": "mean"}),
            ("max", np.float32, ids, {"mode": "max"}),
        ):
            table = shapes.table(shape.num_rows, shape.width, dtype)
            ours = functools.partial(fastemb.embedding_bag, table, indices, offsets, **options)
            theirs = _torch_bag(table, indices, offsets, **options)

            def check(ours=ours, theirs=theirs):
                # torch multiplies sums with the reciprocal of the count where we divide
                np.testing.assert_allclose(ours(), np.asarray(theirs()), rtol=1e-15)

            nbytes = shapes.moved(table, indices, shape.bags)
            yield Comparison(f"{name}, {what}", "torch embedding_bag", ours, theirs, 3.0, check, nbytes)
