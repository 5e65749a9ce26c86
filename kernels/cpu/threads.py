"""When a kernel goes parallel, into how many chunks, and what a forked child may do."""

import contextlib
import os
import threading
from typing import Any

import numba
import numpy as np

SERIAL_BELOW = 1 << 19
"""Bytes below which a kernel stays in the caller's thread.

Waking two threads costs 8 microseconds (GNU OpenMP, Xeon, 2.6 GHz). A gather of rows of 256 bytes out of 12.8 MB takes
as long in one thread as in two at 400 KB of output; an optimizer step of rows in the caches, at 800 KB moved.
"""

_lock = threading.Lock()
_FREE: contextlib.nullcontext[None] = contextlib.nullcontext()
_forked = False


def _after_fork_in_child():
    # Worker threads do not survive a fork, and GNU OpenMP kills a child that asks for them again. A child of a process
    # that had started them therefore works in its own thread for good; the bits are the same.
    global _lock, _forked
    _lock = threading.Lock()
    try:
        numba.threading_layer()
    except ValueError:  # never started, so the child may start its own
        return
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def chunks(nbytes):
    """How many threads a kernel that moves `nbytes` is worth: 1 means the range form in the caller's thread.

    Honours ``numba.set_num_threads`` and ``NUMBA_NUM_THREADS``.
    """
    if nbytes < SERIAL_BELOW or _forked:
        return 1
    return min(numba.get_num_threads(), nbytes // (SERIAL_BELOW // 2))


def split(total, parts):
    """Boundaries that cut ``range(total)`` into `parts` nearly equal ranges: (parts + 1,) int64."""
    return np.array([total * part // parts for part in range(parts + 1)], np.int64)


@contextlib.contextmanager
def serial_below(nbytes):
    """Use another `SERIAL_BELOW` inside a ``with`` block: for tests and for compiling ahead, not while kernels run."""
    global SERIAL_BELOW
    before, SERIAL_BELOW = SERIAL_BELOW, nbytes
    try:
        yield
    finally:
        SERIAL_BELOW = before


def region() -> contextlib.AbstractContextManager[Any]:
    """Hold this while a ``prange`` kernel runs.

    Numba's workqueue layer ends the process when two Python threads are in parallel code at once, so there they take
    turns; the other layers need no lock. `chunks` has started the layer by then.
    """
    return _lock if numba.threading_layer() == "workqueue" else _FREE
