"""Where arrays lie, the library that works on them there, and the kernels.

An array is NumPy's, on the host, or CuPy's, on a GPU. Code on arrays asks `namespace` for the library and keeps to what
both have.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import buffers
from ._compat import cupy
from .kernels import checking

HOST = "cpu"

_DLPACK_CUDA = (2, 13)
"""Kinds of DLPack devices whose memory kernels for CUDA can read: that of a GPU, and managed memory."""

_KERNEL_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
_CUDA_FLOATS = (np.dtype(np.float16), *_KERNEL_FLOATS)


# Kernels


@functools.cache
def cpu() -> ModuleType:
    """The Numba kernels, imported at the first operation; the NumPy ones where Numba is told not to compile."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in {"", "0"}:
        return reference()
    from .kernels import cpu as module

    return module


@functools.cache
def reference() -> ModuleType:
    """The NumPy kernels."""
    from .kernels import reference as module

    return module


@functools.cache
def cuda() -> ModuleType:
    """The kernels for CUDA."""
    from .kernels import cuda as module

    return module


def compiled(array: Any) -> ModuleType:
    """The compiled kernels of the device where `array` lies."""
    return cpu() if isinstance(array, np.ndarray) else cuda()


def backend(table: Any) -> ModuleType:
    """The kernels that can work on `table` where it lies."""
    if not isinstance(table, np.ndarray):
        return cuda()
    return cpu() if table.dtype in _KERNEL_FLOATS and table.flags.aligned else reference()


def kernel_floats(array: Any) -> tuple[np.dtype[Any], ...]:
    """The dtypes of numbers that compiled kernels read on the device where `array` lies."""
    return _KERNEL_FLOATS if isinstance(array, np.ndarray) else _CUDA_FLOATS


_NOTHING: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()


def waiting(array: Any) -> contextlib.AbstractContextManager[Any]:
    """For a call of a kernel whose results the host reads at once: so is its check of indices."""
    return _NOTHING if isinstance(array, np.ndarray) else checking.waiting()


def unchecked(array: Any) -> contextlib.AbstractContextManager[Any]:
    """For calls of kernels on indices that are known to be right: on a GPU another check would wait for the device."""
    return _NOTHING if isinstance(array, np.ndarray) else checking.unchecked()


# Devices


def namespace(array: Any) -> Any:
    """The library of an array: NumPy or CuPy."""
    return np if isinstance(array, np.ndarray) else cupy()


def device_of(array: Any) -> str:
    """Where an array lies: "cpu", or "cuda:0" for the first GPU."""
    return HOST if isinstance(array, np.ndarray) else f"cuda:{array.device.id}"


def checked(device: Any) -> str:
    """The name of a device: "cpu" or "cuda:0"; ImportError or RuntimeError where it cannot be had."""
    if device == HOST:
        return HOST
    kind, _, number = device.partition(":") if isinstance(device, str) else ("", "", "")
    if kind != "cuda" or (device != "cuda" and not number.isdecimal()):
        msg = f"device must be 'cpu', 'cuda' or 'cuda:<number>', got {device!r}"
        raise ValueError(msg)
    runtime = cupy().cuda.runtime
    which, count = int(number) if number else int(runtime.getDevice()), int(runtime.getDeviceCount())
    if which >= count:
        msg = f"device must be one of the {count} GPUs 'cuda:0' to 'cuda:{count - 1}', got {device!r}"
        raise ValueError(msg)
    return f"cuda:{which}"


def to_device(array: NDArray[Any], device: str) -> NDArray[Any]:
    """The array on a device, a copy unless it lies there."""
    if device_of(array) == device:
        return array
    if device == HOST:
        host: NDArray[Any] = cupy().asnumpy(array)
        return host
    library = cupy()
    with library.cuda.Device(int(device.partition(":")[2])):
        moved: NDArray[Any] = library.asarray(array)
    return moved


def require_cuda_dtype(dtype: np.dtype[Any], name: str) -> None:
    """TypeError for a table that kernels for CUDA do not read."""
    if dtype not in _CUDA_FLOATS:
        msg = f"{name} must be float16, float32 or float64 on a GPU, got {dtype}"
        raise TypeError(msg)


