"""Lookups for JAX on the CPU: in ``jit``, ``grad``, ``jvp`` and ``vmap``, on JAX's own memory.

Reading operations of fastemb itself, such as ``fastemb.gather``, take JAX's arrays too, without a copy, and return
NumPy's. The functions of this module return JAX's and can be compiled and differentiated.

What they cost: a lookup in compiled code reads the table where it lies and writes its result where XLA wants it. The
gradient of a table is an array of its shape, as always in JAX; steps that touch the rows in use alone are
`fastemb.optim`, on NumPy arrays.

An index out of range is no error in JAX. It gives NaN, as in ``jnp.take``, and has no gradient; a negative one does not
count from the end, unlike there. `check_indices` makes it an error by ``checkify``.

Examples
--------
>>> import jax, jax.numpy as jnp
>>> from fastemb.interop.jax import embedding
>>> table = jnp.arange(8.0).reshape(4, 2)
>>> jax.jit(embedding)(table, jnp.array([3, 0, 4]))
Array([[ 6.,  7.],
       [ 0.,  1.],
       [nan, nan]], dtype=float32)
>>> jax.grad(lambda table: embedding(table, jnp.array([3, 0, 3])).sum())(table)
Array([[1., 1.],
       [0., 0.],
       [0., 0.],
       [2., 2.]], dtype=float32)
"""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np

from .. import _options
from .._arrays import TensorLike, as_indices
from .._bags import check_mode
from .._compat import optional

if optional("jax") is None:
    msg = "fastemb.interop.jax needs JAX: pip install 'fastemb[jax]'"
    raise ImportError(msg)

import jax
import jax.numpy as jnp
from jax.experimental import checkify

from . import _jax_primitives as primitives

__all__ = ["check_indices", "embedding", "embedding_bag"]

_FLOATS = ("float16", "bfloat16", "float32", "float64")


def embedding(weight: Any, indices: TensorLike, *, padding_idx: SupportsIndex | None = None) -> jax.Array:
    """Look rows of a table up.

    ``out[k, :] = weight[indices[k], :]``; NaN where the index is out of range.

    Parameters
    ----------
    weight : (N, D) array of float16, bfloat16, float32 or float64
        The table.
    indices : array_like of int, any shape
        Row numbers in ``[0, N)``.
    padding_idx : int, optional
        In ``[-N, N)``: this row gets no gradient.

    Returns
    -------
    jax.Array
        Shape ``(*indices.shape, D)``, dtype of `weight`.

    Raises
    ------
    TypeError
        Indices that are not integers, or a table that is not a float array.
    ValueError
        A table that is not two-dimensional, or a `padding_idx` out of range.

    Notes
    -----
    Moves ``2 * L * D * itemsize`` bytes and the indices; the gradient N * D elements more. Gradients are summed as by
    `fastemb.scatter_add`: in the order of the positions, those of float16 in float32. Derivatives of any order, forward
    and reverse. A batch under ``vmap`` is one lookup, and its gradient one sum: no element of a batch that shares its
    table has a gradient of its own.

    Where JAX has 32 bits, ``jax.jit`` makes int32 of an int64 array of NumPy before it comes here, without a check.
    Called outside of compiled code, indices that do not fit are out of range.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from fastemb.interop.jax import embedding
    >>> table = jnp.arange(6.0).reshape(3, 2)
    >>> jax.vmap(embedding, in_axes=(None, 0))(table, jnp.array([2, 0]))
    Array([[4., 5.],
           [0., 1.]], dtype=float32)
    """
    table = _as_table(weight, _FLOATS)
    padding = _options.padding(padding_idx, table.shape[0])
    found: jax.Array = _embedding(table, _as_ids(indices), padding)
    return found


