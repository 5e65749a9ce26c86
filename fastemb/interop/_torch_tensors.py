"""Which tensors fastemb's kernels serve, and their memory as arrays."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from .._compat import cuda_problem, cupy

smallest = 1 << 16
"""Elements of looked-up rows below which torch's own operation is ahead, whose calls do not go through Python.

Up to here `fastemb.gather` too is NumPy's, not a kernel of ours.
"""

nothing = contextlib.nullcontext()
"""The context of tensors on the host."""

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_INTEGERS = frozenset({torch.int64, torch.int32})
_CPU = frozenset({torch.float32, torch.float64})
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@functools.cache
def _cuda() -> frozenset[torch.dtype]:
    usable = torch.cuda.is_available() and cuda_problem() is None
    return _CPU | {torch.float16} if usable else frozenset()


def backends() -> dict[str, str]:
    """Say what serves tables of each device and dtype in this process.

    Returns
    -------
    dict of str to str
        From "cpu float32" and the like to the name of the package of kernels, or to "torch" for torch's own operation.

    Examples
    --------
    >>> from fastemb.interop.torch import backends
    >>> found = backends()
    >>> found["cpu float32"], found["cpu float16"]
    ('fastemb.kernels.cpu', 'torch')
    """
    served = {"cpu": _CPU, "cuda": _cuda()}
    return {
        f"{device} {str(dtype).removeprefix('torch.')}": f"fastemb.kernels.{device}" if dtype in dtypes else "torch"
        for device, dtypes in served.items()
        for dtype in _FLOATS
    }


def serves(weight: Any, indices: Any, *, any_size: bool = False) -> bool:
    """Whether the kernels take a table and indices, and are worth it. Each line is felt in a lookup of few rows."""
    return bool(
        type(weight) in _PLAIN
        and type(indices) is torch.Tensor
        and indices.dtype in _INTEGERS
        and weight.layout is torch.strided
        and weight.dim() == 2
        and (any_size or indices.numel() * weight.shape[1] >= smallest)
        and (
            (weight.dtype in _CPU and indices.is_cpu)
            if weight.is_cpu
            else (weight.is_cuda and weight.dtype in _cuda() and indices.device == weight.device)
        )
        and not indices.is_nested
        and forward_ad._current_level < 0
        and not is_transformed(weight)
    )


def is_index(offsets: Any, indices: Any) -> bool:
    """Whether a tensor of offsets is one that the kernels read beside indices that they take."""
    return type(offsets) is torch.Tensor and offsets.dtype in _INTEGERS and offsets.device == indices.device


def is_like(weights: Any, weight: Any) -> bool:
    """Whether a tensor of weights is one that the kernels read beside a table that they take."""
    return type(weights) in _PLAIN and weights.dtype == weight.dtype and weights.device == weight.device


def is_transformed(tensor: Any) -> bool:
    """Whether a transform of torch.func runs, or a tensor stands for a batch of them: there is no memory to work on."""
    if torch._C._are_functorch_transforms_active():
        return True
    return not torch.compiler.is_compiling() and bool(torch._C._functorch.is_legacy_batchedtensor(tensor))


def is_traced() -> bool:
    """Whether somebody records operators, who would not see what is done to arrays."""
    return bool(
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._get_tracing_state() is not None
    )


def stream_of(tensor: Any) -> contextlib.AbstractContextManager[Any]:
    """A context in which CuPy works on torch's current stream, in order with what torch does to a tensor."""
    if tensor.is_cpu:
        return nothing
    stream: contextlib.AbstractContextManager[Any] = cupy().cuda.ExternalStream(
        torch.cuda.current_stream(tensor.device).cuda_stream
    )
    return stream


def array(tensor: Any) -> Any:
    """The memory of a tensor as an array, NumPy's or CuPy's."""
    tensor = tensor.detach() if tensor.requires_grad else tensor
    return tensor.numpy() if tensor.is_cpu else cupy().from_dlpack(tensor)


def array_or_none(tensor: Any) -> Any:
    """The same for an argument that may be left out."""
    return None if tensor is None else array(tensor)


def tensor(values: Any) -> Any:
    """The memory of an array as a tensor."""
    return torch.from_numpy(values) if type(values) is np.ndarray else torch.from_dlpack(values)


def has_changed(weight: Any) -> None:
    """Tell autograd, which has not seen it, that the memory of a tensor was written."""
    if not weight.is_inference():
        torch.autograd.graph.increment_version(weight)
