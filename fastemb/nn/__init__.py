"""Layers that own a table, or several."""

from .embedding import Embedding
from .embedding_bag import EmbeddingBag
from .fields import FieldEmbedding
from .fourier import FourierFeatures
from .hashed import HashEmbedding
from .points import PointEmbedding
from .positions import LearnedPositions, SinusoidalPositions
from .pruned import PrunedEmbedding
from .rare import RareTokenEmbedding
from .relative import RelativePositions
from .rotary import apply_rotary, rotary_angles
from .similarity import cosine_similarity, nearest, normalize_

__all__ = [
    "Embedding",
    "EmbeddingBag",
    "FieldEmbedding",
    "FourierFeatures",
    "HashEmbedding",
    "LearnedPositions",
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
