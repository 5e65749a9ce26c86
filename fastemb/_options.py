"""What a number given as an option may be."""

from __future__ import annotations

import math
import operator
from typing import SupportsFloat, SupportsIndex

import numpy as np

LARGEST = 2**63 - 1
"""Of a number of rows or steps: what fits into a 64-bit index."""


def integer(name: str, value: SupportsIndex, *, at_least: int, at_most: int = LARGEST) -> int:
    """An int within limits; TypeError for what is not an integer, ValueError outside."""
    if isinstance(value, (bool, np.bool)):
        msg = f"{name} must be an integer, got {value!r}"
        raise TypeError(msg)
    try:
        number = operator.index(value)
    except TypeError:
        msg = f"{name} must be an integer, got {value!r}"
        raise TypeError(msg) from None
    if number < at_least:
        msg = f"{name} must be >= {at_least}, got {number}"
        raise ValueError(msg)
    if number > at_most:
        msg = f"{name} must be <= {at_most}, got {number}"
        raise ValueError(msg)
    return number


def size(name: str, value: SupportsIndex) -> int:
    """Rows or columns of a layer's table: an int from 1 to 2**31 - 1."""
    return integer(name, value, at_least=1, at_most=2**31 - 1)


def real(
    name: str,
    value: SupportsFloat,
    *,
    at_least: float = 0.0,
    above: float | None = None,
    below: float | None = None,
    infinite: bool = False,
) -> float:
    """A float within limits; TypeError for what is not a number, ValueError outside, for NaN, and for unasked inf."""
    if type(value) is float and above is None and below is None and at_least <= value < math.inf:
        return value  # every step asks for its rate
    if isinstance(value, (str, bytes, bool, np.bool, np.complexfloating)) or np.ndim(value) != 0:  # type: ignore[arg-type]
        msg = f"{name} must be a real number, got {value!r}"
        raise TypeError(msg)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        msg = f"{name} must be a real number, got {value!r}"
        raise TypeError(msg) from None
    if math.isinf(number) and not infinite:
        msg = f"{name} must be finite, got {value}"
        raise ValueError(msg)
    if above is not None and not number > above:
        msg = f"{name} must be > {above:g}, got {value}"
        raise ValueError(msg)
    if above is None and not number >= at_least:
        msg = f"{name} must be >= {at_least:g}, got {value}"
        raise ValueError(msg)
    if below is not None and not number < below:
        msg = f"{name} must be < {below:g}, got {value}"
        raise ValueError(msg)
    return number


def choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """ValueError for anything but one of the strings allowed."""
    if not isinstance(value, str) or value not in allowed:
        msg = f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}"
        raise ValueError(msg)


def padding(padding_idx: SupportsIndex | None, num_rows: int) -> int | None:
    """`padding_idx` in ``[0, N)``, negatives counted from the end, or None."""
    if padding_idx is None:
        return None
    number = integer("padding_idx", padding_idx, at_least=-(2**63))
    if not -num_rows <= number < num_rows:
        msg = f"padding_idx must be in [-{num_rows}, {num_rows}), got {number}"
        raise ValueError(msg)
    return number % num_rows
