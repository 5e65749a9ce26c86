"""Checkpoints of a table over ranks: a file for each rank, and a manifest that is written last."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import optim
from .._compat import optional
from .._devices import HOST, to_device
from ..io.atomic import replacing, sync_folder
from ..io.tensors import read_header, verify, write
from .exchange import Exchange
from .initial import Fill
from .partition import Partition
from .rows import CHUNK_ROWS, Rows, Shard

FORMAT = "fastemb sharded table"
VERSION = 1
MANIFEST = "manifest.json"
_ENTRIES = {"options", "optimizer", "step", "files"}
_ENTRIES_OF_FILE = {"name", "start", "stop", "bytes", "checksum"}
_NAMES = re.compile(r"[0-9a-f]{16}-(\d{5,}|hot)\.safetensors")


def save(
    folder: str | os.PathLike[str],
    exchange: Exchange,
    partition: Partition,
    rows: Rows,
    layer: str,
    options: dict[str, Any],
) -> None:
    """Write the files of all ranks, then the manifest, then remove the files of other saves, killed ones too."""
    with exchange.together("save"):  # before any other message, or a rank that makes another call would be waited for
        path = Path(folder)
    token = exchange.of_root(secrets.token_hex(8))
    bounds = [*(int(bound) for bound in partition.bounds), partition.num_rows]
    names = [f"{token}-{part}.safetensors" for part in (*(f"{r:05d}" for r in range(exchange.size)), "hot")]
    try:
        with exchange.together("save"):
            path.mkdir(parents=True, exist_ok=True)
            own = _write(path / names[exchange.rank], rows.shard)
            hot = _write(path / names[-1], rows.hot) if exchange.rank == 0 else None
    except Exception:
        _remove(path, [names[exchange.rank], *(names[-1:] if exchange.rank == 0 else [])])
        raise
    written = exchange.of_all(own)
    with exchange.together("save"):
        if exchange.rank == 0:
            parts = zip(names, itertools.pairwise(bounds), [*written, hot], strict=True)
            files = [{"name": name, "start": a, "stop": b, **told} for name, (a, b), told in parts]
            _write_manifest(path, rows.shard, {"layer": layer, "options": options, "files": files})
    with exchange.together("save"):
        if exchange.rank == 0:
            found = (entry.name for entry in path.iterdir())
            _remove(path, [name for name in found if _NAMES.fullmatch(name) and name not in names])


def _write(path: Path, shard: Shard) -> dict[str, Any]:
    """Table and state in a new file, put on the disk; what the manifest says about its bytes."""
    tensors = {"weight": shard.weight}
    if shard.state is not None:
        tensors |= {f"state.{name}": array for name, array in shard.state.state_dict().items() if name != "step"}
    on_host = {name: to_device(array, HOST) for name, array in tensors.items()}
    with path.open("xb") as file:
        checksum = write(file, on_host, {}, lambda _: None)
        file.flush()
        os.fsync(file.fileno())
    if optional("fcntl") is not None:  # elsewhere folders cannot be opened
        sync_folder(path.parent)
    return {"bytes": path.stat().st_size, "checksum": checksum}


def _write_manifest(path: Path, shard: Shard, entries: dict[str, Any]) -> None:
    rule, state = shard.optimizer, shard.state
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "optimizer": None if rule is None else {"rule": type(rule).__name__, **dataclasses.asdict(rule)},
        "step": None if state is None else state.step,
        **entries,
    }
    with replacing(path / MANIFEST) as file:
        file.write(json.dumps(manifest, indent=1).encode() + b"\n")


def _remove(path: Path, names: list[str]) -> None:
    for name in names:
        with contextlib.suppress(OSError):
            (path / name).unlink()


def _read_manifest(path: Path, layer: str) -> dict[str, Any]:
    file = path / MANIFEST
    try:
        manifest = json.loads(file.read_text())
    except ValueError as error:
        msg = f"{file}: {error}"
        raise ValueError(msg) from error
    found = {key: manifest.get(key) for key in ("format", "version", "layer")} if isinstance(manifest, dict) else None
    wanted = {"format": FORMAT, "version": VERSION, "layer": layer}
    if found != wanted:
        msg = f"{file} must be a checkpoint of {wanted}, got {found}"
        raise ValueError(msg)
    if not set(manifest) >= _ENTRIES:
        msg = f"{file}: entries are missing, got {sorted(manifest)}"
        raise ValueError(msg)
    for entry in manifest["files"]:
        if not set(entry) >= _ENTRIES_OF_FILE:
            msg = f"{file}: entries of a file are missing, got {sorted(entry)}"
            raise ValueError(msg)
    return dict(manifest)


def _rule(path: Path, saved: Any) -> optim.Optimizer | None:
    """The optimizer of a manifest: one of fastemb's own rules."""
    if saved is None:
        return None
    options = {key: tuple(x) if isinstance(x, list) else x for key, x in saved.items()}
    name = options.pop("rule", None)
    kind: Any = getattr(optim, name) if name in optim.__all__ else None
    known = isinstance(kind, type) and issubclass(kind, optim.Optimizer)
    if not known:
        msg = f"{path / MANIFEST}: the optimizer must be one of fastemb.optim, got {name!r}"
        raise ValueError(msg)
    rule: optim.Optimizer = kind(**options)
    return rule


