"""Pretrained vectors in files, tables that stay in files, layers saved, all at once or by the rows that changed."""

from .checkpoint import load_layer, save_layer
from .delta import Checkpointer, compact
from .load import load_vectors
from .mapped import create_table, flush, open_state, open_table, prefetch
from .save import save_vectors
from .vectors import Vectors

__all__ = [
    "Checkpointer",
    "Vectors",
    "compact",
    "create_table",
    "flush",
    "load_layer",
    "load_vectors",
    "open_state",
    "open_table",
    "prefetch",
    "save_layer",
    "save_vectors",
]
