"""Word2vec's binary form: the header "N D" as text, then for each row the word, a space, D little-endian float32.

Some programs write a newline after each row, as the original does, and some do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .files import BLOCK, Source
from .formats import parse_header
from .rows import Rows, Wanted, Words

LONGEST_WORD = 1 << 16


def read(source: Source, wanted: Wanted) -> tuple[Words, NDArray[Any]]:
    """The words and the table of a file."""
    path = source.path
    first = source.file.readline(BLOCK)
    count, width = parse_header(path, first)
    words, window = Words(path, "row", wanted), _Window(source.file, len(first))
    rows = Rows(words, width, count, source.room(4 * width))
    for number in range(1, min(count, wanted.limit) + 1):
        if words.complete:
            return words, rows.finish()
        raw = window.word()
        at = -1 if raw is None else window.take(4 * width)
        if raw is None or at < 0:
            if raw is None and window.left() > LONGEST_WORD:
                raise words.error(number, f"no space in {LONGEST_WORD} bytes; this is not word2vec's binary form")
            msg = f"{path}: truncated: the header says {count} rows, the file ends in row {number}"
            raise ValueError(msg)
        word = raw.removeprefix(b"\n")
        row = words.place(word, number, window.offset + at - len(word) - 1)
        if row >= 0:
            rows.put(row, np.frombuffer(window.data, "<f4", width, at), number)
    if count < wanted.limit and not words.complete and not window.is_at_end():
        msg = f"{path}: the header says {count} rows, and the file goes on after them"
        raise ValueError(msg)
    return words, rows.finish()


class _Window:
    """The part of a file that is being looked at: ``data[at:]``, of which the first byte is at ``offset + at``."""

    def __init__(self, file: IO[bytes], offset: int) -> None:
        self.file, self.offset = file, offset
        self.data, self.at = b"", 0

    def left(self) -> int:
        """Bytes read and not taken."""
        return len(self.data) - self.at

    def _more(self) -> bool:
        more = self.file.read(BLOCK)
        self.offset += self.at
        self.data, self.at = self.data[self.at :] + more, 0
        return bool(more)

    def word(self) -> bytes | None:
        """What comes before the next space, or None if there is none."""
        while (end := self.data.find(b" ", self.at)) < 0:
            if self.left() > LONGEST_WORD or not self._more():
                return None
        word, self.at = self.data[self.at : end], end + 1
        return word

    def take(self, count: int) -> int:
        """Where the next `count` bytes are in `data`, or -1 if there are fewer."""
        while self.left() < count:
            if not self._more():
                return -1
        self.at += count
        return self.at - count

    def is_at_end(self) -> bool:
        """Whether nothing follows but line ends."""
        while not self.data[self.at :].strip(b"\r\n"):
            self.at = len(self.data)
            if not self._more():
                return True
        return False


def check(words: Sequence[str]) -> None:
    """ValueError for words that would not be read back."""
    for word in words:
        if not word or " " in word:
            msg = f"words must be without spaces and not empty in this format, got {word!r}"
            raise ValueError(msg)


def encode(block: NDArray[Any], words: Sequence[str]) -> bytes:
    """Rows, each with the newline that the original program writes."""
    rows = block.astype("<f4")
    return b"".join(b"%b %b\n" % (word.encode(), row.tobytes()) for word, row in zip(words, rows, strict=True))
