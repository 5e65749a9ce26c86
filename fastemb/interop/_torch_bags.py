"""Pooled lookups and their gradients, as operators of torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .. import functional
from .._arrays import all_indices
from .._bags import Bags
from .._devices import backend, namespace, unchecked
from ..rowgrad import RowGrad
from ._torch_operators import Operator, lookup, scatter
from ._torch_tensors import array, array_or_none, is_transformed, stream_of, tensor


def _options(offsets: Any, padding_idx: int, include_last_offset: bool) -> dict[str, Any]:
    """Arguments of fastemb's functions of bags."""
    padding = None if padding_idx < 0 else padding_idx
    last = include_last_offset and offsets is not None  # which torch ignores where each row is a bag
    return {"padding_idx": padding, "include_last_offset": last}


def _shape(width: Any, indices: Any, offsets: Any, include_last_offset: bool) -> tuple[Any, Any]:
    bags = indices.shape[0] if offsets is None else offsets.shape[0] - int(include_last_offset)
    return bags, width


def _numbers(indices: Any, offsets: Any, include_last_offset: bool) -> Any:
    """The bag of each position, (L,)."""
    if offsets is None:
        bags, length = indices.shape
        return torch.arange(bags, device=indices.device).repeat_interleave(length)
    begins = offsets[:-1] if include_last_offset else offsets
    lengths = torch.diff(begins, append=begins.new_full((1,), indices.shape[0]))
    return torch.arange(begins.shape[0], device=indices.device).repeat_interleave(lengths, output_size=indices.shape[0])


# Sums and means


