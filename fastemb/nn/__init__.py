"""Layers that own a table."""

from .embedding import Embedding

__all__ = ["Embedding"]
