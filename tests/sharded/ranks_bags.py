"""Bags: pooled where they are, from rows of all ranks."""

import numpy as np
import pytest

import fastemb
from fastemb import optim
from fastemb.sharded import ShardedEmbeddingBag

MODES = ["sum", "mean", "sqrtn", "max"]


def pair(table, comm, spread, **options):
    """The sharded layer, and that of one process."""
    sharded = ShardedEmbeddingBag.from_pretrained(table, comm=comm, **spread, **options)
    return sharded, fastemb.EmbeddingBag.from_pretrained(table, freeze=False, **options)


@pytest.mark.parametrize("mode", MODES)
def test_two_dimensional_bags_with_padding(comm, table, spread, batches, mode):
    bag, one = pair(table, comm, spread, mode=mode, padding_idx=0, optimizer=optim.SGD(lr=0.5))
    ids, _ = batches(8, 4)
    ids[:, 3] = 0
    dy = np.full((comm.size, 8, table.shape[1]), 12.0, np.float32)
    np.testing.assert_array_equal(bag(ids[comm.rank]), one(ids.reshape(-1, 4)).reshape(dy.shape)[comm.rank])
    bag.fused_step(ids[comm.rank], None, dy[comm.rank])
    one.fused_step(ids.reshape(-1, 4), None, dy.reshape(-1, table.shape[1]))
    found = bag.gather_table()
    if comm.rank == 0:  # 12 can be divided by 1, 2 and 3, but not by their roots
        np.testing.assert_allclose(found, one.weight, rtol=1e-6 if mode == "sqrtn" else 0, atol=0)


@pytest.mark.parametrize("mode", MODES[:3])
def test_offsets_and_weights(comm, table, spread, batches, mode):
    bag, one = pair(table, comm, spread, mode=mode, include_last_offset=True, optimizer=optim.SGD(lr=0.5))
    ids, _ = batches(9)
    offsets, weights = [0, 2, 2, 9], np.tile(np.float32([1, 2, 0.5]), 3)
    dy = np.full((3, table.shape[1]), 4.0, np.float32)
    mine = ids[comm.rank], offsets, dy, weights
    np.testing.assert_array_equal(bag(ids[comm.rank], offsets, weights), one(ids[comm.rank], offsets, weights))
    bag.backward(*mine)
    bag.step()
    for r in range(comm.size):
        one.backward(ids[r], *mine[1:])
    one.step()
    found = bag.gather_table()
    if comm.rank == 0:
        np.testing.assert_allclose(found, one.weight, rtol=0 if mode == "sum" else 1e-6, atol=0)


@pytest.mark.parametrize("mode", MODES)
def test_no_bags_and_empty_bags(comm, table, spread, mode):
    bag, _ = pair(table, comm, spread, mode=mode, padding_idx=-1, optimizer=optim.SGD())
    assert bag(np.empty((0, 3), np.int64)).shape == (0, table.shape[1])
    np.testing.assert_array_equal(bag([], [0, 0]), np.zeros((2, table.shape[1])))
    np.testing.assert_array_equal(bag([[-1 % len(table)] * 2]), np.zeros((1, table.shape[1])))
    bag.fused_step([[len(table) - 1]], None, np.ones((1, table.shape[1]), np.float32))
    assert bag.state.step == 1
    found = bag.gather_table()
    assert comm.rank or np.array_equal(found, table)


def test_max_norm_leaves_padding_alone(comm, table, spread, batches):
    table[0] = 100
    bag, one = pair(table, comm, spread, mode="sum", padding_idx=0, max_norm=2.0)
    ids, _ = batches(10, 3)
    bag(ids[comm.rank])
    one(ids.reshape(-1, 3))
    found = bag.gather_table()
    assert comm.rank or np.array_equal(found, one.weight)


def test_bags_that_do_not_fit_on_one_rank(comm, table, spread, raised_by_all):
    bag, _ = pair(table, comm, spread, mode="sum", optimizer=optim.SGD())
    last = comm.rank == comm.size - 1
    dy = np.ones((2, table.shape[1]), np.float32)
    text = raised_by_all(ValueError, bag, [1, 2, 3], [0, 4 if last else 1])
    assert text == "offsets must be at most the number of indices, 3, got 4 at position 1"
    assert (
        raised_by_all(TypeError, bag, [1, 2], [0, 0.5] if last else [0, 1]) == "offsets must be integers, got float64"
    )
    text = raised_by_all(ValueError, bag.fused_step, [1, 2], [0, 1], dy[: 1 if last else 2])
    assert text == "dy must have shape (2, 6), got (1, 6)"
    assert "[0, 200)" in raised_by_all(IndexError, bag.backward, [1, 200 if last else 2], [0, 1], dy)
    assert bag.grad is None
    found = bag.gather_table()
    assert comm.rank or np.array_equal(found, table)


def test_options(comm, raised_by_all):
    bag = ShardedEmbeddingBag(10, 4, comm=comm, mode="max", include_last_offset=True)
    assert (bag.mode, bag.include_last_offset, bag.padding_idx) == ("max", True, None)
    text = raised_by_all(ValueError, ShardedEmbeddingBag, 10, 4, comm=comm, mode="median")
    assert text == "mode must be one of 'sum', 'mean', 'sqrtn', 'max', got 'median'"
