"""Safetensors files: written as a stream, with a checksum; checked, and mapped into memory, without any package.

A file is the length of a header as 8 bytes, the header as JSON, and the tensors one after the other. Ours have the
checksum first in the header, over the whole file with zeros in its place, and tensors begin at a page.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import mmap
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._compat import as_dtype
from .arrays import blocks
from .files import BLOCK

KINDS = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
}
_SIZE_OF = {kind: 2 if kind == "BF16" else np.dtype(name).itemsize for kind, name in KINDS.items()}
_KIND_OF = {name: kind for kind, name in KINDS.items()}
_LONGEST = 100_000_000  # bytes of a header, as the format says
_NO_CHECKSUM = "0" * 64
_CHECKSUM = re.compile(rb'\{"__metadata__":\{"checksum":"([0-9a-f]{64})"')


_S = TypeVar("_S", bound="Source")


class Source(Protocol):
    """What can be written: an array, or what gives blocks of one."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the array."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        ...

    @property
    def nbytes(self) -> int:
        """Of the array."""
        ...

    def __getitem__(self, rows: slice, /) -> NDArray[Any]: ...


@dataclasses.dataclass(frozen=True, eq=False)
class Chosen:
    """Some rows of an array, read when they are written."""

    array: NDArray[Any]
    rows: NDArray[np.int64]

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the array."""
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the rows."""
        return (self.rows.size, *self.array.shape[1:])

    @property
    def nbytes(self) -> int:
        """Of the rows."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __getitem__(self, rows: Any) -> Any:
        """A block of them."""
        return self.array[self.rows[rows]]


class Tensor(NamedTuple):
    """Where an array is in a file."""

    kind: str
    shape: tuple[int, ...]
    start: int
    stop: int


class Header(NamedTuple):
    """What a file says about itself; `raw` are its bytes before the tensors."""

    path: Path
    raw: bytes
    tensors: dict[str, Tensor]
    metadata: dict[str, str]
    file: IO[bytes] | None = None
    """The open file that it was read from, if it is to be read on: another may have taken its place since."""

    @property
    def nbytes(self) -> int:
        """Of the tensors."""
        return max((tensor.stop for tensor in self.tensors.values()), default=len(self.raw)) - len(self.raw)

    @property
    def checksum(self) -> str | None:
        """What `write` gave, or None if another program wrote the file."""
        match = _CHECKSUM.match(self.raw, 8)
        return None if match is None else match[1].decode()


def read_header(path: Path, file: IO[bytes] | None = None) -> Header:
    """The header of a file of the length that follows from it; ValueError for anything else.

    What is read later with the header of an open file is read from that file, whatever has its name then.
    """
    if file is None:
        with path.open("rb") as opened:
            return read_header(path, opened)._replace(file=None)
    size = os.fstat(file.fileno()).st_size
    raw = file.read(8)
    length = int.from_bytes(raw, "little")
    if len(raw) < 8 or length > min(size - 8, _LONGEST):
        raise _damaged(path, f"there are {size} bytes, and no header of a safetensors file in them")
    raw += file.read(length)
    try:
        told = json.loads(raw[8:])
        metadata = {name: _text(value) for name, value in told.pop("__metadata__", {}).items()}
        tensors = {name: _tensor(entry, len(raw)) for name, entry in told.items()}
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise _damaged(path, "its header is not that of a safetensors file") from None
    end = len(raw)
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1][2:]):
        if tensor.start != end:
            raise _damaged(path, f"tensor {name!r} begins at byte {tensor.start}, not {end}")
        end = tensor.stop
    if end != size:
        raise _damaged(path, f"there are {size} bytes, and {end} in its header")
    return Header(path, raw, tensors, metadata, file)


def _damaged(path: Path, how: str) -> ValueError:
    return ValueError(f"{path} is truncated or altered: {how}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _tensor(entry: Any, after: int) -> Tensor:
    """An entry of a header; any error where it is none."""
    kind, shape, (start, stop) = _text(entry["dtype"]), tuple(entry["shape"]), entry["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, start, stop)):
        raise ValueError
    if kind in KINDS and math.prod(shape) * _SIZE_OF[kind] != stop - start:
        raise ValueError
    return Tensor(kind, shape, after + start, after + stop)


def map_tensor(header: Header, name: str, mode: str) -> NDArray[Any]:
    """An array in a file, mapped: "r" to read, "r+" to change the file, "c" to change the array alone."""
    tensor = header.tensors[name]
    if tensor.kind not in KINDS:
        msg = f"{header.path}: tensor {name!r} has dtype {tensor.kind}, which NumPy has not"
        raise ValueError(msg)
    dtype: np.dtype[Any] = as_dtype(KINDS[tensor.kind])
    if dtype.kind in "iuf":
        dtype = dtype.newbyteorder("<")
    return map_array(header.file or header.path, mode, dtype, tensor.shape, tensor.start)


def map_array(
    file: Path | IO[bytes], mode: Any, dtype: np.dtype[Any], shape: tuple[int, ...], start: int, order: Any = "C"
) -> NDArray[Any]:
    """An array in a file that is long enough; rows are read one by one, not what is around them."""
    if 0 in shape:  # no byte to map
        return np.empty(shape, dtype)
    array = np.memmap(file, dtype, mode, start, shape, order)
    if hasattr(mmap, "MADV_RANDOM") and isinstance(array.base, mmap.mmap):
        array.base.madvise(mmap.MADV_RANDOM)
    return array


def verify(header: Header, advance: Callable[[int], object]) -> str:
    """The checksum of a file that `write` wrote, or a ValueError if it is not that of its bytes."""
    told = header.checksum
    if told is None:
        msg = f"{header.path} has no checksum: it was not saved by fastemb"
        raise ValueError(msg)
    digest = hashlib.blake2b(_without_checksum(header.raw), digest_size=32)
    with contextlib.nullcontext(header.file) if header.file else header.path.open("rb") as file:
        file.seek(len(header.raw))
        while block := file.read(16 * BLOCK):
            digest.update(block)
            advance(len(block))
    if digest.hexdigest() != told:
        raise _damaged(header.path, "its checksum is not that of its bytes")
    return told


def _without_checksum(raw: bytes) -> bytes:
    return _CHECKSUM.sub(lambda match: match[0].replace(match[1], _NO_CHECKSUM.encode()), raw, count=1)


def write(
    file: IO[bytes], arrays: Mapping[str, Source], metadata: Mapping[str, str], advance: Callable[[int], object]
) -> str:
    """Write arrays, whatever their strides and byte order, a block at a time; returns the checksum."""
    raw = _header(arrays, {"checksum": _NO_CHECKSUM, **metadata})
    digest = hashlib.blake2b(raw, digest_size=32)
    file.write(raw)
    for array in _ordered(arrays).values():
        for data in encoded(array):
            digest.update(data)
            file.write(data)
            advance(len(data))
    file.seek(0)
    file.write(raw.replace(_NO_CHECKSUM.encode(), digest.hexdigest().encode(), 1))
    return digest.hexdigest()


def write_to_change(file: IO[bytes], arrays: Mapping[str, NDArray[Any]], advance: Callable[[int], object]) -> None:
    """Write arrays that will be changed in place, so without a checksum; those that `constant` made of 0 are holes."""
    file.write(_header(arrays, {}))
    for array in _ordered(arrays).values():
        if array.nbytes and is_hole(array):
            file.truncate(file.seek(array.nbytes, os.SEEK_CUR))
            continue
        for data in encoded(array):
            file.write(data)
            advance(len(data))


def constant(shape: tuple[int, ...], dtype: np.dtype[Any], value: Any) -> NDArray[Any]:
    """An array of one number, in the memory of one."""
    return np.broadcast_to(np.full((), value, dtype), shape)


def is_hole(array: NDArray[Any]) -> bool:
    """Whether `constant` made the array of 0."""
    return not any(array.strides) and not array[:1].any()


def encoded(array: Source) -> Iterator[bytes]:
    """The bytes of an array as files have them, a block of rows at a time."""
    dtype = array.dtype.newbyteorder("<") if array.dtype.kind in "iuf" else array.dtype
    for block in blocks(array.shape[0] if array.nbytes else 0, array[:1].nbytes):
        yield array[block].astype(dtype, order="C", copy=False).tobytes()


def _ordered(arrays: Mapping[str, _S]) -> dict[str, _S]:
    """Larger items first, so that each array is aligned."""
    return dict(sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize))


def _header(arrays: Mapping[str, Source], metadata: Mapping[str, str]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, array in _ordered(arrays).items():
        kind = _KIND_OF[array.dtype.newbyteorder("=").name]
        entries[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text = text.ljust(-(-(len(text) + 8) // mmap.PAGESIZE) * mmap.PAGESIZE - 8)
    return len(text).to_bytes(8, "little") + text
