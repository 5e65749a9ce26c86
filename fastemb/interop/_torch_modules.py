"""torch's two modules on fastemb's kernels."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch._compile import _disable_dynamo

from ._torch_functional import embedding, embedding_bag

if TYPE_CHECKING:
    from ._torch_optim import RowOptimizer


class _Step(torch.autograd.Function):  # type: ignore[misc]  # torch has no types where it is not installed
    """Rows as they are, whose gradient is given to a step in place of the table; it returns that of the last input.

    The inputs of the lookup are saved by autograd, which notices if they are changed before the step.
    """

    @staticmethod
    def forward(ctx: Any, weight: Any, rows: Any, step: Any, *inputs: Any) -> Any:
        ctx.save_for_backward(*inputs)
        ctx.weight, ctx.step = weight, step
        ctx.version = weight._version if ctx.needs_input_grad[-1] else None
        return rows.view_as(rows)

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Any) -> tuple[Any, ...]:
        inputs = ctx.saved_tensors
        if ctx.version is not None and ctx.weight._version != ctx.version:
            msg = (
                "per_sample_weights need the table as it was in the forward pass for their gradient, and it has been "
                f"modified by an inplace operation: it is at version {ctx.weight._version}; expected version "
                f"{ctx.version} instead. A layer given to fuse changes its table in every backward pass: look it up "
                "once per pass, or detach the weights"
            )
            raise RuntimeError(msg)
        return (None,) * (2 + len(inputs)) + (ctx.step(*inputs, grad),)


@_disable_dynamo  # type: ignore[untyped-decorator]  # torch.compiler.disable would import the compiler here
def _with_step(weight: Any, rows: Any, step: Any, *inputs: Any) -> Any:
    return _Step.apply(weight, rows, step, *inputs)


class Embedding(torch.nn.Embedding):  # type: ignore[misc]
    """``torch.nn.Embedding`` on fastemb's kernels.

    Parameters
    ----------
    num_embeddings : int
        N, rows of the table.
    embedding_dim : int
        D, width of a row.
    padding_idx : int, optional
        In ``[-N, N)``. This row starts as zeros and gets no gradient.
    max_norm : float, optional
        Shrink the rows looked up to at most this norm first, in `weight`.
    norm_type : float
        p of that norm.
    scale_grad_by_freq : bool
        Divide gradients by how often their row occurs in the call.
    sparse : bool
        Give `weight` a sparse gradient.
    _weight : tensor, optional
        The table itself; for `from_pretrained`.
    _freeze : bool
        No gradient; for `from_pretrained`.
    device, dtype : optional
        Of `weight`, as torch knows them.

    Attributes
    ----------
    weight : (N, D) torch.nn.Parameter
        The table; from N(0, 1).

    Notes
    -----
    A subclass: ``isinstance(layer, torch.nn.Embedding)`` holds, and state dictionaries go both ways.

    Examples
    --------
    >>> import torch
    >>> from fastemb.interop.torch import Embedding
    >>> layer = Embedding.from_pretrained(torch.tensor([[0.5, 1.0], [2.0, 3.0]]))
    >>> layer(torch.tensor([[1, 0]]))
    tensor([[[2.0000, 3.0000],
             [0.5000, 1.0000]]])
    """

    _fused: RowOptimizer | None = None

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  torch's name
        """Look rows up: see `embedding`.

        Parameters
        ----------
        input : tensor of int32 or int64, any shape
            Row numbers in ``[0, N)``.

        Returns
        -------
        tensor
            Shape ``(*input.shape, D)``.
        """
        weight, fused = self.weight, self._fused
        options = self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        if fused is None or not (weight.requires_grad and torch.is_grad_enabled()):
            return embedding(input, weight, *options)
        with torch.no_grad():
            rows = embedding(input, weight, *options)
        step = functools.partial(
            fused.step_rows,
            weight,
            padding_idx=self.padding_idx,
            scale_grad_by_freq=self.scale_grad_by_freq,
        )
        return _with_step(weight, rows, step, input)


class EmbeddingBag(torch.nn.EmbeddingBag):  # type: ignore[misc]
    """``torch.nn.EmbeddingBag`` on fastemb's kernels.

    Parameters
    ----------
    num_embeddings : int
        N, rows of the table.
    embedding_dim : int
        D, width of a row.
    max_norm : float, optional
        Shrink the rows looked up to at most this norm first, in `weight`.
    norm_type : float
        p of that norm.
    scale_grad_by_freq : bool
        Divide gradients by how often their row occurs in the call. Not with "max".
    mode : {"mean", "sum", "max"}
        How rows are pooled.
    sparse : bool
        Give `weight` a sparse gradient. Not with "max".
    _weight : tensor, optional
        The table itself; for `from_pretrained`.
    include_last_offset : bool
        Whether offsets also say where the last bag ends.
    padding_idx : int, optional
        In ``[-N, N)``. This row starts as zeros and is left out of bags.
    device, dtype : optional
        Of `weight`, as torch knows them.

    Attributes
    ----------
    weight : (N, D) torch.nn.Parameter
        The table; from N(0, 1).

    Examples
    --------
    >>> import torch
    >>> from fastemb.interop.torch import EmbeddingBag
    >>> EmbeddingBag(10, 3, mode="sum")(torch.tensor([[1, 2], [3, 4]])).shape
    torch.Size([2, 3])
    """

    _fused: RowOptimizer | None = None

    def forward(
        self,
        input: torch.Tensor,  # noqa: A002  torch's name
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Pool bags of rows: see `embedding_bag`.

        Parameters
        ----------
        input : tensor of int32 or int64, (L,) or (B, H)
            Row numbers in ``[0, N)``.
        offsets : tensor of int, optional
            For 1-D input: where each bag begins.
        per_sample_weights : tensor, shape of `input`, optional
            With "sum" alone.

        Returns
        -------
        (B, D) tensor
            The pooled rows.
        """
        weight, fused = self.weight, self._fused
        options = (
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )
        if fused is None or not (weight.requires_grad and torch.is_grad_enabled()):
            return embedding_bag(input, weight, offsets, *options)
        with torch.no_grad():
            pooled = embedding_bag(input, weight, offsets, *options)
        step = functools.partial(
            fused.step_bags,
            weight,
            mode=self.mode,
            padding_idx=self.padding_idx,
            include_last_offset=self.include_last_offset,
            scale_grad_by_freq=self.scale_grad_by_freq,
        )
        return _with_step(weight, pooled, step, input, offsets, per_sample_weights)
