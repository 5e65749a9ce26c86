"""Which rows of a file are kept, and the table they are put in."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .files import BLOCK


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What `load_vectors` was asked for, checked."""

    vocab: frozenset[str] | None
    limit: int
    dtype: np.dtype[Any] | None
    errors: str
    duplicates: str
    finite: bool


class Words:
    """The words kept so far, each with its row; `unit` is what errors count: lines or rows, from 1."""

    def __init__(self, path: Path, unit: str, wanted: Wanted) -> None:
        self.path, self.unit, self.wanted = path, unit, wanted
        self.rows: dict[str, int] = {}
        self.repeated = self.undecodable = 0

    def error(self, number: int, text: str) -> ValueError:
        """An error that says where in the file."""
        return ValueError(f"{self.path}, {self.unit} {number}: {text}")

    @property
    def complete(self) -> bool:
        """Whether nothing that follows in the file can matter."""
        vocab = self.wanted.vocab
        return vocab is not None and len(self.rows) == len(vocab) and self.wanted.duplicates == "first"

    def place(self, raw: bytes, number: int, offset: int) -> int:
        """The row that a word's vector goes to, or -1 if it is left out; `offset` is the word's in the file."""
        try:
            word = raw.decode()
        except UnicodeDecodeError as error:
            if self.wanted.errors == "strict":
                at = offset + error.start
                text = f"byte {raw[error.start]:#04x} at offset {at} is not UTF-8; errors= may be 'replace' or 'ignore'"
                raise self.error(number, text) from None
            word = raw.decode(errors=self.wanted.errors)
            self.undecodable += 1
        if self.wanted.vocab is not None and word not in self.wanted.vocab:
            return -1
        new = len(self.rows)
        row = self.rows.setdefault(word, new)
        if row == new:
            return row
        self.repeated += 1
        if self.wanted.duplicates == "error":
            raise self.error(number, f"the word {word!r} is there before")
        return row if self.wanted.duplicates == "last" else -1

    def require_finite(self, number: int, values: NDArray[Any]) -> None:
        """ValueError for NaN and infinity in a row, if that was asked for."""
        if self.wanted.finite and not (finite := np.isfinite(values)).all():
            at = int(np.argmin(finite))
            raise self.error(number, f"value {at + 1} of {values.size} is {float(values[at])}")

    def warnings(self) -> list[str]:
        """What the caller should be told."""
        found = []
        if self.undecodable:
            how = f"read with errors={self.wanted.errors!r}"
            found.append(f"{self.path}: words that are not UTF-8, {how}: {self.undecodable}")
        if self.repeated:
            how = f"of which the {self.wanted.duplicates} was kept"
            found.append(f"{self.path}: rows that repeat a word, {how}: {self.repeated}")
        return found


class Rows:
    """A table that grows where nobody can say beforehand how many rows there will be."""

    def __init__(self, words: Words, width: int, promised: int | None, room: int) -> None:
        wanted = words.wanted
        self.words = words
        known = 0 if promised is None or wanted.vocab is not None else min(promised, wanted.limit, room)
        self.weight: NDArray[Any] = np.empty((known, width), wanted.dtype or np.float32)
        self.least = 1 + BLOCK // (width * self.weight.itemsize)

    def put(self, row: int, values: NDArray[Any], number: int) -> None:
        """Write one row."""
        capacity, width = self.weight.shape
        if row >= capacity:  # in place where the system can move pages, so an eighth is enough
            self.weight.resize((capacity + max(capacity // 8, self.least), width), refcheck=False)
        self.weight[row] = values
        self.words.require_finite(number, self.weight[row])

    def finish(self) -> NDArray[Any]:
        """The table, without rows that are not used."""
        self.weight.resize((len(self.words.rows), self.weight.shape[1]), refcheck=False)
        return self.weight
