"""Angles of positions, exact however large the position."""

from __future__ import annotations

import decimal
import functools
import math
from typing import SupportsFloat

import numpy as np
from numpy.typing import NDArray

from .. import _options
from .._arrays import TensorLike, as_indices
from .._devices import device_of, to_device

_PI = decimal.Decimal("3.1415926535897932384626433832795028841971693993751")
_TURN = 1 << 64
"""Parts of a turn that are counted in whole numbers: 64 bits, which forget whole turns by themselves."""


@functools.lru_cache(maxsize=64)
def _turns(count: int, width: int, base: float) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    """``base**(-2*i/D) / (2*pi)`` for i below `count`: in units of ``2**-64``, and what is left of each."""
    with decimal.localcontext(prec=50):
        step = -2 * decimal.Decimal(base).ln() / width
        scale = decimal.Decimal(_TURN) / (2 * _PI)
        exact = [scale * (step * i).exp() for i in range(count)]
        whole = [int(x) for x in exact]
        rest = [float(x - w) for x, w in zip(exact, whole, strict=True)]
    return np.array(whole, np.uint64), np.array(rest) / _TURN


def angles(positions: TensorLike, count: int, width: int, base: float) -> NDArray[np.float64]:
    """``positions * base**(-2*i/D)`` for i below `count`, less whole turns: (*positions.shape, count).

    Where the positions lie. From minus half a turn to half of one. Whole numbers count the turns, so that the error is
    that of a few roundings of such an angle, however large the position.
    """
    places = as_indices(positions, "positions")[..., np.newaxis]
    if places.dtype.kind not in "iu":  # Python's integers
        msg = "positions must fit into 64 bits"
        raise ValueError(msg)
    whole, rest = _turns(count, width, base)
    where = device_of(places)
    fine = (places.astype(np.uint64) * to_device(whole, where)).view(np.int64)  # negative ones wrap to the same turn
    turns = fine / float(_TURN) + places * to_device(rest, where)
    angle: NDArray[np.float64] = 2 * math.pi * turns
    return angle


def above_one(base: SupportsFloat) -> float:
    """The base of the frequencies, checked."""
    return _options.real("base", base, above=1.0)
