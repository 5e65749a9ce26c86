"""Tokens as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_text(tokens: Any) -> NDArray[Any]:
    """An array of str or bytes, which keeps their trailing zero bytes."""
    if isinstance(tokens, np.ndarray):
        return tokens
    if isinstance(tokens, (str, bytes)) or not isinstance(tokens, Sequence):
        array = np.empty((), object)
        array[()] = tokens
        return array
    parts = [as_text(token) for token in tokens]
    if len({part.shape for part in parts}) > 1:
        msg = "tokens must have one length in each axis"
        raise ValueError(msg)
    return np.stack(parts) if parts else np.empty(0, object)


def joined(tokens: list[bytes]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Bytes of all tokens one after the other, where each begins, and its length."""
    lengths = np.array([len(token) for token in tokens], np.int64)
    return np.frombuffer(b"".join(tokens), np.uint8).astype(np.int64), np.cumsum(lengths) - lengths, lengths


def utf8(token: Any) -> bytes:
    """The bytes of str or bytes."""
    if isinstance(token, str):
        return token.encode(errors="surrogatepass")
    if isinstance(token, bytes):
        return token
    msg = f"tokens must be str or bytes, got {type(token).__name__}"
    raise TypeError(msg)
