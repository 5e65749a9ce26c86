"""Recycled memory for large results.

A fresh large array costs more than a lookup that fills it: the system hands its pages out one by one, zeroed, at the
first write. So results above `SMALLEST` bytes lie in blocks that come back here when the last array on them dies, views
included, and serve the next result. At most `limit` bytes are kept; ``FASTEMB_BUFFERS=0`` in the environment, or
``set_limit(0)``, keeps none.

Examples
--------
>>> import numpy as np, fastemb
>>> table = np.zeros((1000, 256), np.float32)
>>> fastemb.buffers.clear()
>>> rows = fastemb.gather(table, np.zeros(2000, int))
>>> del rows
>>> fastemb.buffers.kept()
2048000
>>> fastemb.buffers.clear()
>>> fastemb.buffers.kept(), fastemb.buffers.limit()
(0, 268435456)
>>> fastemb.buffers.set_limit(fastemb.buffers.limit())
>>> fastemb.buffers.empty((3, 2), np.dtype(float)).shape
(3, 2)
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _options

__all__ = ["clear", "empty", "kept", "limit", "set_limit"]

SMALLEST = 1 << 20
"""Bytes from which a result is worth a block of its own."""

ALIGNMENT = 64
"""Of the first element: a cache line, so that kernels may write past the caches."""

DEFAULT_LIMIT = 1 << 28


class _Block:
    """Memory that begins at a cache line, and how NumPy is told of the last array on it."""

    __slots__ = ("address", "array", "interface", "memory", "size")

    def __init__(self, nbytes: int) -> None:
        self.memory = np.empty(nbytes + ALIGNMENT, np.uint8)
        start: int = self.memory.__array_interface__["data"][0]
        self.address, self.size = start + -start % ALIGNMENT, nbytes
        self.array: tuple[tuple[int, ...], np.dtype[Any]] | None = None
        self.interface: dict[str, Any] = {}

    def describe(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> dict[str, Any]:
        """The array interface of an array on this block; the one before if that was alike."""
        if self.array != (shape, dtype):
            data = self.address, False
            self.interface = {"shape": shape, "typestr": dtype.str, "data": data, "version": 3}
            self.array = shape, dtype
        return self.interface


class _Pool:
    """Free blocks, the last returned first. All steps are safe when a block comes back in the middle of one.

    The lock is one that its holder may take again: memory can be collected, and a lease die, inside of any of these
    methods.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.size = limit, 0
        self.free: dict[int, _Block] = {}
        self.lock = threading.RLock()

    def take(self, nbytes: int) -> _Block:
        """A block of at least `nbytes` (and less than twice that), free or new."""
        with self.lock:
            try:
                key, block = self.free.popitem()  # the last returned: in a loop, the one that fits
            except KeyError:
                return _Block(nbytes)
            if nbytes <= block.size < 2 * nbytes:
                self.size -= block.size
                return block
            self.free[key] = block
            for key, block in reversed(list(self.free.items())):
                if nbytes <= block.size < 2 * nbytes and self.free.pop(key, None) is not None:
                    self.size -= block.size
                    return block
        return _Block(nbytes)

    def give_back(self, block: _Block) -> None:
        """Keep a block if it fits, the oldest ones making room."""
        with self.lock:
            if block.size <= self.limit:
                self.free[id(block)] = block
                self.size += block.size
                self.trim()

    def trim(self, limit: int | None = None) -> None:
        """Drop the oldest blocks beyond the limit."""
        with self.lock:
            while self.free and self.size > (self.limit if limit is None else limit):
                block = self.free.pop(next(iter(list(self.free)), -1), None)
                self.size -= 0 if block is None else block.size


_pool = _Pool(0 if os.environ.get("FASTEMB_BUFFERS", "1").strip() == "0" else DEFAULT_LIMIT)


def _after_fork_in_child() -> None:
    # Another thread of the parent may have held the lock. The blocks are the child's own copies.
    _pool.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class _Lease:
    """Owner of a block: arrays on it keep this object alive, and its end returns the block."""

    __slots__ = ("__array_interface__", "block")

    def __init__(self, block: _Block, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.block = block
        self.__array_interface__ = block.describe(shape, dtype)

    def __del__(self, give_back: Any = _pool.give_back) -> None:
        give_back(self.block)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An uninitialised C-contiguous array; a large one lies in recycled memory.

    Parameters
    ----------
    shape : tuple of int
        Its shape.
    dtype : numpy.dtype
        Its dtype.

    Returns
    -------
    ndarray
        What ``numpy.empty`` gives, except that ``flags.owndata`` is False for a large one.
    """
    nbytes = dtype.itemsize
    for n in shape:
        nbytes *= n
    if nbytes < SMALLEST or _pool.limit == 0:
        return np.empty(shape, dtype)
    array = np.asarray(_Lease(_pool.take(nbytes), shape, dtype))
    return array if array.dtype == dtype else array.view(dtype)  # bfloat16 has no code of its own


def kept() -> int:
    """Bytes in blocks that wait for their next use.

    Returns
    -------
    int
        At most `limit`.
    """
    return _pool.size


def limit() -> int:
    """Most bytes that are kept.

    Returns
    -------
    int
        268435456 unless it was set.
    """
    return _pool.limit


def set_limit(nbytes: int) -> None:
    """Keep at most this many bytes; 0 switches recycling off.

    Parameters
    ----------
    nbytes : int
        At least 0. What is kept beyond it is freed now.

    Raises
    ------
    TypeError
        Not an integer.
    ValueError
        A negative number.
    """
    _pool.limit = _options.integer("nbytes", nbytes, at_least=0)
    _pool.trim()


def clear() -> None:
    """Free what is kept. Arrays in use are not touched."""
    _pool.trim(0)
