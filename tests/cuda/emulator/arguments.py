"""Arguments of a kernel: checked, flattened as Numba passes them, and moved to memory with room around each array."""

import ctypes
import mmap

import numpy as np
from numba import types
from numba.np.numpy_support import as_dtype

ROOM = 1 << 16
"""Bytes between two arrays that belong to neither."""

RANGE = np.dtype([("begin", "u8"), ("end", "u8"), ("writable", "i4"), ("shared", "i4")], align=True)
"""``struct range``."""


def check(kind, value, place):
    """TypeError unless a value is what a kernel takes at some place."""
    if isinstance(kind, types.Array):
        fits = isinstance(value, np.ndarray) and (value.dtype, value.ndim) == (as_dtype(kind.dtype), kind.ndim)
        fits = fits and (kind.layout != "C" or value.flags.c_contiguous)
    elif isinstance(kind, types.BaseTuple):
        fits = isinstance(value, tuple) and len(value) == len(kind)
    elif isinstance(kind, types.Boolean):
        fits = isinstance(value, (bool, np.bool_))
    elif isinstance(kind, types.Integer):
        fits = isinstance(value, (int, np.integer)) and kind.minval <= value <= kind.maxval
    else:
        fits = isinstance(kind, types.Float) and isinstance(value, (int, float, np.floating))
    if not fits:
        what = f"{value.dtype} with {value.ndim} axes" if isinstance(value, np.ndarray) else repr(value)
        msg = f"argument {place} is {kind}, not {what}"
        raise TypeError(msg)


def arrays(kind, value, place):
    """(place, array) for each array in an argument, after `check`."""
    check(kind, value, place)
    if isinstance(kind, types.BaseTuple):
        for k, (inner, part) in enumerate(zip(kind, value, strict=True)):
            yield from arrays(inner, part, f"{place}[{k}]")
    elif isinstance(kind, types.Array):
        yield place, value


def slots(kind, value, moved):
    """Words of 64 bits as which Numba passes an argument; `moved` says where an array lies now."""
    if isinstance(kind, types.BaseTuple):
        return [slot for inner, part in zip(kind, value, strict=True) for slot in slots(inner, part, moved)]
    if isinstance(kind, types.Array):
        return [0, 0, value.size, value.itemsize, moved(value), *value.shape, *(s % 2**64 for s in value.strides)]
    if isinstance(kind, types.Float):
        return [int(np.array(value, as_dtype(kind)).view(f"u{kind.bitwidth // 8}"))]
    return [int(value) % 2**64]


class Memory:
    """Copies of the arrays of a launch; those that share memory still do."""

    def __init__(self, given):
        self.names = []
        spans = []
        for place, array in given:
            begin, end = np.lib.array_utils.byte_bounds(array) if array.size else (array.ctypes.data,) * 2
            spans.append([begin, end, array.flags.writeable, place])
        spans.sort(key=lambda span: span[:2])
        merged = []
        for span in spans:
            if merged and span[0] < merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], span[1])
                merged[-1][2] |= span[2]
                merged[-1][3] = f"{merged[-1][3]} and {span[3]}"
            else:
                merged.append(span)
        self._arena = np.empty(sum(end - begin + 2 * ROOM for begin, end, *_ in merged) + ROOM, np.uint8)
        self.spans = []
        at = self._arena.ctypes.data + ROOM
        for begin, end, writable, place in merged:
            at += (begin - at) % 256  # as far from a multiple of 256 as it was
            ctypes.memmove(at, begin, end - begin)
            self.spans.append((begin, end, at, writable))
            self.names.append(f"argument {place}")
            at += end - begin + ROOM
        self.ranges = np.array([(at, at + end - begin, w, 0) for begin, end, at, w in self.spans], RANGE)

    def moved(self, array):
        """Where an array lies now."""
        here = array.ctypes.data
        return next(at + here - begin for begin, end, at, _ in self.spans if begin <= here < max(end, begin + 1))

    def copy_back(self):
        """What the kernel wrote, into the arrays that it was given."""
        for begin, end, at, writable in self.spans:
            if writable:
                ctypes.memmove(begin, at, end - begin)

    def describe(self, address, nbytes):
        """In words: which array some bytes are nearest to."""
        if not self.names:
            return "and there are no arrays"
        begins, ends = self.ranges["begin"].astype(object), self.ranges["end"].astype(object)
        distance = [max(b - address, address + nbytes - e, 0) for b, e in zip(begins, ends, strict=True)]
        k = int(np.argmin(distance))
        size = ends[k] - begins[k]
        return f"at byte {address - begins[k]} of {self.names[k]}, which has {size} bytes"


def guarded(array, *, before=False):
    """A copy that ends where a page begins that nobody may touch, or with `before` begins where such a page ends.

    For code that the emulator does not check, in a process of its own: a stray access ends it with SIGSEGV.
    """
    page = mmap.PAGESIZE
    size = -(-array.nbytes // page) * page
    memory = mmap.mmap(-1, size + page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    forbidden = base if before else base + size
    if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(forbidden), page, 0):
        msg = "no page can be protected"
        raise OSError(ctypes.get_errno(), msg)
    offset = page if before else size - array.nbytes
    copy = np.frombuffer(memory, array.dtype, array.size, offset).reshape(array.shape)
    copy[...] = array
    return copy
