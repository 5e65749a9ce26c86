"""PyTorch's embedding layers and functions on fastemb's kernels: change one import line.

``from fastemb.interop.torch import Embedding`` in place of ``from torch.nn import Embedding``: the constructor, the
entries of ``state_dict``, ``repr``, ``from_pretrained``, gradients and errors are torch's. Tensors and arrays share
their memory, nothing is copied on the way.

What runs where: tables of float32 and float64 on the CPU run on fastemb's kernels, and those on a GPU that
`fastemb.kernels.cuda` can use. torch's own operation serves everything else, see `backends`: other dtypes, sparse and
nested tensors, subclasses of ``Tensor``, forward-mode differentiation, the transforms of ``torch.func``,
``sparse=True`` under ``torch.compile``, and lookups of less than 65,536 elements, where the way through Python costs
more than a kernel saves. It also has the last word on what a kernel refuses, so that errors read as torch's.

Examples
--------
>>> import fastemb, torch
>>> from fastemb.interop.torch import Embedding, RowOptimizer
>>> layer = Embedding(10, 3, padding_idx=0, sparse=True)
>>> layer
Embedding(10, 3, padding_idx=0, sparse=True)
>>> ids = torch.tensor([[4, 2, 0], [4, 0, 0]])
>>> optimizer = RowOptimizer(layer.parameters(), fastemb.optim.Adam(lr=0.1))
>>> for _ in range(2):
...     optimizer.zero_grad()
...     layer(ids).square().sum().backward()
...     optimizer.step()
>>> layer(ids).shape, layer.weight.grad.is_sparse
(torch.Size([2, 3, 3]), True)
"""

from __future__ import annotations

from .._compat import optional

if optional("torch") is None:
    msg = "fastemb.interop.torch needs PyTorch: pip install 'fastemb[torch]'"
    raise ImportError(msg)

from ._torch_functional import embedding, embedding_bag
from ._torch_modules import Embedding, EmbeddingBag
from ._torch_optim import RowOptimizer, fuse
from ._torch_tensors import backends

__all__ = [
    "Embedding",
    "EmbeddingBag",
    "RowOptimizer",
    "backends",
    "embedding",
    "embedding_bag",
    "fuse",
]
