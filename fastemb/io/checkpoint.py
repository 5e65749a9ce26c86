"""Layers in files: table, optimizer state, options and hyper-parameters, read back to the bit."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from .._progress import progress_bar
from . import tensors
from .atomic import replacing
from .layers import class_of, describe, flatten, rebuild, unflatten

VERSION = 1
"""Of what is in the files."""

BASE, DELTA = "base.safetensors", "delta-{:08}.safetensors"
"""Names of the files in a folder that `fastemb.io.Checkpointer` writes."""


class Snapshot(NamedTuple):
    """A layer as it was saved: plain values, and arrays, which may be changed without changing a file."""

    told: dict[str, Any]
    """Of the last file: "layer", "numbers", "sequence"."""
    arrays: dict[str, NDArray[Any]]
    checksum: str


def save_layer(layer: Any, path: str | os.PathLike[str], *, progress: bool | None = None) -> None:
    """Write a layer to a safetensors file: tables, optimizer state and all that `load_layer` needs to make it again.

    Parameters
    ----------
    layer : layer
        One of `fastemb.nn` that has a `state_dict`.
    path : str or os.PathLike
        The file.
    progress : bool, optional
        A progress bar on stderr. By default on a terminal, if rich is installed.

    Raises
    ------
    ImportError
        rich, for ``progress=True``, is not installed.
    OSError
        The file cannot be written.
    RuntimeError
        A layer without a table: its width is not known yet.
    TypeError
        A layer or an optimizer of a class of your own.

    Notes
    -----
    The file is written under another name in the same folder, put on the disk and then renamed: whenever the writer is
    stopped, the file is the old one or the new one. It has a checksum (BLAKE2b). What is pending in `grad`, `init` and
    seeds of generators are not saved; seeds of hashes are. With an optimizer in mode "exact" rows are saved as they
    stand, with the steps that they missed. Memory is that of a block of rows.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, fastemb
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "emb.safetensors")
    >>> emb = fastemb.Embedding(1000, 8, optimizer=fastemb.optim.Adam(lr=0.01), seed=0)
    >>> emb.fused_step([3, 7], np.ones((2, 8), np.float32))
    >>> fastemb.io.save_layer(emb, path)
    >>> again = fastemb.io.load_layer(path)
    >>> again.optimizer == emb.optimizer, again.state.step, np.array_equal(again.weight, emb.weight)
    (True, 1, True)
    >>> folder.cleanup()
    """
    told = describe(layer)
    arrays, numbers = flatten(layer.state_dict())
    write(Path(path), arrays, {"layer": told, "numbers": numbers}, progress)


def load_layer(path: str | os.PathLike[str], kind: type | None = None, *, progress: bool | None = None) -> Any:
    """The layer that `save_layer` wrote to a file, or `Checkpointer` to a folder.

    Parameters
    ----------
    path : str or os.PathLike
        The file or the folder.
    kind : type, optional
        What the layer must be.
    progress : bool, optional
        A progress bar on stderr. By default on a terminal, if rich is installed.

    Returns
    -------
    layer
        In memory; training goes on with the same bits.

    Raises
    ------
    ImportError
        rich, for ``progress=True``, is not installed.
    OSError
        A file cannot be read.
    TypeError
        It holds a layer of another class than `kind`.
    ValueError
        A file that is truncated or altered, of another program or of a newer version, or one of several that is
        missing.

    Notes
    -----
    Files hold numbers and names, no code: classes are looked up by name among those of fastemb. The checksum is checked
    before anything is made of a file.

    Examples
    --------
    >>> import pathlib, tempfile, fastemb
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "places.safetensors")
    >>> fastemb.nn.LearnedPositions(32, 2).save(path)
    >>> fastemb.io.load_layer(path, fastemb.Embedding)
    LearnedPositions(32, 2, dtype=float32)
    >>> fastemb.nn.HashEmbedding.load(path)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    TypeError: ... holds a layer of class LearnedPositions, not HashEmbedding
    >>> folder.cleanup()
    """
    return restore(Path(path), read(Path(path), progress), kind)


def restore(path: Path, snapshot: Snapshot, kind: type | None = None) -> Any:
    """The layer of a snapshot; ValueError if it is not one of ours, TypeError if it is not of `kind`."""
    try:
        found = class_of(snapshot.told["layer"])
        if kind is None or issubclass(found, kind):
            return rebuild(snapshot.told["layer"], unflatten({**snapshot.arrays, **snapshot.told["numbers"]}))
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        msg = f"{path} does not describe a layer of this version of fastemb: {error!r}"
        raise ValueError(msg) from error
    msg = f"{path} holds a layer of class {found.__name__}, not {kind.__name__}"
    raise TypeError(msg)


def write(path: Path, arrays: Mapping[str, tensors.Source], told: dict[str, Any], progress: bool | None) -> str:
    """A file with a checksum, which is returned."""
    metadata = {"fastemb": json.dumps({"version": VERSION, **told})}
    total = sum(array.nbytes for array in arrays.values())
    with progress_bar(path.name, total, progress, of_bytes=True) as advance, replacing(path) as file:
        return tensors.write(file, arrays, metadata, advance)


def read(path: Path, progress: bool | None) -> Snapshot:
    """What was saved last, in a file or in a folder, checked."""
    if not path.is_dir():
        with path.open("rb") as file:
            return _read_files(tensors.read_header(path, file), [], progress)
    while True:
        numbered = deltas(path)  # before the base is opened: of these, a newer base has what is removed from now on
        with (path / BASE).open("rb") as file:
            base = tensors.read_header(path / BASE, file)
            try:
                return _read_files(base, _newer(path, base, numbered), progress)
            except FileNotFoundError:
                if os.path.samestat(os.fstat(file.fileno()), base.path.stat()):
                    raise


def _newer(path: Path, base: tensors.Header, numbered: dict[int, Path]) -> list[Path]:
    """The files of a folder that go on after its base; ValueError if one is missing."""
    first = _told(base).get("sequence", 0) + 1
    newer = sorted(number for number in numbered if number >= first)  # older ones are in the base already
    for expected, number in enumerate(newer, first):
        if expected != number:
            msg = f"{path / DELTA.format(expected)} is missing, and {numbered[number].name} is there"
            raise ValueError(msg)
    return [numbered[number] for number in newer]


def deltas(folder: Path) -> dict[int, Path]:
    """The files in a folder that say what changed, by their numbers."""
    return {int(path.stem.removeprefix("delta-")): path for path in folder.glob(DELTA.format(0).replace("0", "[0-9]"))}


def _read_files(base: tensors.Header, newer: list[Path], progress: bool | None) -> Snapshot:
    """An open file, and others that say what changed after it."""
    total = base.nbytes + sum(tensors.read_header(path).nbytes for path in newer)
    with progress_bar(base.path.name, total, progress, of_bytes=True) as advance:
        snapshot = _after(Snapshot({}, {}, ""), base, advance)
        for path in newer:
            with path.open("rb") as file:
                snapshot = _after(snapshot, tensors.read_header(path, file), advance)
    return snapshot


def _after(snapshot: Snapshot, header: tensors.Header, advance: Callable[[int], object]) -> Snapshot:
    """What was saved, after another file."""
    told, checksum = _told(header), tensors.verify(header, advance)
    if told.get("parent", "") != snapshot.checksum:
        msg = f"{header.path} does not go on after the file before it: they are of different checkpoints"
        raise ValueError(msg)
    found = {name: _native(tensors.map_tensor(header, name, "c")) for name in header.tensors}
    try:
        return Snapshot(told, _merged(snapshot.arrays, found, told.get("rows", {})), checksum)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        msg = f"{header.path} does not fit the file before it: {error!r}"
        raise ValueError(msg) from error


def _merged(
    arrays: dict[str, NDArray[Any]], found: dict[str, NDArray[Any]], rows: dict[str, str]
) -> dict[str, NDArray[Any]]:
    """The arrays after a file: whole ones replaced, of others the rows that it has; `rows` says which these are."""
    for name, chosen in rows.items():
        arrays[name][found[chosen]] = found[name]
    return {**arrays, **{name: array for name, array in found.items() if name not in {*rows, *rows.values()}}}


def _told(header: tensors.Header) -> dict[str, Any]:
    """What a file of ours says; ValueError for others."""
    try:
        told = json.loads(header.metadata["fastemb"])
        version = told["version"]
    except (KeyError, RecursionError, TypeError, ValueError):
        msg = f"{header.path} was not saved by fastemb"
        raise ValueError(msg) from None
    if version != VERSION:
        msg = f"{header.path} has format {version}, and this version of fastemb reads format {VERSION}"
        raise ValueError(msg)
    return dict(told)


def _native(array: NDArray[Any]) -> NDArray[Any]:
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
