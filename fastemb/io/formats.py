"""Which format a file has."""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from .files import HEAD, reading, without_compression

FORMATS = ("word2vec", "word2vec-binary", "glove", "fasttext", "npy", "safetensors")
ARRAYS = ("npy", "safetensors")

_BY_SUFFIX = {".npy": "npy", ".safetensors": "safetensors", ".bin": "word2vec-binary"}
_BY_SUFFIX_TO_SAVE = {**_BY_SUFFIX, ".vec": "fasttext", ".txt": "word2vec"}
_HEADER = re.compile(rb"(?:\xef\xbb\xbf)?(\d{1,15})[ \t]+(\d{1,9})\s*")
_SAFETENSORS = re.compile(rb".{5}\0\0\0\{", re.DOTALL)  # the length of the JSON text, and the text

_FOREIGN = {
    b"\x80": "a pickle, as gensim's save() writes it; load it with gensim and call its save_word2vec_format()",
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"\xba\x16\x4f\x2f": "a fastText model; load its .vec file",
}


def parse_header(path: Path, line: bytes) -> tuple[int, int]:
    """N and D of the first line of a word2vec file; ValueError where it is not two numbers."""
    match = _HEADER.fullmatch(line)
    if match is None:
        msg = f"{path}, line 1: expected a header of two integers, N and D, found {line[:HEAD]!r}"
        raise ValueError(msg)
    count, width = int(match[1]), int(match[2])
    if width == 0:
        msg = f"{path}, line 1: the width must be at least 1, got 0"
        raise ValueError(msg)
    return count, width


def of_file(path: Path, asked: str | None) -> str:
    """The format asked for, or what suffix and first bytes tell; ValueError for what is none."""
    with reading(path) as source:
        head = source.file.read(HEAD).removeprefix(codecs.BOM_UTF8)
    if not head:
        msg = f"{path}: the file is empty"
        raise ValueError(msg)
    kind = asked or _guess(path, head)
    if kind in ARRAYS:
        if source.compressed:
            msg = f"{path}: format {kind!r} is not read compressed; unpack it first"
            raise ValueError(msg)
        return kind
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            msg = f"{path} is {what}"
            raise ValueError(msg)
    return kind


def _guess(path: Path, head: bytes) -> str:
    kind = _BY_SUFFIX.get(Path(without_compression(path)[0]).suffix)
    if head.startswith(b"\x93NUMPY"):
        return "npy"
    if _SAFETENSORS.match(head):
        return "safetensors"
    return kind or ("word2vec" if _HEADER.fullmatch(head.partition(b"\n")[0]) else "glove")


def to_save(path: Path, asked: str | None) -> tuple[str, str | None]:
    """The format asked for, or what the suffix tells, and the compression."""
    name, compression = without_compression(path)
    kind = asked or _BY_SUFFIX_TO_SAVE.get(Path(name).suffix)
    if kind is None:
        msg = f"format must be given for {path}: its suffix is none of {', '.join(_BY_SUFFIX_TO_SAVE)}"
        raise ValueError(msg)
    if compression and kind in ARRAYS:
        msg = f"format {kind!r} is not written compressed, got {path}"
        raise ValueError(msg)
    return kind, compression
