"""Arrays that begin at a cache line, as tables and their state do.

What NumPy allocates begins 16 bytes behind a line, so a vector of 64 bytes is always in two: steps of whole rows that
are in the caches take twice as long.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

LINE = 64
"""Bytes of a cache line."""


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """What ``numpy.empty`` gives, but for where it begins."""
    return _part_of(np.empty(_bytes(shape, dtype), np.uint8), 0, shape, dtype)


def filled(
    shape: tuple[int, ...], dtype: np.dtype[Any], number: float, like: NDArray[Any] | None = None
) -> NDArray[Any]:
    """An array of a number; if there is another it begins as far behind a line, so that rows of both are cut alike.

    Zeros take no memory before they are written.
    """
    start = 0 if like is None else int(like.__array_interface__["data"][0]) % LINE
    memory = (np.empty if number else np.zeros)(_bytes(shape, dtype), np.uint8)
    array = _part_of(memory, start - start % dtype.itemsize, shape, dtype)
    if number:
        array[...] = number
    return array


def _bytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return math.prod(shape) * dtype.itemsize + LINE


def _part_of(memory: NDArray[np.uint8], behind: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    first = (behind - int(memory.__array_interface__["data"][0])) % LINE
    return memory[first : first + memory.size - LINE].view(dtype).reshape(shape)
