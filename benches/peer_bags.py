"""Pooled lookup against torch's embedding_bag and FBGEMM's table-batched one."""

import functools

import numpy as np

import fastemb
from fastemb.kernels import cpu

from . import data
from .comparison import Comparison, filled, has, same

BAGS = [
    ("1M x 128 B 4096 H 32 uniform", 1_000_000, 128, 4096, 32, "uniform"),
    ("1M x 128 B 4096 H 32 zipf", 1_000_000, 128, 4096, 32, "zipf"),
    ("1M x 64 B 8192 H 1 uniform", 1_000_000, 64, 8192, 1, "uniform"),
    ("1M x 64 B 8192 H 10 uniform", 1_000_000, 64, 8192, 10, "uniform"),
    ("50k x 64 B 4096 H 20 uniform", 50_000, 64, 4096, 20, "uniform"),
]
PADDED = 10
"""Every so many-th index is the padding row, where there is one."""


def fill(table):
    """A table of whole numbers whose rows all differ within a thousand."""
    # Whole numbers, so that every order of addition gives the same sum.
    table[:] = np.random.default_rng(1).integers(-8, 9, table.shape[1])
    table[:, 0] = np.arange(len(table)) % 1000
    return table


def problem(num_rows, bags, length, stream):
    """(ids, offsets) of bags of one length."""
    ids = data.STREAMS[stream](num_rows, bags * length)
    return ids, np.arange(0, ids.size, length)


def moved_by_bags(table, ids, bags):
    """Bytes that have to move: every distinct row is read once, every pooled row written."""
    return (np.unique(ids).size + bags) * table.shape[1] * table.itemsize


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
    for name, num_rows, width, bags, length, stream in BAGS[:1] if quick else BAGS:
        table = fill(np.empty((num_rows, width), np.float32))
        ids, offsets = problem(num_rows, bags, length, stream)
        ours = functools.partial(fastemb.embedding_bag, table, ids, offsets, mode="sum")
        nbytes = moved_by_bags(table, ids, bags)
        out, none = fastemb.buffers.empty((bags, width), table.dtype), np.empty(0, table.dtype)
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
    for name, num_rows, width, bags, length, stream in BAGS[:1] if quick else BAGS:
        ids, offsets = problem(num_rows, bags, length, stream)
        padded = np.where(np.arange(ids.size) % PADDED == 0, 0, ids)
        for what, dtype, indices, options in (
            ("padding", np.float32, padded, {"mode": "sum", "padding_idx": 0}),
            ("float64 mean", np.float64, ids, {"mode": "mean"}),
            ("max", np.float32, ids, {"mode": "max"}),
        ):
            table = fill(np.empty((num_rows, width), dtype))
            ours = functools.partial(fastemb.embedding_bag, table, indices, offsets, **options)
            theirs = _torch_bag(table, indices, offsets, **options)

            def check(ours=ours, theirs=theirs):
                # torch multiplies sums with the reciprocal of the count where we divide
                np.testing.assert_allclose(ours(), np.asarray(theirs()), rtol=1e-15)

            nbytes = moved_by_bags(table, indices, bags)
            yield Comparison(f"{name}, {what}", "torch embedding_bag", ours, theirs, 3.0, check, nbytes)
