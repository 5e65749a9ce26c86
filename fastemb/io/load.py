"""Read pretrained vectors."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import SupportsIndex

import numpy as np
from numpy.typing import DTypeLike

from .. import _options
from .._arrays import as_table
from .._compat import as_dtype
from . import arrays, binary, formats, text
from .files import reading
from .rows import Wanted
from .vectors import Vectors


def load_vectors(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002
    vocab: Iterable[str] | None = None,
    limit: SupportsIndex | None = None,
    dtype: DTypeLike | None = "float32",
    errors: str = "strict",
    duplicates: str = "first",
    finite: bool = False,
    progress: bool | None = None,
) -> Vectors:
    r"""Read vectors, and the words they belong to, from a file; other rows than asked for are never in memory.

    Parameters
    ----------
    path : str or os.PathLike
        The file. Text and word2vec's binary form may be compressed by gzip, bz2 or xz, as their first bytes tell.
    format : {"word2vec", "word2vec-binary", "glove", "fasttext", "npy", "safetensors"}, optional
        By default: from the first bytes for .npy and safetensors, "word2vec-binary" for a name in .bin (or .bin.gz),
        else text, whose first line is a header if it is two integers ("word2vec") and is not otherwise ("glove").
    vocab : iterable of str, optional
        Keep these words alone, in the file's order; words that are not in the file are no error.
    limit : int, optional
        Look at this many rows from the start of the file and no further, whether kept or not.
    dtype : dtype_like or None
        Of the table: float16, bfloat16, float32 or float64. None: as stored, float32 for text.
    errors : {"strict", "replace", "ignore"}
        What to do with words that are not UTF-8: raise, put U+FFFD for what cannot be read, or leave that out. The last
        two give one warning, with their number.
    duplicates : {"first", "last", "error"}
        Which row of a word that is there several times is kept, at the place of the first; with one warning, with the
        number of the others. Only words that are kept are compared.
    finite : bool
        Raise for NaN and infinity, as they are in `dtype`, in rows that are kept.
    progress : bool, optional
        A progress bar on stderr, by bytes of the file. By default on a terminal, if rich is installed.

    Returns
    -------
    Vectors
        The words, None for an .npy file and a safetensors file without any, and the table, a new array.

    Raises
    ------
    ImportError
        safetensors, rich for ``progress=True``, or ml_dtypes for bfloat16 is not installed.
    OSError
        The file cannot be read.
    TypeError
        An option of a wrong kind, an .npy file of something else than floats.
    ValueError
        An option out of range, or a file that is not what it should be: empty, a pickle, of another number of rows
        than its header says, a line with more or fewer values than D, a word that is not UTF-8. The text gives the file
        and the line, or in files that have no lines the row, from 1.

    Notes
    -----
    Lines are split from the right, by the width in the header or else that of the first line, so that words may have
    spaces, as some have in GloVe's largest files. Where a line has more numbers at its end than the width, it is
    malformed: a word does not end in a number after a space. Rows that are left out by `vocab` are cut in the same way,
    but only the first of their values is read as a number.

    The rest of the file is not read, and so not checked, after `limit` rows or when all words of `vocab` have been
    found; but for the latter with `duplicates` "last" or "error", as what follows might matter then.

    Numbers are correctly rounded, to float32 and float16 as well, where NumPy and gensim round twice, by way of
    float64; to bfloat16 they go by way of float32. gensim's text reader spreads a line's only value over the whole row,
    and its binary reader stops without an error where the file has more rows than its header says.

    In safetensors the table is the tensor "weight", or the only one there, and words are the uint8 tensor "words", if
    there is one: UTF-8 with a newline between two words.

    Examples
    --------
    >>> import pathlib, tempfile, fastemb.io
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "small.vec")
    >>> _ = path.write_text("3 2\nthe 0.5 0.25\ncat 1 -1\nat home 2e-3 4\n")
    >>> fastemb.io.load_vectors(path).words
    ['the', 'cat', 'at home']
    >>> vectors = fastemb.io.load_vectors(path, vocab=["at home", "cat", "dog"])
    >>> vectors
    Vectors(2 rows, width 2, float32)
    >>> embedding = fastemb.Embedding.from_pretrained(vectors.weight)
    >>> embedding([vectors.index["cat"]])
    array([[ 1., -1.]], dtype=float32)
    >>> folder.cleanup()
    """
    path = Path(path)
    if format is not None:
        _options.choice("format", format, formats.FORMATS)
    _options.choice("errors", errors, ("strict", "replace", "ignore"))
    _options.choice("duplicates", duplicates, ("first", "last", "error"))
    wanted = Wanted(
        None if vocab is None else _vocabulary(vocab),
        _options.LARGEST if limit is None else _options.integer("limit", limit, at_least=0),
        None if dtype is None else as_table(np.empty((0, 0), as_dtype(dtype)), "dtype").dtype.newbyteorder("="),
        errors,
        duplicates,
        bool(finite),
    )
    kind = formats.of_file(path, format)
    with np.errstate(all="ignore"):  # values beyond the dtype become infinite, as `finite` says
        if kind == "npy":
            words, weight = arrays.read_npy(path, wanted, progress)
        elif kind == "safetensors":
            words, weight = arrays.read_safetensors(path, wanted, progress)
        else:
            with reading(path, progress) as source:
                if kind == "word2vec-binary":
                    words, weight = binary.read(source, wanted)
                else:
                    words, weight = text.read(source, wanted, header=kind != "glove")
    for warning in [] if words is None else words.warnings():
        warnings.warn(warning, stacklevel=2)
    return Vectors(None if words is None else list(words.rows), weight)


def _vocabulary(vocab: Iterable[str]) -> frozenset[str]:
    if isinstance(vocab, (str, bytes)):
        msg = f"vocab must be an iterable of words, got {type(vocab).__name__}"
        raise TypeError(msg)
    words = frozenset(vocab)
    for word in words:
        if not isinstance(word, str):
            msg = f"vocab must hold words, got {word!r}"
            raise TypeError(msg)
    return words
