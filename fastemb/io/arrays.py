"""Arrays in files: .npy, and safetensors, where the words can be kept too."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arrays import as_table
from .._compat import as_dtype, optional
from .._progress import progress_bar
from .files import BLOCK
from .rows import Wanted, Words

_FLOATS = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}


def blocks(rows: int, row_bytes: int) -> Iterator[slice]:
    """The rows of a table, a block at a time."""
    step = max(1, BLOCK // max(1, row_bytes))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def read_npy(path: Path, wanted: Wanted, progress: bool | None) -> tuple[None, NDArray[Any]]:
    """The table of a file, copied block by block."""
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except ValueError as error:
        msg = f"{path}: {error}"
        raise ValueError(msg) from error
    table = as_table(array, str(path))
    words = _without_words(path, wanted)
    to = np.arange(min(len(table), wanted.limit))
    return None, _copy(words, lambda block: table[block], table.shape[1], table.dtype, to, progress)


def read_safetensors(path: Path, wanted: Wanted, progress: bool | None) -> tuple[Words | None, NDArray[Any]]:
    """The tensor "weight", or the only one, and the words in "words" if that is as `save_vectors` writes it."""
    module = _safetensors()
    optional("ml_dtypes")  # makes bfloat16 known to NumPy
    try:
        with module.safe_open(path, framework="np") as file:
            return _from_tensors(path, file, wanted, progress)
    except module.SafetensorError as error:
        msg = f"{path}: {error}"
        raise ValueError(msg) from error


def _from_tensors(path: Path, file: Any, wanted: Wanted, progress: bool | None) -> tuple[Words | None, NDArray[Any]]:
    names = sorted(file.keys())
    listed = "words" in names and file.get_slice("words").get_dtype() == "U8"
    if listed:
        names.remove("words")
    name = "weight" if "weight" in names else names[0] if len(names) == 1 else None
    if name is None:
        found = ", ".join([*map(repr, names[:5]), *(["..."] if len(names) > 5 else [])]) or "none"
        msg = f"{path}: one tensor must be named 'weight', got {found}"
        raise ValueError(msg)
    tensor = file.get_slice(name)
    shape, kind = tensor.get_shape(), tensor.get_dtype()
    if kind not in _FLOATS or len(shape) != 2:
        msg = f"{path}: tensor {name!r} must be 2-D (N, D) of float16, bfloat16, float32 or float64, got {kind} {shape}"
        raise ValueError(msg)
    count = min(shape[0], wanted.limit)
    words = Words(path, "row", wanted) if listed else _without_words(path, wanted)
    to = np.arange(count)
    if listed:
        texts = _texts(path, file.get_tensor("words"), shape[0])
        offset = 0
        for i in range(count):
            to[i] = words.place(texts[i], i + 1, offset)
            offset += len(texts[i]) + 1
    dtype = as_dtype(_FLOATS[kind])
    return words if listed else None, _copy(words, lambda block: tensor[block], shape[1], dtype, to, progress)


def _texts(path: Path, joined: NDArray[Any], count: int) -> list[bytes]:
    texts = joined.tobytes().split(b"\n") if count or joined.size else []
    if len(texts) != count:
        msg = f"{path}: there must be as many words as rows, got {len(texts)} and {count}"
        raise ValueError(msg)
    return texts


def _without_words(path: Path, wanted: Wanted) -> Words:
    if wanted.vocab is not None:
        msg = f"{path}: vocab needs words, and there are none in this file"
        raise ValueError(msg)
    return Words(path, "row", wanted)


def _copy(
    words: Words,
    read: Callable[[slice], NDArray[Any]],
    width: int,
    dtype: np.dtype[Any],
    to: NDArray[Any],
    progress: bool | None,
) -> NDArray[Any]:
    """A new table with row i of the file at ``to[i]``; -1: left out."""
    rows = int(to.max(initial=-1)) + 1
    weight = np.empty((rows, width), words.wanted.dtype or dtype.newbyteorder("="))
    row_bytes = width * dtype.itemsize
    with progress_bar(words.path.name, len(to) * row_bytes, progress, of_bytes=True) as advance:
        for block in blocks(len(to) if weight.size else 0, row_bytes):
            kept = np.flatnonzero(to[block] >= 0)
            if kept.size:
                values = read(block)[kept].astype(weight.dtype, copy=False)
                weight[to[block][kept]] = values
                first = int(np.argmin(np.isfinite(values).all(axis=1))) if words.wanted.finite else 0
                words.require_finite(block.start + int(kept[first]) + 1, values[first])
            advance((block.stop - block.start) * row_bytes)
    return weight


def npy_header(weight: NDArray[Any]) -> bytes:
    """What comes before the rows."""
    header = io.BytesIO()
    described = np.lib.format.dtype_to_descr(weight.dtype)
    np.lib.format.write_array_header_1_0(header, {"descr": described, "fortran_order": False, "shape": weight.shape})
    return header.getvalue()


def _safetensors() -> Any:
    module = optional("safetensors")
    if module is None:
        msg = "format 'safetensors' needs the package safetensors: pip install fastemb[io]"
        raise ImportError(msg)
    return module
