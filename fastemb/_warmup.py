"""What `python -m fastemb warmup` does: run every kernel once for each kind of array that users have."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import functional, optim
from ._compat import optional
from .kernels import SUM_BLOCK

DTYPES = ("float32", "float64")
INDEX_DTYPES = ("int64", "int32")


def warmup(dtypes: Sequence[str] = DTYPES, index_dtypes: Sequence[str] = INDEX_DTYPES, *, quiet: bool = False) -> int:
    """Compile the kernels of all operations, in one thread and in several; returns how many calls that took."""
    from .kernels.cpu import threads

    tasks = [
        (f"{name} {dtype} {index_dtype}", call)
        for dtype, index_dtype in itertools.product(dtypes, index_dtypes)
        for name, call in _calls(np.dtype(dtype), np.dtype(index_dtype))
    ]
    with _progress(len(tasks), quiet) as advance:
        for label, call in tasks:
            advance(label)
            call()
            with threads.serial_below(2):
                call()
    return 2 * len(tasks)


def _calls(dtype: np.dtype[Any], index_dtype: np.dtype[Any]) -> Iterator[tuple[str, Callable[[], object]]]:
    # A table that no core has to itself, enough indices for every way of sorting, one row often enough to be cut.
    weight = np.zeros((8192, 2), dtype)
    tables = {"": weight, "read-only table": _read_only(weight), "Fortran-ordered table": np.asfortranarray(weight)}
    indices = np.maximum(np.arange(-2 * SUM_BLOCK, 4096), 0).astype(index_dtype)
    grad: NDArray[Any] = np.zeros((indices.size, 2), dtype)
    yield "gather few rows", partial(functional.gather, weight, indices[:8])
    for (what, table), ids in itertools.product(tables.items(), (indices, _read_only(indices))):
        out = np.empty((ids.size, 2), dtype)  # given, or NumPy would do so few rows
        yield f"gather {what}".strip(), partial(functional.gather, table, ids, out=out)
    for ids, dy in ((indices, grad), (_read_only(indices), _read_only(grad))):
        yield "scatter_add", partial(functional.scatter_add, weight, ids, dy)
        yield "embedding_grad", partial(functional.embedding_grad, ids, dy, len(weight))
        for kind in optim.Optimizer.__subclasses__():
            rule = kind(lr=1.0)
            yield type(rule).__name__, partial(rule.step, weight, rule.init(weight), ids, dy)
        for moving in (optim.Adam(mode="exact"), optim.Momentum(mode="exact")):
            yield f"{type(moving).__name__} exact", partial(_exact, moving, weight, ids, dy)
        yield from _bag_calls(weight, ids, dy)
    yield "renorm_", partial(functional.renorm_, weight, indices, 1.0)


def _exact(rule: optim.Optimizer, weight: NDArray[Any], ids: NDArray[Any], dy: NDArray[Any]) -> None:
    state = rule.init(weight)
    rule.step(weight, state, ids[:1], dy[:1])
    rule.flush(weight, state)


def _bag_calls(weight: NDArray[Any], ids: NDArray[Any], dy: NDArray[Any]) -> Iterator[tuple[str, Callable[[], object]]]:
    offsets = np.arange(0, ids.size, 2)
    grad = dy[: offsets.size]
    for mode in ("sum", "max"):  # the others are sums too
        yield f"embedding_bag {mode}", partial(functional.embedding_bag, weight, ids, offsets, mode=mode, padding_idx=1)
        yield (
            f"embedding_bag_grad {mode}",
            partial(functional.embedding_bag_grad, weight, ids, offsets, grad, mode=mode),
        )
    yield "mean with padding", partial(functional.embedding_bag, weight, ids, offsets, padding_idx=1)
    yield "embedding_bag_weight_grad", partial(functional.embedding_bag_weight_grad, weight, ids, offsets, grad)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def _progress(total: int, quiet: bool) -> AbstractContextManager[Callable[[str], None]]:
    if quiet:
        return nullcontext(lambda _: None)
    rich = optional("rich.progress")
    return _Bar(rich, total) if rich is not None else nullcontext(_Lines(total))


class _Lines:
    """A line for each task, where rich is not installed."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0

    def __call__(self, label: str) -> None:
        self.done += 1
        print(f"[{self.done}/{self.total}] {label}", flush=True)


class _Bar:
    """A rich progress bar."""

    def __init__(self, rich: Any, total: int) -> None:
        columns = (*rich.Progress.get_default_columns(), rich.TimeElapsedColumn())
        self.progress = rich.Progress(*columns)
        self.task = self.progress.add_task("compiling", total=total)

    def __enter__(self) -> Callable[[str], None]:
        self.progress.start()
        return lambda label: self.progress.update(self.task, advance=1, description=f"{label:40}")

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()
