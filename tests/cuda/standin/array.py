"""``cupy.ndarray``: what an array is, how it is made, and how it comes to the host and back."""

import math

import numpy as np

from . import devices
from .counts import counts

DTYPES = "?bhilqBHILQefdFD"
POISON = 0x5B
"""Each byte of integers that nobody has written: large and odd."""


def device_dtype(dtype):
    """A dtype that arrays on a device can have."""
    dtype = np.dtype(dtype)
    if dtype.byteorder == ">":
        msg = f"Unsupported dtype {dtype} with big-endian byte-order"
        raise ValueError(msg)
    if dtype.char not in DTYPES and dtype.name != "bfloat16":
        msg = f"Unsupported dtype {dtype}"
        raise ValueError(msg)
    return dtype


def poisoned(shape, dtype, order="C"):
    """Memory of the host in which all that nobody writes is seen."""
    host = np.empty(shape, device_dtype(dtype), order=order)
    if host.dtype.kind == "b":
        host[...] = True
    elif host.dtype.kind in "iu":
        host[...] = np.frombuffer(bytes([POISON]) * host.itemsize, host.dtype)[0]
    else:
        host[...] = np.nan
    return host


class Flags:
    """The three that CuPy knows."""

    def __init__(self, c_contiguous, f_contiguous, owndata):
        self.c_contiguous, self.f_contiguous, self.owndata = c_contiguous, f_contiguous, owndata

    @property
    def fnc(self):
        return self.f_contiguous and not self.c_contiguous

    @property
    def forc(self):
        return self.f_contiguous or self.c_contiguous

    def __getitem__(self, name):
        if name not in {"C_CONTIGUOUS", "F_CONTIGUOUS", "OWNDATA"}:
            msg = f"{name} is not defined for cupy.ndarray.flags"
            raise KeyError(msg)
        return getattr(self, name.lower())


class MemoryPointer:
    """Where the memory of an array begins."""

    def __init__(self, ptr, device):
        self.ptr, self.device = ptr, device

    @property
    def device_id(self):
        return self.device.id


class Capsule:
    """What `ndarray.__dlpack__` hands to a consumer on the same device."""

    def __init__(self, array):
        self.array = array


