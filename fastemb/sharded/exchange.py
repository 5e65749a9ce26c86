"""Messages between the ranks of a communicator: errors that all of them raise, and rows that change hands."""

from __future__ import annotations

import functools
import zlib
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .._compat import optional
from .._devices import HOST, device_of, empty, namespace, to_device

MESSAGE_BYTES = 1 << 31
"""What one message may hold; longer ones are split. Implementations of MPI have failed beyond it."""

MOST_SAME = 3
"""Numbers of a call that are compared between ranks."""

RAISED = (
    FileNotFoundError,
    ImportError,
    IndexError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Errors that other ranks raise, too, of these or derived from them; any other one becomes a RuntimeError there."""

Counts = NDArray[np.int64]


def mpi() -> Any:
    """The module mpi4py.MPI, which starts MPI when it is imported."""
    module = optional("mpi4py.MPI")
    if module is None:
        msg = "fastemb.sharded needs the package mpi4py and an MPI: pip install fastemb[mpi]"
        raise ImportError(msg)
    return module


@functools.cache
def _row_type(row_bytes: int) -> Any:
    """MPI's type of a row, of which counts are then: made once, as MPI keeps it."""
    return mpi().BYTE.Create_contiguous(row_bytes).Commit()


class Exchange:
    """What the ranks of a communicator tell each other. All methods are collective: every rank has to call them.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        The ranks.

    Attributes
    ----------
    sent : int
        Bytes of ids, rows and counts that this rank has sent to others.
    """

    def __init__(self, comm: Any) -> None:
        self._mpi = mpi()
        if not isinstance(comm, self._mpi.Intracomm):
            msg = f"comm must be an mpi4py.MPI.Intracomm, got {type(comm).__name__}"
            raise TypeError(msg)
        self.comm, self.rank, self.size = comm, int(comm.rank), int(comm.size)
        self.sent = 0
        self._takes_cuda = "cuda" in (comm.Get_info().get("mpi_memory_alloc_kinds") or "")

    def together(self, call: str) -> Agreement:
        """A block of code without messages, after which every rank goes on or every rank raises the same error."""
        return Agreement(self, call)

    def least(self, numbers: list[float]) -> list[float]:
        """The least of each number over all ranks."""
        own, least = np.array(numbers, np.float64), np.empty(len(numbers))
        self.comm.Allreduce(own, least, self._mpi.MIN)
        return [float(x) for x in least]

    def any(self, mask: NDArray[np.bool]) -> NDArray[np.bool]:
        """Where the mask of at least one rank is set."""
        union = np.empty_like(mask)
        self.comm.Allreduce(mask, union, self._mpi.LOR)
        return union

    def numbers_of_all(self, numbers: list[float]) -> NDArray[np.float64]:
        """What every rank has given, (ranks, len(numbers))."""
        every = np.empty((self.size, len(numbers)))
        self.comm.Allgather(np.array(numbers, np.float64), every)
        return every

    def of_root(self, value: Any, root: int = 0) -> Any:
        """A small Python object of one rank."""
        return self.comm.bcast(value, root)

    def of_all(self, value: Any) -> list[Any]:
        """A small Python object of every rank."""
        return list(self.comm.allgather(value))

    def counts(self, counts: Counts) -> Counts:
        """How many rows each rank sends here, given how many go to each."""
        received = np.empty_like(counts)
        self.comm.Alltoall(counts, received)
        self.sent += counts.itemsize * (self.size - 1)
        return received

    def start(
        self, rows: NDArray[Any], counts: Counts, out: NDArray[Any], out_counts: Counts, largest: int
    ) -> Travelling:
        """Send rows, those for rank 0 first, and receive what others send into `out`, those of rank 0 first.

        What a rank has for itself does not travel: its places in `out` are left alone. `largest` is the greatest count
        of all ranks: it says into how many messages all of them split theirs.
        """
        row_bytes = rows.itemsize * int(np.prod(rows.shape[1:]))
        most = max(1, MESSAGE_BYTES // row_bytes)
        kind = _row_type(row_bytes)
        sent, landing = self._to_send(rows), out if self._reads(out) else np.empty(out.shape, out.dtype)
        requests = [
            self.comm.Ialltoallv(
                [self._memory(sent), *self._part(counts, start, most), kind],
                [self._memory(landing), *self._part(out_counts, start, most), kind],
            )
            for start in range(0, largest, most)
        ]
        self.sent += row_bytes * int(self.without_own(counts).sum())
        return Travelling(requests, sent, landing, out, self.own(out_counts))

    def swap(self, rows: NDArray[Any], counts: Counts, out_counts: Counts, largest: int) -> NDArray[Any]:
        """Send rows, and return those received, in the order of ranks, this one's own among them."""
        out = empty((int(out_counts.sum()), *rows.shape[1:]), rows.dtype, rows)
        travelling = self.start(rows, counts, out, out_counts, largest)
        out[self.own(out_counts)] = rows[self.own(counts)]
        travelling.wait()
        return out

    def without_own(self, counts: Counts) -> Counts:
        """The counts, without what a rank has for itself."""
        others = counts.copy()
        others[self.rank] = 0
        return others

    def own(self, counts: Counts) -> slice:
        """Where what a rank has for itself lies among rows in the order of ranks."""
        start = int(counts[: self.rank].sum())
        return slice(start, start + int(counts[self.rank]))

    def sum(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The sum over all ranks of arrays of one shape, added in the order of ranks.

        An Allreduce of which MPI does not choose the order: each rank adds its share of the rows, then sends it to all.
        """
        shares = np.diff(np.arange(self.size + 1) * len(rows) // self.size)
        own, largest = int(shares[self.rank]), int(shares.max())
        mine = np.full(self.size, own)
        terms = self.swap(rows, shares, mine, largest).reshape(self.size, own, *rows.shape[1:])
        total = terms[0].copy()
        with np.errstate(all="ignore"):
            for term in terms[1:]:
                total += term
        return self.swap(namespace(total).concatenate([total] * self.size), mine, shares, largest)

    def _reads(self, array: NDArray[Any]) -> bool:
        """Whether MPI takes an array where it lies."""
        return isinstance(array, np.ndarray) or self._takes_cuda

    def _to_send(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array as MPI takes it: on a GPU once it is there, or on the host."""
        if not self._reads(array):
            return to_device(array, HOST)
        if not isinstance(array, np.ndarray):
            namespace(array).cuda.get_current_stream().synchronize()
        return array

    def _memory(self, array: NDArray[Any]) -> Any:
        """The bytes of an array, whatever its dtype."""
        if isinstance(array, np.ndarray):
            return array.view(np.uint8)
        return self._mpi.buffer.fromaddress(array.data.ptr, array.nbytes)

    def _part(self, counts: Counts, start: int, most: int) -> tuple[Counts, Counts]:
        """Counts and displacements of one message of several: at most so many rows, after so many, for each rank."""
        part = self.without_own(np.clip(counts - start, 0, most))
        return part, np.cumsum(counts) - counts + np.minimum(start, counts)


class Travelling(NamedTuple):
    """Rows on their way: the arrays of `Exchange.start` are not to be touched before `wait`."""

    requests: list[Any]
    sent: NDArray[Any]
    landing: NDArray[Any]
    out: NDArray[Any]
    own: slice

    def wait(self) -> None:
        """Until all rows have arrived."""
        for request in self.requests:
            request.Wait()
        if self.landing is not self.out:
            for others in (slice(self.own.start), slice(self.own.stop, None)):
                self.out[others] = to_device(self.landing[others], device_of(self.out))


class Agreement:
    """See `Exchange.together`.

    Attributes
    ----------
    largest : int
        To be set within the block to a number of this rank; after it, the greatest of all ranks.
    same : dict of str to float
        To be set within the block: numbers that have to be the same on every rank, `MOST_SAME` at most, or None.
    """

    def __init__(self, exchange: Exchange, call: str) -> None:
        self._exchange, self._call = exchange, call
        self.largest = 0
        self.same: dict[str, float | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: TracebackType | None) -> None:
        if error is not None and not isinstance(error, Exception):
            return
        exchange = self._exchange
        numbers = [float(zlib.crc32(self._call.encode())), *(-1.0 if x is None else x for x in self.same.values())]
        numbers += [0.0] * (1 + MOST_SAME - len(numbers))  # of one length for all calls: other calls are noticed
        first = exchange.size if error is None else exchange.rank
        found = exchange.least([first, -self.largest, *numbers, *(-x for x in numbers)])
        least, greatest = found[2 : 2 + len(numbers)], [-x for x in found[2 + len(numbers) :]]
        if least[0] != greatest[0]:
            msg = f"all ranks must make the same calls in the same order: this one called {self._call}, another did not"
            raise RuntimeError(msg) from error
        if found[0] < exchange.size:
            self._raise(int(found[0]), error)
        for name, low, high in zip(self.same, least[1:], greatest[1:], strict=False):
            if low != high:
                msg = f"{name} must be the same on every rank, got {low:g} to {high:g}"
                raise ValueError(msg)
        self.largest = int(-found[1])

    def _raise(self, rank: int, error: Exception | None) -> None:
        """Raise the error of one rank on all of them, its own one where it is."""
        exchange = self._exchange
        kinds, text = exchange.of_root(([kind.__name__ for kind in type(error).__mro__], str(error)), rank)
        raised = error
        if exchange.rank != rank or raised is None:
            known = {kind.__name__: kind for kind in RAISED}
            found = next((known[kind] for kind in kinds if kind in known), None)
            raised = RuntimeError(f"{kinds[0]}: {text}") if found is None else found(text)
        raised.add_note(f"raised on rank {rank} of {exchange.size}, and so on all of them")
        raise raised from error if raised is not error else None
