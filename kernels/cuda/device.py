"""A GPU's side of `launch`: kernels compiled for the device at hand, loaded by CuPy and started on its current stream.

Numba's own launch takes some ten microseconds an array, most of it to find out again what the array is. CuPy's takes
numbers, which is what Numba's kernels are given: an array is seven of them.
"""

import functools
from typing import Any

import cupy

from . import launch, lowering


def words(argument: Any) -> list[Any]:
    """The numbers as which Numba's kernels take an argument: of an array its parent, owner, size, item size, address,
    shape and strides, of a tuple those of its parts.
    """
    if isinstance(argument, tuple):
        return [word for part in argument for word in words(part)]
    if getattr(argument, "ndim", 0):
        size, itemsize = argument.size, argument.dtype.itemsize
        return [0, 0, size, itemsize, argument.data.ptr, size, itemsize]
    return [argument]


class Loaded:
    """A kernel, compiled once for each kind of device and loaded once on each device that runs it.

    Parameters
    ----------
    function : callable
        The kernel.
    signature : tuple of numba types
        One for each parameter.
    """

    def __init__(self, function: Any, signature: tuple[Any, ...]) -> None:
        self._machine_code = functools.cache(functools.partial(_machine_code, function, signature))
        self._on_device = functools.cache(self._load)

    def _load(self, device: int) -> Any:
        major, minor = divmod(int(cupy.cuda.Device(device).compute_capability), 10)
        cubin, name = self._machine_code((major, minor))
        module = cupy.cuda.function.Module()
        module.load(cubin)
        return module.get_function(name)

    def __call__(self, grid: int, block: tuple[int, int], arguments: tuple[Any, ...]) -> None:
        """Start it on CuPy's current stream of the current device."""
        kernel = self._on_device(cupy.cuda.runtime.getDevice())
        kernel((grid,), block, words(arguments))


def _machine_code(function: Any, signature: tuple[Any, ...], capability: tuple[int, int]) -> tuple[bytes, str]:
    # Without the bound the compiler hoards registers for blocks of a thousand threads and sends loads one by one.
    lowered = lowering.lower(function, signature, capability, launch_bounds=launch.THREADS)
    cubin, _ = lowering.assemble(lowered.ptx(), capability)
    return cubin, lowered.name


def compile_for_current_device(function: Any, signature: tuple[Any, ...]) -> Loaded:
    """A `launch.Runner` of a kernel."""
    return Loaded(function, signature)
