"""What `python -m fastemb warmup` does: run every kernel once for each kind of array that users have."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import functional, optim
from ._compat import optional

DTYPES = ("float32", "float64")
INDEX_DTYPES = ("int64", "int32")


def warmup(dtypes: Sequence[str] = DTYPES, index_dtypes: Sequence[str] = INDEX_DTYPES, *, quiet: bool = False) -> int:
    """Compile the kernels of all operations, in one thread and in several; returns how many calls that took."""
    from .kernels.cpu import threads

    tasks = [
        (f"{name} {dtype} {index_dtype}{' read-only' if read_only else ''}", call)
        for dtype, index_dtype, read_only in itertools.product(dtypes, index_dtypes, (False, True))
        for name, call in _calls(np.dtype(dtype), np.dtype(index_dtype), read_only)
    ]
    with _progress(len(tasks), quiet) as advance:
        for label, call in tasks:
            advance(label)
            call()
            with threads.serial_below(2):
                call()
    return 2 * len(tasks)


def _calls(
    dtype: np.dtype[Any], index_dtype: np.dtype[Any], read_only: bool
) -> Iterator[tuple[str, Callable[[], object]]]:
    # As many rows and indices as make two chunks, and enough to be sorted by digits.
    weight = np.zeros((128, 2), dtype)
    indices = np.arange(128, dtype=index_dtype)
    grad: NDArray[Any] = np.zeros((128, 2), dtype)
    source = np.zeros((128, 2), dtype)
    if read_only:
        for array in (source, indices, grad):
            array.flags.writeable = False
    yield "gather", lambda: functional.gather(source, indices)
    yield "scatter_add", lambda: functional.scatter_add(weight, indices, grad)
    for rule in (optim.SGD(), optim.Adam()):
        state = rule.init(weight)

        def step(rule: optim.Optimizer = rule, state: optim.State = state) -> None:
            rule.step(weight, state, indices, grad)

        yield type(rule).__name__, step
    if not read_only:
        yield "renorm_", lambda: functional.renorm_(weight, indices, 1.0)


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
