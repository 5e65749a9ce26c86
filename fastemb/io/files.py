"""Files: read with a progress bar and decompressed; written beside the old one, then moved in its place."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from .._compat import optional
from .._progress import progress_bar
from .atomic import replacing

BLOCK = 1 << 16
"""Bytes read or written at a time."""

HEAD = 128
"""Bytes that tell what a file is: more than any header of word2vec."""

_COMPRESSIONS = {
    "gzip": (".gz", re.compile(rb"\x1f\x8b")),
    "bz2": (".bz2", re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)")),
    "lzma": (".xz", re.compile(rb"\xfd7zXZ\0")),
}


class Source(NamedTuple):
    """A file open for reading."""

    path: Path
    file: IO[bytes]
    """Decompressed."""
    size: int
    """Of the file itself."""
    compressed: bool

    def room(self, row_bytes: int) -> int:
        """Rows of at least so many bytes that the file can hold; a low guess where it is compressed."""
        return self.size // row_bytes


class _Counted(io.FileIO):
    """A file that tells how much of it has been read."""

    def __init__(self, path: Path, advance: Callable[[int], object]) -> None:
        super().__init__(path)
        self._advance = advance

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer) or 0
        self._advance(count)
        return count


@contextlib.contextmanager
def reading(path: Path, progress: bool | None = False) -> Iterator[Source]:
    """The file, decompressed if its first bytes are those of gzip, bz2 or xz; ValueError where that fails."""
    size = path.stat().st_size
    with contextlib.ExitStack() as stack:
        advance = stack.enter_context(progress_bar(path.name, size, progress, of_bytes=True))
        raw = stack.enter_context(_Counted(path, advance))
        file = stack.enter_context(io.BufferedReader(raw, BLOCK))
        head = file.read(HEAD)
        file.seek(0)
        kind = next((kind for kind, (_, magic) in _COMPRESSIONS.items() if magic.match(head)), None)
        if kind is None:
            yield Source(path, file, size, compressed=False)
            return
        unpacked = stack.enter_context(importlib.import_module(kind).open(file))
        try:
            yield Source(path, stack.enter_context(io.BufferedReader(unpacked, BLOCK)), size, compressed=True)
        except _damage() as error:
            if getattr(error, "errno", None) is not None:  # the disk, not the data
                raise
            msg = f"{path}: the compressed data are damaged: {error}"
            raise ValueError(msg) from error


def count_lines(path: Path, most: int) -> int:
    """Lines of a file, decompressed, up to `most`; a last one without an end counts."""
    lines, last = 0, b"\n"
    with reading(path) as source:
        while lines < most and (block := source.file.read(BLOCK)):
            lines, last = lines + block.count(b"\n"), block[-1:]
    return min(lines + (last != b"\n"), most)


def _damage() -> tuple[type[Exception], ...]:
    lzma = optional("lzma")  # some builds of Python have none
    return (EOFError, OSError, zlib.error, *([lzma.LZMAError] if lzma else []))


def without_compression(path: Path) -> tuple[str, str | None]:
    """The file's name in lower case, without .gz and its like, and the compression that this stands for."""
    name = path.name.lower()
    for kind, (suffix, _) in _COMPRESSIONS.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix), kind
    return name, None


@contextlib.contextmanager
def writing(path: Path, compression: str | None) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """A file to write, compressed if so asked, that takes the place of `path` if there was no error."""
    with replacing(path) as raw:
        if compression is None:
            yield raw
        elif compression == "gzip":  # neither the temporary name nor the time: the same data give the same file
            with gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
                yield file
        else:
            with importlib.import_module(compression).open(raw, "wb") as file:
                yield file
