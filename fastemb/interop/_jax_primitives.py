"""Lookups and their derivatives as JAX primitives: each is linear in its floats, and transposes of others.

With c the weights of the positions k of ids, W a table and g a gradient of results:

- `take`: ``out[k] = W[ids[k]]``, and `add` its transpose: ``dW[ids[k]] += g[k]``.
- `pool`: ``out[b] = sum of c[k] * W[ids[k]]`` over the positions k of bag b; `spread` its transpose for the table,
  ``dW[ids[k]] += c[k] * g[b]``; and `dots` that for the weights, ``dc[k] = W[ids[k]] . g[b]``. All three come from one
  form, ``sum of c[k] * (W[ids[k]] . g[b])``, so derivatives of any order stay among them.
- `largest`: the greatest elements of the rows of each bag; `credit`: its gradient.

A batch is one larger call: tables one below the other, bags one after the other. ``custom_vjp`` alone could not do
that: under ``vmap`` its rule makes a gradient of the whole table for each element of the batch, and adds them then.

ids are int32 or int64, all of them allowed: `_jax_host` says what those outside ``[0, N)`` do.
"""

# ruff: noqa: ARG001, ARG005  a rule takes what every rule takes

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from . import _jax_host as host
from . import _xla


def _primitive(function: Callable[..., None], shape_of: Callable[..., Any], *, of_table: bool = False) -> Any:
    """Make a function of the host a primitive, with the function's parameters but the first, which is the result.

    `shape_of` is the result's shape; its dtype is that of the float arguments. `of_table` says that it is a table.
    """
    name, names = f"fastemb_{function.__name__}", list(inspect.signature(function).parameters)[1:]
    _xla.register(name, function)
    if names[-1] == "nan":
        names.pop()
        _xla.register(f"{name}_or_nan", functools.partial(function, nan=True))

    def abstract(*arguments: Any, **options: Any) -> Any:
        dtype = next(a.dtype for a in arguments if jnp.issubdtype(a.dtype, jnp.floating))
        return jax.core.ShapedArray(shape_of(*arguments, **options), dtype)

    def lower(context: Any, *operands: Any, nan: bool = False, **_: Any) -> Any:
        return jax.ffi.ffi_lowering(f"{name}_or_nan" if nan else name)(context, *operands)

    def batch(arguments: Any, dims: Any, **options: Any) -> tuple[Any, int]:
        given = _Batch(dict(zip(names, arguments, strict=True)), dict(zip(names, dims, strict=True)), of_table)
        shape = (given.size, *shape_of(*given.one_of_each(), **options))
        found = primitive.bind(*given.merged(options), **options)
        return found.reshape(shape), 0

    primitive = Primitive(name)
    primitive.def_abstract_eval(abstract)
    primitive.def_impl(lambda *arguments, **options: _compiled(primitive, tuple(options.items()))(*arguments))
    mlir.register_lowering(primitive, lower, platform="cpu")
    batching.primitive_batchers[primitive] = batch
    return primitive


@functools.cache
def _compiled(primitive: Any, options: tuple[tuple[str, Any], ...]) -> Any:
    return jax.jit(functools.partial(primitive.bind, **dict(options)))


# Batches


class _Batch:
    """Arguments by name, the batch first, but for a table that all of it shares."""

    def __init__(self, arguments: dict[str, Any], dims: dict[str, int | None], result_is_table: bool) -> None:
        self.size: int = next(arguments[k].shape[dim] for k, dim in dims.items() if dim is not None)
        self.one_table = not result_is_table and dims.get("weight") is None
        shared = {"weight"} if self.one_table else set()
        self.shared = {k: arguments[k] for k in shared}
        self.own = {k: self._in_front(a, dims[k]) for k, a in arguments.items() if k not in shared}
        self.names = list(arguments)

    def _in_front(self, array: Any, dim: int | None) -> Any:
        return jnp.broadcast_to(array, (self.size, *array.shape)) if dim is None else jnp.moveaxis(array, dim, 0)

    def one_of_each(self) -> list[Any]:
        """The arguments of one element of the batch, as far as shapes go."""
        own = {k: jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for k, a in self.own.items()}
        return [(own | self.shared)[k] for k in self.names]

    def merged(self, options: dict[str, Any]) -> list[Any]:
        """The arguments of one call for the whole batch; `options` become those of it."""
        own = dict(self.own)
        if not self.one_table:
            rows = options["num_rows"] if "num_rows" in options else own["weight"].shape[1]
            own["ids"] = self._in_tables_below(own["ids"], rows)
            options.update(dict.fromkeys(options.keys() & {"num_rows"}, self.size * rows))
        if "offsets" in own:
            own["offsets"] = self._one_after_the_other(own["offsets"], own["ids"].shape[1])
            own.update({k: _joined(a) for k, a in own.items() if k not in {"offsets", "weight"}})
        own.update({k: _joined(a) for k, a in own.items() if k == "weight"})
        return [(own | self.shared)[k] for k in self.names]

    def _in_tables_below(self, ids: Any, rows: int) -> Any:
        """Indices into tables that stand one below the other; those out of range are again, N still is N."""
        total = self.size * rows
        ids = wide(ids, total)
        first = jnp.arange(self.size, dtype=ids.dtype).reshape(-1, *(1,) * (ids.ndim - 1)) * rows
        return jnp.where((ids >= 0) & (ids < rows), ids + first, jnp.where(ids == rows, total, -1))

    def _one_after_the_other(self, offsets: Any, length: int) -> Any:
        total = self.size * length
        offsets = wide(offsets, total)
        first = jnp.arange(self.size, dtype=offsets.dtype)[:, np.newaxis] * length
        return jnp.append((offsets[:, :-1] + first).reshape(-1), jnp.asarray(total, offsets.dtype))


