"""Functions and methods that CuPy has otherwise than NumPy."""

import numpy as np

from . import devices
from .array import held, ndarray
from .calls import offered
from .counts import counts
from .creation import array, require_array
from .indexing import wrapped
from .ufuncs import UFUNCS


def array_equal(a1, a2, equal_nan=False):
    if a1.shape != a2.shape:
        return held(np.array(False))
    equal = a1 == a2
    if equal_nan:
        counts.synchronisations += 3
        equal |= UFUNCS["isnan"](a1) & UFUNCS["isnan"](a2)
    return equal.all()


def nonzero(a):
    rows = _argwhere(a)
    if not a.ndim:
        msg = "Calling nonzero on 0d arrays is not allowed. Use cp.atleast_1d(scalar).nonzero() instead."
        raise ValueError(msg)
    return tuple(rows[:, axis] for axis in range(a.ndim))  # strided if there are several


def may_share_memory(a, b):
    require_array(a)
    require_array(b)
    return np.may_share_memory(a._host, b._host)


def searchsorted(a, v, side="left", sorter=None):
    if not isinstance(v, (ndarray, int, float, complex)):
        msg = "Only python scalars or ndarrays are supported for v"
        raise NotImplementedError(msg)
    return _searchsorted(a, v, side=side, sorter=sorter)


def shares_memory(a, b):
    counts.synchronisations += a is not b
    return may_share_memory(a, b) and np.shares_memory(a._host, b._host)


def size(a, axis=None):
    require_array(a)
    return a.size if axis is None else a.shape[axis]


def unique(ar, return_index=False, return_inverse=False, return_counts=False, *, equal_nan=True):
    if ar.size:
        counts.synchronisations += 1 + bool(return_index) + bool(return_counts)
    return _unique(
        ar,
        return_index=return_index,
        return_inverse=return_inverse,
        return_counts=return_counts,
        equal_nan=equal_nan,
    )


def unravel_index(indices, dims, order="C"):
    counts.synchronisations += 2
    return _unravel_index(indices, dims, order=order)


def where(condition, x=None, y=None):
    if (x is None) != (y is None):
        msg = "Must provide both 'x' and 'y' or neither."
        raise ValueError(msg)
    return condition.nonzero() if x is None else _where(condition.astype("?", copy=False), x, y)


_, _argwhere = offered("argwhere(a)", waits=1)
_, _repeat = offered("repeat(self, repeats, **how)")
_, _searchsorted = offered("searchsorted(a, v, **how)")
_, _take = offered("take(self, indices, **how)")
_, _unique = offered("unique(ar, **how)")
_, _unravel_index = offered("unravel_index(indices, dims, **how)")
_, _where = offered("where(condition, chosen, other)")  # which may be numbers


def _check_kind(kind):
    if kind not in (None, "stable"):
        msg = "kind can only be None or 'stable'"
        raise ValueError(msg)


def argsort(a, axis=-1, kind=None):
    _check_kind(kind)
    return a.argsort(axis)


def sort(a, axis=-1, kind=None):
    _check_kind(kind)
    made = a.flatten() if axis is None else a.copy()
    made.sort(-1 if axis is None else axis)
    return made


# Methods


def _argsort(self, axis=-1):
    devices.require_current(self)
    counts.operations += 1
    host = np.atleast_1d(self._host)
    if axis is None:
        return held(np.argsort(host, None, "stable"))
    order = np.argsort(np.moveaxis(host, axis, -1), kind="stable")
    return held(np.moveaxis(np.ascontiguousarray(order), -1, axis))  # contiguous along that axis, as CuPy's


def _sort(self, axis=-1):
    if not self.flags.c_contiguous:
        msg = "Sorting non-contiguous array is not supported."
        raise NotImplementedError(msg)
    devices.require_current(self)
    counts.operations += 1
    self._host.sort(axis, "stable")


# Methods, and functions of the same parameters


def repeat(a, repeats, axis=None):
    if isinstance(repeats, ndarray):
        msg = "cupy.ndarray cannot be specified as `repeats` argument."  # before CuPy 14.1
        raise ValueError(msg)  # noqa: TRY004
    return _repeat(a, repeats, axis=axis)


def take(a, indices, axis=None, out=None):
    given = indices if isinstance(indices, ndarray) else array(indices, int)
    devices.require_current(given)
    if given.dtype.kind not in "iu":
        msg = f"indices must be integers, not {given.dtype}"
        raise TypeError(msg)
    places = wrapped(given._host, a.size if axis is None else a.shape[axis])  # mode "wrap" takes one turn at a time
    return _take(a, held(places), axis=axis, out=out)


FUNCTIONS = {
    function.__name__: function
    for function in (
        argsort,
        array_equal,
        may_share_memory,
        nonzero,
        repeat,
        searchsorted,
        shares_memory,
        size,
        sort,
        take,
        unique,
        unravel_index,
        where,
    )
}

METHODS = {
    "argsort": _argsort,
    "nonzero": nonzero,
    "repeat": repeat,
    "searchsorted": searchsorted,
    "sort": _sort,
    "take": take,
}
