"""What an index, table or gradient array may be."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._devices import (
    HOST,
    REFUSED,
    as_cupy,
    device_of,
    is_aligned,
    is_array,
    is_on_gpu,
    is_writeable,
    kernel_floats,
    namespace,
    not_handed_over,
    require_cuda_dtype,
    require_host,
    require_one_device,
    to_device,
    type_name,
)
from .kernels import accumulator as accumulator

Indices = NDArray[Any]
Table = NDArray[Any]


class SupportsDLPack(Protocol):
    """A tensor of another library, as far as typing is concerned."""

    def __dlpack__(self, *, stream: None = None) -> Any:
        """Hand the memory over."""
        ...


TensorLike = ArrayLike | SupportsDLPack


BLOCK = 1 << 12
"""Indices widened, or gradient rows cast, at a time."""

_KERNEL_INDICES = (np.dtype(np.int64), np.dtype(np.int32))
_KERNEL_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


# Indices


def as_array(value: Any, name: str) -> NDArray[Any]:
    """A plain array of the caller's array, tensor, number or nested list: CuPy's of what is on a GPU, else NumPy's.

    No copy where it is an array.
    """
    if isinstance(value, np.ma.MaskedArray):
        msg = f"{name} must be a NumPy array without a mask, got MaskedArray"
        raise TypeError(msg)
    if isinstance(value, np.ndarray):
        return value if type(value) is np.ndarray else value.view(np.ndarray)
    if is_on_gpu(value, name):
        return as_cupy(value, name)
    if not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    try:
        return np.from_dlpack(value)
    except REFUSED as error:
        raise not_handed_over(value, name, error) from error


def read_once(value: Any, name: str) -> Any:
    """A tensor as an array, as it may be handed over only once; lists as they are, whose numbers have no dtype."""
    return value if isinstance(value, (list, tuple)) else as_array(value, name)


def beside(array: NDArray[Any], given: Any, name: str, other: NDArray[Any], other_name: str = "weight") -> NDArray[Any]:
    """The array on the device of `other`: what was given as numbers goes there, an array has to be there."""
    if type(array) is type(other) is np.ndarray:
        return array
    if is_array(given) or isinstance(other, np.ndarray):
        require_one_device({other_name: other, name: array})
        return array
    return array if array.dtype == object else to_device(array, device_of(other))


def _python_leaves(value: Any) -> NDArray[Any] | None:
    """The Python objects in nested lists, or None for what has a dtype of its own."""
    return None if is_array(value) or hasattr(value, "__array__") else np.array(value, dtype=object)


def _are_integers(leaves: NDArray[Any]) -> bool:
    return all(isinstance(i, (int, np.integer)) and not isinstance(i, bool) for i in leaves.flat)


def _is_beyond_64_bits(array: NDArray[Any]) -> bool:
    """Whether these are integers that no dtype can hold together."""
    if array.dtype != object or array.size == 0 or not _are_integers(array):
        return False
    return np.asarray(array.tolist()).dtype.kind not in "iu"


def as_indices(
    indices: TensorLike, name: str = "indices", *, like: NDArray[Any] | None = None, like_name: str = "weight"
) -> Indices:
    """An integer array with the values of `indices`, not yet checked against a table; on the device of `like`.

    Python integers beyond 64 bits stay in an object array: they are out of range of every table. What was returned
    once is returned as it is: whoever reads indices once, before a lookup that writes, may hand them on.
    """
    if type(indices) is np.ndarray and (indices.dtype.kind in "iu" or _is_beyond_64_bits(indices)):
        array = indices
    else:
        require_host(indices, name, like, like_name)
        array = _integers(as_array(indices, name), indices, name)
    if like is None or type(array) is type(like) is np.ndarray:
        return array
    return beside(array, indices, name, like, like_name)


def _integers(array: NDArray[Any], given: Any, name: str) -> Indices:
    """The array that was made of what was given, if those are integers."""
    leaves = None if isinstance(given, np.ndarray) else _python_leaves(given)
    if leaves is None:
        if array.dtype.kind in "iu":
            return array
    else:
        if array.size == 0 and array.dtype == np.float64:  # what NumPy makes of []
            return array.astype(np.int64)
        if leaves.size and _are_integers(leaves):
            return array if array.dtype.kind in "iu" else leaves
        if array.dtype.kind in "iu" and array.size:
            msg = f"{name} must be integers, got a list that holds bool"
            raise TypeError(msg)
    msg = f"{name} must be integers, got {array.dtype}"
    if array.dtype.kind in "fb" and array.ndim >= 2 and _is_one_hot(array):
        msg += ": this looks like a one-hot array; pass the integer ids, for example indices.argmax(axis=-1)"
    raise TypeError(msg)


def _is_one_hot(array: NDArray[Any]) -> bool:
    return bool(array.size and ((array == 0) | (array == 1)).all() and (array.sum(axis=-1) == 1).all())


def index_error(indices: Indices, num_rows: int) -> IndexError:
    """The error for indices of which at least one is outside ``[0, num_rows)``."""
    flat = indices.ravel()
    if not isinstance(flat, np.ndarray):
        flat = to_device(flat, HOST)
    first = int(np.argmax((flat < 0) | (flat >= num_rows)))
    lo, hi = int(flat.min()), int(flat.max())
    text = f"Embedding indices must be in [0, {num_rows}), but got values in [{lo}, {hi}] (first at position {first})."
    if lo < 0:
        text += " Note that unseen categories encoded as -1 must be mapped to a dedicated index instead."
    return IndexError(text)


def kernel_indices(indices: Indices) -> Indices | None:
    """The indices as a kernel takes them, flat, if that needs no copy."""
    if indices.dtype in _KERNEL_INDICES and indices.flags.c_contiguous and is_aligned(indices):
        return indices.reshape(-1)
    return None


def check_indices(indices: Indices, num_rows: int) -> None:
    """Raise `index_error` unless all are in range: for what kernels cannot read, compared as what they are."""
    if not indices.size:
        return
    if isinstance(indices, np.ndarray):
        bad = int(indices.min()) < 0 or int(indices.max()) >= num_rows
    else:  # one wait for the device, not two
        bad = bool(((indices < 0) | (indices >= num_rows)).any())
    if bad:
        raise index_error(indices, num_rows)


def index_blocks(indices: Indices) -> Iterator[Indices]:
    """Checked indices of any integer dtype, strides and byte order, in C order: int64 blocks of at most `BLOCK`."""
    if indices.size == 0:
        return
    flags: Any = [["readonly", "contig"]]  # contig: full buffers, also where only the strides are odd
    with np.nditer(
        np.atleast_1d(indices),
        flags=["external_loop", "buffered"],
        op_flags=flags,
        op_dtypes=[np.int64],
        order="C",
        casting="same_kind",
        buffersize=BLOCK,
    ) as blocks:
        for block in blocks:
            yield np.array(block)  # writeable, like the caller's arrays: one kernel to compile, not two


def all_indices(indices: Indices, num_rows: int) -> Indices:
    """The indices as a kernel takes them, flat; copied, after the check, where they have to be widened."""
    flat = kernel_indices(indices)
    if flat is None:
        if isinstance(indices, np.ndarray) or indices.dtype == np.uint64:  # else a kernel looks at what was widened
            check_indices(indices, num_rows)
        flat = indices.astype(np.int64).reshape(-1)
    return flat


# Tables


def as_table(weight: Any, name: str = "weight", *, write: bool = False) -> Table:
    """A two-dimensional float array that kernels may read, or with `write` change in place."""
    plain = type(weight) is np.ndarray and weight.dtype in _KERNEL_FLOATS and weight.ndim == 2
    if plain and (not write or weight.flags.carray):
        return weight  # type: ignore[no-any-return]
    if not is_array(weight):
        msg = f"{name} must be an array, got {type_name(weight)}"
        raise TypeError(msg)
    table = as_array(weight, name)
    if not isinstance(table, np.ndarray):
        require_one_device({name: table})
        require_cuda_dtype(table.dtype, name)
    if not _is_float(table.dtype):
        msg = f"{name} must be float16, bfloat16, float32 or float64, got {table.dtype}"
        raise TypeError(msg)
    if table.ndim != 2:
        msg = f"{name} must be 2-D (N, D), got shape {table.shape}"
        raise ValueError(msg)
    if not isinstance(table, np.ndarray):
        _require_contiguous(table, name)
    elif write:
        _require_writeable_rows(table, name)
    return table


def _is_float(dtype: np.dtype[Any]) -> bool:
    return (dtype.kind == "f" and dtype.itemsize <= 8) or dtype.name == "bfloat16"


def _require_contiguous(table: Table, name: str) -> None:
    if not table.flags.c_contiguous:
        msg = f"{name} must be C-contiguous on a GPU, got strides {table.strides} of shape {table.shape}"
        raise ValueError(msg)


def _require_writeable_rows(weight: Table, name: str) -> None:
    if not weight.flags.writeable:
        msg = f"{name} is read-only and this operation writes into it"
        raise ValueError(msg)
    if not weight.dtype.isnative:
        msg = f"{name} must be in native byte order to be written in place, got {weight.dtype.str!r}"
        raise ValueError(msg)
    rows, width = weight.shape
    between, within = weight.strides
    if weight.size and (
        (width > 1 and within != weight.itemsize) or (rows > 1 and abs(between) < width * weight.itemsize)
    ):
        msg = f"{name} must have C-contiguous rows to be written in place, got strides {weight.strides}"
        raise ValueError(msg)


def as_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], like: NDArray[Any]) -> NDArray[Any]:
    """The caller's output array, plain, if it is exactly what the operation would have made beside `like`."""
    if not is_array(out):
        msg = f"out must be an array, got {type_name(out)}"
        raise TypeError(msg)
    require_host(out, "out", like, "weight")
    plain = beside(as_array(out, "out"), out, "out", like)
    if plain.shape != shape:
        msg = f"out must have shape {shape}, got {plain.shape}"
        raise ValueError(msg)
    if plain.dtype != dtype:
        msg = f"out must have dtype {dtype}, got {plain.dtype}"
        raise ValueError(msg)
    if not plain.flags.c_contiguous or not is_writeable(plain):
        msg = "out must be C-contiguous and writeable"
        raise ValueError(msg)
    return plain