def _joined(array: Any) -> Any:
    return array.reshape(array.shape[0] * array.shape[1], *array.shape[2:])


def wide(numbers: Any, greatest: int) -> Any:
    """Whole numbers in a dtype that has `greatest` too."""
    if greatest <= np.iinfo(numbers.dtype).max:
        return numbers
    if jax.dtypes.canonicalize_dtype(np.int64) != np.int64:
        msg = f"{greatest} rows or positions in one call need jax_enable_x64: their numbers do not fit in int32"
        raise ValueError(msg)
    return numbers.astype(np.int64)


# The primitives


def _bags(weight: Any, ids: Any, offsets: Any, *_: Any, **__: Any) -> tuple[int, int]:
    return offsets.shape[0] - 1, weight.shape[1]


_take = _primitive(host.take, lambda weight, ids, nan: (*ids.shape, weight.shape[1]))
_add = _primitive(host.add, lambda ids, grad, num_rows: (num_rows, grad.shape[-1]), of_table=True)
_pool = _primitive(host.pool, _bags)
_spread = _primitive(
    host.spread, lambda ids, offsets, factors, grad, num_rows: (num_rows, grad.shape[-1]), of_table=True
)
_dots = _primitive(host.dots, lambda weight, ids, offsets, grad: ids.shape)
_largest = _primitive(host.largest, _bags)
_credit = _primitive(host.credit, lambda weight, ids, offsets, grad: weight.shape, of_table=True)


def take(weight: Any, ids: Any, *, nan: bool = False) -> Any:
    """Rows of a table, (*ids.shape, D)."""
    return _take.bind(weight, ids, nan=nan)


def add(ids: Any, grad: Any, num_rows: int) -> Any:
    """The gradient of `take`, (N, D)."""
    return _add.bind(ids, grad, num_rows=num_rows)


def pool(weight: Any, ids: Any, offsets: Any, factors: Any, *, nan: bool = False) -> Any:
    """Weighted sums of the rows of bags, (B, D)."""
    return _pool.bind(weight, ids, offsets, factors, nan=nan)


def spread(ids: Any, offsets: Any, factors: Any, grad: Any, num_rows: int) -> Any:
    """The gradient of `pool` for the table, (N, D)."""
    return _spread.bind(ids, offsets, factors, grad, num_rows=num_rows)


def dots(weight: Any, ids: Any, offsets: Any, grad: Any) -> Any:
    """The gradient of `pool` for the weights, (L,)."""
    return _dots.bind(weight, ids, offsets, grad)


def largest(weight: Any, ids: Any, offsets: Any) -> Any:
    """The greatest elements of the rows of bags, (B, D), NaN for a bag with an index out of range."""
    return _largest_with_gradient(weight, ids, offsets)


_largest_with_gradient = jax.custom_vjp(functools.partial(_largest.bind, nan=True))
_largest_with_gradient.defvjp(
    lambda *arguments: (largest(*arguments), arguments),
    lambda arguments, grad: (_credit.bind(*arguments, grad), None, None),
)


# Derivatives: an index that is out of range has none


def _derivatives(primitive: Any, **transposes: Callable[..., Any] | None) -> None:
    """The derivatives of a primitive that is linear in each argument for which there is a transpose.

    With a tangent in the place of such an argument it is its own derivative. A transpose is given the gradient of the
    result, and then the arguments.
    """

    def tangent_of(k: int) -> Callable[..., Any]:
        def rule(tangent: Any, *arguments: Any, **options: Any) -> Any:
            options |= dict.fromkeys(options.keys() & {"nan"}, False)
            return primitive.bind(*arguments[:k], tangent, *arguments[k + 1 :], **options)

        return rule

    def transpose(cotangent: Any, *arguments: Any, **_: Any) -> list[Any]:
        grad = ad.instantiate_zeros(cotangent)
        return [
            rule(grad, *arguments) if rule and ad.is_undefined_primal(argument) else None
            for argument, rule in zip(arguments, transposes.values(), strict=True)
        ]

    ad.defjvp(primitive, *[tangent_of(k) if rule else None for k, rule in enumerate(transposes.values())])
    ad.primitive_transposes[primitive] = transpose


def _rows(weight: Any) -> int:
    rows: int = weight.aval.shape[0]
    return rows


_derivatives(_take, weight=lambda g, weight, ids: add(ids, g, _rows(weight)), ids=None)
_derivatives(_add, ids=None, grad=lambda g, ids, grad: take(g, ids))
_derivatives(
    _pool,
    weight=lambda g, weight, ids, offsets, factors: spread(ids, offsets, factors, g, _rows(weight)),
    ids=None,
    offsets=None,
    factors=lambda g, weight, ids, offsets, factors: dots(weight, ids, offsets, g),
)
_derivatives(
    _spread,
    ids=None,
    offsets=None,
    factors=lambda g, ids, offsets, factors, grad: dots(g, ids, offsets, grad),
    grad=lambda g, ids, offsets, factors, grad: pool(g, ids, offsets, factors),
)
_derivatives(
    _dots,
    weight=lambda g, weight, ids, offsets, grad: spread(ids, offsets, g, grad, _rows(weight)),
    ids=None,
    offsets=None,
    grad=lambda g, weight, ids, offsets, grad: pool(weight, ids, offsets, g),
)
