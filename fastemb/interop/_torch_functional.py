"""Functions with the signatures of torch.nn.functional."""

from __future__ import annotations

import torch
from torch.overrides import handle_torch_function, has_torch_function_variadic

from ._torch_bags import greatest, pool
from ._torch_operators import lookup, renorm_
from ._torch_tensors import is_index, is_like, is_traced, serves

_torch_embedding = torch.nn.functional.embedding
_torch_embedding_bag = torch.nn.functional.embedding_bag


def embedding(
    input: torch.Tensor,  # noqa: A002  torch's names
    weight: torch.Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> torch.Tensor:
    """Look rows of a table up, as ``torch.nn.functional.embedding`` does.

    ``out[k, :] = weight[input[k], :]``.

    Parameters
    ----------
    input : tensor of int32 or int64, any shape
        Row numbers in ``[0, N)``.
    weight : (N, D) tensor
        The table.
    padding_idx : int, optional
        In ``[-N, N)``: this row gets no gradient.
    max_norm : float, optional
        Shrink the rows looked up to at most this norm first, in `weight`.
    norm_type : float
        p of that norm.
    scale_grad_by_freq : bool
        Divide gradients by how often their row occurs in `input`.
    sparse : bool
        Give `weight` a sparse gradient, with an entry for each position of `input`.

    Returns
    -------
    tensor
        Shape ``(*input.shape, D)``.

    Raises
    ------
    IndexError
        An index outside ``[0, N)``, with torch's text; the text of `fastemb.gather` is in its context.
    RuntimeError
        What torch refuses otherwise.

    Notes
    -----
    Values and gradients of the table are those of torch; a dense gradient is summed in the fixed order of
    `fastemb.embedding_grad`, so its bits do not depend on the number of threads. Differentiable twice and more.

    Examples
    --------
    >>> import torch
    >>> from fastemb.interop.torch import embedding
    >>> table = torch.tensor([[0.9, 0.2], [0.8, 0.3]], requires_grad=True)
    >>> embedding(torch.tensor([1, 1]), table).sum().backward()
    >>> table.grad
    tensor([[0., 0.],
            [2., 2.]])
    """
    options = padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse
    row = _row(padding_idx, weight) if serves(weight, input) else None
    if row is None or (sparse and (scale_grad_by_freq or is_traced())):
        return _torch_embedding(input, weight, *options)
    if has_torch_function_variadic(input, weight):  # a mode, for instance torch.device(...)
        return handle_torch_function(embedding, (input, weight), input, weight, *options)
    try:
        if max_norm is not None:
            renorm_(weight, input, max_norm, norm_type)
        return lookup(weight, input, row, scale_grad_by_freq, sparse)
    except (IndexError, ValueError) as error:
        if not weight.is_cpu:
            raise
        if isinstance(error, IndexError):  # nothing is shrunk before it is raised again, in torch's words
            return _torch_embedding(input, weight, padding_idx)
        return _torch_embedding(input, weight, *options)


def embedding_bag(
    input: torch.Tensor,  # noqa: A002  torch's names
    weight: torch.Tensor,
    offsets: torch.Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> torch.Tensor:
    """Look bags of rows up and pool each, as ``torch.nn.functional.embedding_bag`` does.

    ``out[b] = sum of w[k] * weight[input[k]]`` over the positions k of bag b; in "mean" over their number, in "max" the
    greatest elements.

    Parameters
    ----------
    input : tensor of int32 or int64, (L,) or (B, H)
        Row numbers in ``[0, N)``. Of a 2-D tensor each row is a bag.
    weight : (N, D) tensor
        The table.
    offsets : tensor of int, (B,) or with `include_last_offset` (B + 1,)
        For 1-D input: where each bag begins.
    max_norm : float, optional
        Shrink the rows looked up to at most this norm first, in `weight`.
    norm_type : float
        p of that norm.
    scale_grad_by_freq : bool
        Divide gradients by how often their row occurs in `input`. Not with "max".
    mode : {"mean", "sum", "max"}
        How rows are pooled.
    sparse : bool
        Give `weight` a sparse gradient, of the touched rows, each once. Not with "max".
    per_sample_weights : tensor, shape of `input`, optional
        w, of the dtype of `weight`; with "sum" alone.
    include_last_offset : bool
        Whether `offsets` also says where the last bag ends.
    padding_idx : int, optional
        In ``[-N, N)``: positions with this index are left out.

    Returns
    -------
    (B, D) tensor
        Zeros for a bag without rows.

    Raises
    ------
    RuntimeError
        An index outside ``[0, N)``, and what else torch refuses; the text of `fastemb.embedding_bag` is in its context.
    ValueError
        Arguments that torch refuses so.

    Notes
    -----
    Values and gradients are those of torch, up to rounding, but for NaN in "max": here it is greatest, in torch it wins
    in first place alone; and for `scale_grad_by_freq`, where torch 2.13 on the CPU divides by the count of another
    index. The sparse gradient is coalesced, where torch's has a row for each position. Differentiable twice and more,
    where torch's is once.

    Examples
    --------
    >>> import torch
    >>> from fastemb.interop.torch import embedding_bag
    >>> table = torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 4.0]])
    >>> embedding_bag(torch.tensor([1, 2, 2]), table, torch.tensor([0, 2]))
    tensor([[2., 3.],
            [3., 4.]])
    """
    tensors = input, weight, offsets, per_sample_weights
    options = (
        max_norm,
        norm_type,
        scale_grad_by_freq,
        mode,
        sparse,
        per_sample_weights,
        include_last_offset,
        padding_idx,
    )
    row = _row(padding_idx, weight) if serves(weight, input, any_size=scale_grad_by_freq) else None
    if (
        row is None
        or not _are_bags(input, offsets)
        or not _is_pooling(input, weight, mode, per_sample_weights, scale_grad_by_freq, sparse)
    ):
        return _torch_embedding_bag(input, weight, offsets, *options)
    if has_torch_function_variadic(*tensors):
        return handle_torch_function(embedding_bag, tensors, input, weight, offsets, *options)
    try:
        if max_norm is not None:
            renorm_(weight, input, max_norm, norm_type)
        if mode == "max" and weight.requires_grad:
            return greatest(weight, input, offsets, row, include_last_offset)[0]
        return pool(
            weight, input, offsets, per_sample_weights, mode, row, include_last_offset, scale_grad_by_freq, sparse
        )
    except (IndexError, ValueError) as error:
        if not weight.is_cpu:
            raise
        if isinstance(error, IndexError):
            options = None, *options[1:]
        return _torch_embedding_bag(input, weight, offsets, *options)


def _row(padding_idx: int | None, weight: torch.Tensor) -> int | None:
    """The padding row counted from 0, -1 where there is none, and None where it is outside the table."""
    if padding_idx is None:
        return -1
    row = padding_idx if padding_idx >= 0 else weight.shape[0] + padding_idx
    return row if 0 <= row < weight.shape[0] else None


def _are_bags(indices: torch.Tensor, offsets: torch.Tensor | None) -> bool:
    if offsets is None:
        return bool(indices.dim() == 2)
    return bool(indices.dim() == 1 and is_index(offsets, indices) and offsets.dim() == 1)


def _is_pooling(
    indices: torch.Tensor, weight: torch.Tensor, mode: str, weights: torch.Tensor | None, by_freq: bool, sparse: bool
) -> bool:
    if mode not in ("sum", "mean", "max") or (mode == "max" and (by_freq or sparse)):
        return False
    if sparse and (by_freq or is_traced()):
        return False
    return weights is None or bool(mode == "sum" and is_like(weights, weight) and weights.shape == indices.shape)
