"""What the exact mode of an optimizer needs: how far each row is, what the steps were, and how to make up for them."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._arrays import BLOCK, as_array
from ._devices import HOST, backend, device_of, namespace, reference, to_device, unchecked
from .kernels import SERIES_TERMS as TERMS

GREATEST = 1e100
"""Where `Missed.growth` is scaled back to 1."""


class Missed:
    """Up to which step each row is, and the steps since all of them were up to date.

    Steps are counted from then: `last` is (N,), `rates` and `growth` have an entry for each step and one before them.
    """

    def __init__(self, num_rows: int, like: NDArray[Any]) -> None:
        self.last = namespace(like).zeros(num_rows, np.int64)
        self.restart()

    def restart(self) -> None:
        """Forget the steps: every row is up to date."""
        self.last[:] = 0
        self._log, self._size = np.empty((2, 16)), 1
        self._log[:, 0] = 0.0, 1.0

    @property
    def now(self) -> int:
        """Steps since all rows were up to date."""
        return self._size - 1

    @property
    def rates(self) -> NDArray[np.float64]:
        """Of each step the learning rate times its `growth`."""
        return self._log[0, : self._size]

    @property
    def growth(self) -> NDArray[np.float64]:
        """Of each step the product of ``1 / (1 - lr * weight_decay)`` so far, times a constant."""
        return self._log[1, : self._size]

    def append(self, rate: float, decay: float) -> None:
        """Another step."""
        if self._size == self._log.shape[1]:
            self._log = np.concatenate((self._log, np.empty_like(self._log)), axis=1)
        growth = self.growth[-1] / decay
        self._log[:, self._size] = rate * growth, growth
        self._size += 1
        if growth > GREATEST:
            self._log[:, : self._size] /= growth

    def behind(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Those of the rows that missed steps."""
        chosen: NDArray[Any] = rows[self.last[rows] < self.now]
        return chosen

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """What has to be kept: `last`, and rates and growth, (2, steps + 1)."""
        return {"last": self.last, "history": self._log[:, : self._size]}

    def checked(self, saved: Mapping[str, Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The two arrays of a `state_dict`, or a ValueError."""
        last = to_device(as_array(saved["last"], "state 'last'"), device_of(self.last))
        history = to_device(as_array(saved["history"], "state 'history'"), HOST)
        if history.dtype != np.float64 or history.ndim != 2 or len(history) != 2 or history.shape[1] == 0:
            got = f"{history.shape} and {history.dtype}"
            msg = f"state 'history' must have shape (2, steps + 1) and dtype float64, got {got}"
            raise ValueError(msg)
        if not (np.isfinite(history).all() and (history[1] > 0).all()):
            msg = "state 'history' must be finite, and its second row positive"
            raise ValueError(msg)
        if last.shape != self.last.shape or last.dtype != np.int64:
            msg = f"state 'last' must have shape {self.last.shape} and dtype int64, got {last.shape} and {last.dtype}"
            raise ValueError(msg)
        if last.size and (last.min() < 0 or last.max() >= history.shape[1]):
            msg = f"state 'last' must be in [0, {history.shape[1]}), got values in [{last.min()}, {last.max()}]"
            raise ValueError(msg)
        return last, history

    def take(self, last: NDArray[Any], history: NDArray[Any]) -> None:
        """Continue from there."""
        self.last[:] = last
        self._log, self._size = history.copy(), history.shape[1]


class Series(NamedTuple):
    """How the steps that a row missed add up; see `fastemb.kernels.cpu.adam_missed`."""

    terms: NDArray[np.float64]
    groups: NDArray[np.int64]
    centres: NDArray[np.float64]


@functools.lru_cache(maxsize=32)
def series(fading: float, slowing: float, dtype: np.dtype[Any], longest: int) -> Series:
    """Terms for ``sum over j of fading**j * f(slowing**j)`` with ``f(x) = 1 / (root * x + eps)``.

    Around a centre c, with ``x = c * (1 + y)``, ``d = 1 / (root * c + eps)`` and ``h = root * c * d``, which is at most
    1, f is ``d / (1 + h * y) = d * sum over p of (-y)**p * h**p``. Groups are so short that the rest of the series is
    below the dtype's eps. So is what is left after the last step, as a share of the whole at a constant rate; and no
    step is further away than the dtype can tell the movement from 0.
    """
    limits = np.finfo(dtype)
    precision, count = float(limits.eps), 0
    if fading > 0:
        ends = math.log(precision / 4) / math.log(fading / slowing), math.log(limits.tiny) / math.log(fading)
        count = min(longest, math.ceil(ends[0]), int(ends[1]))
    width = precision ** (1 / TERMS)
    together = 1 + int(math.log((1 - width) / (1 + width)) / math.log(slowing)) if 0 < slowing < 1 else max(count, 1)
    groups = np.append(np.arange(0, count, together), count)
    steps = np.arange(1, count + 1)
    x = slowing**steps
    centres = (x[groups[:-1]] + x[groups[1:] - 1]) / 2
    y = x / np.repeat(centres, np.diff(groups)) - 1
    return Series(fading ** steps[:, np.newaxis] * (-y[:, np.newaxis]) ** np.arange(TERMS), groups, centres)


class Replay(NamedTuple):
    """How a rule moves rows by itself.

    `kernel` makes up for missed steps given the numbers `hyper`. The movement fades by `fading` a step, while what it
    is divided by fades by `slowing`; a step's rate is `boost` times the rule's.
    """

    kernel: str
    fading: float
    slowing: float
    hyper: tuple[float, ...]
    boost: float = 1.0

    def move(self, table: NDArray[Any], state: tuple[NDArray[Any], ...], missed: Missed, rows: NDArray[Any]) -> None:
        """Bring distinct rows up to date."""
        if not rows.size or not missed.now:
            return
        longest = 1 << missed.now.bit_length()  # so that few different ones are made while steps are counted
        terms = series(self.fading, self.slowing, state[0].dtype, longest)
        where = device_of(table)
        steps = [to_device(array, where) for array in (missed.rates, missed.growth, *terms)]
        kernels = backend(table)
        kernel = getattr(kernels, self.kernel)
        block = BLOCK // 8 if kernels is reference() else rows.size  # the reference makes float64 copies of the rows
        with unchecked(table):
            for start in range(0, rows.size, block):
                kernel(table, state, missed.last, rows[start : start + block], *steps, self.hyper)