def require_disjoint(written: Mapping[str, NDArray[Any]], read: Mapping[str, NDArray[Any]]) -> None:
    """ValueError if an array that is written shares memory with another one."""
    names = list(written)
    for i, name in enumerate(names):
        others = {other: written[other] for other in names[i + 1 :]} | dict(read)
        for other, array in others.items():
            alike = type(written[name]) is type(array)
            if alike and namespace(array).may_share_memory(written[name], array) and _overlap(written[name], array):
                msg = f"{name} must not overlap {other} in memory"
                raise ValueError(msg)


def _overlap(a: NDArray[Any], b: NDArray[Any]) -> bool:
    if not isinstance(a, np.ndarray):
        return True  # tables are contiguous there, so what lies between their ends is theirs
    try:
        return np.shares_memory(a, b, max_work=10_000)  # type: ignore[arg-type]  # the stub knows two values alone
    except np.exceptions.TooHardError:
        return True


# Gradients


def as_gradient(
    grad: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    name: str = "grad",
    *,
    like: NDArray[Any] | None = None,
    like_name: str = "weight",
) -> NDArray[Any]:
    """A real array of `shape` whose dtype casts safely to the table's accumulation dtype; not cast yet.

    It lies on the device of `like`.

    Python numbers have no dtype of their own and take the accumulation dtype.
    """
    wanted = accumulator(dtype)
    if type(grad) is type(like) is np.ndarray and grad.dtype == wanted and grad.shape == shape:
        return grad
    require_host(grad, name, like, like_name)
    array = as_array(grad, name)
    leaves = None if isinstance(grad, np.ndarray) else _python_leaves(grad)
    if leaves is not None and any(isinstance(x, (bool, np.bool)) for x in leaves.flat):
        msg = f"{name} must be real numbers that cast safely to {wanted}, got a list that holds bool"
        raise TypeError(msg)
    if leaves is not None and array.dtype in (np.float64, np.int64):
        with np.errstate(all="ignore"):
            array = array.astype(wanted)
    if not is_gradient_dtype(array.dtype, wanted):
        msg = f"{name} must be real numbers that cast safely to {wanted}, got {array.dtype}"
        if array.dtype.kind == "f":
            msg += f"; convert it yourself: {name}.astype(np.{wanted})"
        raise TypeError(msg)
    if array.shape != shape:
        msg = f"{name} must have shape {shape}, got {array.shape}"
        raise ValueError(msg)
    return array if like is None else beside(array, grad, name, like, like_name)


