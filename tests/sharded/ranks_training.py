"""Training: the bits of one process where sums are exact, and those of the order of ranks where they are not."""

import time

import numpy as np
import pytest

import fastemb
from fastemb import optim
from fastemb.sharded import ShardedEmbedding, exchange

RULES = [
    optim.SGD(lr=0.5),
    optim.Momentum(lr=0.1, weight_decay=0.01, mode="exact"),
    optim.Adagrad(),
    optim.RowWiseAdagrad(),
    optim.RMSprop(centered=True),
    optim.Adam(weight_decay=0.01),
    optim.Adam(mode="exact"),
    optim.Ftrl(l1=0.1),
]


def same_table(emb, one, comm):
    """Whether all rows, and their states, are those of the layer of one process."""
    emb.flush()
    one.flush()
    found = comm.bcast(emb.gather_table())
    np.testing.assert_array_equal(found, one.weight)
    for part, ids in ((emb.shard, emb.owned_ids), (emb.hot, emb.hot_ids)):
        assert part.state.step == one.state.step
        for name, array in one.state.arrays().items():
            if len(array):
                np.testing.assert_array_equal(getattr(part.state, name), array[ids])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{type(rule).__name__}-{getattr(rule, 'mode', '')}")
def test_bits_of_one_process(comm, table, spread, batches, whole, rule):
    options = {"padding_idx": 3, "optimizer": rule}
    emb, one = ShardedEmbedding.from_pretrained(table, comm=comm, **spread, **options), whole(table, **options)
    for t in range(4):
        ids, dy = batches(20, 2)
        np.testing.assert_array_equal(emb(ids[comm.rank]), one(ids)[comm.rank])
        if t == 2:
            emb.backward(ids[comm.rank], dy[comm.rank])
            one.backward(ids, dy)
            emb.step(lr=0.25)
            one.step(lr=0.25)
        else:
            emb.fused_step(ids[comm.rank], dy[comm.rank])
            one.fused_step(ids, dy)
    same_table(emb, one, comm)


def test_pending_gradients_of_some_ranks(comm, table, spread, batches, whole):
    emb = ShardedEmbedding.from_pretrained(table, comm=comm, optimizer=optim.Adam(), **spread)
    one = whole(table, optimizer=optim.Adam())
    emb.step()
    assert emb.state.step == 0
    for _ in range(2):
        ids, dy = batches(10)
        emb.backward(ids[comm.rank], dy[comm.rank])
        one.backward(ids, dy)
        if comm.rank == comm.size - 1:
            emb.zero_grad()
    one.zero_grad()
    own = emb.grad
    assert (own is None) == (comm.rank == comm.size - 1)
    for grad in comm.allgather(own):
        if grad is not None:
            one._add(grad)
    before = emb.gather_table()
    emb.step()
    one.step()
    assert emb.grad is None
    assert emb.state.step == (comm.size > 1)
    after = emb.gather_table()
    assert comm.rank or np.array_equal(before, after) == (comm.size == 1)
    if comm.size > 1:
        same_table(emb, one, comm)


def test_gradient_of_this_rank_by_id(comm, table, spread, batches):
    emb = ShardedEmbedding.from_pretrained(table, comm=comm, padding_idx=0, optimizer=optim.SGD(), **spread)
    ids, dy = (part[comm.rank] for part in batches(40))
    emb.backward(ids, dy)
    expected = fastemb.embedding_grad(ids, dy, len(table), padding_idx=0)
    np.testing.assert_array_equal(emb.grad.rows, expected.rows)
    np.testing.assert_array_equal(emb.grad.values, expected.values)


def test_sums_are_in_the_order_of_ranks_whatever_the_timing(comm, table, spread, rng):
    sent = rng.standard_normal((comm.size, 60, table.shape[1])).astype(np.float32) * 10.0 ** rng.integers(
        -6, 6, (60, 1)
    )
    dy, ids = sent.astype(np.float32), rng.integers(0, 8, (comm.size, 60))
    expected = table.copy()
    total = np.zeros_like(table)
    for r in range(comm.size):
        grad = fastemb.embedding_grad(ids[r], dy[r], len(table))
        total[grad.rows] += grad.values
    expected -= total
    for late in range(comm.size):
        emb = ShardedEmbedding.from_pretrained(table, comm=comm, optimizer=optim.SGD(lr=1.0), **spread)
        time.sleep(0.01 * (comm.rank == late))
        emb.fused_step(ids[comm.rank], dy[comm.rank])
        found = comm.bcast(emb.gather_table())
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("max_grad_norm", [0.0, 2.0, 1e9, np.inf])
def test_the_norm_is_over_all_ranks(comm, table, spread, batches, whole, max_grad_norm):
    emb = ShardedEmbedding.from_pretrained(table, comm=comm, optimizer=optim.SGD(lr=1.0), **spread)
    one = whole(table, optimizer=optim.SGD(lr=1.0))
    ids, dy = batches(30)
    emb.fused_step(ids[comm.rank], dy[comm.rank], max_grad_norm=max_grad_norm)
    one.fused_step(ids, dy, max_grad_norm=max_grad_norm)
    found = comm.bcast(emb.gather_table())
    if max_grad_norm == 2.0:  # a factor of the gradient, rounded where its norm is
        np.testing.assert_allclose(found, one.weight, rtol=1e-6, atol=1e-6)
        assert abs(np.linalg.norm(found - table) - 2) < 1e-5
    else:
        np.testing.assert_array_equal(found, one.weight)
    assert len(set(comm.allgather(emb.hot.weight.tobytes()))) == 1


def test_long_gradients_are_split(comm, table, spread, batches, whole, monkeypatch):
    monkeypatch.setattr(exchange, "MESSAGE_BYTES", 60)
    emb = ShardedEmbedding.from_pretrained(table, comm=comm, optimizer=optim.Adam(), **spread)
    one = whole(table, optimizer=optim.Adam())
    ids, dy = batches(100)
    emb.fused_step(ids[comm.rank], dy[comm.rank])
    one.fused_step(ids, dy)
    same_table(emb, one, comm)


def test_half_width_tables_sum_in_float32(comm, table, spread, batches, whole):
    options = {"dtype": "float16", "optimizer": optim.SGD(lr=0.5)}
    emb, one = ShardedEmbedding.from_pretrained(table, comm=comm, **spread, **options), whole(table, **options)
    ids, dy = batches(100)
    emb.fused_step(ids[comm.rank], dy[comm.rank])
    one.fused_step(ids, dy)
    same_table(emb, one, comm)


def test_state_dict_of_this_rank(comm, table, spread, batches):
    emb, other = (
        ShardedEmbedding.from_pretrained(table, comm=comm, optimizer=optim.Adam(), **spread) for _ in range(2)
    )
    ids, dy = batches(50)
    emb.fused_step(ids[comm.rank], dy[comm.rank])
    other.load_state_dict(emb.state_dict())
    for part in (emb, other):
        part.fused_step(ids[comm.rank], dy[comm.rank])
    tables = emb.gather_table(), other.gather_table()
    assert comm.rank or np.array_equal(*tables)
    assert [a.shape for a in emb.parameters()] == [emb.weight.shape, emb.hot.weight.shape]
