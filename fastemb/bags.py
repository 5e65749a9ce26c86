"""Pooled lookup: the rows of a table that a bag of indices names, made one."""

from __future__ import annotations

from typing import Any, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import buffers
from ._arrays import TensorLike, as_gradient, as_out, as_table, index_error, require_disjoint
from ._bag_grad import bag_gradient, weight_gradient
from ._bags import NO_NUMBERS, NO_PADDING, Bags, check_mode, plain_bounds
from ._devices import backend, cpu, empty, is_aligned
from .rowgrad import RowGrad

_S = TypeVar("_S", bound=np.generic)

__all__ = ["embedding_bag", "embedding_bag_grad", "embedding_bag_weight_grad"]


def embedding_bag(
    weight: NDArray[_S],
    indices: TensorLike,
    offsets: TensorLike | None = None,
    *,
    mode: str = "mean",
    per_sample_weights: TensorLike | None = None,
    padding_idx: SupportsIndex | None = None,
    include_last_offset: bool = False,
    out: NDArray[_S] | None = None,
) -> NDArray[_S]:
    """Look bags of rows up and pool each: sum, mean, weighted forms of both, or greatest elements.

    With w the `per_sample_weights`, or ones, and sums over the positions k of bag b:

    - "sum": ``out[b] = sum(w[k] * weight[indices[k]])``
    - "mean": ``out[b] = sum(w[k] * weight[indices[k]]) / sum(w[k])``
    - "sqrtn": ``out[b] = sum(w[k] * weight[indices[k]]) / sqrt(sum(w[k]**2))``
    - "max": ``out[b, j] = max(weight[indices[k], j])``

    Parameters
    ----------
    weight : (N, D) ndarray of float16, bfloat16, float32 or float64
        The table. Any strides and byte order, may be read-only; only looked-up rows are read.
    indices : array_like of int, (L,) or (B, H)
        Row numbers in ``[0, N)``. Of a 2-D array each row is a bag.
    offsets : array_like of int, (B,) or with `include_last_offset` (B + 1,)
        For 1-D indices: where each bag begins, the first at 0, not decreasing; a bag ends where the next begins.
    mode : {"mean", "sum", "sqrtn", "max"}
        How rows are pooled.
    per_sample_weights : array_like, shape of `indices`, optional
        Any real dtype that casts safely to that of the sums. Not with "max".
    padding_idx : int, optional
        In ``[-N, N)``: positions with this index are left out, of counts and sums of weights too.
    include_last_offset : bool
        Whether `offsets` also says where the last bag ends, which must be L.
    out : (B, D) ndarray, optional
        Where to write: dtype of `weight`, C-contiguous, not overlapping the inputs.

    Returns
    -------
    (B, D) ndarray
        In the dtype of `weight`. Zeros for a bag that is empty or holds padding alone, and where the sum that divides
        is zero.

    Raises
    ------
    IndexError
        An index outside ``[0, N)``; nothing has been written then.
    TypeError
        Indices or offsets that are not integers, weights that do not cast safely.
    ValueError
        Offsets that are not as said (the text names the first bad position), shapes that do not fit, an unknown mode.

    Notes
    -----
    Rows are summed in float32, or float64 for a float64 table, in the order of the positions, in partial sums of
    `fastemb.kernels.SUM_BLOCK`; the bits do not depend on the number of threads. Moves ``(L + B) * D * itemsize``
    bytes. In "max" NaN is greatest, and of equal elements the first stands.

    torch's ``F.embedding_bag`` is the same where it has the mode, but knows weights in "sum" alone and lets NaN win
    only in first place; TensorFlow's ``embedding_lookup_sparse`` defines the weighted "mean" and "sqrtn".

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> table = np.array([[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]])
    >>> fastemb.embedding_bag(table, [1, 2, 2], [0, 2, 3])
    array([[2., 3.],
           [3., 4.],
           [0., 0.]])
    >>> fastemb.embedding_bag(table, [[1, 2], [0, 2]], mode="sum", per_sample_weights=[[1.0, 0.5], [1.0, 2.0]])
    array([[2.5, 4. ],
           [6. , 8. ]])
    """
    if per_sample_weights is None and padding_idx is None and out is None and not include_last_offset:
        pooled = _pool_plain(weight, indices, offsets, mode)
        if pooled is not None:
            return pooled
    table = as_table(weight)
    bags = Bags.of(table, indices, offsets, mode, per_sample_weights, padding_idx, include_last_offset)
    shape, dtype = (bags.size, table.shape[1]), table.dtype.newbyteorder("=")
    if out is None:
        result = empty(shape, dtype, table)
    else:
        result = as_out(out, shape, dtype, table)
        require_disjoint({"out": result}, {"weight": table, **bags.arrays()})
    bags.pool(result, table, backend(table if is_aligned(result) else result))
    return result if out is None else out


def _pool_plain(weight: Any, indices: Any, offsets: Any, mode: str) -> NDArray[Any] | None:
    """Sums and means of ordinary arrays; None for anything else, see `plain_bounds`."""
    if type(mode) is not str or mode not in ("sum", "mean"):
        return None
    bounds = plain_bounds(weight, indices, offsets)
    if bounds is None:
        return None
    none = NO_NUMBERS[weight.dtype]
    divisors = none if mode == "sum" else np.diff(bounds).astype(weight.dtype)
    pooled = buffers.empty((offsets.size, weight.shape[1]), weight.dtype)
    if cpu().bag_sum(pooled, weight, indices, bounds, none, divisors, NO_PADDING) >= 0:
        raise index_error(indices, weight.shape[0])
    return pooled


