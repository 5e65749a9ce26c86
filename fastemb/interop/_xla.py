"""NumPy functions that XLA calls on the CPU, on its own memory: nothing is copied in or out.

`jax.pure_callback` would copy every argument, the whole table of a lookup too, and waits for that in a thread of XLA's
pool: where each of them waits, for ever. So this speaks the C interface of XLA's custom calls, whose layout XLA keeps.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any

import jax
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

# The names in the comments are those of xla/ffi/api/c_api.h. Fields after the last one that is read are left out.

_MAJOR, _MINOR = 0, 1
_INVALID_ARGUMENT, _INTERNAL = 3, 13

_DTYPES = {
    2: np.dtype(np.int8),
    3: np.dtype(np.int16),
    4: np.dtype(np.int32),
    5: np.dtype(np.int64),
    10: np.dtype(np.float16),
    11: np.dtype(np.float32),
    12: np.dtype(np.float64),
    16: np.dtype(ml_dtypes.bfloat16),
}
"""XLA_FFI_DataType."""


def _structure(name: str, **fields: Any) -> Any:
    """A C structure: like all of this interface it begins with its size and a pointer to extensions."""
    head = {"struct_size": c_size_t, "extension": fields.pop("extension", c_void_p)}
    return type(name, (Structure,), {"_fields_": list((head | fields).items())})


_Version = _structure("XLA_FFI_Api_Version", major=c_int, minor=c_int)
_Api = _structure("XLA_FFI_Api", version=_Version, internal=c_void_p, create_error=c_void_p)
_Error = _structure("XLA_FFI_Error_Create_Args", message=c_char_p, code=c_int)
_Buffer = _structure("XLA_FFI_Buffer", dtype=c_int, data=c_void_p, rank=c_int64, dims=POINTER(c_int64))
_Buffers = _structure("XLA_FFI_Args", size=c_int64, types=c_void_p, buffers=POINTER(POINTER(_Buffer)))


class _Metadata(Structure):  # XLA_FFI_Metadata
    _fields_ = (("struct_size", c_size_t), ("version", _Version), ("traits", c_uint32))


class _Extension(Structure):  # XLA_FFI_Metadata_Extension, the only kind there is
    _fields_ = (
        ("struct_size", c_size_t),
        ("kind", c_int),
        ("next", c_void_p),
        ("metadata", POINTER(_Metadata)),
    )


_Frame = _structure(
    "XLA_FFI_CallFrame",
    extension=POINTER(_Extension),
    api=POINTER(_Api),
    context=c_void_p,
    stage=c_int,
    arguments=_Buffers,
    results=_Buffers,
)

_HANDLER = ctypes.CFUNCTYPE(c_void_p, POINTER(_Frame))
_CREATE_ERROR = ctypes.CFUNCTYPE(c_void_p, POINTER(_Error))

_handlers: list[Any] = []
"""What XLA has pointers to."""


def register(name: str, function: Callable[..., None]) -> None:
    """Make a function the custom call `name`: it is given the arrays of results, to be filled, and then the arguments.

    It must not write into arguments, nor keep an array. What it raises is an error of the computation.
    """

    def handle(pointer: Any) -> int | None:
        frame = pointer.contents
        try:
            if frame.extension:
                _answer(frame)
            else:
                function(*_arrays(frame.results), *_arrays(frame.arguments))
        except BaseException as error:  # noqa: BLE001  C has no exceptions: what is not handed over is lost
            return _as_error(frame, error)
        return None

    handler = _HANDLER(handle)
    _handlers.append(handler)
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform="cpu")


def _answer(frame: Any) -> None:
    """Say which version of the interface this is written for: XLA asks when a call is registered."""
    told = frame.extension.contents.metadata.contents.version
    # A minor version adds fields at the end, so all are right; 0.1 does not say here which one it is.
    told.major, told.minor = _MAJOR, frame.api.contents.version.minor if frame.api else _MINOR


def _arrays(found: Any) -> list[NDArray[Any]]:
    return [_array(found.buffers[k].contents) for k in range(found.size)]


class _Memory:
    """Bytes somewhere, as NumPy asks for them."""

    def __init__(self, address: int, size: int) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}


def _array(buffer: Any) -> NDArray[Any]:
    shape, dtype = tuple(buffer.dims[: buffer.rank]), _DTYPES[buffer.dtype]
    size = int(np.prod(shape)) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    array: NDArray[Any] = np.asarray(_Memory(buffer.data, size)).view(dtype).reshape(shape)
    return array


def _as_error(frame: Any, error: BaseException) -> int | None:
    text = str(error) or type(error).__name__
    code = _INVALID_ARGUMENT if isinstance(error, ValueError) else _INTERNAL
    arguments = _Error(ctypes.sizeof(_Error), None, text.encode(), code)
    created: int | None = _CREATE_ERROR(frame.api.contents.create_error)(ctypes.byref(arguments))
    return created
