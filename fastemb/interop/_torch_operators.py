"""Lookups, their gradients, and the gradients of those, as operators of torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .. import functional
from ._torch_tensors import array, has_changed, is_traced, is_transformed, nothing, stream_of, tensor


class Operator:
    """An operation as an autograd function, for eager calls, and as an operator of torch.library, for what traces.

    An operator costs some ten microseconds a call, a function three, and without gradients there is no need of either.
    `native` is torch's own operation, for gradients that torch.func maps over.
    """

    def __init__(
        self,
        schema: str,
        compute: Callable[..., Any],
        fake: Callable[..., Any],
        save: Callable[..., None] | None = None,
        backward: Callable[..., Any] | None = None,
        native: Callable[..., Any] | None = None,
    ) -> None:
        name = schema.partition("(")[0]
        compute = _on_stream(compute)
        self.compute, self.native = compute, native
        self.operator = torch.library.custom_op(
            f"fastemb::{name}", compute, mutates_args=(), schema=schema.removeprefix(name)
        )
        self.operator.register_fake(fake)
        self.apply = None
        if save is not None and backward is not None:
            self.operator.register_autograd(backward, setup_context=save)
            self.apply = _function(name, compute, save, backward)

    def __call__(self, *inputs: Any) -> Any:
        """Compute, as the moment asks for."""
        if self.native is not None and is_transformed(inputs[0]):
            return self.native(*inputs)
        if is_traced():
            return self.operator(*inputs)
        if self.apply is not None and torch.is_grad_enabled():
            for value in inputs:
                if isinstance(value, torch.Tensor) and value.requires_grad:
                    return self.apply(*inputs)
        return self.compute(*inputs)


def _on_stream(compute: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compute)
    def run(*inputs: Any) -> Any:
        stream = stream_of(inputs[0])
        if stream is nothing:  # half a microsecond sooner than to go through it
            return compute(*inputs)
        with stream:
            return compute(*inputs)

    return run


def _function(
    name: str, compute: Callable[..., Any], save: Callable[..., None], backward: Callable[..., Any]
) -> Callable[..., Any]:
    def forward(ctx: Any, *inputs: Any) -> Any:
        output = compute(*inputs)
        save(ctx, inputs, output)
        return output

    parts = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    function: Any = type(name, (torch.autograd.Function,), parts)
    return function.apply  # type: ignore[no-any-return]


# Lookup


def _lookup(weight: Any, indices: Any, padding_idx: int, scale_grad_by_freq: bool, sparse: bool) -> Any:
    return tensor(functional.gather(array(weight), array(indices)))


def _lookup_fake(weight: Any, indices: Any, *_: Any) -> Any:
    return weight.new_empty((*indices.shape, weight.shape[1]))


def _lookup_save(ctx: Any, inputs: Any, output: Any) -> None:
    weight, indices, *ctx.options = inputs
    ctx.num_rows = weight.shape[0]
    ctx.save_for_backward(indices)


def _lookup_backward(ctx: Any, grad: Any) -> Any:
    (indices,) = ctx.saved_tensors
    padding_idx, scale_grad_by_freq, sparse = ctx.options
    if sparse:  # an entry for each position, so that there is no sum and no copy: torch has that already
        gradient = torch.ops.aten.embedding_sparse_backward(grad, indices, ctx.num_rows, padding_idx, False)
    else:
        gradient = scatter(grad, indices, ctx.num_rows, padding_idx, scale_grad_by_freq)
    return gradient, None, None, None, None


def _scatter(grad: Any, indices: Any, num_rows: int, padding_idx: int, scale_grad_by_freq: bool) -> Any:
    padding = None if padding_idx < 0 else padding_idx
    found = functional.embedding_grad(
        array(indices), array(grad), num_rows, padding_idx=padding, scale_grad_by_freq=scale_grad_by_freq
    )
    return tensor(found.to_dense())


def _scatter_fake(grad: Any, indices: Any, num_rows: int, *_: Any) -> Any:
    return grad.new_empty((num_rows, grad.shape[-1]))


def _scatter_save(ctx: Any, inputs: Any, output: Any) -> None:
    _, indices, *ctx.options = inputs
    ctx.save_for_backward(indices)


def _scatter_backward(ctx: Any, grad: Any) -> Any:
    (indices,) = ctx.saved_tensors
    num_rows, padding_idx, scale_grad_by_freq = ctx.options
    rows = lookup(grad, indices, -1, False, False)
    if scale_grad_by_freq:
        rows = rows / torch.bincount(indices.reshape(-1), minlength=num_rows)[indices][..., None]
    if padding_idx >= 0:
        rows = rows.masked_fill((indices == padding_idx)[..., None], 0)
    return rows, None, None, None, None


lookup = Operator(
    "lookup(Tensor weight, Tensor indices, int padding_idx, bool scale_grad_by_freq, bool sparse) -> Tensor",
    _lookup,
    _lookup_fake,
    _lookup_save,
    _lookup_backward,
    torch.embedding,
)
scatter = Operator(
    "scatter(Tensor grad, Tensor indices, SymInt num_rows, int padding_idx, bool scale_grad_by_freq) -> Tensor",
    _scatter,
    _scatter_fake,
    _scatter_save,
    _scatter_backward,
    torch.ops.aten.embedding_dense_backward,
)


# max_norm


def _renorm(weight: Any, indices: Any, max_norm: float, norm_type: float) -> None:
    with stream_of(weight):
        functional.renorm_(array(weight), array(indices), max_norm, norm_type)


_renorm_operator = torch.library.custom_op(
    "fastemb::renorm_",
    _renorm,
    mutates_args={"weight"},
    schema="(Tensor(a!) weight, Tensor indices, float max_norm, float norm_type) -> ()",
)
_renorm_operator.register_fake(lambda *_: None)


def renorm_(weight: Any, indices: Any, max_norm: float, norm_type: float) -> None:
    """Shrink the rows that indices name, in place; not a step that is differentiated."""
    with torch.no_grad():
        if is_traced():
            _renorm_operator(weight, indices, max_norm, norm_type)
        else:
            _renorm(weight, indices, max_norm, norm_type)
            has_changed(weight)