def require_one_device(arrays: Mapping[str, Any]) -> None:
    """TypeError unless all arrays lie on one device, RuntimeError if that is not the one that kernels run on."""
    (first, array), *others = arrays.items()
    where = device_of(array)
    for name, other in others:
        if device_of(other) != where:
            raise _mixed_devices(first, where, name, device_of(other))
    if where != HOST:
        current = int(cupy().cuda.runtime.getDevice())
        if where != f"cuda:{current}":
            call = f"call it in `with cupy.cuda.Device({where.partition(':')[2]})`"
            msg = f"{first} is on {where}, and the current device is cuda:{current}: {call}"
            raise RuntimeError(msg)


def is_aligned(array: Any) -> bool:
    """Whether elements begin where they should; CuPy's always do."""
    return bool(getattr(array.flags, "aligned", True))


def is_writeable(array: Any) -> bool:
    """Whether an array may be written; CuPy has no others."""
    return bool(getattr(array.flags, "writeable", True))


def require_host(given: Any, name: str, other: Any, other_name: str) -> None:
    """TypeError for memory on a GPU if `other` is on the host; this needs neither CuPy nor a GPU."""
    if isinstance(other, np.ndarray) and not isinstance(given, np.ndarray) and is_on_gpu(given, name):
        raise _mixed_devices(other_name, HOST, name, "cuda")


def _mixed_devices(first: str, where: str, second: str, elsewhere: str) -> TypeError:
    return TypeError(f"all arrays of a call must lie on one device, got {first} on {where} and {second} on {elsewhere}")


# Arrays of others


def is_array(value: Any) -> bool:
    """Whether this is memory that can be worked on where it lies: an array, a tensor, a memoryview."""
    if isinstance(value, np.generic):
        return False
    return isinstance(value, (np.ndarray, memoryview)) or any(
        hasattr(type(value), name) for name in ("__dlpack__", "__array_interface__", "__cuda_array_interface__")
    )


def is_on_gpu(value: Any, name: str) -> bool:
    """Whether an array or tensor of any library lies in the memory of an NVIDIA GPU; TypeError if it is nowhere."""
    if not hasattr(value, "__dlpack_device__"):
        return hasattr(value, "__cuda_array_interface__")
    try:
        kind: int = value.__dlpack_device__()[0]
    except REFUSED as error:
        raise not_handed_over(value, name, error) from error
    return kind in _DLPACK_CUDA


REFUSED = (BufferError, RuntimeError, ValueError)
"""What libraries raise for a tensor whose memory they do not hand over through DLPack."""


def not_handed_over(value: Any, name: str, error: Exception) -> TypeError:
    """The error for such a tensor: one that needs a gradient, of a dtype that DLPack or NumPy lacks, sparse ones."""
    dtype = f" and dtype {value.dtype}" if hasattr(value, "dtype") else ""
    return TypeError(f"{name} of type {type_name(value)}{dtype} cannot be read through DLPack: {error}")


def as_cupy(value: Any, name: str) -> NDArray[Any]:
    """CuPy's array of memory on a GPU, without a copy; TypeError for a tensor that does not hand its memory over."""
    library = cupy()
    if isinstance(value, library.ndarray):
        plain: NDArray[Any] = value
        return plain
    try:
        taken: NDArray[Any] = library.from_dlpack(value) if hasattr(value, "__dlpack__") else library.asarray(value)
    except REFUSED as error:
        raise not_handed_over(value, name, error) from error
    return taken


def type_name(value: object) -> str:
    """What errors call an object's type."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def empty(shape: tuple[int, ...], dtype: np.dtype[Any], like: Any) -> NDArray[Any]:
    """An uninitialised C-contiguous array on the device where `like` lies; on the host in recycled memory."""
    if isinstance(like, np.ndarray):
        return buffers.empty(shape, dtype)
    result: NDArray[Any] = cupy().empty(shape, dtype)
    return result
