"""Text: a word and its D values on each line, after a header "N D" (word2vec, fastText) or without one (GloVe).

A line is split at single spaces from the right, so a word may have spaces. One whose end looks like another value may
not: a line with too many values could not be told from it.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .files import Source, count_lines
from .formats import parse_header
from .rows import Rows, Wanted, Words

_BLANK = b" \t\r\n"
_LAST_PIECE = re.compile(rb"\s(\S+)\s*\Z")


def read(source: Source, wanted: Wanted, *, header: bool) -> tuple[Words, NDArray[Any]]:
    """The words and the table of a file."""
    words = Words(source.path, "line", wanted)
    mark = len(codecs.BOM_UTF8) if (line := source.file.readline()).startswith(codecs.BOM_UTF8) else 0
    first = line[mark:]
    lines: Iterable[bytes] = source.file
    count, number, offset = None, 2, len(line)
    if header:
        count, width = parse_header(source.path, first)
    else:
        lines, number, offset = itertools.chain([first], lines), 1, mark
        width = len(_values(first))
        if width == 0:
            raise words.error(1, "expected a word and its values, found none")
    if header or wanted.vocab is not None:
        rows = Rows(words, width, count, source.room(2 * width))
    else:  # to count lines takes a tenth of the time, and a table that grows is there twice while it does
        promised = count_lines(source.path, wanted.limit)
        rows = Rows(words, width, promised, promised)
    seen, blank = 0, 0
    if wanted.limit == 0 or words.complete:
        return words, rows.finish()
    for at, line in enumerate(lines, number):
        if line.isspace():  # well at the end of the file
            blank = blank or at
        elif seen == count:
            raise words.error(at, f"the header says {count} rows, and here is one more")
        else:
            if blank:
                raise words.error(blank, f"expected {width} values, found 0")
            word, values = _cut(words, at, line, width)
            row = words.place(word, at, offset)
            if row >= 0:
                rows.put(row, _parse(words, at, line, values, rows.weight.dtype), at)
            seen += 1
            if seen == wanted.limit or words.complete:
                return words, rows.finish()
        offset += len(line)
    if count is not None and seen < count:
        msg = f"{source.path}: truncated: the header says {count} rows, there are {seen}"
        raise ValueError(msg)
    return words, rows.finish()


def _cut(words: Words, number: int, line: bytes, width: int) -> tuple[bytes, bytes]:
    """The word of a line, and what has to be its values, with single spaces between them."""
    line = line.rstrip(_BLANK)
    if line.count(b" ") == width:  # as nearly all are
        word, _, values = line.partition(b" ")
        if _is_number(values[: values.find(b" ")] if width > 1 else values) and not _ends_in_number(word):
            return word, values
    for separator in (b" ", None):  # None: tabs, or several spaces
        word, *fields = line.rsplit(separator, width)
        if len(fields) == width and _is_number(fields[0]) and not _ends_in_number(word):
            return word, b" ".join(fields)
    raise _misfit(words, number, line, width)


def _parse(words: Words, number: int, line: bytes, values: bytes, dtype: np.dtype[Any]) -> NDArray[Any]:
    fields = values.split(b" ")
    try:
        row = np.fromiter(map(float, fields), np.float64, len(fields))
    except ValueError:
        raise _misfit(words, number, line, len(fields)) from None
    if b"_" in values:
        raise _misfit(words, number, line, len(fields))
    return row if dtype == np.float64 else _rounded(row, fields, dtype)


def _rounded(values: NDArray[Any], fields: list[bytes], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Texts as `dtype`, correctly rounded: where float64 is halfway between two values, the text decides."""
    near = values.astype(dtype)
    one = near.astype(np.float64)
    other = values + (values - one)  # as far away, on the other side
    halfway = (other != one) & (other.astype(dtype) == other) & np.isfinite(other)
    for i in np.flatnonzero(halfway):
        text, value = Decimal(fields[i].decode()), Decimal(values[i])
        if text != value:
            near[i] = max(one[i], other[i]) if text > value else min(one[i], other[i])
    return near


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field  # float() takes 1_000


def _ends_in_number(word: bytes) -> bool:
    match = _LAST_PIECE.search(word)
    return match is not None and _is_number(match[1])


def _values(line: bytes) -> list[bytes]:
    """The numbers at the end of a line, after its first piece."""
    pieces = line.rstrip(_BLANK).replace(b"\t", b" ").split(b" ")[1:]
    values = list(itertools.takewhile(_is_number, (piece for piece in reversed(pieces) if piece)))
    return values[::-1]


def _misfit(words: Words, number: int, line: bytes, width: int) -> ValueError:
    found = len(_values(line))
    text = f"expected {width} values, found {found}"
    pieces = line.split()
    if found < width < len(pieces):
        text += f" after {pieces[-1 - found].decode(errors='replace')!r}"
    return words.error(number, text)


def check(words: Sequence[str], *, empty: bool) -> None:
    """ValueError for words that would not be read back."""
    if words and words[0].startswith("\ufeff"):
        msg = f"the first word must not begin with a byte order mark, got {words[0]!r}"
        raise ValueError(msg)
    for word in words:
        if not word and not empty:
            msg = "words must not be empty in this format, got ''"
            raise ValueError(msg)
        if _ends_in_number(word.encode()):
            msg = f"words must not end in what looks like a value, got {word!r}: a text format cannot tell it from one"
            raise ValueError(msg)


def encode(block: NDArray[Any], words: Sequence[str]) -> bytes:
    """Lines with the fewest digits that read back as the same values, half-width ones as float32."""
    wide = block.astype(np.float64 if block.dtype.itemsize == 8 else np.float32)
    with np.printoptions(legacy=False):  # older forms round
        digits = wide.astype("S32").tolist()
    return b"".join(b"%b %b\n" % (word.encode(), b" ".join(row)) for word, row in zip(words, digits, strict=True))
