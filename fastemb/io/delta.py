"""Checkpoints by the rows that changed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

from ..nn.table import TableLayer
from . import tensors
from .checkpoint import BASE, DELTA, deltas, read, restore, write
from .layers import describe, flatten, place_of, tables_of


class Checkpointer:
    """Saves a layer to a folder, the first time all of it and then the rows that changed since the last time.

    Parameters
    ----------
    layer : layer
        One of `fastemb.nn` that has a `state_dict`.
    folder : str or os.PathLike
        Made if it is not there. What it holds is replaced by the first `save`: to go on with it, use `resume`.
    progress : bool, optional
        A progress bar on stderr for each file. By default on a terminal, if rich is installed.

    Attributes
    ----------
    layer : layer
        What is saved.
    folder : pathlib.Path
        Where.

    Raises
    ------
    OSError
        The folder cannot be made.
    TypeError
        A layer or an optimizer of a class of your own.

    Notes
    -----
    Files are "base.safetensors" and, numbered, "delta-00000001.safetensors" and so on. Each is the old one or the new
    one whenever the writer is stopped, has a checksum, and names that of the file before it. ``load_layer(folder)``
    reads them all.

    Steps, rows that catch up in mode "exact" and `max_norm` are followed; the price is one byte a row. A table that you
    write yourself is not: say ``save(full=True)`` then. Tables without a state, and those that share memory, are read
    by each `save`, and saved as a whole if they changed. A new table or state, as of a layer that was pruned, or whose
    optimizer needs another one, makes the next file a base. One Checkpointer follows a layer at a time.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, fastemb
    >>> folder = tempfile.TemporaryDirectory()
    >>> emb = fastemb.Embedding(100_000, 8, optimizer=fastemb.optim.Adagrad(lr=0.01), seed=0)
    >>> checkpointer = fastemb.io.Checkpointer(emb, pathlib.Path(folder.name, "run"))
    >>> checkpointer.save().name
    'base.safetensors'
    >>> emb.fused_step([3, 7], np.ones((2, 8), np.float32))
    >>> path = checkpointer.save()
    >>> path.name, path.stat().st_size < 10_000
    ('delta-00000001.safetensors', True)
    >>> again = fastemb.io.load_layer(checkpointer.folder)
    >>> np.array_equal(again.weight, emb.weight), again.state.step
    (True, 1)
    >>> checkpointer.compact()
    >>> [path.name for path in checkpointer.folder.iterdir()]
    ['base.safetensors']
    >>> folder.cleanup()
    """

    def __init__(self, layer: Any, folder: str | os.PathLike[str], *, progress: bool | None = None) -> None:
        _describe(layer)
        self.layer, self.folder, self._progress = layer, Path(folder), progress
        self.folder.mkdir(parents=True, exist_ok=True)
        self._checksum, self._sequence = "", 0
        self._followed: list[_Followed] = []
        self._digests: dict[str, bytes] = {}

    @classmethod
    def resume(cls, folder: str | os.PathLike[str], *, progress: bool | None = None) -> Self:
        """Load a layer from a folder, and go on saving what changes from there.

        Parameters
        ----------
        folder : str or os.PathLike
            What a Checkpointer wrote.
        progress : bool, optional
            As for the class.

        Returns
        -------
        Checkpointer
            With the layer.

        Raises
        ------
        OSError, ValueError
            As `load_layer`.
        """
        snapshot = read(Path(folder), progress)
        self = cls(restore(Path(folder), snapshot), folder, progress=progress)
        self._checksum, self._sequence = snapshot.checksum, snapshot.told.get("sequence", 0)
        self._follow(flatten(self.layer.state_dict())[0])
        return self

    def save(self, *, full: bool = False) -> Path:
        """Write a file: the whole layer the first time and where it has to be, else what changed.

        Parameters
        ----------
        full : bool
            Write the whole layer, as after changes that are not followed.

        Returns
        -------
        pathlib.Path
            The file.

        Raises
        ------
        OSError
            The file cannot be written; it will be tried again by the next `save`.
        """
        arrays, numbers = flatten(self.layer.state_dict())
        told: dict[str, Any] = {"layer": _describe(self.layer), "numbers": numbers}
        if full or not self._goes_on():
            return self._save_base(arrays, told)
        digests = self._digests_of(arrays)
        changed: dict[str, tensors.Source] = {
            name: arrays[name] for name, digest in digests.items() if digest != self._digests.get(name)
        }
        rows: dict[str, str] = {}
        noted = [(followed, followed.changed) for followed in self._followed if followed.changed is not None]
        chosen = [np.flatnonzero(marks) for _, marks in noted]
        for (followed, _), some in zip(noted, chosen, strict=True):
            if some.size and followed.names:
                changed[followed.rows] = some
                changed |= {name: tensors.Chosen(arrays[name], some) for name in followed.names}
                rows |= dict.fromkeys(followed.names, followed.rows)
        told |= {"sequence": self._sequence + 1, "parent": self._checksum, "rows": rows}
        path, number = self.folder / DELTA.format(self._sequence + 1), self._sequence + 1
        self._checksum, self._sequence, self._digests = write(path, changed, told, self._progress), number, digests
        for (_, marks), some in zip(noted, chosen, strict=True):
            marks[some] = False
        return path

    def _save_base(self, arrays: dict[str, NDArray[Any]], told: dict[str, Any]) -> Path:
        path, number = self.folder / BASE, max([self._sequence, *deltas(self.folder)])  # whatever is there is older
        with self._new_base():
            checksum = write(path, arrays, {**told, "sequence": number}, self._progress)
            self._follow(arrays)
            self._checksum, self._sequence = checksum, number
        _remove_deltas(self.folder, number)
        return path

    @contextlib.contextmanager
    def _new_base(self) -> Iterator[str]:
        """What is known of the files is forgotten, and known again after an error if the base was not replaced.

        So an interruption after that makes the next file a base, too.
        """
        before, known = _identity(self.folder / BASE), self._checksum
        self._checksum = ""
        try:
            yield known
        except BaseException:
            if _identity(self.folder / BASE) == before:
                self._checksum = known
            raise

    def compact(self) -> None:
        """Make one file of all that are there: see `fastemb.io.compact`.

        Raises
        ------
        OSError, ValueError
            As `fastemb.io.compact`.
        """
        with self._new_base() as known:
            before, after = _compact(self.folder, self._progress)
            self._checksum = after if before == known else known

    def _goes_on(self) -> bool:
        """Whether there is a base, and the tables and states are those that are followed since."""
        tables = [*tables_of(self.layer).values()]
        return bool(self._checksum) and all(
            followed.is_of(table) for followed, table in zip(self._followed, tables, strict=True)
        )

    def _follow(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Begin to note which rows change."""
        shared = _overlapping(arrays)
        self._followed = [_Followed.of(name, table, arrays, shared) for name, table in tables_of(self.layer).items()]
        self._digests = self._digests_of(arrays)

    def _digests_of(self, arrays: dict[str, NDArray[Any]]) -> dict[str, bytes]:
        """Of the arrays that are saved as a whole where they changed."""
        known = {name for followed in self._followed for name in followed.names}
        return {name: _digest(array) for name, array in arrays.items() if name not in known}


