"""What lookups of several ranks take and send, measured."""

import contextlib
import functools
import time

import numpy as np

from fastemb import sharded
from fastemb.sharded import embedding, exchange, rows

from .. import data
from . import model

NAPS = 1e-3
"""Seconds between two looks of a rank that has nothing to do: one that waits in MPI would keep a core busy."""


def without_dedup(_rows, places, _padding=None):
    """What `Rows.distinct` is replaced with for ids to travel as often as they occur."""
    order = np.argsort(places, kind="stable")
    numbers = np.empty_like(order)
    numbers[order] = np.arange(order.size)
    return rows.Distinct(places[order], numbers)


@contextlib.contextmanager
def replaced(owner, name, value):
    """An attribute is another one meanwhile."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


class Stopwatch:
    """Seconds spent in the functions that it has been put around, by phase."""

    def __init__(self):
        self.seconds = dict.fromkeys(model.PHASES, 0.0)

    def around(self, phase, function):
        """The same function, timed."""

        @functools.wraps(function)
        def timed(*args, **options):
            start = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                self.seconds[phase] += time.perf_counter() - start

        return timed

    @contextlib.contextmanager
    def running(self):
        """Time what a lookup consists of."""
        parts = [
            ("dedup", embedding.ShardedEmbedding, "_places"),
            ("dedup", rows.Rows, "distinct"),
            ("exchange", exchange.Exchange, "least"),
            ("exchange", exchange.Exchange, "counts"),
            ("exchange", exchange.Exchange, "start"),
            ("exchange", exchange.Travelling, "wait"),
            ("gather", rows, "gather"),
            ("expand", embedding, "gather"),
        ]
        with contextlib.ExitStack() as stack:
            for phase, owner, name in parts:
                stack.enter_context(replaced(owner, name, self.around(phase, getattr(owner, name))))
            yield


WARM = 2
"""Lookups before the first that counts."""

WAYS = ("dedup", "no dedup", "hot rows")


def layer(comm, way, num_rows, width, sample, hot):
    """A table over the ranks, with all ids sent once, as often as they occur, or but for the hottest rows."""
    options = {"comm": comm, "partition": "hash", "init": "zeros"}
    if way == "hot rows":
        found = sharded.hottest(sample, hot, num_embeddings=num_rows, comm=comm)
        options |= {"partition": "replicate-hot", "hot_ids": found}
    return sharded.ShardedEmbedding(num_rows, width, **options)


def ids_of(stream, num_rows, length, comm):
    """The ids of this rank for lookups, and as many to count: parts of one stream, whose frequent ids are the same."""
    drawn = data.STREAMS[stream](num_rows, 2 * length * comm.size)
    return drawn[comm.rank :: 2 * comm.size], drawn[comm.size + comm.rank :: 2 * comm.size]


def lookups(comm, stream, way, sizes, rounds):
    """A record of lookups on all ranks of a communicator: medians over the rounds, of the slowest rank in each."""
    num_rows, width, length, hot = sizes
    ids, sample = ids_of(stream, num_rows, length, comm)
    emb = layer(comm, way, num_rows, width, sample, hot)
    taken, before = [], 0
    with replaced(rows.Rows, "distinct", without_dedup) if way == "no dedup" else contextlib.nullcontext():
        for _ in range(WARM + rounds):
            before = emb.bytes_sent
            watch = Stopwatch()
            comm.Barrier()
            with watch.running():
                start = time.perf_counter()
                emb(ids)
                taken.append([time.perf_counter() - start, *watch.seconds.values()])
    sent = comm.allreduce(emb.bytes_sent - before)
    slowest = np.max(comm.allgather(taken[WARM:]), axis=0)
    total, *phases = (float(x) for x in np.median(slowest, axis=0))
    distinct = np.unique(ids)
    cold = np.setdiff1d(distinct, emb.hot_ids)
    remote = np.setdiff1d(cold, emb.owned_ids).size
    least = comm.allreduce(remote) * (8 + width * emb.weight.itemsize)
    return {
        "stream": stream,
        "way": way,
        "ranks": comm.size,
        "ids": length,
        "distinct": comm.allreduce(distinct.size) / comm.size,
        "hot": comm.allreduce(distinct.size - cold.size) / comm.size,
        "sent_bytes": sent / comm.size,
        "least_bytes": least / comm.size,
        "seconds": total,
        **dict(zip(model.PHASES, phases, strict=True)),
    }


def latency(comm, rounds=200):
    """Seconds of a message: of an Allreduce of one number, over its messages one after the other."""
    own, least = np.zeros(1), np.zeros(1)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        comm.Allreduce(own, least)
        times.append(time.perf_counter() - start)
    return comm.allreduce(float(np.median(times))) / comm.size / max(1, np.ceil(np.log2(comm.size)))


def bandwidth(comm, each=1 << 20, rounds=20):
    """Bytes a second that a rank sends to the others, in large messages."""
    out, received = (np.ones((comm.size, each), np.uint8) for _ in range(2))
    times = []
    for _ in range(rounds):
        comm.Barrier()
        start = time.perf_counter()
        comm.Alltoall(out, received)
        times.append(time.perf_counter() - start)
    return (comm.size - 1) * each / comm.allreduce(float(np.median(times))) * comm.size


def with_first(comm, count, call):
    """What `call` returns on the first ranks, given their communicator; the others sleep meanwhile, and get None."""
    part = comm.Split(comm.rank < count, comm.rank)
    result = call(part) if comm.rank < count else None
    done = comm.Ibarrier()
    while not done.Test():
        time.sleep(NAPS)
    part.Free()
    return result
