"""How arrays are made: of what lies on the host, of memory of other libraries, and new ones."""

import numpy as np

from . import devices
from .array import device_dtype, from_device, held, ndarray, poisoned
from .counts import counts


def array(obj, dtype=None, copy=True, order="K", subok=False, ndmin=0, *, blocking=False):
    """An array of what is on the host, or of what is on a device."""
    if subok:
        raise NotImplementedError
    given = from_device(obj)
    if given is None and isinstance(obj, (list, tuple)) and _are_on_device(obj):
        given, copy = _stacked(obj), None
    if given is None:
        if order not in {"C", "F"}:
            order = "F" if isinstance(obj, np.ndarray) and obj.flags.fnc else "C"
        host = np.array(obj, dtype, order=order, ndmin=ndmin)
        counts.synchronisations += blocking
        return held(host.astype(host.dtype.newbyteorder("<"), copy=False))
    dtype = given.dtype if dtype is None else device_dtype(dtype)
    if given.device.id != devices.current():
        given, copy = given.copy(order or "K"), None
    host = np.array(given._host, dtype, copy=copy, order=order or "K", ndmin=ndmin)
    if host is given._host:
        return given
    return given._view_of(host) if np.may_share_memory(host, given._host) else held(host)


def _are_on_device(values):
    return bool(values) and all(
        _are_on_device(value) if isinstance(value, (list, tuple)) else from_device(value) is not None
        for value in values
    )


def _stacked(values):
    if not isinstance(values, (list, tuple)):
        given = from_device(values)
        devices.require_current(given)
        return given
    return held(np.stack([_stacked(value)._host for value in values]))


def asarray(a, dtype=None, order=None, *, blocking=False):
    return array(a, dtype, None, order, blocking=blocking)


def require_array(a):
    """TypeError unless this is an array of the device."""
    if not isinstance(a, ndarray):
        msg = f"Argument 'a' has incorrect type (expected cupy.ndarray, got {type(a).__name__})"
        raise TypeError(msg)


def _contiguous(a, dtype, order):
    require_array(a)
    made = a.astype(a.dtype if dtype is None else dtype, order, copy=False)
    return made if made.ndim else made.reshape(1)


def ascontiguousarray(a, dtype=None):
    return _contiguous(a, dtype, "C")


def asfortranarray(a, dtype=None):
    return _contiguous(a, dtype, "F")


def asnumpy(a, *, order="C", out=None, blocking=True):
    given = from_device(a)
    if given is not None:
        return given.get(order=order, out=out, blocking=blocking)
    host = np.asarray(a, order=order)
    if out is None:
        return host
    out[...] = host
    return out


def from_dlpack(array, *, device=None, copy=None):
    """The array of an exporter whose `__dlpack__` gives what the one of an array of the stand-in gives."""
    if device is not None:
        msg = "from_dlpack() does not support device yet."
        raise NotImplementedError(msg)
    kind, number = array.__dlpack_device__()
    if kind == 1:
        msg = "CPU arrays cannot be directly imported to CuPy. Use `cupy.array(numpy.from_dlpack(input))` instead."
        raise TypeError(msg)
    if kind not in (2, 13):
        msg = f"Unsupported array type: {kind}"
        raise TypeError(msg)
    with devices.Device(number):
        return array.__dlpack__(stream=1, max_version=(1, 3), copy=copy).array.view()


def copyto(dst, src, casting="same_kind", where=None):
    require_array(dst)
    given = from_device(src)
    if given is None and np.size(src) != 1:
        msg = "non-scalar numpy.ndarray cannot be used for copyto"
        raise ValueError(msg)
    devices.require_current(*(array for array in (dst, given, where) if array is not None))
    counts.operations += 1
    with np.errstate(all="ignore"):
        np.copyto(dst._host, src if given is None else given._host, casting, True if where is None else where._host)


# Of a shape


def empty(shape, dtype=float, order="C"):
    return ndarray(shape, dtype, order=order)


def full(shape, fill_value, dtype=None, order="C"):
    if dtype is None:
        dtype = fill_value.dtype if isinstance(fill_value, ndarray) else np.array(fill_value).dtype
    made = empty(shape, dtype, order)
    copyto(made, fill_value, "unsafe")
    return made


def zeros(shape, dtype=float, order="C"):
    return full(shape, 0, dtype, order)


def ones(shape, dtype=float, order="C"):
    return full(shape, 1, dtype, order)


def empty_like(prototype, dtype=None, order="K", subok=None, shape=None):
    require_array(prototype)
    if subok is not None:
        msg = "subok is not supported yet"
        raise TypeError(msg)
    dtype = prototype.dtype if dtype is None else device_dtype(dtype)
    host = np.empty_like(prototype._host, dtype, order, shape=shape or prototype.shape)  # an empty shape is none
    host[...] = poisoned((), dtype)
    return held(host)


def full_like(a, fill_value, dtype=None, order="K", subok=None, shape=None):
    made = empty_like(a, dtype, order, subok, shape)
    copyto(made, fill_value, "unsafe")
    return made


def zeros_like(a, dtype=None, order="K", subok=None, shape=None):
    return full_like(a, 0, dtype, order, subok, shape)


def ones_like(a, dtype=None, order="K", subok=None, shape=None):
    return full_like(a, 1, dtype, order, subok, shape)


ndarray.__reduce__ = lambda self: (array, (self.get(order="A"),))

FUNCTIONS = {
    function.__name__: function
    for function in (
        array,
        asarray,
        ascontiguousarray,
        asfortranarray,
        asnumpy,
        copyto,
        empty,
        empty_like,
        from_dlpack,
        full,
        full_like,
        ones,
        ones_like,
        zeros,
        zeros_like,
    )
} | {"asanyarray": asarray}
