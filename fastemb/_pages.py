"""Pages of memory-mapped files: read ahead for the rows of a batch, all at once instead of one fault after another."""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SAMPLED = 8
"""Rows whose pages are asked for before advice is given: where these are in memory, so are most of the others."""

_ADVICE: int | None = getattr(mmap, "MADV_WILLNEED", None)


def mapping(array: NDArray[Any]) -> mmap.mmap | None:
    """The mapped file that an array lies in, if it lies in one."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def read_ahead(array: NDArray[Any], rows: NDArray[Any]) -> None:
    """Ask for the pages of the rows that are in range, if the array is a mapped file and they are not in memory.

    Does not wait for them.
    """
    base = array.base
    if base is None or (type(base) is np.ndarray and base.base is None):  # as most are
        return
    file = mapping(array)
    if file is None or _ADVICE is None or rows.dtype.kind not in "iu" or not array[:1].flags.c_contiguous:
        return
    flat = rows[(rows >= 0) & (rows < len(array))].astype(np.int64)
    if not flat.size or not array.size:
        return
    start = np.frombuffer(file, np.uint8).__array_interface__["data"][0]
    origin = array.__array_interface__["data"][0] - start
    sample = flat[:: -(-flat.size // _SAMPLED)] * array.strides[0] + origin
    in_memory = _page_is_in_memory()
    if all(in_memory(start + at // mmap.PAGESIZE * mmap.PAGESIZE) for at in sample.tolist()):
        return
    first = flat * array.strides[0] + origin
    pages = np.unique(np.concatenate((first, first + (array[:1].nbytes - 1))) // mmap.PAGESIZE)
    cuts = np.flatnonzero(np.diff(pages) > 1)
    starts, stops = pages[np.append(0, cuts + 1)], pages[np.append(cuts, -1)] + 1
    for at, stop in zip((starts * mmap.PAGESIZE).tolist(), (stops * mmap.PAGESIZE).tolist(), strict=True):
        file.madvise(_ADVICE, at, min(stop, len(file)) - at)


@functools.cache
def _page_is_in_memory() -> Callable[[int], bool]:
    """Whether the page at an address is; True where the system does not say."""
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    mincore.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    told = ctypes.create_string_buffer(1)
    return lambda address: mincore(address, 1, told) != 0 or bool(told.raw[0] & 1)
