"""Layers that own a table."""

from .embedding import Embedding
from .embedding_bag import EmbeddingBag

__all__ = ["Embedding", "EmbeddingBag"]
