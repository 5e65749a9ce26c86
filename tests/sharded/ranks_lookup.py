"""Lookups: the rows of a table that lies on several ranks."""

import numpy as np
import pytest

import fastemb
from fastemb.sharded import ShardedEmbedding, exchange, hottest
from fastemb.sharded import rows as rows_module


@pytest.fixture
def emb(comm, table, spread):
    return ShardedEmbedding.from_pretrained(table, comm=comm, **spread)


def test_rows_are_those_of_the_table(emb, table, comm, batches):
    ids = batches(30, 2)[0][comm.rank]
    before = ids.copy()
    y = emb(ids)
    np.testing.assert_array_equal(y, table[ids])
    assert y.dtype == np.float32
    np.testing.assert_array_equal(ids, before)


def test_every_row_is_found(emb, table):
    np.testing.assert_array_equal(emb(np.arange(len(table))), table)


@pytest.mark.parametrize("dtype", ["i1", "u1", ">i2", "u4", "i8", "u8"])
def test_ids_of_any_integer_dtype_and_strides(emb, table, comm, dtype):
    ids = (np.arange(40).reshape(5, 8) % 13 + comm.rank).astype(dtype)[::2, ::-3]
    np.testing.assert_array_equal(emb(ids), table[ids.astype(int)])


def test_one_id_and_none(emb, table, comm):
    np.testing.assert_array_equal(emb(7), table[7])
    np.testing.assert_array_equal(emb(np.array(comm.rank)), table[comm.rank])
    assert emb([]).shape == (0, table.shape[1])
    assert emb(np.empty((3, 0, 2), np.int64)).shape == (3, 0, 2, table.shape[1])
    only_rank_0 = [5, 5, 9] if comm.rank == 0 else []
    np.testing.assert_array_equal(emb(only_rank_0), table[np.array(only_rank_0, int)])


def test_all_ids_on_one_owner(emb, table):
    np.testing.assert_array_equal(emb([150] * 9), table[[150] * 9])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes(comm, table, spread, dtype):
    emb = ShardedEmbedding.from_pretrained(table, comm=comm, dtype=dtype, **spread)
    y = emb(np.arange(0, 200, 3))
    assert y.dtype == emb.weight.dtype
    assert y.dtype.name == dtype
    np.testing.assert_array_equal(y.astype(np.float32), table[::3])


def test_more_ranks_than_rows(comm, spread):
    table = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    if "hot_ids" in spread:
        spread = spread | {"hot_ids": [1]}
    emb = ShardedEmbedding.from_pretrained(table, comm=comm, optimizer=fastemb.optim.SGD(lr=1.0), **spread)
    np.testing.assert_array_equal(emb([1, 0, 1]), table[[1, 0, 1]])
    emb.fused_step([1], np.ones((1, 3), np.float32))
    np.testing.assert_array_equal(emb([0, 1]), table - [[0], [comm.size]])


def test_owned_rows(emb, table, comm):
    np.testing.assert_array_equal(emb.weight, table[emb.owned_ids])
    np.testing.assert_array_equal(emb.hot.weight, table[emb.hot_ids])
    everyone = np.concatenate([*comm.allgather(emb.owned_ids), emb.hot_ids])
    np.testing.assert_array_equal(np.sort(everyone), np.arange(len(table)))
    sizes = comm.allgather(len(emb.owned_ids))
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("limit", [1, 100, 1000])
def test_long_messages_are_split(emb, table, comm, batches, monkeypatch, limit):
    ids = batches(200)[0][comm.rank]
    counted = []
    part = exchange.Exchange._part
    monkeypatch.setattr(exchange, "MESSAGE_BYTES", limit)
    monkeypatch.setattr(
        exchange.Exchange, "_part", lambda self, *args: counted.append(part(self, *args)) or counted[-1]
    )
    np.testing.assert_array_equal(emb(ids), table[ids])
    row_bytes = max(8, table.itemsize * table.shape[1])
    assert all(counts.max() * 8 <= max(limit, row_bytes) for counts, _ in counted)
    assert limit > 100 or comm.size == 1 or len(counted) > 4


def test_what_is_sent_is_the_least_that_has_to_be(emb, table, comm, batches):
    ids = batches(300)[0]
    before = emb.bytes_sent
    emb(ids[comm.rank])
    others = [np.setdiff1d(np.unique(of_rank), emb.hot_ids) for r, of_rank in enumerate(ids) if r != comm.rank]
    for_others = sum(np.isin(wanted, emb.owned_ids).sum() for wanted in others)
    own = np.setdiff1d(np.unique(ids[comm.rank]), np.concatenate((emb.owned_ids, emb.hot_ids)))
    counts = 8 * (comm.size - 1)
    assert emb.bytes_sent - before == counts + 8 * own.size + for_others * table.itemsize * table.shape[1]