class Checkpoint:
    """What is in a folder: arrays with a row for each place, in several files.

    Parameters
    ----------
    folder : str or os.PathLike
        What `save` was given.
    layer : str
        The class that was saved.

    Attributes
    ----------
    options : dict
        Of the layer.
    optimizer : Optimizer or None
        Its rule.
    """

    def __init__(self, folder: str | os.PathLike[str], layer: str) -> None:
        self._module = _safetensors("safetensors")
        optional("ml_dtypes")  # makes bfloat16 known to NumPy
        path = Path(folder)
        manifest = _read_manifest(path, layer)
        self.options, self._step = manifest["options"], manifest["step"]
        self.optimizer = _rule(path, manifest["optimizer"])
        self._checksums = {path / file["name"]: file["checksum"] for file in manifest["files"]}
        self._files = [(path / file["name"], file["start"], file["stop"]) for file in manifest["files"]]
        for (name, _, _), file in zip(self._files, manifest["files"], strict=True):
            size = name.stat().st_size
            if size != file["bytes"]:
                msg = f"{name} must have {file['bytes']} bytes, got {size}"
                raise ValueError(msg)

    def verify(self, rank: int, size: int) -> None:
        """Check the bytes of every file against its checksum, or, on one of several ranks, those of its share."""
        for path, checksum in list(self._checksums.items())[rank::size]:
            found = verify(read_header(path), lambda _: None)
            if found != checksum:
                msg = f"{path} must have the checksum {checksum}, got {found}"
                raise ValueError(msg)

    def fill_of(self, _exchange: Exchange, _partition: Partition, _padding: int | None) -> Fill:
        """What fills a table."""
        return lambda out, places: self._read("weight", out, int(places[0]))

    def _read(self, name: str, out: NDArray[Any], first: int) -> None:
        """Fill `out` with the rows from place `first` on."""
        for path, start, stop in self._files:
            lo, hi = max(first, start), min(first + len(out), stop)
            if lo < hi:
                with self._open(path) as file:
                    self._copy(path, file.get_slice(name), out[lo - first : hi - first], lo - start)

    def _copy(self, path: Path, tensor: Any, out: NDArray[Any], first: int) -> None:
        for start in range(0, len(out), CHUNK_ROWS):
            part = out[start : start + CHUNK_ROWS]
            rows = tensor[first + start : first + start + len(part)]
            if rows.shape != part.shape or rows.dtype != part.dtype:
                msg = (
                    f"{path}: rows must have shape {part.shape} and dtype {part.dtype}, got {rows.shape}, {rows.dtype}"
                )
                raise ValueError(msg)
            part[...] = rows

    def load_state(self, shard: Shard, first: int) -> None:
        """Fill the state of an optimizer, whose first row has a place."""
        state, rows = shard.state, len(shard.weight)
        if state is None:
            return
        for name, array in state.arrays().items():
            if len(array) == rows:  # a rule has empty ones for what its options leave out
                self._read(f"state.{name}", array, first)
        state.step = self._step
        if state.missed is not None:
            last = np.zeros(rows, np.int64)
            self._read("state.last", last, first)
            with self._open(self._files[0][0]) as file:
                history = file.get_tensor("state.history")
            state.missed.take(last, history)

    @contextlib.contextmanager
    def _open(self, path: Path) -> Iterator[Any]:
        try:
            with self._module.safe_open(path, framework="np") as file:
                yield file
        except self._module.SafetensorError as error:
            msg = f"{path}: {error}"
            raise ValueError(msg) from error


def _safetensors(name: str) -> Any:
    module = optional(name)
    if module is None:
        msg = "checkpoints need the package safetensors: pip install fastemb[mpi]"
        raise ImportError(msg)
    return module
