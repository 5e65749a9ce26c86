"""Bags of indices: what they may be, and their rows pooled by the kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from . import _options
from ._arrays import (
    BLOCK,
    Indices,
    Table,
    TensorLike,
    accumulator,
    all_indices,
    as_gradient,
    as_indices,
    check_indices,
    index_error,
    kernel_indices,
)
from ._devices import HOST, compiled, cpu, cuda, namespace, reference, to_device
from ._groups import to_bags
from ._pages import read_ahead

MODES = ("sum", "mean", "sqrtn", "max")

NO_PADDING = -1
"""What kernels take for None."""

NO_NUMBERS: dict[Any, NDArray[Any]] = {np.dtype(kind): np.empty(0, kind) for kind in (np.float32, np.float64)}
"""What kernels take for weights or divisors that there are none of, by dtype."""

_INT64 = np.dtype(np.int64)


class Bags(NamedTuple):
    """Bags as they were given, checked but for the range of the indices.

    Bag b is the positions ``offsets[b]`` to ``offsets[b + 1]`` of the flat `ids`; `weights`, if there are any, are
    flat and of the dtype of the sums.
    """

    ids: Indices
    offsets: NDArray[np.int64]
    weights: NDArray[Any] | None
    mode: str
    padding: int
    dtype: np.dtype[Any]

    @classmethod
    def of(
        cls,
        table: Table,
        indices: TensorLike,
        offsets: TensorLike | None,
        mode: str,
        per_sample_weights: TensorLike | None,
        padding_idx: SupportsIndex | None,
        include_last_offset: bool,
    ) -> Bags:
        """Check everything but the range of the indices."""
        check_mode(mode)
        ids = as_indices(indices, like=table)
        bounds = _bounds(ids, offsets, include_last_offset)
        padding = _options.padding(padding_idx, table.shape[0])
        dtype = accumulator(table.dtype)
        weights = None
        if per_sample_weights is not None:
            if mode == "max":
                msg = "per_sample_weights cannot be used with mode 'max'"
                raise ValueError(msg)
            weights = as_gradient(per_sample_weights, ids.shape, table.dtype, "per_sample_weights", like=table)
            with np.errstate(all="ignore"):
                weights = _as_kernels_take(weights, dtype).reshape(-1)
        read_ahead(table, ids)
        return cls(ids, bounds, weights, mode, NO_PADDING if padding is None else padding, dtype)

    @property
    def size(self) -> int:
        """B, the number of bags."""
        return self.offsets.size - 1

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The bag of each position, (L,)."""
        xp = namespace(self.offsets)
        numbers: NDArray[np.int64] = xp.arange(self.ids.size)
        to_bags(numbers, self.offsets)
        return numbers

    @property
    def padding_idx(self) -> int | None:
        """The index that is left out, or None."""
        return None if self.padding == NO_PADDING else self.padding

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The caller's arrays, as far as they are read where they lie."""
        read = {"indices": self.ids, "offsets": self.offsets}
        return read if self.weights is None else read | {"per_sample_weights": self.weights}

    def divisors(self, flat: Indices) -> NDArray[Any] | None:
        """What the weighted sums are divided by, (B,), given the indices as kernels read them; None for nothing."""
        if self.mode in ("sum", "max"):
            return None
        xp = namespace(self.offsets)
        divisors: NDArray[Any]
        if self.weights is None and self.padding == NO_PADDING:
            counts = xp.diff(self.offsets)
            divisors = (counts if self.mode == "mean" else xp.sqrt(counts)).astype(self.dtype)
        else:
            divisors, factors = xp.empty(self.size, self.dtype), self.or_none(self.weights)
            squared = self.mode == "sqrtn"
            compiled(divisors).bag_divisors(divisors, flat, self.offsets, factors, self.padding, squared)
        return divisors

    def or_none(self, numbers: NDArray[Any] | None) -> NDArray[Any]:
        """Numbers as a kernel takes them: an empty array for none."""
        if numbers is not None:
            return numbers
        none: NDArray[Any] = namespace(self.offsets).empty(0, self.dtype)
        return none

    def pool(self, out: NDArray[Any], table: Table, kernels: ModuleType) -> None:
        """Write the pooled rows, (B, D); IndexError, and nothing written, if an index is out of range."""
        flat = kernel_indices(self.ids) if isinstance(table, np.ndarray) else all_indices(self.ids, table.shape[0])
        if flat is not None:
            if self.pool_flat(out, table, kernels, flat) >= 0:
                raise index_error(self.ids, table.shape[0])
            return
        check_indices(self.ids, table.shape[0])
        for chosen, bags in self._blocks():
            bags.pool_flat(out[chosen], table, kernels, bags.ids)

    def pool_flat(self, out: NDArray[Any], table: Table, kernels: ModuleType, flat: Indices) -> int:
        """`pool`, given the indices as kernels read them: the position of the first one out of range, or -1."""
        bad: int
        if self.mode == "max":
            bad = kernels.bag_max(out, table, flat, self.offsets, self.padding)
        else:
            factors, divisors = self.or_none(self.weights), self.or_none(self.divisors(flat))
            bad = kernels.bag_sum(out, table, flat, self.offsets, factors, divisors, self.padding)
        return bad

    def _blocks(self) -> Iterator[tuple[slice, Bags]]:
        """Some bags at a time, their indices widened to what kernels can read."""
        start = 0
        while start < self.size:
            first = int(self.offsets[start])
            stop = max(start + 1, int(np.searchsorted(self.offsets, first + BLOCK, side="right")) - 1)
            last = int(self.offsets[stop])
            part = self.ids[first:last] if self.ids.ndim == 1 else self.ids[start:stop]
            yield (
                slice(start, stop),
                self._replace(
                    ids=part.astype(np.int64).reshape(-1),
                    offsets=self.offsets[start : stop + 1] - first,
                    weights=None if self.weights is None else self.weights[first:last],
                ),
            )
            start = stop


