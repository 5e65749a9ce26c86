"""Lengths and directions of rows: unit rows, cosine similarity, nearest neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from .. import _options
from .._arrays import (
    BLOCK,
    TensorLike,
    accumulator,
    as_array,
    as_gradient,
    as_indices,
    as_table,
    beside,
    check_indices,
)
from .._devices import HOST, device_of, is_array, namespace, require_host, to_device
from .._progress import progress_bar

METRICS = ("cosine", "dot", "euclidean")


def _lengths(rows: NDArray[Any]) -> NDArray[Any]:
    """Euclidean norms of rows that are not half-width; right where squares leave the range of the dtype, too."""
    xp = namespace(rows)
    lengths: NDArray[Any]
    if not rows.size:
        lengths = xp.zeros(len(rows), rows.dtype)
        return lengths
    with np.errstate(all="ignore"):
        largest = xp.abs(rows).max(axis=1, keepdims=True)
        scale = xp.where(xp.isfinite(largest) & (largest > 0), largest, 1)
        scaled = rows / scale
        lengths = scale[:, 0] * xp.sqrt(xp.einsum("nd,nd->n", scaled, scaled))
        return lengths


def normalize_(weight: NDArray[Any], *, max_norm: SupportsFloat | None = None) -> NDArray[Any]:
    """Divide rows by their length, in place.

    ``W[r] /= |W[r]|``, or with a limit ``W[r] /= max(|W[r]|, max_norm)``; rows of zeros stay.

    Parameters
    ----------
    weight : (N, D) ndarray of float16, bfloat16, float32 or float64
        Changed in place.
    max_norm : float, optional
        Shorter rows are divided by this instead of by their length: with 1 they stay, and no row is longer than 1.

    Returns
    -------
    ndarray
        `weight` itself.

    Raises
    ------
    TypeError
        Not a table.
    ValueError
        A table that cannot be written in place, a negative `max_norm`. After any error nothing has changed.

    Notes
    -----
    To shrink long rows to a length and leave others alone: `fastemb.renorm_`. Works on 4,096 rows at a time.

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> fastemb.nn.normalize_(np.array([[3.0, 4.0], [0.3, 0.4]])).round(3)
    array([[0.6, 0.8],
           [0.6, 0.8]])
    >>> fastemb.nn.normalize_(np.array([[3.0, 4.0], [0.3, 0.4]]), max_norm=1.0).round(3)
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """
    table = as_table(weight, write=True)
    least = 0.0 if max_norm is None else _options.real("max_norm", max_norm)
    xp, dtype = namespace(table), accumulator(table.dtype)
    for start in range(0, len(table), BLOCK):
        rows = table[start : start + BLOCK]
        wide = rows.astype(dtype)
        divisor = xp.maximum(_lengths(wide), dtype.type(least))
        with np.errstate(all="ignore"):
            rows[...] = wide / xp.where(divisor == 0, 1, divisor)[:, np.newaxis]
    return weight


def cosine_similarity(a: TensorLike, b: TensorLike) -> NDArray[Any]:
    """Cosines of the angles between rows: ``out[..., ] = sum(a * b) / (|a| * |b|)`` over the last axis.

    Parameters
    ----------
    a, b : (..., D) array_like of float
        Broadcast against each other; on one device.

    Returns
    -------
    (...) ndarray
        In ``[-1, 1]``; 0 where a row is zeros. float32, or float64 if one of the arrays is.

    Raises
    ------
    TypeError
        Not real numbers, or arrays on two devices.
    ValueError
        Widths that differ, or shapes that do not broadcast.

    References
    ----------
    T. Mikolov et al., "Efficient Estimation of Word Representations in Vector Space", 2013,
    https://arxiv.org/abs/1301.3781

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> rows = np.array([[1.0, 0.0], [1.0, 1.0], [-2.0, 0.0]])
    >>> fastemb.nn.cosine_similarity(rows[:, np.newaxis], rows).round(4)
    array([[ 1.    ,  0.7071, -1.    ],
           [ 0.7071,  1.    , -0.7071],
           [-1.    , -0.7071,  1.    ]])
    """
    first, second = (_vectors(x, name) for x, name in ((a, "a"), (b, "b")))
    first = beside(first, a, "a", second, "b") if is_array(b) else first
    second = beside(second, b, "b", first, "a")
    if first.shape[-1] != second.shape[-1]:
        msg = f"a and b must have one width, got {first.shape[-1]} and {second.shape[-1]}"
        raise ValueError(msg)
    dtype = np.promote_types(first.dtype, second.dtype)
    units = [_units(x.astype(dtype, copy=False)) for x in (first, second)]
    try:
        products = units[0] * units[1]
    except ValueError:
        msg = f"a and b must broadcast against each other, got {first.shape} and {second.shape}"
        raise ValueError(msg) from None
    cosines: NDArray[Any] = namespace(first).clip(products.sum(axis=-1), -1, 1)
    return cosines


def _vectors(x: TensorLike, name: str) -> NDArray[Any]:
    array = as_array(x, name)
    if array.ndim == 0:
        msg = f"{name} must have at least one axis, got shape ()"
        raise ValueError(msg)
    array = as_gradient(array, array.shape, np.dtype(np.float64), name)
    return array.astype(np.result_type(array.dtype, np.float32), copy=False)


def _units(x: NDArray[Any]) -> NDArray[Any]:
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    lengths = _lengths(rows)
    with np.errstate(all="ignore"):
        units: NDArray[Any] = rows / namespace(x).where(lengths == 0, 1, lengths)[:, np.newaxis]
    return units.reshape(x.shape)


class Neighbours(NamedTuple):
    """What `nearest` found: rows and scores, the best first."""

    rows: NDArray[np.int64]
    scores: NDArray[Any]


def nearest(
    weight: NDArray[Any],
    query: TensorLike,
    k: SupportsIndex = 10,
    *,
    metric: str = "cosine",
    exclude: TensorLike | None = None,
    progress: bool | None = None,
) -> Neighbours:
    """The rows of a table that are nearest to vectors: the k greatest ``score(query, W[r])``.

    ``sum(q * w) / (|q| * |w|)`` for "cosine", ``sum(q * w)`` for "dot", ``-|q - w|`` for "euclidean".

    Parameters
    ----------
    weight : (N, D) ndarray of float
        The table.
    query : (..., D) array_like of float
        One vector, or several.
    k : int
        How many rows for each, at least 1; at most N are found.
    metric : {"cosine", "dot", "euclidean"}
        The score: cosine of the angle, product, or minus the distance.
    exclude : array_like of int, optional
        Rows that are left out, for all queries.
    progress : bool, optional
        Whether to show a bar; by default for tables of a million rows and more, in a terminal.

    Returns
    -------
    Neighbours
        ``rows`` and ``scores``, each ``(*query.shape[:-1], k)``, by falling score; of equal ones the lower row first.

    Raises
    ------
    IndexError
        A row to exclude that is out of range.
    TypeError
        Not real numbers.
    ValueError
        Another width, a metric that is none, `k` below 1.

    Notes
    -----
    Products of 4,096 rows at a time by BLAS, of which the best k are kept: allocates O(Q * (k + 4096)) numbers for Q
    queries, never (Q, N). NaN scores come last.

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> rows = np.array([[0.9, 0.2], [0.8, 0.3], [-0.7, 0.6], [-0.8, 0.5]])  # cat, dog, car, truck
    >>> found = fastemb.nn.nearest(rows, rows[0], k=2)
    >>> found.rows, found.scores.round(3)
    (array([0, 1]), array([1.  , 0.99]))
    """
    table = as_table(weight)
    count = _options.integer("k", k, at_least=1)
    _options.choice("metric", metric, METRICS)
    require_host(query, "query", table, "weight")
    vectors = beside(_vectors(query, "query"), query, "query", table)
    if vectors.shape[-1] != table.shape[1]:
        msg = f"query must have width {table.shape[1]}, got {vectors.shape[-1]}"
        raise ValueError(msg)
    left_out = np.empty(0, np.int64) if exclude is None else as_indices(exclude, "exclude", like=table)
    left_out = to_device(left_out, HOST).reshape(-1).astype(np.int64)
    check_indices(left_out, len(table))
    dtype = np.promote_types(vectors.dtype, accumulator(table.dtype))
    wanted = vectors.reshape(math.prod(vectors.shape[:-1]), table.shape[1]).astype(dtype)
    wanted = _units(wanted) if metric == "cosine" else wanted
    xp, where = namespace(table), device_of(table)
    best = Neighbours(xp.empty((len(wanted), 0), np.int64), xp.empty((len(wanted), 0), dtype))
    with _bar(len(table), progress) as advance:
        for start in range(0, len(table), BLOCK):
            rows = table[start : start + BLOCK].astype(dtype)
            scores = _scores(wanted, rows, metric)
            skipped = left_out[(left_out >= start) & (left_out < start + len(rows))] - start
            allowed = to_device(np.delete(np.arange(len(rows)), skipped), where)
            best = _better(best, Neighbours(allowed + start, scores[:, allowed]), count)
            advance(len(rows))
    shape = (*vectors.shape[:-1], best.rows.shape[1])
    return Neighbours(best.rows.reshape(shape), best.scores.reshape(shape))


def _scores(wanted: NDArray[Any], rows: NDArray[Any], metric: str) -> NDArray[Any]:
    xp = namespace(rows)
    scores: NDArray[Any]
    with np.errstate(all="ignore"):
        if metric == "cosine":
            scores = xp.clip(wanted @ _units(rows).T, -1, 1)
            return scores
        if metric == "dot":
            scores = wanted @ rows.T
            return scores
        # Around a point among the rows, and in double precision: squares of what is far from 0 would hide differences.
        near, far = (x.astype(np.float64) - rows[:1] for x in (rows, wanted))
        squares = [xp.einsum("nd,nd->n", x, x) for x in (far, near)]
        distances = xp.sqrt(xp.maximum(squares[0][:, np.newaxis] - 2 * (far @ near.T) + squares[1], 0))
        scores = -distances.astype(wanted.dtype)
        return scores


def _better(best: Neighbours, new: Neighbours, count: int) -> Neighbours:
    """The best `count` of what was found and of a block; NaN counts as the worst."""
    xp = namespace(new.scores)
    rows = xp.concatenate((best.rows, xp.broadcast_to(new.rows, new.scores.shape)), axis=1)
    scores = xp.concatenate((best.scores, new.scores), axis=1)
    order = xp.argsort(-scores, axis=1, kind="stable")[:, :count]
    return Neighbours(xp.take_along_axis(rows, order, 1), xp.take_along_axis(scores, order, 1))


def _bar(total: int, wanted: bool | None) -> AbstractContextManager[Callable[[int], object]]:
    return progress_bar("nearest", total, wanted if wanted is not None or total >= 1_000_000 else False)