def embedding_bag_grad(
    weight: NDArray[Any],
    indices: TensorLike,
    offsets: TensorLike | None,
    grad: TensorLike,
    *,
    mode: str = "mean",
    per_sample_weights: TensorLike | None = None,
    padding_idx: SupportsIndex | None = None,
    include_last_offset: bool = False,
    scale_grad_by_freq: bool = False,
) -> RowGrad:
    """Gradient of `embedding_bag` with respect to the table, as the touched rows alone.

    ``dW[r] = sum over {k : indices[k] == r} of w[k] / divisor[b] * grad[b]`` with b the bag of k, where the divisor is
    1, ``sum(w)`` or ``sqrt(sum(w**2))``; in "max" ``dW[r, j]`` is the sum of the ``grad[b, j]`` whose element came from
    row r.

    Parameters
    ----------
    weight : (N, D) ndarray of float16, bfloat16, float32 or float64
        The table of the lookup; its elements are read in "max" alone.
    indices : array_like of int, (L,) or (B, H)
        As in the lookup.
    offsets : array_like of int, or None
        As in the lookup.
    grad : (B, D) array_like
        Gradient of the lookup's result; any real dtype that casts safely to that of the sums.
    mode : {"mean", "sum", "sqrtn", "max"}
        As in the lookup.
    per_sample_weights : array_like, optional
        As in the lookup.
    padding_idx : int, optional
        As in the lookup.
    include_last_offset : bool
        As in the lookup.
    scale_grad_by_freq : bool
        Divide by the number of times that the index occurs in this call, over all bags. Not with "max".

    Returns
    -------
    RowGrad
        Rows ascending; values float32, or float64 for a float64 table. The padding row, rows of bags whose divisor is
        zero, and in "max" rows that win no column, are not in it.

    Raises
    ------
    IndexError
        An index outside ``[0, N)``.
    TypeError
        Indices or offsets that are not integers, a gradient or weights that do not cast safely.
    ValueError
        As `embedding_bag`, and for `scale_grad_by_freq` with "max".

    Notes
    -----
    Allocates (U, D) for U distinct rows and O(L) integers, and in "max" (B, D) integers; never (N, D) nor (L, D). The
    factor ``w / divisor`` is rounded once and multiplied. The bits do not depend on the number of threads.

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> table, grad = np.zeros((5, 2)), np.array([[2.0, 4.0], [1.0, 1.0]])
    >>> g = fastemb.embedding_bag_grad(table, [1, 3, 3], [0, 2], grad)
    >>> g.rows, g.values
    (array([1, 3]), array([[1., 2.],
           [2., 3.]]))
    """
    check_mode(mode, scale_grad_by_freq)
    table = as_table(weight)
    bags = Bags.of(table, indices, offsets, mode, per_sample_weights, padding_idx, include_last_offset)
    values = as_gradient(grad, (bags.size, table.shape[1]), table.dtype, like=table)
    return bag_gradient(table, bags, values, scale_grad_by_freq=bool(scale_grad_by_freq))


def embedding_bag_weight_grad(
    weight: NDArray[Any],
    indices: TensorLike,
    offsets: TensorLike | None,
    grad: TensorLike,
    *,
    mode: str = "sum",
    per_sample_weights: TensorLike | None = None,
    padding_idx: SupportsIndex | None = None,
    include_last_offset: bool = False,
) -> NDArray[Any]:
    """Gradient of `embedding_bag` with respect to the `per_sample_weights`.

    With ``x[k] = sum over j of grad[b, j] * weight[indices[k], j]`` and b the bag of k:

    - "sum": ``dw[k] = x[k]``
    - "mean": ``dw[k] = (x[k] - sum(w * x) / s) / s`` with ``s = sum(w)``
    - "sqrtn": ``dw[k] = (x[k] - w[k] * sum(w * x) / s**2) / s`` with ``s = sqrt(sum(w**2))``

    Parameters
    ----------
    weight : (N, D) ndarray of float16, bfloat16, float32 or float64
        The table of the lookup.
    indices : array_like of int, (L,) or (B, H)
        As in the lookup.
    offsets : array_like of int, or None
        As in the lookup.
    grad : (B, D) array_like
        Gradient of the lookup's result; any real dtype that casts safely to that of the sums.
    mode : {"sum", "mean", "sqrtn"}
        As in the lookup.
    per_sample_weights : array_like, optional
        w, as in the lookup; ones by default.
    padding_idx : int, optional
        As in the lookup.
    include_last_offset : bool
        As in the lookup.

    Returns
    -------
    ndarray
        Shape of `indices`, float32, or float64 for a float64 table. Zeros for padding, and where s is zero.

    Raises
    ------
    IndexError
        An index outside ``[0, N)``.
    TypeError
        Indices or offsets that are not integers, a gradient or weights that do not cast safely.
    ValueError
        As `embedding_bag`, and for mode "max", which has no weights.

    Notes
    -----
    Moves ``L * D * itemsize`` bytes of the table. The bits do not depend on the number of threads.

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> table = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> fastemb.embedding_bag_weight_grad(table, [[0, 1]], None, np.ones((1, 2)))
    array([[3., 7.]])
    """
    table = as_table(weight)
    bags = Bags.of(table, indices, offsets, mode, per_sample_weights, padding_idx, include_last_offset)
    if mode == "max":
        msg = "mode 'max' has no per_sample_weights"
        raise ValueError(msg)
    values = as_gradient(grad, (bags.size, table.shape[1]), table.dtype, like=table)
    return weight_gradient(table, bags, values).reshape(bags.ids.shape)
