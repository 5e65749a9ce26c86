"""Errors of one rank: all raise the same, nobody waits, nothing has changed."""

import numpy as np
import pytest

from fastemb import optim
from fastemb.sharded import ShardedEmbedding, exchange, hottest


@pytest.fixture
def emb(comm, table, spread):
    """A layer that is as before and works after the test."""
    emb = ShardedEmbedding.from_pretrained(table, comm=comm, optimizer=optim.Adam(), **spread)
    yield emb
    np.testing.assert_array_equal(emb(np.arange(len(table))), table)
    assert emb.state.step == 0
    assert not emb.state.m.any()
    assert emb.grad is None


def test_a_bad_index(emb, comm, raised_by_all):
    last = comm.rank == comm.size - 1
    ids = [5, 200] if last else [1, 2]
    dy = np.ones((2, 6), np.float32)
    expected = "Embedding indices must be in [0, 200), but got values in [5, 200] (first at position 1)."
    for call in (lambda: emb(ids), lambda: emb.backward(ids, dy), lambda: emb.fused_step(ids, dy)):
        assert raised_by_all(IndexError, call) == expected
    assert "-1 must be mapped" in raised_by_all(IndexError, emb, [-1] if last else [])


def test_the_error_of_the_lowest_rank_counts(emb, comm, raised_by_all):
    assert "got values in [300, 300]" in raised_by_all(IndexError, emb, [300 + comm.rank])
    with pytest.raises(IndexError) as caught:
        emb([300 + comm.rank])
    assert caught.value.__notes__ == [f"raised on rank 0 of {comm.size}, and so on all of them"]


def test_other_errors_of_a_batch(emb, comm, raised_by_all):
    first = comm.rank == 0
    assert raised_by_all(TypeError, emb, [0.5] if first else [1]) == "indices must be integers, got float64"
    dy = np.ones((1, 5 if first else 6), np.float32)
    assert raised_by_all(ValueError, emb.backward, [1], dy) == "dy must have shape (1, 6), got (1, 5)"
    wide = np.ones((1, 6), np.float64 if first else np.float32)
    assert "dy must be real numbers that cast safely" in raised_by_all(TypeError, emb.fused_step, [1], wide)
    assert raised_by_all(ValueError, hottest, [1], -1 if first else 1, num_embeddings=3, comm=comm)


def test_errors_that_others_cannot_raise(comm, raised_by_all):
    class OwnError(Exception):
        pass

    def together():
        with exchange.Exchange(comm).together("this"):
            if comm.rank == 0:
                msg = "text"
                raise OwnError(msg)

    with pytest.raises(OwnError if comm.rank == 0 else RuntimeError) as caught:
        together()
    assert str(caught.value) == ("text" if comm.rank == 0 else "OwnError: text")


def test_options_that_differ(emb, comm, raised_by_all):
    step = [1], np.ones((1, 6), np.float32)
    if comm.size > 1:
        text = raised_by_all(ValueError, emb.fused_step, *step, lr=0.5 * (1 + comm.rank))
        assert text == f"lr must be the same on every rank, got 0.5 to {0.5 * comm.size:g}"
        text = raised_by_all(ValueError, emb.fused_step, *step, max_grad_norm=None if comm.rank else 2.0)
        assert text.startswith("max_grad_norm must be the same on every rank")
        text = raised_by_all(ValueError, ShardedEmbedding, 10 + comm.rank, 2, comm=comm)
        assert text == f"num_embeddings must be the same on every rank, got 10 to {9 + comm.size}"
        text = raised_by_all(ValueError, ShardedEmbedding, 10, 2, comm=comm, partition=["hash", "range"][comm.rank % 2])
        assert text.startswith("the checksum of the other arguments must be the same on every rank")
        assert raised_by_all(ValueError, emb.gather_table, comm.rank).startswith("root must be the same")


