"""From ids to rows: the map of a pruned table, which of its rows count most, and a table made of some."""

from __future__ import annotations

from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from .. import _options
from .._arrays import as_array, as_indices
from .._devices import HOST, namespace, to_device
from .embedding import Embedding


def row_map(row_of: Any, count: int, rows: int | None = None) -> tuple[NDArray[np.int64], int]:
    """The row of each id, that of the row of zeros for none, and how many rows there are besides that; on the host."""
    if row_of is None:
        return np.arange(count), count
    given = to_device(as_indices(row_of, "row_of"), HOST).astype(np.int64)
    if given.shape != (count,):
        msg = f"row_of must have shape ({count},), got {given.shape}"
        raise ValueError(msg)
    number = int(given.max(initial=-1)) + 1 if rows is None else rows
    if given.size and (given.min() < -1 or given.max() >= number):
        msg = f"row_of must be in [-1, {number}), got values in [{given.min()}, {given.max()}]"
        raise ValueError(msg)
    return np.where(given < 0, number, given), number


def magnitudes(weight: NDArray[Any]) -> NDArray[np.float64]:
    """Sum of the absolute values of each row, on the host."""
    sums: NDArray[np.float64] = to_device(namespace(weight).abs(weight).sum(axis=1, dtype=np.float64), HOST)
    if not np.isfinite(sums).all():
        msg = f"rows must be finite to be compared, row {int(np.argmin(np.isfinite(sums)))} is not"
        raise ValueError(msg)
    return sums


def frequencies(counts: Any, row_of: NDArray[np.int64], rows: int) -> NDArray[np.float64]:
    """How often the ids of each row occur."""
    array = np.empty(0) if counts is None else to_device(as_array(counts, "counts"), HOST)
    if array.shape != row_of.shape or array.dtype.kind not in "iuf":
        got = f"{array.dtype} of shape {array.shape}"
        msg = f"counts must be numbers of shape {row_of.shape} for 'frequency', got {got}"
        raise ValueError(msg)
    if not (np.isfinite(array).all() and (array >= 0).all()):
        msg = f"counts must be finite and >= 0, got values in [{array.min()}, {array.max()}]"
        raise ValueError(msg)
    return np.bincount(row_of, array.astype(np.float64), minlength=rows + 1)[:rows].astype(np.float64)


def worth_of_rows(weight: NDArray[Any], by: str, counts: Any, row_of: NDArray[np.int64]) -> NDArray[np.float64]:
    """What each row counts, by magnitude or by frequency; like `row_of` on the host."""
    if by == "frequency":
        return frequencies(counts, row_of, len(weight))
    if counts is not None:
        msg = "counts are for by='frequency'"
        raise ValueError(msg)
    return magnitudes(weight)


def require_zeros_last(weight: NDArray[Any], width: int) -> None:
    """ValueError unless these are rows of that width, the last of them zeros."""
    if weight.ndim != 2 or weight.shape[1] != width or len(weight) == 0:
        msg = f"weight must have shape (rows, {width}), got {weight.shape}"
        raise ValueError(msg)
    if (weight[-1] != 0).any():
        msg = "weight must end with a row of zeros, for the ids that are pruned"
        raise ValueError(msg)


def best_rows(worth: NDArray[np.float64], ratio: SupportsFloat | None, keep: SupportsIndex | None) -> NDArray[np.int64]:
    """The rows that stay, ascending: those not below a quantile, or so many of the best."""
    if keep is not None and ratio is None:
        number = _options.integer("keep", keep, at_least=0, at_most=worth.size)
        return np.sort(np.argsort(-worth, kind="stable")[:number])
    if ratio is None or keep is not None:
        msg = "either ratio or keep must be given"
        raise ValueError(msg)
    share = _options.real("ratio", ratio)
    if share > 1:
        msg = f"ratio must be <= 1, got {ratio}"
        raise ValueError(msg)
    return np.flatnonzero(worth >= np.quantile(worth, share)) if worth.size else np.empty(0, np.int64)


def with_rows(old: Embedding, source: NDArray[np.int64]) -> Embedding:
    """A layer with some rows of another and with their state, -1 for a new one of zeros; the last is never trained."""
    if (source[:-1] >= 0).any():
        old.flush()
    source = to_device(source, old.device)
    weight = old.weight[source]
    weight[source < 0] = 0
    new = Embedding.from_pretrained(
        weight,
        freeze=False,
        padding_idx=source.size - 1,
        max_norm=old.max_norm,
        norm_type=old.norm_type,
        scale_grad_by_freq=old.scale_grad_by_freq,
        optimizer=old.optimizer,
    )
    if old.state is not None and new.state is not None:
        fresh = new.state.arrays()
        for name, array in old.state.arrays().items():
            if len(array) == old.num_embeddings:
                fresh[name][source >= 0] = array[source[source >= 0]]
        new.state.step = old.state.step
    return new
