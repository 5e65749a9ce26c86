"""Tables and optimizer state that stay in files: memory-mapped, looked up and trained in place."""

from __future__ import annotations

import math
import os
import weakref
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import _options
from .._arrays import TensorLike, as_indices, as_table, check_indices
from .._compat import as_dtype
from .._pages import mapping, read_ahead
from .._progress import progress_bar
from ..optim import Optimizer, State
from . import arrays, formats, tensors
from .atomic import replacing

_STEPS: weakref.WeakKeyDictionary[State, NDArray[Any]] = weakref.WeakKeyDictionary()
"""Where the step count of a state that `open_state` made is in its file."""


def open_table(path: str | os.PathLike[str], mode: str = "r", *, name: str | None = None) -> NDArray[Any]:
    """A table in an .npy or safetensors file, mapped into memory: only the rows that are looked up are read.

    Parameters
    ----------
    path : str or os.PathLike
        The file.
    mode : {"r", "r+"}
        Read-only, or to be changed in place: by `scatter_add`, by steps of an optimizer, by assignment.
    name : str, optional
        A tensor of a safetensors file; by default "weight", or the only one there.

    Returns
    -------
    (N, D) ndarray
        A ``numpy.memmap``, whose ``flush()`` waits until changes are on the disk; of other shapes if the file has such.

    Raises
    ------
    OSError
        The file cannot be read, or with "r+" not be written.
    ValueError
        Neither format, a truncated file, no such tensor; "r+" for a file that `save_layer` wrote, whose checksum would
        no longer be right.

    Notes
    -----
    Memory is that of the pages in use, which the system takes back when it needs them: a table may be many times larger
    than memory. Lookups and steps read whole pages, 4 KiB for most, and the system is told not to read what is around
    them. With a layer: ``Embedding.from_pretrained(table)``. A disk that is full when a page of a file with holes is
    first written ends the process (SIGBUS): that is how mapped files work.

    Changes survive a process that is killed, in any order; only `flush` makes them survive the machine.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, fastemb
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "table.npy")
    >>> np.save(path, np.arange(6, dtype=np.float32).reshape(3, 2))
    >>> table = fastemb.io.open_table(path, "r+")
    >>> rule = fastemb.optim.SGD(lr=1.0)
    >>> rule.step(table, rule.init(table), [1], np.ones((1, 2), np.float32))
    >>> table.flush()
    >>> fastemb.gather(fastemb.io.open_table(path), [1, 2])
    array([[1., 2.],
           [4., 5.]], dtype=float32)
    >>> del table
    >>> folder.cleanup()
    """
    path = Path(path)
    _options.choice("mode", mode, ("r", "r+"))
    kind = formats.of_file(path, None)
    if kind not in formats.ARRAYS:
        msg = f"{path} must be an .npy or safetensors file"
        raise ValueError(msg)
    if kind == "npy":
        if name is not None:
            msg = f"name is for safetensors files alone, got {name!r}"
            raise ValueError(msg)
        return _map_npy(path, mode)
    with path.open("r+b" if mode == "r+" else "rb") as file:  # once: another process may replace it meanwhile
        header = tensors.read_header(path, file)
        if mode == "r+" and header.checksum is not None:
            why = "changes in place would make wrong: open it in mode 'r', or load the layer"
            msg = f"{path} has a checksum, which {why}"
            raise ValueError(msg)
        return tensors.map_tensor(header, _named(header, name), mode)


def _named(header: tensors.Header, name: str | None) -> str:
    names = sorted(header.tensors)
    chosen = name or ("weight" if "weight" in names else names[0] if len(names) == 1 else None)
    if chosen not in names:
        found = ", ".join([*map(repr, names[:5]), *(["..."] if len(names) > 5 else [])]) or "none"
        msg = f"{header.path}: name must be that of a tensor, got {name!r}; there are {found}"
        raise ValueError(msg)
    return chosen


