"""Write vectors in the formats that others read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _options
from .._arrays import as_table
from .._progress import progress_bar
from . import arrays, binary, formats, tensors, text
from .atomic import replacing
from .files import writing


def save_vectors(
    path: str | os.PathLike[str],
    weight: NDArray[Any],
    words: Iterable[str] | None = None,
    *,
    format: str | None = None,  # noqa: A002
    progress: bool | None = None,
) -> None:
    """Write a table, and the words of its rows, so that `load_vectors` reads back the same.

    Parameters
    ----------
    path : str or os.PathLike
        The file. Text and word2vec's binary form are compressed if its name ends in .gz, .bz2 or .xz.
    weight : (N, D) ndarray
        The table.
    words : iterable of str, optional
        N distinct words without newlines: None for "npy", as you like for "safetensors", else required. Not empty, but
        for "glove" and "safetensors"; without spaces for "word2vec-binary"; not ending in a number after a space for
        text.
    format : {"word2vec", "word2vec-binary", "glove", "fasttext", "npy", "safetensors"}, optional
        By default from the suffix: "npy" for .npy, "safetensors" for .safetensors, "word2vec-binary" for .bin,
        "fasttext" for .vec, "word2vec" for .txt.
    progress : bool, optional
        A progress bar on stderr, by bytes of the table. By default on a terminal, if rich is installed.

    Raises
    ------
    ImportError
        rich, for ``progress=True``, is not installed.
    OSError
        The file cannot be written.
    TypeError
        `weight` is not a float array, or of a dtype that the format does not have; words that are not str.
    ValueError
        Words that the format does not have or cannot hold, or of another number than rows; a table without columns, for
        text and word2vec, or without rows, for "glove".

    Notes
    -----
    The file is written under another name in the same folder and then renamed: after an error or an interruption, what
    was there before is still there. "word2vec" and "fasttext" are one format.

    Text has the fewest digits that read back as the same float32 or float64; half-width values are written as float32,
    in "word2vec-binary" too. There float64 is refused, and bfloat16 in "npy". With safetensors the table is the tensor
    "weight", and the words are the uint8 tensor "words": UTF-8 with a newline between two words.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, fastemb.io
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "small.vec")
    >>> fastemb.io.save_vectors(path, np.array([[0.1, 0.25], [1.0, -1.0]], np.float32), ["the", "cat"])
    >>> print(path.read_text())
    2 2
    the 0.1 0.25
    cat 1.0 -1.0
    <BLANKLINE>
    >>> folder.cleanup()
    """
    path = Path(path)
    if format is not None:
        _options.choice("format", format, formats.FORMATS)
    kind, compression = formats.to_save(path, format)
    table = as_table(weight)
    texts = None if words is None else _checked(words, len(table))
    if kind == "safetensors":
        _save_tensors(path, table, texts, progress)
        return
    header, encode = _encoding(kind, table, texts)
    rows, row_bytes = len(table), table.shape[1] * table.itemsize
    with (
        writing(path, compression) as file,
        progress_bar(path.name, rows * row_bytes, progress, of_bytes=True) as advance,
    ):
        file.write(header)
        for block in arrays.blocks(rows, row_bytes):
            file.write(encode(table[block], [] if texts is None else texts[block]))
            advance((block.stop - block.start) * row_bytes)


def _save_tensors(path: Path, table: NDArray[Any], words: Sequence[str] | None, progress: bool | None) -> None:
    named = {"weight": table}
    if words is not None:
        named["words"] = np.frombuffer("\n".join(words).encode(), np.uint8)
    total = sum(array.nbytes for array in named.values())
    with replacing(path) as file, progress_bar(path.name, total, progress, of_bytes=True) as advance:
        tensors.write(file, named, {}, advance)


def _checked(words: Iterable[str], rows: int) -> list[str]:
    if isinstance(words, (str, bytes)):
        msg = f"words must be an iterable of words, got {type(words).__name__}"
        raise TypeError(msg)
    texts = list(words)
    if len(texts) != rows:
        msg = f"words must be as many as rows, got {len(texts)} and {rows}"
        raise ValueError(msg)
    seen: set[str] = set()
    for word in texts:
        if not isinstance(word, str):
            msg = f"words must be str, got {word!r}"
            raise TypeError(msg)
        if "\n" in word:
            msg = f"words must be without newlines, got {word!r}"
            raise ValueError(msg)
        if not word.isascii() and any("\ud800" <= letter <= "\udfff" for letter in word):
            msg = f"words must be text that UTF-8 can hold, got {word!r}"
            raise ValueError(msg)
        if word in seen:
            msg = f"words must be distinct, got {word!r} twice"
            raise ValueError(msg)
        seen.add(word)
    return texts


def _encoding(
    kind: str, table: NDArray[Any], words: Sequence[str] | None
) -> tuple[bytes, Callable[[NDArray[Any], Sequence[str]], bytes]]:
    """What a file begins with, and what makes the bytes of some rows, once all is known to fit the format."""
    if kind == "npy":
        if words is not None:
            msg = "format 'npy' has no words"
            raise ValueError(msg)
        if table.dtype.kind != "f":
            msg = f"format 'npy' has no {table.dtype}; use safetensors"
            raise TypeError(msg)
        return arrays.npy_header(table), lambda block, _: block.tobytes()
    if words is None:
        msg = f"format {kind!r} needs words"
        raise ValueError(msg)
    if table.shape[1] == 0 or (kind == "glove" and len(table) == 0):
        msg = f"format {kind!r} cannot hold a table of shape {table.shape}"
        raise ValueError(msg)
    header = b"" if kind == "glove" else b"%d %d\n" % table.shape
    if kind != "word2vec-binary":
        text.check(words, empty=kind == "glove")
        return header, text.encode
    binary.check(words)
    if table.dtype.itemsize > np.dtype(np.float32).itemsize:
        msg = f"format {kind!r} holds float32, got {table.dtype}; convert it yourself: weight.astype(np.float32)"
        raise TypeError(msg)
    return header, binary.encode
