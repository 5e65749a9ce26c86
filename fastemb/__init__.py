"""Embedding kernels for NumPy: lookup, pooled lookup, scatter-add that adds duplicates, steps on touched rows alone.

Importing this package loads nothing else; names load their modules and NumPy at first use, and Numba comes with the
first operation.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import buffers, io, kernels, nn, optim, sharded
    from ._index_check import index_check
    from .functional import (
        embedding_bag,
        embedding_bag_grad,
        embedding_bag_weight_grad,
        embedding_grad,
        gather,
        one_hot,
        renorm_,
        scatter_add,
    )
    from .nn import Embedding, EmbeddingBag
    from .rowgrad import RowGrad

__version__ = "0.1.0"

__all__ = [
    "Embedding",
    "EmbeddingBag",
    "RowGrad",
    "buffers",
    "embedding_bag",
    "embedding_bag_grad",
    "embedding_bag_weight_grad",
    "embedding_grad",
    "gather",
    "index_check",
    "io",
    "kernels",
    "nn",
    "one_hot",
    "optim",
    "renorm_",
    "scatter_add",
    "sharded",
]

_HOME = {
    "Embedding": "nn",
    "EmbeddingBag": "nn",
    "RowGrad": "rowgrad",
    "embedding_bag": "functional",
    "embedding_bag_grad": "functional",
    "embedding_bag_weight_grad": "functional",
    "embedding_grad": "functional",
    "gather": "functional",
    "index_check": "_index_check",
    "one_hot": "functional",
    "renorm_": "functional",
    "scatter_add": "functional",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    if name not in _HOME:
        return importlib.import_module(f".{name}", __name__)
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