def _describe(layer: Any) -> dict[str, Any]:
    told = describe(layer)
    if not all(isinstance(table.weight, np.ndarray) for table in tables_of(layer).values()):
        msg = "layer must be on the CPU to be saved by its rows"
        raise TypeError(msg)
    return told


class _Followed(NamedTuple):
    """What is known of a table."""

    weight: weakref.ref[NDArray[Any]]
    changed: NDArray[np.bool] | None
    """Which rows changed, noted by its state; None without a state."""
    names: list[str]
    """Of the arrays of which only the rows that changed are saved: without a state, none."""
    rows: str
    """What these rows are called in a file."""

    @classmethod
    def of(cls, key: str, table: TableLayer, arrays: Mapping[str, NDArray[Any]], shared: set[str]) -> Self:
        """Follow a table of that key, whose arrays are among these; `shared` are those in the memory of others."""
        before, state = f"{place_of(key)}.", table.state
        if f"{before}weight" not in arrays:  # of a layer around one table
            before = ""
        changed, names = None, list[str]()
        if state is not None:
            changed = state.changed = np.zeros(table.num_embeddings, np.bool)
            kept = state.arrays() | ({} if state.missed is None else {"last": state.missed.last})
            by_row = [name for name, array in kept.items() if len(array) == len(table.weight)]
            names = [f"{before}weight", *(f"{before}optimizer.{name}" for name in by_row)]
        own = [name for name in names if name not in shared]
        return cls(weakref.ref(table.weight), changed, own, f"{before}rows")

    def is_of(self, table: TableLayer) -> bool:
        """Whether it is still this table, with this state."""
        if self.weight() is not table.weight or (self.changed is None) != (table.state is None):
            return False
        return table.state is None or table.state.changed is self.changed