def test_own_rows_are_looked_up_while_others_travel(emb, comm, monkeypatch):
    order = []
    start, gather, wait = exchange.Exchange.start, rows_module.gather, exchange.Travelling.wait
    monkeypatch.setattr(exchange.Exchange, "start", lambda *a, **k: order.append("start") or start(*a, **k))
    monkeypatch.setattr(rows_module, "gather", lambda *a, **k: order.append("gather") or gather(*a, **k))
    monkeypatch.setattr(exchange.Travelling, "wait", lambda self: order.append("wait") or wait(self))
    emb(np.arange(50))
    assert order == ["start", "wait", "gather", "start", "gather", "gather", "wait"]


def test_max_norm_shrinks_each_row_once(comm, table, spread, batches, whole):
    options = {"max_norm": 3.0, "norm_type": 1.0}
    emb, one = ShardedEmbedding.from_pretrained(table, comm=comm, **spread, **options), whole(table, **options)
    for _ in range(2):
        ids, _ = batches(20)
        np.testing.assert_array_equal(emb(ids[comm.rank]), one(ids)[comm.rank])
    found = emb.gather_table()
    assert comm.rank or np.array_equal(found, one.weight)
    assert len(set(comm.allgather(emb.hot.weight.tobytes()))) == 1


def test_a_row_that_one_rank_looks_up_is_shrunk_for_all(comm, table, spread, whole):
    emb = ShardedEmbedding.from_pretrained(table * 9, comm=comm, max_norm=2.0, **spread)
    one = whole(table * 9, max_norm=2.0)
    emb([100, 7] if comm.rank == comm.size - 1 else [])
    one([100, 7])
    copies = comm.allgather(emb.hot.weight)
    assert all(np.array_equal(copy, one.weight[emb.hot_ids]) for copy in copies)
    found = emb.gather_table()
    assert comm.rank or np.array_equal(found, one.weight)


def test_gather_table_to_any_rank(emb, table, comm):
    for root in range(comm.size):
        found = emb.gather_table(root)
        assert (found is None) == (comm.rank != root)
        if found is not None:
            np.testing.assert_array_equal(found, table)


def test_initial_values_do_not_depend_on_the_number_of_ranks(comm, spread):
    sizes = {"num_embeddings": 1000, "embedding_dim": 3}
    for init in ("uniform_fan", "normal", lambda rng, shape, dtype: rng.integers(0, 9, shape)):
        made = ShardedEmbedding(**sizes, comm=comm, init=init, seed=4 + comm.rank, padding_idx=-1, **spread)
        alone = ShardedEmbedding(**sizes, comm=comm.Split(comm.rank), init=init, seed=4, padding_idx=-1, **spread)
        found, expected = comm.bcast(made.gather_table()), alone.gather_table()
        np.testing.assert_array_equal(found, expected)
        assert not found[-1].any()
        assert len(np.unique(found, axis=0)) > 500
        if init == "uniform_fan":
            assert 0.99 < np.abs(found).max() * np.sqrt(1000) <= 1


def test_seeds_differ_unless_given(comm):
    first, second = (ShardedEmbedding(50, 4, comm=comm).gather_table() for _ in range(2))
    assert comm.rank or not np.array_equal(first, second)


def test_hottest_ids(comm, batches):
    ids, _ = batches(400)
    distinct, counts = np.unique(ids, return_counts=True)
    expected = distinct[np.lexsort((distinct, -counts))]
    for count in (0, 1, 5, 1000):
        found = hottest(ids[comm.rank], count, num_embeddings=200, comm=comm)
        np.testing.assert_array_equal(found, expected[:count])
    assert hottest([], 3, num_embeddings=200, comm=comm).size == 0


def test_tables_beyond_32_bits(comm):
    n = 2**40 + 3
    found = hottest([n - 1, 2**39, n - 1], 2, num_embeddings=n, comm=comm)
    assert found.tolist() == [n - 1, 2**39]


def test_repr(emb, comm, spread):
    expected = (
        f"ShardedEmbedding(200, 6, partition={spread['partition']!r}, dtype=float32, rank {comm.rank} of {comm.size})"
    )
    assert repr(emb) == expected
