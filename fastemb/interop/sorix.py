"""The embedding layer that sorix 1.0.7 does not have: a table looked up and trained by fastemb.

Examples
--------
>>> import numpy as np, sorix
>>> from fastemb.interop.sorix import Embedding
>>> emb = Embedding(num_embeddings=5, embedding_dim=4)
>>> optimizer = sorix.optim.Adam(emb.parameters(), lr=1e-2)
>>> idx = np.array([0, 2, 0])
>>> emb(idx).sum().backward()
>>> emb.W.grad.data[:3].tolist()
[[2.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]
>>> optimizer.step()
"""

# ruff: noqa: SLF001  how sorix's own layers make a node

from __future__ import annotations

import math
from typing import Any, SupportsIndex

from .. import _options
from .._compat import optional
from ..functional import gather, scatter_add

if optional("sorix") is None:
    msg = "fastemb.interop.sorix needs sorix, and Python 3.12 for it: pip install 'fastemb[sorix]'"
    raise ImportError(msg)

import sorix

__all__ = ["Embedding"]


class Embedding(sorix.nn.Module):  # type: ignore[misc]  # sorix has no types
    """A learnable lookup table: ``out[k, :] = W[indices[k], :]``.

    Parameters
    ----------
    num_embeddings : int
        N, the number of rows, at least 1.
    embedding_dim : int
        D, the width of a row, at least 1.
    device : str
        "cpu", or "cuda" for CuPy's arrays.

    Attributes
    ----------
    W : sorix.Tensor
        The table, (N, D) float32, drawn by sorix's generator from ``U(-sqrt(1/N), sqrt(1/N))``.

    Raises
    ------
    TypeError
        Sizes that are not integers; of a lookup, indices that are not.
    ValueError
        Sizes below 1.
    IndexError
        Of a lookup, an index outside ``[0, N)``; negative ones do not count from the end.

    Notes
    -----
    A lookup takes a sorix Tensor, an array or lists of any shape, and allocates its result. Its gradient is added to
    the rows of ``W.grad`` where they stand: with an optimizer of sorix, which keeps that array, nothing of the table's
    size is made. Gradients that are differentiated again (``create_graph=True``) are new arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from fastemb.interop.sorix import Embedding
    >>> emb = Embedding(num_embeddings=10, embedding_dim=4)
    >>> emb, emb(np.array([[2, 0, 5]])).shape
    (Embedding(num_embeddings=10, embedding_dim=4), sorix.Size([1, 3, 4]))
    """

    def __init__(self, num_embeddings: SupportsIndex, embedding_dim: SupportsIndex, device: str = "cpu") -> None:
        super().__init__()
        self.num_embeddings = _options.size("num_embeddings", num_embeddings)
        self.embedding_dim = _options.size("embedding_dim", embedding_dim)
        self.device = device
        bound = math.sqrt(1 / self.num_embeddings)
        start = self.xp.random.uniform(-bound, bound, size=(self.num_embeddings, self.embedding_dim))
        self.W = sorix.tensor(start, device=device, requires_grad=True, dtype=sorix.float32)

    def forward(self, indices: Any) -> Any:
        """Look rows up.

        Parameters
        ----------
        indices : Tensor or array_like of int, any shape
            Row numbers in ``[0, N)``.

        Returns
        -------
        sorix.Tensor
            Shape ``(*indices.shape, D)``.
        """
        return _look_up(self.W, _data(indices))

    def extra_repr(self) -> str:
        """What `repr` says between the brackets.

        Returns
        -------
        str
            Both sizes.
        """
        return f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim}"


def _data(value: Any) -> Any:
    return value.data if isinstance(value, sorix.Tensor) else value


def _look_up(table: Any, ids: Any) -> Any:
    """The rows of a Tensor that ids name."""

    def backward(grad: Any) -> None:
        if sorix.is_grad_enabled():
            table._accumulate_grad(_scattered(grad, ids, table))
            return
        if table.grad is None:
            table.grad = sorix.zeros_like(table)
        total = _data(table.grad)
        scatter_add(total, ids, _data(grad).astype(total.dtype, copy=False))

    return _node(gather(table.data, ids), table, backward)


def _scattered(grad: Any, ids: Any, table: Any) -> Any:
    """The gradient of `_look_up`, itself a Tensor that has one."""

    def backward(again: Any) -> None:
        grad._accumulate_grad(_look_up(again, ids))

    total = table.xp.zeros_like(table.data)
    return _node(scatter_add(total, ids, _data(grad).astype(total.dtype, copy=False)), grad, backward)


def _node(data: Any, source: Any, backward: Any) -> Any:
    """A Tensor made from another one; `backward` is given its gradient."""
    tracked = sorix.is_grad_enabled() and source.requires_grad
    node = sorix.Tensor(data, [source], "Embedding", device=source.device, requires_grad=tracked)

    def run() -> None:
        if node.grad is not None and source.requires_grad:
            backward(node.grad)

    if tracked:
        node._backward = run
    return node