def embedding_bag(
    weight: Any,
    indices: TensorLike,
    offsets: TensorLike | None = None,
    *,
    mode: str = "mean",
    per_sample_weights: TensorLike | None = None,
    padding_idx: SupportsIndex | None = None,
    include_last_offset: bool = False,
) -> jax.Array:
    """Look bags of rows up and pool each, as `fastemb.embedding_bag` says.

    With w the `per_sample_weights`, or ones, and sums over the positions k of bag b:

    - "sum": ``out[b] = sum(w[k] * weight[indices[k]])``
    - "mean": ``out[b] = sum(w[k] * weight[indices[k]]) / sum(w[k])``
    - "sqrtn": ``out[b] = sum(w[k] * weight[indices[k]]) / sqrt(sum(w[k]**2))``
    - "max": ``out[b, j] = max(weight[indices[k], j])``

    Parameters
    ----------
    weight : (N, D) array of float32 or float64
        The table.
    indices : array_like of int, (L,) or (B, H)
        Row numbers in ``[0, N)``. Of a 2-D array each row is a bag.
    offsets : array_like of int, (B,) or with `include_last_offset` (B + 1,)
        For 1-D indices: where each bag begins, the first at 0, not decreasing.
    mode : {"mean", "sum", "sqrtn", "max"}
        How rows are pooled.
    per_sample_weights : array_like, shape of `indices`, optional
        Any real dtype that casts safely to that of the table. Not with "max".
    padding_idx : int, optional
        In ``[-N, N)``: positions with this index are left out, of counts and sums of weights too.
    include_last_offset : bool
        Whether `offsets` also says where the last bag ends, which must be L.

    Returns
    -------
    (B, D) jax.Array
        Zeros for a bag that is empty or holds padding alone, and where the sum that divides is zero. NaN for a bag with
        an index out of range, which adds nothing to the gradient; the rest of the bag does.

    Raises
    ------
    TypeError
        Indices or offsets that are not integers, weights that do not cast safely.
    ValueError
        Shapes that do not fit, an unknown mode. What offsets hold is known when the computation runs: wrong ones are a
        ``jax.errors.JaxRuntimeError`` then.

    Notes
    -----
    Differentiable in `weight` and in `per_sample_weights`, to any order, forward and reverse; "max" once, in reverse,
    and under ``vmap`` with a gradient of the whole table for each element of the batch.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from fastemb.interop.jax import embedding_bag
    >>> table = jnp.array([[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]])
    >>> embedding_bag(table, jnp.array([[1, 2], [0, 2]]), padding_idx=0)
    Array([[2., 3.],
           [3., 4.]], dtype=float32)
    >>> weights = jnp.array([[1.0, 0.5], [1.0, 2.0]])
    >>> jax.grad(lambda w: embedding_bag(table, [[1, 2], [0, 2]], mode="sum", per_sample_weights=w).sum())(weights)
    Array([[3., 7.],
           [0., 7.]], dtype=float32)
    """
    check_mode(mode)
    table, ids = _as_table(weight, _FLOATS[2:]), _as_ids(indices)
    padding = _options.padding(padding_idx, table.shape[0])
    starts = _as_starts(ids, offsets, include_last_offset)
    factors = None if per_sample_weights is None else _as_factors(per_sample_weights, ids.shape, table.dtype, mode)
    pooled: jax.Array = _embedding_bag(table, ids, starts, factors, mode, padding)
    return pooled


def check_indices(indices: TensorLike, num_embeddings: SupportsIndex) -> None:
    """Make an index out of range an error of ``checkify``.

    Parameters
    ----------
    indices : array_like of int, any shape
        Row numbers.
    num_embeddings : int
        N: they have to be in ``[0, N)``.

    Raises
    ------
    TypeError
        Indices that are not integers.

    Notes
    -----
    For code that runs under ``jax.experimental.checkify.checkify``, which hands the error over beside the result.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jax.experimental.checkify import checkify
    >>> from fastemb.interop.jax import check_indices, embedding
    >>> @jax.jit
    ... def look_up(table, ids):
    ...     check_indices(ids, table.shape[0])
    ...     return embedding(table, ids)
    >>> error, rows = checkify(look_up)(jnp.ones((5, 2)), jnp.array([0, 5]))
    >>> print(error.get())
    Embedding indices must be in [0, 5), but got values in [0, 5] (first at position 1). (`check` failed)
    """
    ids, rows = _as_ids(indices).reshape(-1), _options.integer("num_embeddings", num_embeddings, at_least=0)
    if not ids.size:
        return
    ids = primitives.wide(ids, rows)
    bad = (ids < 0) | (ids >= rows)
    text = (
        f"Embedding indices must be in [0, {rows}), but got values in [{{lo}}, {{hi}}] (first at position {{first}})."
    )
    checkify.check(~bad.any(), text, lo=ids.min(), hi=ids.max(), first=bad.argmax())


# What arguments may be


def _as_table(weight: Any, floats: tuple[str, ...]) -> Any:
    table = jnp.asarray(weight)
    if table.dtype.name not in floats:
        msg = f"weight must be {', '.join(floats[:-1])} or {floats[-1]}, got {table.dtype}"
        raise TypeError(msg)
    if table.ndim != 2:
        msg = f"weight must be 2-D (N, D), got shape {table.shape}"
        raise ValueError(msg)
    return table


