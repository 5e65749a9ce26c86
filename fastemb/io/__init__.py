"""Pretrained vectors in files: word2vec text and binary, GloVe, fastText .vec, .npy, safetensors."""

from .load import load_vectors
from .save import save_vectors
from .vectors import Vectors

__all__ = ["Vectors", "load_vectors", "save_vectors"]
