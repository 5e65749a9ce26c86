"""How kernels are started: the width of an access, threads and blocks, and each kernel compiled once for its arguments.

Arrays are CuPy's; a kernel runs on CuPy's current stream. Without a GPU the tests put the emulator in the place of
`device`, and NumPy's arrays in that of CuPy's.
"""

import functools
import sys
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from ..cpu.jit import EXACT, jit
from .intrin import ALL_LANES, WARP, WIDEST

THREADS = 256
"""Of a block. Eight warps: enough of them to hide a load, and a block that ends late holds little back."""

MOST_BLOCKS = 2048
"""Of a grid, where rows are taken in turn: more than the largest device runs at once, so that all of it has work."""

GROUP = 32
"""Positions of a block of the index check: an index is 8 bytes, so a warp reads whole lines."""


class Runner(Protocol):
    """What runs a compiled kernel."""

    def __call__(self, grid: int, block: tuple[int, int], arguments: tuple[Any, ...]) -> None:
        """Start it on the current stream."""
        ...


def device(function: Any, signature: tuple[Any, ...]) -> Runner:
    """Compile a kernel for the device of the calling thread."""
    from .device import compile_for_current_device  # needs CuPy

    runner: Runner = compile_for_current_device(function, signature)
    return runner


compiler: Any = device
"""Makes a `Runner` of a kernel and the types of its arguments; the tests replace it."""


def run(kernel: Any, grid: int, block: tuple[int, int], *arguments: Any) -> None:
    """Start a kernel, a plain Python function; a second time with the same kinds of arguments nothing is compiled.

    Arrays are flattened, which is free as they are contiguous; numbers are NumPy's, whose types are the kernel's.
    """
    flat = tuple(_flat(argument) for argument in arguments)
    _compiled(compiler, kernel, tuple(_type_of(argument) for argument in flat))(grid, block, flat)


@functools.cache
def _compiled(how: Any, kernel: Any, signature: tuple[Any, ...]) -> Runner:
    runner: Runner = how(kernel, signature)
    return runner


def _flat(argument: Any) -> Any:
    if isinstance(argument, tuple):
        return tuple(_flat(part) for part in argument)
    return argument.reshape(-1) if getattr(argument, "ndim", 0) > 1 else argument


def _type_of(argument: Any) -> Any:
    if isinstance(argument, tuple):
        return types.Tuple([_type_of(part) for part in argument])
    if getattr(argument, "ndim", 0):
        return types.Array(from_dtype(argument.dtype), 1, "C")
    return from_dtype(argument.dtype)


def namespace(array: Any) -> ModuleType:
    """The library of an array: CuPy, or NumPy where the tests run kernels on its arrays."""
    return np if isinstance(array, np.ndarray) else sys.modules["cupy"]


def address(array: Any) -> int:
    """Where the memory of an array begins."""
    where: int = array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
    return where


def width(columns: int, *arrays: Any) -> int:
    """Elements of one access to rows of so many columns: the most, up to 16 bytes, that begin and end with a row."""
    n = WIDEST // min(WIDEST, max(array.dtype.itemsize for array in arrays))
    while n > 1 and (columns % n or any(address(array) % (n * array.dtype.itemsize) for array in arrays)):
        n //= 2
    return n


def lanes(columns: int, n: int) -> int:
    """Threads for a row: a warp, or as small a part of one as has `n` columns for each of its threads."""
    wanted = max(1, -(-columns // n))
    return min(WARP, 1 << (wanted - 1).bit_length())


def teams(rows: int, threads: int, at_once: int = 1) -> tuple[int, tuple[int, int]]:
    """(grid, block) where `threads` threads work on a row, or on `at_once` rows one after the other."""
    per_block = THREADS // threads
    return max(1, min(MOST_BLOCKS, -(-rows // (per_block * at_once)))), (threads, per_block)


@jit(fastmath=EXACT, inline=True)
def team_mask(lane, team):
    """In a kernel: the lanes that work on a row with this one, where `team` do, a power of 2 that is at most `WARP`."""
    return (ALL_LANES >> (WARP - team)) << (lane & ~(team - 1))


def capability(array: Any) -> int:
    """Compute capability of an array's device, ten times: 80, 90. Of the emulator 90."""
    return 90 if isinstance(array, np.ndarray) else int(array.device.compute_capability)