def _map_npy(path: Path, mode: str) -> NDArray[Any]:
    with path.open("rb") as file:
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, in_columns, dtype = read(file)
        except ValueError as error:
            msg = f"{path}: {error}"
            raise ValueError(msg) from error
        start = file.tell()
    if dtype.hasobject:
        msg = f"{path} holds Python objects, which are not read"
        raise ValueError(msg)
    size, end = path.stat().st_size, start + math.prod(shape) * dtype.itemsize
    if size < end:  # NumPy would make the file longer
        msg = f"{path} is truncated: there are {size} bytes, and {end} in its header"
        raise ValueError(msg)
    return tensors.map_array(path, mode, dtype, shape, start, "F" if in_columns else "C")


def create_table(
    path: str | os.PathLike[str],
    num_embeddings: SupportsIndex,
    embedding_dim: SupportsIndex,
    *,
    dtype: DTypeLike = "float32",
) -> NDArray[Any]:
    """Make a file of zeros, of which only pages that are written take room on the disk, and open it in mode "r+".

    Parameters
    ----------
    path : str or os.PathLike
        A new file in .npy or .safetensors.
    num_embeddings : int
        N, rows of the table, at least 1.
    embedding_dim : int
        D, width of a row, at least 1.
    dtype : dtype_like
        float16, bfloat16 (in .safetensors), float32 or float64.

    Returns
    -------
    (N, D) ndarray
        As of `open_table`.

    Raises
    ------
    FileExistsError
        There is such a file.
    OSError
        The file cannot be written.
    TypeError
        A size that is not an integer, a dtype that the format does not have.
    ValueError
        A size out of range, another suffix.

    Examples
    --------
    >>> import pathlib, tempfile, fastemb
    >>> folder = tempfile.TemporaryDirectory()
    >>> table = fastemb.io.create_table(pathlib.Path(folder.name, "table.npy"), 1_000_000, 8)
    >>> table[[5, 999_999]] = 1
    >>> fastemb.gather(table, [999_999])
    array([[1., 1., 1., 1., 1., 1., 1., 1.]], dtype=float32)
    >>> del table
    >>> folder.cleanup()
    """
    path = Path(path)
    kind, _ = formats.to_save(path, None)
    shape = _options.size("num_embeddings", num_embeddings), _options.size("embedding_dim", embedding_dim)
    zeros = tensors.constant(shape, as_table(np.empty((0, 0), as_dtype(dtype)), "dtype").dtype, 0)
    if kind not in formats.ARRAYS or (kind == "npy" and zeros.dtype.kind != "f"):
        msg = f"{path} must be an .npy or .safetensors file, the latter for bfloat16, got {zeros.dtype}"
        raise ValueError(msg)
    if path.exists():
        msg = f"{path} exists"
        raise FileExistsError(msg)
    with replacing(path) as file:
        if kind == "npy":
            file.write(arrays.npy_header(zeros))
            file.truncate(file.tell() + zeros.nbytes)
        else:
            tensors.write_to_change(file, {"weight": zeros}, lambda _: None)
    return open_table(path, "r+")


