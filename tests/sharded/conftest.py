"""Tests of several ranks are in files ``ranks_*.py``, run by `test_ranks` under mpiexec: a failure ends them all."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import fastemb

N, D = 200, 6
PARTITIONS = {"range": {}, "hash": {}, "replicate-hot": {"hot_ids": [0, 3, 1, 100]}}


def pytest_runtest_makereport(item, call):
    """A rank that has failed will not take part in what the others wait for."""
    if "FASTEMB_TEST_RANKS" in os.environ and call.excinfo is not None:
        from mpi4py import MPI

        text = item.repr_failure(call.excinfo)
        print(f"rank {MPI.COMM_WORLD.rank}: {item.nodeid}\n{text}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)


@pytest.fixture
def comm():
    """All ranks."""
    from mpi4py import MPI

    return MPI.COMM_WORLD


@pytest.fixture(params=PARTITIONS)
def spread(request):
    """A partition, as arguments."""
    return {"partition": request.param, **PARTITIONS[request.param]}


@pytest.fixture
def table(rng):
    """Whole numbers, (N, D)."""
    return rng.integers(-8, 9, (N, D)).astype(np.float32)


@pytest.fixture
def batches(comm, rng):
    """Makes the ids of all ranks, frequent ones often, and whole numbers as gradients of what is looked up."""

    def make(*shape):
        ids = np.minimum(rng.zipf(1.3, (comm.size, *shape)) - 1, N - 1)
        return ids, rng.integers(-4, 5, (*ids.shape, D)).astype(np.float32)

    return make


@pytest.fixture
def whole():
    """Makes the layer of one process that a sharded one is compared with."""

    def make(table, **options):
        return fastemb.Embedding.from_pretrained(table, freeze=False, **options)

    return make


@pytest.fixture
def folder(comm):
    """A folder that all ranks share."""
    path = Path(comm.bcast(tempfile.mkdtemp()))
    yield path
    comm.Barrier()
    if comm.rank == 0:
        shutil.rmtree(path)


@pytest.fixture
def raised_by_all(comm):
    """Checks that a call raises the same on every rank, and returns the text."""

    def check(kind, call, *args, **options):
        with pytest.raises(kind) as caught:
            call(*args, **options)
        assert type(caught.value) is kind
        assert len(set(comm.allgather(str(caught.value)))) == 1
        return str(caught.value)

    return check
