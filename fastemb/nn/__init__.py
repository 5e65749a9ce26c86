"""Layers that own a table, or several."""

from .embedding import Embedding
from .embedding_bag import EmbeddingBag
from .fields import FieldEmbedding
from .fourier import FourierFeatures
from .hashed import HashEmbedding
from .points import PointEmbedding
from .positions import LearnedPositions, RelativePositions, SinusoidalPositions, apply_rotary, rotary_angles
from .pruned import PrunedEmbedding
from .rare import RareTokenEmbedding
from .similarity import Neighbours, cosine_similarity, nearest, normalize_

__all__ = [
    "Embedding",
    "EmbeddingBag",
    "FieldEmbedding",
    "FourierFeatures",
    "HashEmbedding",
    "LearnedPositions",
    "Neighbours",
    "PointEmbedding",
    "PrunedEmbedding",
    "RareTokenEmbedding",
    "RelativePositions",
    "SinusoidalPositions",
    "apply_rotary",
    "cosine_similarity",
    "nearest",
    "normalize_",
    "rotary_angles",
]
