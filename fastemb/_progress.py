"""Progress of long work, on standard error."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator

from ._compat import optional


@contextlib.contextmanager
def progress_bar(
    label: str, total: int, wanted: bool | None = None, *, of_bytes: bool = False
) -> Iterator[Callable[[int], object]]:
    """A bar that is told of work done; None: on a terminal, if rich is there. ImportError if it is wanted but not."""
    shown = sys.stderr is not None and sys.stderr.isatty() if wanted is None else wanted
    rich = optional("rich.progress") if shown else None
    if rich is None:
        if wanted:
            msg = "progress=True needs the package rich: pip install fastemb[io]"
            raise ImportError(msg)
        yield lambda _: None
        return
    amount = rich.DownloadColumn() if of_bytes else rich.MofNCompleteColumn()
    columns = rich.TextColumn("{task.description}", markup=False), rich.BarColumn(), amount
    console = importlib.import_module("rich.console").Console(stderr=True)
    with rich.Progress(*columns, rich.TimeRemainingColumn(), console=console) as bar:
        yield functools.partial(bar.advance, bar.add_task(label, total=total))
