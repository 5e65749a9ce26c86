"""Operations on tables, indices and gradients: validation and allocation around the kernels."""

from __future__ import annotations

from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from . import _options
from ._arrays import (
    BLOCK,
    TensorLike,
    accumulator,
    all_indices,
    as_array,
    as_gradient,
    as_indices,
    as_rows_of_gradient,
    as_table,
    beside,
    cast_gradient,
    check_indices,
    index_error,
    kernel_gradient,
    require_disjoint,
)
from ._devices import backend, cpu, is_array, reference, unchecked
from ._groups import Groups, row_gradient
from ._pages import read_ahead
from .bags import embedding_bag, embedding_bag_grad, embedding_bag_weight_grad
from .lookup import gather, one_hot
from .rowgrad import RowGrad

__all__ = [
    "embedding_bag",
    "embedding_bag_grad",
    "embedding_bag_weight_grad",
    "embedding_grad",
    "gather",
    "one_hot",
    "renorm_",
    "scatter_add",
]


def scatter_add(
    target: NDArray[Any], indices: TensorLike, updates: TensorLike, *, deterministic: bool = True
) -> NDArray[Any]:
    """Add rows to a table in place; rows of equal indices add up.

    ``target[r, :] += sum over {k : indices[k] == r} of updates[k, :]``.

    Parameters
    ----------
    target : (N, D) ndarray of float16, bfloat16, float32 or float64
        Changed in place. Rows C-contiguous, native byte order.
    indices : array_like of int, any shape
        Row numbers in ``[0, N)``.
    updates : array_like, shape ``(*indices.shape, D)``
        Any real dtype that casts safely to that of the sums; must not overlap `target`.
    deterministic : bool
        False lets a GPU add float32 and float64 rows in whatever order it comes to them: nothing is sorted, and the
        bits may differ from call to call. Elsewhere the order is always that of the positions.

    Returns
    -------
    ndarray
        `target` itself.

    Raises
    ------
    IndexError
        An index outside ``[0, N)``.
    TypeError
        Indices that are not integers, updates that do not cast safely.
    ValueError
        Wrong shapes, or a target that cannot be written in place. After any error nothing has changed.

    Notes
    -----
    Updates are added one by one in the order of the positions: the bits are those of ``numpy.add.at``, for any number
    of threads, NaN payloads aside. Half-width targets are summed in float32 and rounded once.
    Moves ``(L + 2 * U) * D * itemsize`` bytes for U distinct rows.

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> fastemb.scatter_add(np.zeros((3, 2)), [0, 2, 0], np.ones((3, 2)))
    array([[2., 2.],
           [0., 0.],
           [1., 1.]])
    """
    table = as_table(target, "target", write=True)
    ids = as_indices(indices, like=table, like_name="target")
    shape = *ids.shape, table.shape[1]
    grad = as_gradient(updates, shape, table.dtype, "updates", like=table, like_name="target")
    require_disjoint({"target": table}, {"updates": grad, "indices": ids})
    flat = all_indices(ids, table.shape[0])
    read_ahead(table, flat)
    kernels = backend(table)
    if kernels is reference():
        terms: NDArray[Any] | None = grad.reshape(flat.size, table.shape[1])
    else:
        terms = kernel_gradient(grad)
    if terms is None and isinstance(grad, np.ndarray):
        _scatter_add_cast(table, flat, grad, ids)
    else:
        terms = cast_gradient(grad, accumulator(table.dtype)) if terms is None else terms
        unordered = not deterministic and not isinstance(table, np.ndarray) and table.dtype != np.float16
        if unordered:
            bad = kernels.scatter.scatter_add_unordered(table, flat, terms.astype(table.dtype, copy=False))
        else:
            bad = kernels.scatter_add(table, flat, terms)
        if bad >= 0:
            raise index_error(ids, table.shape[0])
    return target


def _scatter_add_cast(table: NDArray[Any], flat: NDArray[Any], grad: NDArray[Any], ids: NDArray[Any]) -> None:
    """`scatter_add` of updates that kernels cannot read: cast in blocks, which the order of sums does not notice."""
    check_indices(ids, table.shape[0])
    for start in range(0, flat.size, BLOCK):
        places = np.arange(start, min(flat.size, start + BLOCK))
        terms = grad[np.unravel_index(places, ids.shape)] if ids.ndim else grad[np.newaxis]
        cpu().scatter_add(table, flat[places], terms.astype(table.dtype))


