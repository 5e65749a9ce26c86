"""A table over many ranks learns what frequent and rare ids stand for: ``mpiexec -n 4 python -m ...``.

Every id has a target vector, and each rank has batches of its own, in which id k occurs about as often as 1 / k. Run it
again, on as many ranks as you like, and it goes on from the last checkpoint.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastemb
from fastemb.sharded import ShardedEmbedding, hottest


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m fastemb.examples.sharded_training", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="of the table, over all ranks (200,000)")
    parser.add_argument("--width", type=int, default=64, help="of a row (64)")
    parser.add_argument("--batch", type=int, default=4096, help="ids of a step, on each rank (4096)")
    parser.add_argument("--steps", type=int, default=100, help="how many, those before a checkpoint included (100)")
    parser.add_argument("--every", type=int, default=50, help="steps between checkpoints (50)")
    parser.add_argument("--hot", type=int, default=64, help="rows that every rank has a copy of (64)")
    parser.add_argument("--folder", type=Path, help="of checkpoints; none by default")
    return parser.parse_args()


def batch(options: argparse.Namespace, rank: int, step: int) -> NDArray[np.int64]:
    """The ids of a rank at a step."""
    u = np.random.default_rng((rank, step)).random(options.batch)
    ids: NDArray[np.int64] = (options.rows**u).astype(np.int64) - 1
    return ids


def targets(ids: NDArray[np.int64], width: int) -> NDArray[np.float32]:
    """What the rows of some ids should become."""
    vectors: NDArray[np.float32] = np.sin(0.618 * (ids[:, np.newaxis] + 1) * np.arange(1, width + 1)).astype(np.float32)
    return vectors


def table(options: argparse.Namespace, comm: Any) -> ShardedEmbedding:
    """That of the last checkpoint, or a new one."""
    if options.folder is not None and comm.bcast((options.folder / "manifest.json").exists()):
        return ShardedEmbedding.load(options.folder, comm=comm)
    sample = batch(options, comm.rank, step=0)
    hot = hottest(sample, options.hot, num_embeddings=options.rows, comm=comm)
    return ShardedEmbedding(
        options.rows,
        options.width,
        comm=comm,
        partition="replicate-hot",
        hot_ids=hot,
        optimizer=fastemb.optim.RowWiseAdagrad(lr=0.5),
        seed=0,
    )


def train(options: argparse.Namespace, comm: Any) -> None:
    """Take the steps, and tell on rank 0 how it goes."""
    emb = table(options, comm)
    done = emb.state.step if emb.state else 0
    if comm.rank == 0:
        print(f"{emb.num_embeddings:,} rows on {comm.size} ranks, {emb.hot_ids.size} on all; from step {done}")
    start = time.perf_counter()
    for step in range(done + 1, options.steps + 1):
        ids = batch(options, comm.rank, step)
        error = emb(ids) - targets(ids, options.width)
        emb.fused_step(ids, error)
        loss, last = comm.allreduce(float(np.square(error).mean())) / comm.size, step == options.steps
        if comm.rank == 0 and (step % 10 == 0 or last):
            print(f"step {step:5d}   loss {loss:.4f}   {time.perf_counter() - start:.1f} s", flush=True)
        if options.folder is not None and (step % options.every == 0 or last):
            emb.save(options.folder)


def main() -> None:
    """Train; an exception on one rank ends all of them, which would wait for it otherwise."""
    from mpi4py import MPI
    from mpi4py.run import set_abort_status

    options = arguments()
    try:
        train(options, MPI.COMM_WORLD)
    except BaseException:
        set_abort_status(1)
        raise


if __name__ == "__main__":
    main()