def as_rows_of_gradient(grad: Any, indices: Indices, name: str = "grad") -> NDArray[Any]:
    """An array of shape ``(*indices.shape, D)``, whatever D."""
    array = as_array(grad, name)
    if array.ndim != indices.ndim + 1:
        lead = "".join(f"{n}, " for n in indices.shape)
        msg = f"{name} must have shape ({lead}D), got {array.shape}"
        raise ValueError(msg)
    return array


def is_gradient_dtype(dtype: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether gradients of `dtype` may be used where sums are made in `wanted`."""
    return (dtype.kind in "iuf" and np.can_cast(dtype, wanted, "safe")) or dtype.name == "bfloat16"


def kernel_gradient(grad: NDArray[Any]) -> NDArray[Any] | None:
    """The gradient as (L, D), if the compiled kernels can read it where it lies."""
    if grad.dtype not in kernel_floats(grad) or not is_aligned(grad):
        return None
    width = grad.shape[-1]
    rows = grad.size // width if width else math.prod(grad.shape[:-1])
    if not isinstance(grad, np.ndarray):
        return grad.reshape(rows, width) if grad.flags.c_contiguous else None
    try:
        return grad.reshape((rows, width), copy=False)
    except ValueError:  # strides that no two-dimensional view has
        return None


def cast_gradient(grad: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The gradient as (L, D), copied in `dtype` if the compiled kernels cannot read it where it lies."""
    readable = kernel_gradient(grad)
    if readable is None:
        with np.errstate(all="ignore"):
            copy = namespace(grad).ascontiguousarray(grad.astype(dtype))
        readable = copy.reshape(math.prod(copy.shape[:-1]), copy.shape[-1])
    return readable