def _pool(
    weight: Any,
    indices: Any,
    offsets: Any,
    weights: Any,
    mode: str,
    padding_idx: int,
    include_last_offset: bool,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> Any:
    pooled = functional.embedding_bag(
        array(weight),
        array(indices),
        array_or_none(offsets),
        mode=mode,
        per_sample_weights=array_or_none(weights),
        **_options(offsets, padding_idx, include_last_offset),
    )
    return tensor(pooled)


def _pool_fake(weight: Any, indices: Any, offsets: Any, weights: Any, mode: str, *options: Any) -> Any:
    return weight.new_empty(_shape(weight.shape[1], indices, offsets, options[1]))


def _pool_save(ctx: Any, inputs: Any, output: Any) -> None:
    weight, indices, offsets, weights, *ctx.options = inputs
    ctx.num_rows = weight.shape[0]
    needs_table = weights is not None and weights.requires_grad
    ctx.save_for_backward(weight if needs_table else None, indices, offsets, weights)


def _pool_backward(ctx: Any, grad: Any) -> Any:
    table, indices, offsets, weights = ctx.saved_tensors
    mode, padding_idx, include_last_offset, scale_grad_by_freq, sparse = ctx.options
    bags = indices, offsets, weights
    if sparse:
        gradients = _sparse(ctx, grad, *bags), _dots_or_none(ctx, grad, table, *bags)
    elif torch.is_grad_enabled() or is_transformed(grad):
        gradients = _differentiable(ctx, grad, table, *bags)
    else:
        options = ctx.num_rows, mode, padding_idx, include_last_offset, scale_grad_by_freq
        dense = scatter_bags(grad, *bags, *options) if ctx.needs_input_grad[0] else None
        gradients = dense, _dots_or_none(ctx, grad, table, *bags)
    return gradients[0], None, None, gradients[1], None, None, None, None, None


def _dots_or_none(ctx: Any, grad: Any, table: Any, indices: Any, offsets: Any, weights: Any) -> Any:
    if not ctx.needs_input_grad[3]:
        return None
    _, padding_idx, include_last_offset, *_ = ctx.options
    return dots(table, indices, offsets, grad, padding_idx, include_last_offset)


def _row_gradient(
    grad: Any,
    indices: Any,
    offsets: Any,
    weights: Any,
    num_rows: int,
    mode: str,
    padding_idx: int,
    include_last_offset: bool,
    scale_grad_by_freq: bool,
) -> RowGrad:
    """The gradient of the table, of which only shape and dtype count here."""
    values = array(grad)
    shape, xp = (num_rows, values.shape[1]), namespace(values)
    table = np.broadcast_to(np.zeros((), values.dtype), shape) if xp is np else xp.empty(shape, values.dtype)
    return functional.embedding_bag_grad(
        table,
        array(indices),
        array_or_none(offsets),
        values,
        mode=mode,
        per_sample_weights=array_or_none(weights),
        scale_grad_by_freq=scale_grad_by_freq,
        **_options(offsets, padding_idx, include_last_offset),
    )


def _sparse(ctx: Any, grad: Any, indices: Any, offsets: Any, weights: Any) -> Any:
    """The touched rows alone, each once: what an optimizer of torch would otherwise make of it first."""
    with stream_of(grad):
        found = _row_gradient(grad.detach(), indices, offsets, weights, ctx.num_rows, *ctx.options[:-1])
        rows, values = tensor(found.rows.copy())[None], tensor(found.values)
    return torch.sparse_coo_tensor(rows, values, found.shape, is_coalesced=True, check_invariants=False)


def _dense(*inputs: Any) -> Any:
    return tensor(_row_gradient(*inputs).to_dense())


def _dense_fake(grad: Any, indices: Any, offsets: Any, weights: Any, num_rows: Any, *_: Any) -> Any:
    return grad.new_empty((num_rows, grad.shape[1]))


def _dots(weight: Any, indices: Any, offsets: Any, grad: Any, padding_idx: int, include_last_offset: bool) -> Any:
    found = functional.embedding_bag_weight_grad(
        array(weight),
        array(indices),
        array_or_none(offsets),
        array(grad),
        mode="sum",
        **_options(offsets, padding_idx, include_last_offset),
    )
    return tensor(found)


def _differentiable(ctx: Any, grad: Any, table: Any, indices: Any, offsets: Any, weights: Any) -> tuple[Any, Any]:
    """Both gradients from lookups and sums over positions, which have gradients themselves."""
    mode, padding_idx, include_last_offset, scale_grad_by_freq, _ = ctx.options
    flat, numbers = indices.reshape(-1), _numbers(indices, offsets, include_last_offset)
    kept = (flat != padding_idx).to(grad.dtype)
    rows = lookup(grad, numbers, -1, False, False)
    if mode == "mean":
        counts = torch.zeros_like(grad[:, 0]).index_add(0, numbers, kept)
        terms = rows / counts.clamp(min=1)[numbers][:, None]
    else:
        terms = rows if weights is None else rows * weights.reshape(-1, 1)
    dense = scatter(terms, flat, ctx.num_rows, padding_idx, scale_grad_by_freq) if ctx.needs_input_grad[0] else None
    if not ctx.needs_input_grad[3]:
        return dense, None
    products = (rows * lookup(table, flat, -1, False, False)).sum(-1)
    return dense, (products * kept).reshape(weights.shape)


pool = Operator(
    "pool(Tensor weight, Tensor indices, Tensor? offsets, Tensor? weights, str mode, int padding_idx, "
    "bool include_last_offset, bool scale_grad_by_freq, bool sparse) -> Tensor",
    _pool,
    _pool_fake,
    _pool_save,
    _pool_backward,
)
scatter_bags = Operator(
    "scatter_bags(Tensor grad, Tensor indices, Tensor? offsets, Tensor? weights, SymInt num_rows, str mode, "
    "int padding_idx, bool include_last_offset, bool scale_grad_by_freq) -> Tensor",
    _dense,
    _dense_fake,
)
dots = Operator(
    "dots(Tensor weight, Tensor indices, Tensor? offsets, Tensor grad, int padding_idx, bool include_last_offset) "
    "-> Tensor",
    _dots,
    lambda weight, indices, *_: weight.new_empty(indices.shape),
)


# Greatest elements


def _greatest(weight: Any, indices: Any, offsets: Any, padding_idx: int, include_last_offset: bool) -> Any:
    table, options = array(weight), _options(offsets, padding_idx, include_last_offset)
    bags = Bags.of(table, array(indices), array_or_none(offsets), "max", None, **options)
    pooled = functional.embedding_bag(table, bags.ids, array_or_none(offsets), mode="max", **options)
    xp = namespace(table)
    winners, ids = xp.empty(pooled.shape, np.int64), all_indices(bags.ids, table.shape[0])
    with unchecked(table):
        backend(table).bag_winners(winners, table, ids, bags.offsets, bags.padding)
    rows = xp.where(winners < 0, -1, xp.append(ids.astype(np.int64), -1)[winners])
    return tensor(pooled), tensor(rows)


def _greatest_fake(weight: Any, indices: Any, offsets: Any, padding_idx: int, include_last_offset: bool) -> Any:
    shape = _shape(weight.shape[1], indices, offsets, include_last_offset)
    return weight.new_empty(shape), indices.new_empty(shape, dtype=torch.int64)


def _greatest_save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.num_rows = inputs[0].shape[0]
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1])


def _greatest_backward(ctx: Any, grad: Any, _: Any) -> Any:
    (rows,) = ctx.saved_tensors
    dense = grad.new_zeros((ctx.num_rows, grad.shape[1]))
    dense = dense.scatter_add(0, rows.clamp(min=0), grad.masked_fill(rows < 0, 0)) if ctx.num_rows else dense
    return dense, None, None, None, None


greatest = Operator(
    "greatest(Tensor weight, Tensor indices, Tensor? offsets, int padding_idx, bool include_last_offset) "
    "-> (Tensor, Tensor)",
    _greatest,
    _greatest_fake,
    _greatest_save,
    _greatest_backward,
)
