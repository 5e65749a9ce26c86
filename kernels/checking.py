"""When the kernels for CUDA say that an index is bad. Apart from them, so that asking for it imports nothing."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

MODES = ("now", "later", "off")

MOST_PENDING = 64
"""Answers that are kept before the older half is looked at: each keeps its indices alive."""


class BadIndex(NamedTuple):
    """What a call with an index out of range was given, and the first position of one, at that time."""

    indices: Any
    num_rows: int
    position: int


class Answers:
    """What calls in mode "later" have found, as far as somebody has looked.

    A question is a function that looks at the device, for a position or -1, with the indices and N that it is about.
    """

    def __init__(self, when: str) -> None:
        self.when = when
        self._pending: list[tuple[Callable[[], int], Any, int]] = []
        self._first: BadIndex | None = None

    def add(self, find: Callable[[], int], indices: Any, num_rows: int) -> None:
        """Another question, to be looked at later: when there are many, the older ones are."""
        if self._first is None:
            self._pending.append((find, indices, num_rows))
            if len(self._pending) > MOST_PENDING:
                self._look(MOST_PENDING // 2)

    def first_bad(self) -> BadIndex | None:
        """The first call with a bad index, or None; waits for the device."""
        self._look(len(self._pending))
        return self._first

    def _look(self, count: int) -> None:
        looked_at, self._pending = self._pending[:count], self._pending[count:]
        for find, indices, num_rows in looked_at:
            position = -1 if self._first is not None else find()
            if position >= 0:
                self._first, self._pending = BadIndex(indices, num_rows, position), []


_AT_ONCE = Answers("now")
_current: contextvars.ContextVar[Answers] = contextvars.ContextVar("fastemb_check", default=_AT_ONCE)


def current() -> Answers:
    """The mode that holds here."""
    return _current.get()


@contextlib.contextmanager
def mode(when: str) -> Iterator[Answers]:
    """When a bad index is reported, meanwhile: "now" by the call, "later" by what this gives, "off" never.

    "now" waits for the device in every call. In "later" a kernel finds on the device that it may not write, and the
    host goes on; in "off" a bad index is undefined behaviour.
    """
    if when not in MODES:
        msg = f"check must be one of {', '.join(map(repr, MODES))}, got {when!r}"
        raise ValueError(msg)
    answers = Answers(when)
    token = _current.set(answers)
    try:
        yield answers
    finally:
        _current.reset(token)


def waiting() -> contextlib.AbstractContextManager[Any]:
    """For a call that waits for the device in any case: a bad index is reported by it, unless the mode is "off"."""
    return mode("now") if current().when == "later" else contextlib.nullcontext()


def unchecked() -> contextlib.AbstractContextManager[Any]:
    """For indices that are known to be right."""
    return mode("off")
