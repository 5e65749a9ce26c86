"""RowGrad: a gradient of a table that holds the touched rows alone."""

from __future__ import annotations

import math
from typing import Any, NoReturn, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _options
from ._arrays import as_array, beside, is_gradient_dtype
from ._devices import checked, device_of, is_array, namespace, require_one_device, to_device


class RowGrad:
    """Gradient of an (N, D) table, zero but for U rows: ``dense[rows[u], :] = values[u, :]``.

    Parameters
    ----------
    rows : (U,) array_like of int
        Touched rows, ascending and distinct, in ``[0, num_rows)``.
    values : (U, D) array_like of float
        Their gradients; copied. Half-width values become float32.
    num_rows : int
        N of the table.

    Attributes
    ----------
    rows : (U,) ndarray of int64
        Touched rows, ascending.
    values : (U, D) ndarray of float32 or float64
        Their gradients, owned by this object: change them in place as you like.
    num_rows : int
        N of the table.

    Raises
    ------
    TypeError
        Rows that are not integers, values that are not real.
    ValueError
        Rows not ascending, not distinct or out of range; shapes that do not fit.

    Notes
    -----
    Nothing turns it into (N, D) on its own: ask for `to_dense`.

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> g = fastemb.RowGrad([1, 3], [[3.0, 0.0], [0.0, 4.0]], num_rows=5)
    >>> g.shape, g.norm()
    ((5, 2), 5.0)
    >>> (g + g).values
    array([[6., 0.],
           [0., 8.]])
    """

    __slots__ = ("_num_rows", "_rows", "_values")
    __array_ufunc__ = None

    def __init__(self, rows: ArrayLike, values: ArrayLike, num_rows: SupportsIndex) -> None:
        which = as_array(rows, "rows")
        if which.size == 0 and isinstance(rows, (list, tuple)):
            which = which.astype(np.int64)
        if which.dtype.kind not in "iu":
            msg = f"rows must be integers, got {which.dtype}"
            raise TypeError(msg)
        what = as_array(values, "values")
        if not is_gradient_dtype(what.dtype, np.dtype(np.float64)):
            msg = f"values must be real numbers that cast safely to float64, got {what.dtype}"
            raise TypeError(msg)
        count = _options.integer("num_rows", num_rows, at_least=0)
        which = beside(which, rows, "rows", what, "values") if is_array(values) else which
        what = beside(what, values, "values", which, "rows")
        if which.ndim != 1 or what.ndim != 2 or len(which) != len(what):
            msg = f"rows must have shape (U,) and values (U, D), got {which.shape} and {what.shape}"
            raise ValueError(msg)
        if which.size and (int(which.min()) < 0 or int(which.max()) >= count):
            msg = f"rows must be in [0, {count}), got values in [{which.min()}, {which.max()}]"
            raise ValueError(msg)
        xp, which = namespace(which), which.astype(np.int64)
        falls = xp.diff(which) <= 0
        if falls.any():
            at = int(falls.argmax()) + 1
            msg = f"rows must be ascending and distinct, got {which[at]} after {which[at - 1]} at position {at}"
            raise ValueError(msg)
        self._set(which, xp.array(what, np.result_type(what.dtype, np.float32), order="C"), count)

    def _set(self, rows: NDArray[np.int64], values: NDArray[Any], num_rows: int) -> None:
        if isinstance(rows, np.ndarray):
            rows.flags.writeable = False
        self._rows, self._values, self._num_rows = rows, values, num_rows

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by the constructor, which checks."""
        return RowGrad, (self._rows, self._values, self._num_rows)

    @property
    def rows(self) -> NDArray[np.int64]:
        """Touched rows, ascending, (U,); read-only."""
        return self._rows

    @property
    def values(self) -> NDArray[Any]:
        """Gradients of the rows, (U, D); change them in place as you like."""
        return self._values

    @property
    def num_rows(self) -> int:
        """N of the table."""
        return self._num_rows

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the table, (N, D)."""
        return self._num_rows, self._values.shape[1]

    def to_dense(self) -> NDArray[Any]:
        """The whole (N, D) gradient, zeros included.

        Returns
        -------
        (N, D) ndarray
            A new array of the dtype of `values`.
        """
        dense: NDArray[Any] = namespace(self.values).zeros(self.shape, self.values.dtype)
        dense[self.rows] = self.values
        return dense

    def to(self, device: str) -> RowGrad:
        """The gradient on a device.

        Parameters
        ----------
        device : {"cpu", "cuda"}
            Where to; "cuda:1" is the second GPU.

        Returns
        -------
        RowGrad
            This one if it lies there, else a copy.

        Raises
        ------
        ImportError
            A GPU without CuPy or numba-cuda.
        RuntimeError
            No GPU.
        ValueError
            Another device.
        """
        where = checked(device)
        if where == device_of(self.values):
            return self
        return hand_over(to_device(self._rows, where), to_device(self._values, where), self._num_rows)

    def norm(self) -> float:
        """Euclidean norm over all elements, ``sqrt(sum of squares)``, summed in float64.

        Returns
        -------
        float
            NaN if a value is NaN, inf if one is infinite.
        """
        xp, flat = namespace(self.values), self.values.reshape(-1)
        if not flat.size:
            return 0.0
        with np.errstate(all="ignore"):
            total = float(xp.einsum("i,i->", flat, flat, dtype=np.float64))
            if math.isnan(total) or 1e-280 < total < math.inf:
                return math.sqrt(total)
            largest = float(xp.abs(flat).max())  # squares leave float64's range, the norm does not
            if largest == 0 or math.isinf(largest):
                return largest
            return largest * float(xp.linalg.norm(flat / largest))

    def clip_norm_(self, max_norm: SupportsFloat) -> float:
        """Scale `values` in place so that the norm is at most `max_norm`.

        ``values *= max_norm / norm`` where ``norm > max_norm``.

        Parameters
        ----------
        max_norm : float
            The limit, at least 0.

        Returns
        -------
        float
            The norm before. At or below the limit no bit is changed; nor where it is NaN or infinite, so that a bad
            row stays the only bad one (torch's ``clip_grad_norm_`` spreads it over all).

        Raises
        ------
        ValueError
            A negative or NaN `max_norm`.
        """
        limit = _options.real("max_norm", max_norm, infinite=True)
        norm = self.norm()
        if math.isfinite(norm) and norm > limit:
            namespace(self._values).multiply(self._values, self._values.dtype.type(limit / norm), out=self._values)
        return norm

    def __add__(self, other: RowGrad) -> RowGrad:
        """The sum, over the union of rows; duplicates add as self + other."""
        if not isinstance(other, RowGrad):
            return NotImplemented
        if self.shape != other.shape:
            msg = f"gradients must have one shape to be added, got {self.shape} and {other.shape}"
            raise ValueError(msg)
        require_one_device({"the first gradient": self.values, "the second": other.values})
        xp = namespace(self.values)
        rows = xp.unique(xp.concatenate((self.rows, other.rows)))
        values = xp.zeros((rows.size, self.shape[1]), np.result_type(self.values.dtype, other.values.dtype))
        values[xp.searchsorted(rows, self.rows)] = self.values
        with np.errstate(all="ignore"):
            values[xp.searchsorted(rows, other.rows)] += other.values
        return hand_over(rows, values, self.num_rows)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse: NumPy would densify silently."""
        msg = f"a RowGrad of shape {self.shape} does not become a dense array on its own; call to_dense()"
        raise TypeError(msg)

    def __repr__(self) -> str:
        """Size and dtype, not the values."""
        return f"RowGrad({self.rows.size} of {self.num_rows} rows, width {self.shape[1]}, {self.values.dtype})"


def hand_over(rows: NDArray[np.int64], values: NDArray[Any], num_rows: int) -> RowGrad:
    """A RowGrad around arrays that are known to be right and that nobody else holds: no checks, no copies."""
    gradient = RowGrad.__new__(RowGrad)
    gradient._set(rows, values, num_rows)
    return gradient
