"""A 64-bit hash of ids, the same in every process and on every platform."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arrays import as_array, as_indices
from .._devices import device_of, is_array, require_host, to_device

GOLDEN = 0x9E3779B97F4A7C15
_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))


def mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser, in place: one to one, and each bit of the result depends on all."""
    for shift, factor in _ROUNDS:
        bits ^= bits >> shift
        bits *= factor  # modulo 2**64
    bits ^= bits >> np.uint64(31)
    return bits


def keys_of(ids: Any, like: NDArray[Any]) -> NDArray[np.uint64]:
    """The 64 bits of each id, a new array on the device of `like`. Text is on the host, and so is its digest made."""
    require_host(ids, "ids", like, "weight")
    # Python's own objects as they are: a NumPy array of text drops NULs at the end.
    leaves = None if is_array(ids) or hasattr(ids, "__array__") else np.array(ids, dtype=object)
    given = as_array(ids, "ids") if leaves is None else leaves
    if given.dtype.kind in "OSTU":
        words = given.reshape(-1).tolist()
        others = {type(word).__name__ for word in words if not isinstance(word, (str, bytes))}
        if not others:
            return to_device(_digests(words).reshape(given.shape), device_of(like))
        if any(isinstance(word, (str, bytes)) for word in words):
            msg = f"ids must be all integers or all text, got text and {', '.join(sorted(others))}"
            raise TypeError(msg)
    numbers = as_indices(given if leaves is None else ids, "ids", like=like)
    if numbers.dtype.kind == "O":  # Python integers that no one dtype of NumPy holds
        for number in numbers.flat:
            if not -(2**63) <= number < 2**64:
                msg = f"ids must fit into 64 bits, got {number}"
                raise ValueError(msg)
        keys = np.array([int(n) % 2**64 for n in numbers.flat], np.uint64).reshape(numbers.shape)
        return to_device(keys, device_of(like))
    return numbers.astype(np.uint64)  # extends the sign


def _digests(words: list[str | bytes]) -> NDArray[np.uint64]:
    """A 64-bit digest of each word, computed once for equal ones."""
    coded = [word.encode("utf-8", "surrogatepass") if isinstance(word, str) else word for word in words]
    digest = {w: int.from_bytes(hashlib.blake2b(w, digest_size=8).digest(), "little") for w in set(coded)}
    return np.fromiter((digest[word] for word in coded), np.uint64, len(coded))


def ones(_rng: np.random.Generator, shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An initialiser."""
    return np.ones(shape, dtype)
