"""What JAX's primitives do on the host: fastemb's operations, where an index out of range is no error.

It adds nothing, and with `nan` the results that it takes part in are NaN; but for the index N, which marks what is left
out. Each function writes its first argument, an array that XLA has made. A bag b is the positions ``offsets[b]`` to
``offsets[b + 1]``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..functional import embedding_bag, embedding_bag_grad, embedding_bag_weight_grad, gather, scatter_add
from ..rowgrad import RowGrad

Array = NDArray[Any]


def take(out: Array, weight: Array, ids: Array, *, nan: bool = False) -> None:
    """``out[k] = weight[ids[k]]``."""
    try:
        gather(weight, ids, out=out)
    except IndexError:
        present = _present(ids, len(weight))
        out[present] = gather(weight, ids[present])
        out[~present] = np.nan if nan else 0


def add(out: Array, ids: Array, grad: Array) -> None:
    """``out[ids[k]] += grad[k]``, from zero."""
    out[...] = 0
    try:
        scatter_add(out, ids, grad)
    except IndexError:
        present = _present(ids, len(out))
        scatter_add(out, ids[present], grad[present])


def pool(out: Array, weight: Array, ids: Array, offsets: Array, factors: Array, *, nan: bool = False) -> None:
    """``out[b] = sum over k in bag b of factors[k] * weight[ids[k]]``."""

    def pool_some(ids: Array, offsets: Array, some: Any) -> None:
        embedding_bag(
            weight, ids, offsets, mode="sum", per_sample_weights=factors[some], include_last_offset=True, out=out
        )

    _on_bags(pool_some, ids, offsets, len(weight))
    if nan:
        _spoil(out, ids, offsets, len(weight))


def spread(out: Array, ids: Array, offsets: Array, factors: Array, grad: Array) -> None:
    """``out[ids[k]] += factors[k] * grad[b]``, from zero."""

    def spread_some(ids: Array, offsets: Array, some: Any) -> None:
        weights = factors[some]
        # As a table, of which no element is read, `out` says what shape and dtype there is.
        found = embedding_bag_grad(
            out, ids, offsets, grad, mode="sum", per_sample_weights=weights, include_last_offset=True
        )
        _write(out, found)

    _on_bags(spread_some, ids, offsets, len(out))


def dots(out: Array, weight: Array, ids: Array, offsets: Array, grad: Array) -> None:
    """``out[k] = weight[ids[k]] . grad[b]``."""

    def dots_of_some(ids: Array, offsets: Array, some: Any) -> None:
        found = embedding_bag_weight_grad(weight, ids, offsets, grad, mode="sum", include_last_offset=True)
        out[...] = 0
        out[some] = found

    _on_bags(dots_of_some, ids, offsets, len(weight))


def largest(out: Array, weight: Array, ids: Array, offsets: Array, *, nan: bool = False) -> None:
    """``out[b, j] = max over k in bag b of weight[ids[k], j]``."""

    def largest_of_some(ids: Array, offsets: Array, _: Any) -> None:
        embedding_bag(weight, ids, offsets, mode="max", include_last_offset=True, out=out)

    _on_bags(largest_of_some, ids, offsets, len(weight))
    if nan:
        _spoil(out, ids, offsets, len(weight))


def credit(out: Array, weight: Array, ids: Array, offsets: Array, grad: Array) -> None:
    """``out[r, j] += grad[b, j]``, from zero, r being the row that won column j of bag b."""

    def credit_some(ids: Array, offsets: Array, _: Any) -> None:
        _write(out, embedding_bag_grad(weight, ids, offsets, grad, mode="max", include_last_offset=True))

    _on_bags(credit_some, ids, offsets, len(weight))


def _present(ids: Array, num_rows: int) -> Array:
    found: Array = (ids >= 0) & (ids < num_rows)
    return found


def _on_bags(operation: Callable[[Array, Array, Any], None], ids: Array, offsets: Array, num_rows: int) -> None:
    """Call an operation with ids, offsets and which positions those are: all, or all whose index is in range."""
    try:
        operation(ids, offsets, slice(None))
    except IndexError:
        present = _present(ids, num_rows)
        before = np.concatenate([[0], np.cumsum(present)])
        operation(ids[present], before[offsets], present)


def _spoil(out: Array, ids: Array, offsets: Array, num_rows: int) -> None:
    bad = np.flatnonzero((ids < 0) | (ids > num_rows))
    out[np.searchsorted(offsets, bad, side="right") - 1] = np.nan


def _write(out: Array, gradient: RowGrad) -> None:
    out[...] = 0
    out[gradient.rows] = gradient.values