def _as_ids(indices: Any, name: str = "indices") -> Any:
    """int32, or int64 where JAX has it and the dtype has greater numbers: those are out of range of every table."""
    if not isinstance(indices, jax.Array):
        indices = as_indices(indices, name)
        least, greatest = np.iinfo(_width(np.int64)).min, np.iinfo(_width(np.int64)).max
        indices = np.where((indices >= least) & (indices <= greatest), indices, -1).astype(_width(np.int64))
    if not jnp.issubdtype(indices.dtype, jnp.integer):
        msg = f"{name} must be integers, got {indices.dtype}"
        raise TypeError(msg)
    return jnp.asarray(indices).astype(np.int32 if np.can_cast(indices.dtype, np.int32) else _width(np.int64))


def _width(dtype: Any) -> np.dtype[Any]:
    """What JAX makes of a dtype: 32 bits of it, unless it is told to keep 64."""
    kept: np.dtype[Any] = np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    return kept


def _as_starts(ids: Any, offsets: Any, include_last_offset: bool) -> Any:
    """Where bags begin, and where the last one ends: (B + 1,)."""
    if ids.ndim == 2:
        if offsets is not None:
            msg = "offsets must be None for 2-D indices: each row is a bag"
            raise ValueError(msg)
        bags, length = ids.shape
        return jnp.arange(bags + 1, dtype=primitives.wide(ids, bags * length).dtype) * length
    if ids.ndim != 1:
        msg = f"indices must be 1-D with offsets, or 2-D, got shape {ids.shape}"
        raise ValueError(msg)
    if offsets is None:
        msg = "offsets must be given for 1-D indices"
        raise ValueError(msg)
    starts = _as_ids(offsets, "offsets")
    if starts.ndim != 1:
        msg = f"offsets must be 1-D, got shape {starts.shape}"
        raise ValueError(msg)
    if not starts.size and (ids.size or include_last_offset):
        msg = (
            f"offsets must not be empty with {'include_last_offset' if include_last_offset else f'{ids.size} indices'}"
        )
        raise ValueError(msg)
    return starts if include_last_offset else jnp.append(starts, jnp.asarray(ids.size, starts.dtype))


def _as_factors(weights: Any, shape: tuple[int, ...], dtype: Any, mode: str) -> Any:
    if mode == "max":
        msg = "per_sample_weights cannot be used with mode 'max'"
        raise ValueError(msg)
    factors = weights if hasattr(weights, "dtype") else jnp.asarray(weights, dtype)
    if factors.dtype == bool or not np.can_cast(factors.dtype, dtype, "safe"):
        msg = f"per_sample_weights must be real numbers that cast safely to {dtype}, got {factors.dtype}"
        raise TypeError(msg)
    if factors.shape != shape:
        msg = f"per_sample_weights must have shape {shape}, got {factors.shape}"
        raise ValueError(msg)
    return jnp.asarray(factors, dtype)


# What is compiled


def _look_up(table: Any, ids: Any, padding: int | None) -> Any:
    found = primitives.take(table, ids, nan=True)
    if padding is None:
        return found
    return jnp.where((ids == padding)[..., np.newaxis], jax.lax.stop_gradient(found), found)


def _pool(table: Any, ids: Any, starts: Any, factors: Any, mode: str, padding: int | None) -> Any:
    rows = table.shape[0]
    ids = primitives.wide(ids.reshape(-1), rows)
    ids = jnp.where(ids == rows, -1, ids)
    if padding is not None:
        ids = jnp.where(ids == padding, rows, ids)  # which primitives leave out
    if mode == "max":
        return primitives.largest(table, ids, starts)
    plain = factors is None and padding is None
    factors = jnp.ones(ids.shape, table.dtype) if factors is None else factors.reshape(-1)
    pooled = primitives.pool(table, ids, starts, factors, nan=True)
    if mode == "sum":
        return pooled
    if plain:
        total = jnp.diff(starts).astype(table.dtype)
    else:
        weights = jnp.where(ids == rows, 0, factors)
        total = _sum_of_bags(weights if mode == "mean" else weights**2, starts)
    divisor = jnp.where(total == 0, 1, total)
    divisor = divisor if mode == "mean" else jnp.sqrt(divisor)
    return jnp.where((total == 0)[:, np.newaxis], 0, pooled / divisor[:, np.newaxis])


def _sum_of_bags(numbers: Any, starts: Any) -> Any:
    bags = starts.size - 1
    of_bag = jnp.repeat(jnp.arange(bags), jnp.diff(starts), total_repeat_length=numbers.size)
    return jax.ops.segment_sum(numbers, of_bag, bags)


_embedding = jax.jit(_look_up, static_argnums=2)
_embedding_bag = jax.jit(_pool, static_argnums=(4, 5))
