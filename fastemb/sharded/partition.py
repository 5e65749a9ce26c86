"""Which rank owns which row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PARTITIONS = ("range", "hash", "replicate-hot")

_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


class Partition:
    """Rows in the order in which ranks own them: each id has a place, and each rank a range of places.

    Parameters
    ----------
    kind : {"range", "hash", "replicate-hot"}
        "range": places are ids. "hash": ids are permuted. "replicate-hot": likewise, and the places of the hot rows,
        which every rank has, come last.
    num_rows : int
        N.
    size : int
        Number of ranks.
    hot : (H,) ndarray of int64
        Distinct ids of the hot rows.

    Attributes
    ----------
    cold : int
        N - H, the rows that one rank alone owns.
    bounds : (size + 1,) ndarray of int64
        The places of rank r are ``bounds[r]`` to ``bounds[r + 1]``.

    Notes
    -----
    Places do not depend on the number of ranks. The permutation is one of b bits, where ``2**b`` is the least power of
    two that holds N, applied again to what it takes out of ``[0, N)``: multiplications by odd numbers and
    ``x ^= x >> b / 2``, each of which can be undone.
    """

    def __init__(self, kind: str, num_rows: int, size: int, hot: NDArray[np.int64]) -> None:
        self.kind, self.num_rows = kind, num_rows
        self._bits = max(1, (num_rows - 1).bit_length())
        self._hot = np.sort(self._permuted(hot))
        self.cold = num_rows - hot.size
        self.bounds = np.array([r * self.cold // size for r in range(size + 1)], np.int64)

    def places(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """The places of ids, which are in range."""
        permuted = self._permuted(ids)
        if not self._hot.size:
            return permuted
        below = np.searchsorted(self._hot, permuted)
        hot = self._hot[np.minimum(below, self._hot.size - 1)] == permuted
        places: NDArray[np.int64] = np.where(hot, self.cold + below, permuted - below)
        return places

    def permuted_of(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """What `places` are without hot rows: ids as they are permuted, in ascending order among cold rows."""
        if not self._hot.size:
            return places
        gaps = self._hot - np.arange(self._hot.size)
        cold = places + np.searchsorted(gaps, places, side="right")
        hot = self._hot[np.clip(places - self.cold, 0, None)]
        permuted: NDArray[np.int64] = np.where(places < self.cold, cold, hot)
        return permuted

    def ids(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ids at places."""
        permuted = self.permuted_of(places)
        return permuted if self.kind == "range" else self._walk(permuted, self._undo)

    def counts(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many of some ascending places of cold rows each rank owns."""
        counts: NDArray[np.int64] = np.diff(np.searchsorted(places, self.bounds))
        return counts

    def _permuted(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        return ids.astype(np.int64) if self.kind == "range" else self._walk(ids, self._mix)

    def _walk(self, numbers: NDArray[Any], step: Any) -> NDArray[np.int64]:
        """A permutation of b bits made one of ``[0, N)``: numbers that leave it go on until they come back."""
        walked = step(numbers.astype(np.uint64).reshape(-1))
        outside = np.flatnonzero(walked >= self.num_rows)
        while outside.size:
            walked[outside] = step(walked[outside])
            outside = outside[walked[outside] >= self.num_rows]
        permuted: NDArray[np.int64] = walked.astype(np.int64).reshape(numbers.shape)
        return permuted

    def _mix(self, bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
        bits ^= bits >> self._shift
        for factor in _FACTORS:
            bits *= factor  # modulo 2**64, and with the mask modulo 2**b
            bits &= self._mask
            bits ^= bits >> self._shift
        return bits

    def _undo(self, bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
        bits ^= bits >> self._shift  # undoes itself: the shift is half of the bits or more
        for factor in reversed(_FACTORS):
            bits *= pow(factor, -1, 1 << 64)
            bits &= self._mask
            bits ^= bits >> self._shift
        return bits

    @property
    def _shift(self) -> int:
        return (self._bits + 1) // 2

    @property
    def _mask(self) -> int:
        return (1 << self._bits) - 1
