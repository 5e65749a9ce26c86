"""Layers that own a table, or several."""

from .embedding import Embedding
from .embedding_bag import EmbeddingBag
from .fields import FieldEmbedding
from .positions import LearnedPositions, RelativePositions, SinusoidalPositions, apply_rotary, rotary_angles

__all__ = [
    "Embedding",
    "EmbeddingBag",
    "FieldEmbedding",
    "LearnedPositions",
    "RelativePositions",
    "SinusoidalPositions",
    "apply_rotary",
    "rotary_angles",
]
