"""RowGrad: a gradient of a table that holds the touched rows alone."""

from __future__ import annotations

import math
from typing import Any, NoReturn, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _options
from ._arrays import as_array, is_gradient_dtype


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
        if which.ndim != 1 or what.ndim != 2 or len(which) != len(what):
            msg = f"rows must have shape (U,) and values (U, D), got {which.shape} and {what.shape}"
            raise ValueError(msg)
        if which.size and (int(which.min()) < 0 or int(which.max()) >= count):
            msg = f"rows must be in [0, {count}), got values in [{which.min()}, {which.max()}]"
            raise ValueError(msg)
        which = which.astype(np.int64)
        steps = np.diff(which)
        if (steps <= 0).any():
            at = int(np.argmax(steps <= 0)) + 1
            msg = f"rows must be ascending and distinct, got {which[at]} after {which[at - 1]} at position {at}"
            raise ValueError(msg)
        self._set(which, np.array(what, np.result_type(what.dtype, np.float32), order="C"), count)

    def _set(self, rows: NDArray[np.int64], values: NDArray[Any], num_rows: int) -> None:
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
        dense = np.zeros(self.shape, self.values.dtype)
        dense[self.rows] = self.values
        return dense

    def norm(self) -> float:
        """Euclidean norm over all elements, ``sqrt(sum of squares)``, summed in float64.

        Returns
        -------
        float
            NaN if a value is NaN, inf if one is infinite.
        """
        flat = self.values.reshape(-1)
        with np.errstate(all="ignore"):
            total = float(np.einsum("i,i->", flat, flat, dtype=np.float64))
            if math.isnan(total) or 1e-280 < total < math.inf:
                return math.sqrt(total)
            largest = float(np.abs(flat).max(initial=0))  # squares leave float64's range, the norm does not
            if largest == 0 or math.isinf(largest):
                return largest
            return largest * float(np.linalg.norm(flat / largest))

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
            np.multiply(self._values, self._values.dtype.type(limit / norm), out=self._values)
        return norm

    def __add__(self, other: RowGrad) -> RowGrad:
        """The sum, over the union of rows; duplicates add as self + other."""
        if not isinstance(other, RowGrad):
            return NotImplemented
        if self.shape != other.shape:
            msg = f"gradients must have one shape to be added, got {self.shape} and {other.shape}"
            raise ValueError(msg)
        rows = np.union1d(self.rows, other.rows)
        values = np.zeros((rows.size, self.shape[1]), np.result_type(self.values, other.values))
        values[np.searchsorted(rows, self.rows)] = self.values
        with np.errstate(all="ignore"):
            values[np.searchsorted(rows, other.rows)] += other.values
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
