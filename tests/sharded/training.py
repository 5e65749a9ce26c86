"""What `test_killed` runs: training that goes on from a checkpoint, with a result that no number of ranks changes.

Arguments: folder, steps, and, as you like, how a rank ends (kill, raise, kill-in-save), which one, and at which step.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

import fastemb
from fastemb.sharded import ShardedEmbedding, checkpoint
from fastemb.sharded.exchange import Exchange

N, D, BATCH, EVERY = 500, 8, 64, 3


def table():
    """Where training begins."""
    return np.random.default_rng(0).integers(-8, 9, (N, D)).astype(np.float32)


def optimizer():
    """The rule: sums of whole numbers are exact, so that it is given the same on any number of ranks."""
    return fastemb.optim.Adam(lr=0.25)


def ids_of(t):
    """The ids of a step, over all ranks."""
    return np.minimum(np.random.default_rng(t).zipf(1.3, BATCH) - 1, N - 1)


def gradient_of(y):
    """Whole numbers that follow from what was looked up."""
    return (np.floor(y * 4) % 9 - 4).astype(np.float32)


def end_now(*_):
    """No farewell to the other ranks."""
    os.kill(os.getpid(), signal.SIGKILL)


def end(how):
    """Arrange for the end of this rank in the midst of what comes next."""
    if how == "raise":
        msg = "only here"
        raise ArithmeticError(msg)
    if how == "kill":
        Exchange.swap = end_now  # counts have been exchanged, rows have not
    else:
        checkpoint.write = end_now  # its file is there, and empty


def main(folder, steps, how="", rank="-1", at="-1"):
    """Train up to a number of steps, a checkpoint every few of them."""
    from mpi4py import MPI  # which starts it: the test that looks up `table` is no rank

    comm, folder = MPI.COMM_WORLD, Path(folder)
    (folder / f"{comm.rank}.pid").write_text(str(os.getpid()))
    checkpoints = folder / "checkpoints"
    comm.Barrier()
    if checkpoints.exists():
        emb = ShardedEmbedding.load(checkpoints, comm=comm)
    else:
        emb = ShardedEmbedding.from_pretrained(table(), comm=comm, partition="hash", optimizer=optimizer())
    if comm.rank == 0:
        print("from step", emb.state.step, "on", comm.size, "ranks", flush=True)
    share = slice(comm.rank * BATCH // comm.size, (comm.rank + 1) * BATCH // comm.size)
    while emb.state.step < int(steps):
        t = emb.state.step
        if (comm.rank, t) == (int(rank), int(at)):
            end(how)
        ids = ids_of(t)[share]
        emb.fused_step(ids, gradient_of(emb(ids)))
        if emb.state.step % EVERY == 0:
            emb.save(checkpoints)
    whole = emb.gather_table()
    if comm.rank == 0:
        np.save(folder / "table.npy", whole)


if __name__ == "__main__":
    main(*sys.argv[1:])