def plain_bounds(weight: Any, indices: Any, offsets: Any) -> NDArray[np.int64] | None:
    """Where bags begin, and where the last one ends, (B + 1,), of ordinary arrays: for the short way to the kernels.

    None for any other arrays, and for offsets that are not right. A pass over a large table leaves the caches without
    the code of what comes next, so every line of the short way costs microseconds.
    """
    if not (
        type(weight) is type(indices) is type(offsets) is np.ndarray
        and indices.dtype is offsets.dtype is _INT64
        and weight.dtype in NO_NUMBERS
        and weight.ndim == 2
        and indices.ndim == offsets.ndim == 1
        and offsets.size
        and weight.flags.carray
        and indices.flags.carray
        and offsets.flags.carray
    ):
        return None
    bounds = np.empty(offsets.size + 1, np.int64)
    return bounds if close_offsets()(bounds, offsets, indices.size) else None


def _as_kernels_take(numbers: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Contiguous and aligned numbers of a dtype; no copy of those that are."""
    if isinstance(numbers, np.ndarray):
        return np.require(numbers, dtype, ["C", "A"])
    contiguous: NDArray[Any] = namespace(numbers).ascontiguousarray(numbers, dtype)
    return contiguous


def check_mode(mode: str, scale_grad_by_freq: bool = False) -> None:
    """ValueError for an unknown mode, or one whose gradients cannot be scaled although they should be."""
    _options.choice("mode", mode, MODES)
    if mode == "max" and scale_grad_by_freq:
        msg = "scale_grad_by_freq cannot be used with mode 'max'"
        raise ValueError(msg)


def _bounds(ids: Indices, offsets: TensorLike | None, include_last_offset: bool) -> NDArray[np.int64]:
    """Where bags begin, and where the last one ends: (B + 1,)."""
    if ids.ndim == 2:
        if offsets is not None:
            msg = "offsets must be None for 2-D indices: each row is a bag"
            raise ValueError(msg)
        bags, length = ids.shape
        rows: NDArray[np.int64] = namespace(ids).arange(bags + 1) * length
        return rows
    if ids.ndim != 1:
        msg = f"indices must be 1-D with offsets, or 2-D, got shape {ids.shape}"
        raise ValueError(msg)
    if offsets is None:
        msg = "offsets must be given for 1-D indices"
        raise ValueError(msg)
    begins = as_indices(offsets, "offsets", like=ids, like_name="indices")
    if begins.ndim != 1:
        msg = f"offsets must be 1-D, got shape {begins.shape}"
        raise ValueError(msg)
    if not isinstance(begins, np.ndarray):
        return _bounds_on_gpu(begins, ids.size, include_last_offset)
    bounds = np.empty(begins.size + 1, np.int64)
    if not begins.size or kernel_indices(begins) is None or not close_offsets()(bounds, begins, ids.size):
        _check_offsets(begins, ids.size, include_last_offset)
        bounds[:-1], bounds[-1] = begins, ids.size
    if include_last_offset:
        if bounds[-2] != ids.size:
            _check_offsets(begins, ids.size, include_last_offset)
        return bounds[:-1]
    return bounds


def _bounds_on_gpu(begins: Indices, size: int, include_last_offset: bool) -> NDArray[np.int64]:
    """The same where the offsets are on a GPU: the host waits for one number, whether they are right."""
    bounds: NDArray[np.int64] = namespace(begins).empty(begins.size + 1, np.int64)
    readable = begins if kernel_indices(begins) is not None else begins.astype(np.int64)
    if not cuda().check.close_offsets(bounds, readable, size) or not begins.size or include_last_offset:
        _check_offsets(to_device(begins, HOST), size, include_last_offset)
    return bounds[:-1] if include_last_offset else bounds


@functools.cache
def close_offsets() -> Callable[..., bool]:
    """The compiled check of offsets; without a compiler one that leaves them to Python's."""
    if cpu() is reference():
        return lambda *_: False
    from .kernels.cpu import check

    found: Callable[..., bool] = check.close_offsets
    return found


def _check_offsets(offsets: Indices, size: int, include_last_offset: bool) -> None:
    count = offsets.size
    if count == 0:
        if size or include_last_offset:
            why = "include_last_offset" if include_last_offset else f"{size} indices"
            msg = f"offsets must not be empty with {why}"
            raise ValueError(msg)
        return
    if offsets[0] != 0:
        msg = f"offsets must begin with 0, got {offsets[0]} at position 0"
        raise ValueError(msg)
    falls = offsets[1:] < offsets[:-1]
    if falls.any():
        k = int(np.argmax(falls)) + 1
        msg = f"offsets must not decrease, got {offsets[k]} after {offsets[k - 1]} at position {k}"
        raise ValueError(msg)
    last = int(offsets[-1])
    if last > size or (include_last_offset and last != size):
        relation = "end with" if include_last_offset else "be at most"
        msg = f"offsets must {relation} the number of indices, {size}, got {last} at position {count - 1}"
        raise ValueError(msg)
