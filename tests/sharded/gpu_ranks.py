"""Tables over ranks whose rows lie on GPUs, the stand-in for CuPy: run by `test_ranks` on two.

The stand-in's memory is that of the host, so that MPI can be told to take it where it lies, as a CUDA-aware one would.
"""

import tempfile

import numpy as np
import pytest
from cuda.launched import cupy as cupy
from cuda.launched import emulated as emulated

import fastemb
from fastemb import optim
from fastemb.sharded import ShardedEmbedding, ShardedEmbeddingBag

N, D = 200, 6
OPTIONS = {"device": "cuda", "padding_idx": 1, "optimizer": optim.Adam(lr=0.25)}


@pytest.mark.parametrize("aware", [False, True])
def test_rows_on_gpus_have_the_bits_of_those_on_the_host(cupy, comm, table, rng, aware):
    spread = {"partition": "replicate-hot", "hot_ids": [0, 7, 9]}
    gpu = ShardedEmbedding.from_pretrained(table, comm=comm, **spread, **OPTIONS)
    cpu = ShardedEmbedding.from_pretrained(table, comm=comm, **spread, **OPTIONS | {"device": "cpu"})
    assert (gpu.device, type(gpu.weight)) == ("cuda:0", cupy.ndarray)
    assert not gpu._exchange._takes_cuda
    gpu._exchange._takes_cuda = aware
    for max_grad_norm in (None, 1.0):
        ids, dy = rng.integers(0, N, (comm.size, 9))[comm.rank], rng.integers(-4, 5, (9, D)).astype(np.float32)
        y = gpu(cupy.asarray(ids))
        np.testing.assert_array_equal(y.get(), cpu(ids))
        gpu.backward(ids, cupy.asarray(dy))
        cpu.backward(ids, dy)
        np.testing.assert_array_equal(gpu.grad.rows.get(), cpu.grad.rows)
        np.testing.assert_array_equal(gpu.grad.values.get(), cpu.grad.values)
        gpu.step(max_grad_norm=max_grad_norm)
        cpu.step(max_grad_norm=max_grad_norm)
    gpu.step()
    found, expected = gpu.gather_table(), cpu.gather_table()
    assert comm.rank or np.array_equal(found, expected)


def test_bags_on_gpus(cupy, comm, table):
    gpu = ShardedEmbeddingBag.from_pretrained(table, comm=comm, mode="sum", **OPTIONS)
    ids = np.array([[1, 2, 3], [N - 1, 1, 0]]) + 0 * comm.rank
    expected = fastemb.embedding_bag(table, ids, mode="sum", padding_idx=1)
    np.testing.assert_array_equal(gpu(cupy.asarray(ids)).get(), expected)
    gpu.fused_step(ids, None, cupy.ones((2, D), np.float32))
    assert gpu.state.step == 1


def test_checkpoints_go_from_device_to_device(cupy, comm, table):
    folder = comm.bcast(tempfile.mkdtemp())
    gpu = ShardedEmbedding.from_pretrained(table, comm=comm, **OPTIONS)
    gpu.fused_step([2], cupy.ones((1, D), np.float32))
    gpu.save(folder)
    for device, module in (("cpu", np), ("cuda", cupy)):
        loaded = ShardedEmbedding.load(folder, comm=comm, device=device)
        assert isinstance(loaded.weight, module.ndarray)
        assert isinstance(loaded.state.m, module.ndarray)
        found, expected = loaded.gather_table(), gpu.gather_table()
        assert comm.rank or np.array_equal(found, expected)