class ndarray:
    """An array of CuPy, on memory of the host; operators and most methods come from other files."""

    __array_priority__ = 100

    def __init__(self, shape, dtype=float, memptr=None, strides=None, order="C"):
        if memptr is not None or strides is not None:
            msg = "the stand-in makes no arrays of pointers"
            raise NotImplementedError(msg)
        self._hold(poisoned(shape, dtype, order or "C"), None, devices.current())

    def _hold(self, host, base, device):
        assert type(host) is np.ndarray
        assert host.flags.writeable, "CuPy has no arrays that cannot be written"
        device_dtype(host.dtype)
        self._host, self.base, self._device = host, base, device

    # What it is

    dtype = property(lambda self: self._host.dtype)
    shape = property(lambda self: self._host.shape)
    ndim = property(lambda self: self._host.ndim)
    size = property(lambda self: self._host.size)
    strides = property(lambda self: self._host.strides)
    itemsize = property(lambda self: self._host.itemsize)
    nbytes = property(lambda self: self._host.nbytes)
    device = property(lambda self: devices.Device(self._device))
    data = property(lambda self: MemoryPointer(self._host.ctypes.data, self.device))

    @property
    def flags(self):
        flags = self._host.flags
        return Flags(flags.c_contiguous, flags.f_contiguous, self.base is None)

    def __len__(self):
        return len(self._host)

    def __iter__(self):
        if not self.ndim:
            msg = "iteration over a 0-d array"
            raise TypeError(msg)
        return (self[i] for i in range(len(self)))

    # To the host, which waits for the device

    def get(self, *, order="C", out=None, blocking=True):
        if out is not None and (not isinstance(out, np.ndarray) or self.dtype != out.dtype):
            msg = f"{out!r} cannot be obtained from an array of {self.dtype}"
            raise TypeError(msg)
        if out is not None and self.shape != out.shape:
            msg = f"Shape mismatch. Expected shape: {self.shape}, actual shape: {out.shape}"
            raise ValueError(msg)
        if self.size and blocking:
            counts.synchronisations += 1
        if out is None:
            return self._host.copy(order)
        out[...] = self._host
        return out

    def item(self):
        if self.size != 1:
            msg = "can only convert an array of size 1 to a Python scalar"
            raise ValueError(msg)
        return self.get().item()

    def tolist(self):
        return self.get().tolist()

    def tobytes(self, order="C"):
        return self.get().tobytes(order)

    def __bool__(self):
        return bool(self.get())

    def __int__(self):
        return int(self.get())

    def __float__(self):
        return float(self.get())

    def __complex__(self):
        return complex(self.get())

    def __repr__(self):
        return repr(self.get())

    def __str__(self):
        return str(self.get())

    def __format__(self, format_spec):
        return format(self.get(), format_spec)

    def __array__(self, dtype=None):
        msg = (
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )
        raise TypeError(msg)

    # From the host

    def set(self, arr):
        if not isinstance(arr, np.ndarray):
            msg = "Only numpy.ndarray can be set to cupy.ndarray"
            raise TypeError(msg)
        if self.dtype != arr.dtype:
            msg = f"{arr.dtype} array cannot be set to {self.dtype} array"
            raise TypeError(msg)
        if self.shape != arr.shape:
            msg = f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}"
            raise ValueError(msg)
        if not self.flags.forc:
            msg = "Cannot set to non-contiguous array"
            raise RuntimeError(msg)
        self._host[...] = arr

    def fill(self, value):
        given = from_device(value)
        if given is not None:
            devices.require_current(self, given)
        value = np.asarray(value, self.dtype) if given is None else given._host
        if value.shape:
            kind = "numpy" if given is None else "cupy"
            msg = f"non-scalar {kind}.ndarray cannot be used for fill"
            raise ValueError(msg)
        devices.require_current(self)
        counts.operations += 1
        self._host[...] = value

    # To other libraries on the device

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "stream": devices.get_current_stream().ptr or 1,
            "version": 3,
            "strides": None if self.flags.c_contiguous else self.strides,
            "data": (self.data.ptr if self.size else 0, False),
        }

    def __dlpack_device__(self):
        return 2, self._device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if dl_device == (1, 0):
            if copy is False:
                msg = "GPU memory cannot be exported to CPU without copy."
                raise ValueError(msg)
            return self.get().__dlpack__(max_version=max_version)
        if dl_device not in (None, self.__dlpack_device__()) or copy or stream is None:
            msg = "memory of a GPU is not for a consumer on the host"
            raise BufferError(msg)
        return Capsule(self)

    # Copies and views

    def astype(self, dtype, order="K", casting=None, subok=None, copy=True):
        if casting is not None or subok is not None:
            msg = "casting and subok are not supported yet"
            raise TypeError(msg)
        dtype = device_dtype(dtype)
        with np.errstate(all="ignore"):
            made = self._host.astype(dtype, order or "K", copy=bool(copy))
        if made is self._host:
            return self
        devices.require_current(self)
        counts.operations += 1
        return held(made)

    def copy(self, order="C"):
        if self._device != devices.current() and order == "K" and not self.flags.forc:
            msg = "CuPy cannot copy non-contiguous array between devices."
            raise NotImplementedError(msg)
        counts.operations += 1
        return held(self._host.copy(order))

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, memo):
        with self.device:
            return self.copy()

    def _view_of(self, host):
        return held(host, self if self.base is None else self.base, self._device)

    def view(self, dtype=None):
        return self._view_of(self._host.view() if dtype is None else self._host.view(device_dtype(dtype)))

    def reshape(self, *shape, order="C"):
        made = self._host.reshape(*shape, order=order)
        if np.may_share_memory(made, self._host) or not self.size:
            return self._view_of(made)
        devices.require_current(self)
        counts.operations += 1
        return held(made)

    def ravel(self, order="C"):
        return self.reshape(-1, order=order)

    def transpose(self, *axes):
        return self._view_of(self._host.transpose(*axes))

    @property
    def T(self):
        return self if self.ndim < 2 else self.transpose()


def held(host, base=None, device=None):
    """The array that holds memory of the host, on a device or on the current one."""
    made = object.__new__(ndarray)
    made._hold(host, base, devices.current() if device is None else device)
    return made


def from_device(value):
    """The array of an object on a device, without a copy; None for anything else."""
    if isinstance(value, ndarray):
        return value
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is None:
        return None
    if interface.get("mask") is not None:
        msg = "CuPy currently does not support masked arrays."
        raise ValueError(msg)

    class Owner:
        __array_interface__ = {**interface, "data": (interface["data"][0], False), "version": 3}

    owner = Owner()
    owner.value = value
    shape = interface["shape"]
    host = np.asarray(owner) if math.prod(shape) else np.empty(shape, interface["typestr"])
    return held(host)
