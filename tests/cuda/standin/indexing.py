"""``x[key]`` and ``x[key] = value`` as CuPy has them.

Index arrays wrap around, arrays and lists of the host are moved to the device, and of several values for one place any
may be the one that stays: here the first, as code written for NumPy expects the last.
"""

import numpy as np

from . import devices
from .array import from_device, held, ndarray
from .counts import counts
from .creation import array


def _item(item):
    """An index as CuPy takes it: an array of the device, a number, a slice, None or an ellipsis."""
    if item is None or item is Ellipsis or isinstance(item, (slice, ndarray)):
        return item
    if np.isscalar(item) and not isinstance(item, (bool, np.bool_)):
        return item
    made = array(item)
    return made.astype(np.int32) if isinstance(item, (list, tuple)) and not made.size else made


def _axes(item):
    """How many axes of an array an index is about."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if isinstance(item, ndarray) and item.dtype.kind == "b" else 1


def wrapped(indices, size):
    """Indices of an axis, whatever they were."""
    wide = indices if indices.dtype == np.uint64 else indices.astype(np.int64)
    return np.asarray(wide % size if size else wide, np.int64)


def _on_host(item, size):
    """An index for NumPy."""
    if not isinstance(item, ndarray):
        return item
    if item.dtype.kind == "b":
        counts.synchronisations += bool(item.size)  # the host has to know how many there are
        return item._host
    if item.dtype.kind not in "iu":
        msg = f"arrays used as indices must be of integer or boolean type. (actual: {item.dtype.type})"
        raise IndexError(msg)
    return wrapped(item._host, size)


def _key(array, key):
    """(key for NumPy, whether it has arrays)."""
    items = [_item(item) for item in (key if isinstance(key, tuple) else (key,))]
    if not any(item is Ellipsis for item in items):
        items.append(Ellipsis)
    arrays = [item for item in items if isinstance(item, ndarray)]
    if arrays:
        devices.require_current(array, *arrays)
    axis, made = 0, []
    for item in items:
        if item is Ellipsis:
            axis += array.ndim - sum(_axes(other) for other in items)
        made.append(_on_host(item, array.shape[axis] if axis < array.ndim else 0))
        axis += _axes(item)
    return tuple(made), bool(arrays)


def getitem(self, key):
    key, copied = _key(self, key)
    found = self._host[key]
    if not copied:
        return self._view_of(found)
    counts.operations += 1
    return held(np.array(found, order="C"))


def setitem(self, key, value):
    key, scattered = _key(self, key)
    given = from_device(value)
    if not scattered and given is None:
        self._view_of(self._host[key]).fill(value)
        return
    devices.require_current(self)
    counts.operations += 1
    if given is None:
        given = array(value, self.dtype)
    devices.require_current(given)
    with np.errstate(all="ignore"):
        source = given._host.astype(self.dtype, copy=False)
    if not scattered:
        self._host[key] = source
        return
    places = np.arange(self.size).reshape(self.shape)[key]
    source = np.broadcast_to(source, places.shape)
    self._host.flat[places.reshape(-1)[::-1]] = source.reshape(-1)[::-1]


ndarray.__getitem__ = getitem
ndarray.__setitem__ = setitem