def embedding_grad(
    indices: TensorLike,
    grad: TensorLike,
    num_embeddings: SupportsIndex,
    *,
    padding_idx: SupportsIndex | None = None,
    scale_grad_by_freq: bool = False,
) -> RowGrad:
    """Gradient of a lookup with respect to the table, as the touched rows alone.

    ``dW[r, :] = sum over {k : indices[k] == r} of grad[k, :]``.

    Parameters
    ----------
    indices : array_like of int, any shape
        The indices of the lookup, in ``[0, num_embeddings)``.
    grad : array_like, shape ``(*indices.shape, D)``
        Gradient of the lookup's result; any real dtype that casts safely to float64.
    num_embeddings : int
        N, at least 0.
    padding_idx : int, optional
        In ``[-N, N)``: this row gets no gradient.
    scale_grad_by_freq : bool
        Divide each ``grad[k]`` by the number of times that ``indices[k]`` occurs in this call.

    Returns
    -------
    RowGrad
        Rows ascending; values float32, or float64 for gradients of float64, of wide integers and of Python numbers.

    Raises
    ------
    IndexError
        An index outside ``[0, N)``.
    TypeError
        Indices that are not integers, a gradient that is not real.
    ValueError
        Wrong shapes, or a `padding_idx` out of range.

    Notes
    -----
    Allocates (U, D) for U distinct rows and O(L) integers, never (N, D). Sums follow the positions
    and are cut every `fastemb.kernels.SUM_BLOCK` of a row; the bits do not depend on the number of threads.
    torch's ``sparse=True`` gradient keeps duplicates apart until the optimizer sums them, and refuses
    `scale_grad_by_freq`.

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> g = fastemb.embedding_grad([0, 2, 0], np.ones((3, 2), np.float32), num_embeddings=5)
    >>> g.rows, g.values
    (array([0, 2]), array([[2., 2.],
           [1., 1.]], dtype=float32))
    """
    rows = as_array(grad, "grad")
    ids = as_indices(indices, like=rows if is_array(grad) else None, like_name="grad")
    rows = beside(rows, grad, "grad", ids, "indices")
    num_rows = _options.integer("num_embeddings", num_embeddings, at_least=0)
    padding = _options.padding(padding_idx, num_rows)
    array = as_rows_of_gradient(rows, ids)
    wanted = np.dtype(np.float64 if _needs_float64(array.dtype) else np.float32)
    array = as_gradient(array, (*ids.shape, array.shape[-1]), wanted)
    groups = Groups.of(ids, num_rows, padding)
    return row_gradient(groups, array, num_rows, wanted, scale_grad_by_freq=bool(scale_grad_by_freq))


def _needs_float64(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iuf" and not np.can_cast(dtype, np.float32, "safe")


def renorm_(
    weight: NDArray[Any], indices: TensorLike, max_norm: SupportsFloat, norm_type: SupportsFloat = 2.0
) -> NDArray[Any]:
    """Shrink the rows that `indices` name to a greatest norm, in place.

    ``W[r] *= max_norm / (norm + 1e-7)`` once for every distinct r whose ``norm = (sum |W[r]|**p)**(1/p) > max_norm``.

    Parameters
    ----------
    weight : (N, D) ndarray of float16, bfloat16, float32 or float64
        Changed in place; rows not named, and rows at or below the limit, keep their bits.
    indices : array_like of int, any shape
        Row numbers in ``[0, N)``; repeated ones count once.
    max_norm : float
        The limit, at least 0. Short rows are not stretched to it.
    norm_type : float
        p > 0; ``inf`` is the largest absolute value.

    Returns
    -------
    ndarray
        `weight` itself.

    Raises
    ------
    IndexError
        An index outside ``[0, N)``.
    TypeError
        Indices that are not integers, options that are not numbers.
    ValueError
        A negative `max_norm`, a `norm_type` that is not positive, a table that cannot be written in place. After any
        error nothing has changed.

    Notes
    -----
    Norms are float64 sums whatever the table's dtype. The rule, 1e-7 included, is that of torch's ``max_norm``.

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> fastemb.renorm_(np.array([[3.0, 4.0], [0.3, 0.4]]), [0, 1, 0], max_norm=1.0).round(3)
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """
    limit = _options.real("max_norm", max_norm, infinite=True)
    power = _options.real("norm_type", norm_type, above=0.0, infinite=True)
    table = as_table(weight, write=True)
    ids = as_indices(indices, like=table)
    read_ahead(table, ids)
    require_disjoint({"weight": table}, {"indices": ids})
    rows = Groups.of(ids, table.shape[0]).rows
    kernels = backend(table)
    block = BLOCK if kernels is reference() else max(1, rows.size)  # the reference makes float64 copies of the rows
    with unchecked(table):
        for start in range(0, rows.size, block):
            kernels.renorm(table, rows[start : start + block], limit, power)
    return weight