def _overlapping(arrays: Mapping[str, NDArray[Any]]) -> set[str]:
    """The names of arrays in whose memory, or between whose elements, others lie."""
    found: set[str] = set()
    end, last = 0, ""
    for start, stop, name in sorted((*byte_bounds(array), name) for name, array in arrays.items() if array.size):
        if start < end:
            found |= {last, name}
        if stop > end:
            end, last = stop, name
    return found


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another of its name that was there at the same time."""
    with contextlib.suppress(FileNotFoundError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


def _digest(array: NDArray[Any]) -> bytes:
    digest = hashlib.blake2b(repr(array.shape).encode(), digest_size=32)
    for data in tensors.encoded(array):
        digest.update(data)
    return digest.digest()


def compact(folder: str | os.PathLike[str], *, progress: bool | None = None) -> None:
    """Make one file of the files that a `Checkpointer` wrote.

    Parameters
    ----------
    folder : str or os.PathLike
        Where they are. A Checkpointer that goes on saving there has a method of its own for this.
    progress : bool, optional
        A progress bar on stderr. By default on a terminal, if rich is installed.

    Raises
    ------
    ImportError
        rich, for ``progress=True``, is not installed.
    OSError
        A file cannot be read or written.
    ValueError
        A file that is truncated, altered or missing. After any error the files are as before.

    Notes
    -----
    Memory is that of the rows that changed. Stopped at any moment, the folder holds the same layer as before.

    Examples
    --------
    >>> import pathlib, tempfile, fastemb
    >>> folder = tempfile.TemporaryDirectory()
    >>> checkpointer = fastemb.io.Checkpointer(fastemb.Embedding(10, 2), folder.name)
    >>> [checkpointer.save().name for _ in range(3)]
    ['base.safetensors', 'delta-00000001.safetensors', 'delta-00000002.safetensors']
    >>> fastemb.io.compact(folder.name)
    >>> [path.name for path in pathlib.Path(folder.name).iterdir()]
    ['base.safetensors']
    >>> folder.cleanup()
    """
    _compact(Path(folder), progress)


def _compact(folder: Path, progress: bool | None) -> tuple[str, str]:
    """The checksums that the next file would have had to name before, and has to now."""
    snapshot = read(folder, progress)
    told = {name: value for name, value in snapshot.told.items() if name not in ("parent", "rows")}
    checksum = write(folder / BASE, snapshot.arrays, told, progress)
    _remove_deltas(folder, told.get("sequence", 0))
    return snapshot.checksum, checksum


def _remove_deltas(folder: Path, last: int) -> None:
    """Remove what is in the base."""
    for number, path in deltas(folder).items():
        if number <= last:
            path.unlink(missing_ok=True)