STEP = [1], np.ones((1, 6), np.float32)
CALLS = {
    "the constructor": lambda emb, _: ShardedEmbedding(10, 2, comm=emb.comm),
    "from_pretrained": lambda emb, _: ShardedEmbedding.from_pretrained(STEP[1], comm=emb.comm),
    "load": lambda emb, folder: ShardedEmbedding.load(folder, comm=emb.comm),
    "save": lambda emb, folder: emb.save(folder),
    "backward": lambda emb, _: emb.backward(*STEP),
    "fused_step": lambda emb, _: emb.fused_step(*STEP),
    "step": lambda emb, _: emb.step(),
    "gather_table": lambda emb, _: emb.gather_table(),
    "load_state_dict": lambda emb, _: emb.load_state_dict(emb.state_dict()),
    "hottest": lambda emb, _: hottest([1], 1, num_embeddings=3, comm=emb.comm),
}


@pytest.mark.parametrize("call", CALLS)
def test_calls_that_differ(emb, comm, folder, call):
    others = range(1, comm.size)  # before rank 0, whose message to them might be taken for that of a later call
    for alone in (*others, 0) if others else ():
        text = f"in the same order: this one called {call if comm.rank == alone else 'a lookup'}, another did not"
        with pytest.raises(RuntimeError, match=text):
            CALLS[call](emb, folder / "checkpoint") if comm.rank == alone else emb([1])
        assert not list(folder.iterdir())


def test_bad_options(emb, comm, raised_by_all):
    step = [1], np.ones((1, 6), np.float32)
    assert raised_by_all(ValueError, emb.fused_step, *step, lr=-1) == "lr must be >= 0, got -1"
    assert raised_by_all(ValueError, emb.step, max_grad_norm=-1) == "max_grad_norm must be >= 0, got -1"
    text = raised_by_all(ValueError, emb.gather_table, comm.size)
    assert text == f"root must be <= {comm.size - 1}, got {comm.size}"
    text = raised_by_all(RuntimeError, ShardedEmbedding(3, 2, comm=comm).step)
    assert text.startswith("this layer has no optimizer")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"num_embeddings": 0}, ValueError, "num_embeddings must be >= 1, got 0"),
        ({"embedding_dim": 0}, ValueError, "embedding_dim must be >= 1, got 0"),
        ({"partition": "rows"}, ValueError, "partition must be one of 'range', 'hash', 'replicate-hot', got 'rows'"),
        ({"hot_ids": [1]}, ValueError, "hot_ids must be given for partition 'replicate-hot' and no other"),
        ({"partition": "replicate-hot"}, ValueError, "hot_ids must be given for partition 'replicate-hot'"),
        ({"partition": "replicate-hot", "hot_ids": [1, 1]}, ValueError, "hot_ids must be distinct, got 1 of them"),
        ({"partition": "replicate-hot", "hot_ids": [10]}, IndexError, "Embedding indices must be in [0, 10)"),
        ({"padding_idx": 10}, ValueError, "padding_idx must be in [-10, 10), got 10"),
        ({"dtype": "int32"}, TypeError, "dtype must be float16"),
        ({"seed": "x"}, TypeError, "SeedSequence expects int"),
        ({"init": "ones"}, ValueError, "init must be one of"),
        ({"max_norm": -1}, ValueError, "max_norm must be >= 0, got -1"),
        ({"optimizer": "SGD"}, TypeError, "optimizer must be a fastemb.optim.Optimizer, got str"),
    ],
)
def test_bad_arguments(comm, raised_by_all, options, error, text):
    arguments = {"num_embeddings": 10, "embedding_dim": 2} | options
    assert raised_by_all(error, ShardedEmbedding, **arguments, comm=comm).startswith(text)


def test_what_is_no_communicator(table):
    with pytest.raises(TypeError, match=r"^comm must be an mpi4py.MPI.Intracomm, got NoneType$"):
        ShardedEmbedding(10, 2, comm=None)
    with pytest.raises(TypeError, match=r"^comm must be an mpi4py.MPI.Intracomm, got list$"):
        ShardedEmbedding.from_pretrained(table, comm=[])