def open_state(
    path: str | os.PathLike[str], rule: Optimizer, weight: NDArray[Any], *, progress: bool | None = None
) -> State:
    """The state of an optimizer for a table, in a safetensors file that is mapped into memory.

    Parameters
    ----------
    path : str or os.PathLike
        The file; where there is none it is made, with what ``rule.init(weight)`` would begin with. Zeros take no room
        on the disk before they are written.
    rule : fastemb.optim.Optimizer
        The rule, in mode "lazy" if it has modes.
    weight : (N, D) ndarray
        The table.
    progress : bool, optional
        A progress bar on stderr while a state that does not begin with zeros is written. By default on a terminal, if
        rich is installed.

    Returns
    -------
    fastemb.optim.State
        What `rule` takes for `weight`. `flush` saves its step count.

    Raises
    ------
    ImportError
        rich, for ``progress=True``, is not installed.
    OSError
        The file cannot be read or written.
    TypeError
        Not an optimizer, or `weight` is not a float array.
    ValueError
        A rule in mode "exact", whose log of steps grows; a file that is damaged, or the state of another rule or table.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, fastemb
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name)
    >>> table = fastemb.io.create_table(path / "table.npy", 1_000_000, 8)
    >>> rule = fastemb.optim.Adagrad(lr=0.5)
    >>> state = fastemb.io.open_state(path / "adagrad.safetensors", rule, table)
    >>> rule.step(table, state, [7], np.ones((1, 8), np.float32))
    >>> fastemb.io.flush(table, state)
    >>> again = fastemb.io.open_state(path / "adagrad.safetensors", rule, table)
    >>> again.step, again.S[7, :2].tolist()
    (1, [1.0, 1.0])
    >>> del table, state, again
    >>> folder.cleanup()
    """
    path, table = Path(path), as_table(weight)
    if not isinstance(rule, Optimizer):
        msg = f"rule must be a fastemb.optim.Optimizer, got {type(rule).__name__}"
        raise TypeError(msg)
    one = rule.init(np.zeros((1, table.shape[1]), table.dtype))  # says what each row has
    if one.missed is not None:
        msg = "rule must be in mode 'lazy': in mode 'exact' a state has a log of steps, which grows"
        raise ValueError(msg)
    wanted = {
        name: tensors.constant((len(array) * len(table), *array.shape[1:]), array.dtype, array.max(initial=0))
        for name, array in one.arrays().items()
    }
    wanted["step"] = np.zeros(1, np.int64)
    if not path.exists():
        label, total = path.name, sum(array.nbytes for array in wanted.values() if not tensors.is_hole(array))
        with progress_bar(label, total, progress, of_bytes=True) as advance, replacing(path) as file:
            tensors.write_to_change(file, wanted, advance)
    with path.open("r+b") as file:
        header = tensors.read_header(path, file)
        found = {name: tensors.map_tensor(header, name, "r+") for name in header.tensors}
    layout = {name: (array.shape, array.dtype) for name, array in wanted.items()}
    if header.checksum is not None or layout != {name: (array.shape, array.dtype) for name, array in found.items()}:
        of = f"{type(rule).__name__} for a table of shape {table.shape} and dtype {table.dtype}"
        msg = f"{path} must hold the state of {of}, as open_state makes it"
        raise ValueError(msg)
    step = found.pop("step")
    state = type(one)(_options.integer("step", step[0], at_least=0), **found)
    _STEPS[state] = step
    return state


def flush(*mapped: NDArray[Any] | State) -> None:
    """Wait until changes of mapped tables and states are on the disk.

    Parameters
    ----------
    *mapped : ndarray or fastemb.optim.State
        What `open_table`, `create_table` and `open_state` gave, or views of that.

    Raises
    ------
    OSError
        Something cannot be written.
    ValueError
        An array or a state that is in no file. Nothing has been done then.
    """
    files = []
    for one in mapped:
        if isinstance(one, State) and one not in _STEPS:
            msg = "a state must be made by open_state to be flushed"
            raise ValueError(msg)
        for array in (*one.arrays().values(), _STEPS[one]) if isinstance(one, State) else (one,):
            file = mapping(array)
            if file is None and array.size:
                msg = "an array must be in a mapped file to be flushed"
                raise ValueError(msg)
            files.append(file)
    for one in mapped:
        if isinstance(one, State):
            _STEPS[one][0] = one.step
    for file in files:
        if file is not None:
            file.flush()


def prefetch(table: NDArray[Any], ids: TensorLike) -> None:
    """Ask the system to read the rows of a batch of a mapped table, and do not wait: for the batch after this one.

    Parameters
    ----------
    table : ndarray
        What `open_table` gave, or an array of a state of `open_state`; for any other nothing is done.
    ids : array_like of int, any shape
        Rows, in ``[0, N)``.

    Raises
    ------
    IndexError
        An id out of range.
    TypeError
        Ids that are not integers.

    Notes
    -----
    Without it a lookup waits for one page after the other. Where rows of a sample of the batch are all in memory,
    nothing is asked. Lookups, bags and steps do this for their own rows.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, fastemb
    >>> folder = tempfile.TemporaryDirectory()
    >>> table = fastemb.io.create_table(pathlib.Path(folder.name, "table.npy"), 1_000_000, 8)
    >>> batches = np.random.default_rng(0).integers(0, 1_000_000, (3, 100))
    >>> for batch, following in zip(batches, [*batches[1:], []]):
    ...     fastemb.io.prefetch(table, following)
    ...     y = fastemb.gather(table, batch)
    >>> del table
    >>> folder.cleanup()
    """
    rows = as_indices(ids)
    check_indices(rows, len(table))
    read_ahead(table, rows)
