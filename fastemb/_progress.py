"""Progress of long work, on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ._compat import optional


@contextlib.contextmanager
def progress_bar(label: str, total: int, wanted: bool | None = None) -> Iterator[Callable[[int], None]]:
    """A bar, advanced by the function that this gives; None shows it in a terminal where rich is installed."""
    rich: Any = optional("rich.progress") if wanted or (wanted is None and sys.stderr.isatty()) else None
    if rich is None:
        yield lambda _: None
        return
    console = optional("rich.console").Console(stderr=True)  # type: ignore[union-attr]
    with rich.Progress(console=console) as progress:
        task = progress.add_task(label, total=total)
        yield lambda number: progress.update(task, advance=number)
