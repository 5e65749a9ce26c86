"""Row lookup, and the one-hot matrix that it saves."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _options, buffers
from ._arrays import (
    Indices,
    Table,
    TensorLike,
    all_indices,
    as_indices,
    as_out,
    as_table,
    check_indices,
    index_blocks,
    index_error,
    kernel_indices,
    require_disjoint,
)
from ._compat import as_dtype
from ._devices import backend, cpu, empty, is_aligned, namespace, reference
from ._pages import read_ahead

_S = TypeVar("_S", bound=np.generic)

_SMALL = 1 << 16
"""Elements of a result up to which `ndarray.take`, behind our check of the indices, is ahead of a compiled kernel."""

_ARRAY, _FLOAT32, _FLOAT64, _INT64 = np.ndarray, np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int64)


_any_bad: Callable[[NDArray[Any], int], bool] | None = None
"""Whether an index is out of range, once `_load_check` has been called."""


def _load_check() -> Callable[[NDArray[Any], int], bool]:
    global _any_bad
    if cpu() is reference():
        _any_bad = lambda indices, num_rows: reference().first_bad(indices, num_rows, 0, indices.size) >= 0  # noqa: E731
    else:
        from .kernels.cpu.check import any_bad

        _any_bad = any_bad
    return _any_bad


__all__ = ["gather", "one_hot"]


def gather(weight: NDArray[_S], indices: TensorLike, *, out: NDArray[_S] | None = None) -> NDArray[_S]:
    """Look rows of a table up.

    ``out[k, :] = weight[indices[k], :]``, which is ``one_hot(indices, N) @ weight`` without the zeros.

    Parameters
    ----------
    weight : (N, D) ndarray of float16, bfloat16, float32 or float64
        The table. Any strides and byte order, may be read-only or memory-mapped; only looked-up rows are read.
    indices : array_like of int, any shape
        Row numbers in ``[0, N)``. Any integer dtype; negative ones do not count from the end.
    out : ndarray, optional
        Where to write: shape ``(*indices.shape, D)``, dtype of `weight`, C-contiguous, not overlapping the inputs.

    Returns
    -------
    ndarray
        Shape ``(*indices.shape, D)``, dtype of `weight` in native byte order; `out` if that was given.

    Raises
    ------
    IndexError
        An index outside ``[0, N)``; nothing has been written then.
    TypeError
        Indices that are not integers, or a table that is not a float array.
    ValueError
        A table that is not two-dimensional, or an unfit `out`.

    Notes
    -----
    Moves ``2 * L * D * itemsize`` bytes and the indices. Bits are copied, so the result is exact on every backend.
    A new result of a megabyte or more lies in recycled memory: see `fastemb.buffers`.
    torch's ``F.embedding`` computes the same; ``numpy.take`` and ``weight[indices]`` let negative indices wrap.

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> table = np.array([[0.9, 0.2], [0.8, 0.3], [-0.7, 0.6]])
    >>> fastemb.gather(table, [2, 0, 2])
    array([[-0.7,  0.6],
           [ 0.9,  0.2],
           [-0.7,  0.6]])
    """
    # Nothing unusual: no need to look at everything. (Each line here is felt in a lookup of a few rows.)
    if (
        type(weight) is _ARRAY
        and type(indices) is _ARRAY
        and indices.dtype is _INT64
        and (weight.dtype is _FLOAT32 or weight.dtype is _FLOAT64)
        and weight.flags.carray
        and indices.flags.carray
        and weight.ndim == 2
    ):
        num_rows, width = weight.shape
        flat = indices if indices.ndim == 1 else indices.reshape(-1)
        if out is None:
            if flat.size * width <= _SMALL:
                if (_any_bad or _load_check())(flat, num_rows):
                    raise index_error(indices, num_rows)
                return weight.take(indices, 0)
            rows: NDArray[_S] = buffers.empty((flat.size, width), weight.dtype)
            if cpu().gather(rows, weight, flat) >= 0:
                raise index_error(indices, num_rows)
            return rows if flat is indices else rows.reshape(*indices.shape, width)
        if (
            flat is indices
            and type(out) is _ARRAY
            and out.dtype is weight.dtype
            and out.flags.carray
            and out.shape == (flat.size, width)
            and not np.may_share_memory(out, weight)
            and not np.may_share_memory(out, flat)
        ):
            if cpu().gather(out, weight, flat) >= 0:
                raise index_error(indices, num_rows)
            return out
    table = as_table(weight)
    ids = as_indices(indices, like=table)
    num_rows, width = table.shape
    shape = (*ids.shape, width)
    dtype = table.dtype.newbyteorder("=")
    if out is None:
        result = empty(shape, dtype, table)
    else:
        result = as_out(out, shape, dtype, table)
        require_disjoint({"out": result}, {"weight": table, "indices": ids})
    kernels = backend(table if is_aligned(result) else result)
    rows = result.reshape(ids.size, width)
    _fill(rows, table, ids, kernels)
    return result if out is None else out


def _fill(rows: NDArray[Any], table: Table, ids: Indices, kernels: ModuleType) -> None:
    """Copy the rows that `ids` name into `rows`, (L, D); IndexError, and nothing written, if one is out of range."""
    read_ahead(table, ids)
    num_rows = table.shape[0]
    readable = kernel_indices(ids) if isinstance(table, np.ndarray) else all_indices(ids, num_rows)
    if readable is not None and kernels is not reference():
        if kernels.gather(rows, table, readable) >= 0:
            raise index_error(ids, num_rows)
        return
    check_indices(ids, num_rows)
    done = 0
    for block in index_blocks(ids):
        kernels.gather(rows[done : done + block.size], table, block)
        done += block.size


def gather_columns(out: NDArray[Any], columns: slice, weight: NDArray[Any], indices: Indices) -> None:
    """`gather` into some columns of `out`, (L, D), which the caller has made."""
    table = as_table(weight)
    if isinstance(table, np.ndarray):
        _fill(out[:, columns], table, indices, backend(table))
    else:  # kernels for CUDA write whole rows
        out[:, columns] = gather(table, indices.reshape(-1))


def one_hot(indices: TensorLike, num_classes: SupportsIndex, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Indicator rows: the slow equivalent that `gather` avoids.

    ``out[k, n] = 1 if indices[k] == n else 0``, so ``one_hot(indices, N) @ weight == gather(weight, indices)``.

    Parameters
    ----------
    indices : array_like of int, any shape
        Classes in ``[0, num_classes)``.
    num_classes : int
        N, at least 0.
    dtype : dtype_like
        A numeric dtype or bool.

    Returns
    -------
    ndarray
        Shape ``(*indices.shape, num_classes)``.

    Raises
    ------
    IndexError
        An index outside ``[0, num_classes)``.
    TypeError
        Indices that are not integers, or a dtype that is not numeric.
    ValueError
        A negative `num_classes`.

    Examples
    --------
    >>> import fastemb
    >>> fastemb.one_hot([1, 0], 3)
    array([[0., 1., 0.],
           [1., 0., 0.]], dtype=float32)
    """
    ids = as_indices(indices)
    classes = _options.integer("num_classes", num_classes, at_least=0)
    kind = as_dtype(dtype)
    if kind.kind not in "biufc" and kind.name != "bfloat16":
        msg = f"dtype must be numeric or bool, got {kind}"
        raise TypeError(msg)
    check_indices(ids, classes)
    xp = namespace(ids)
    out = xp.zeros((ids.size, classes), kind)
    out[xp.arange(ids.size), ids.reshape(-1).astype(np.int64)] = 1
    dense: NDArray[Any] = out.reshape(*ids.shape, classes)
    return dense
