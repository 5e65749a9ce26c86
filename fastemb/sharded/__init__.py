"""Tables over many machines: rows spread over the ranks of MPI, by mpi4py (``pip install fastemb[mpi]``)."""

from .embedding import ShardedEmbedding
from .embedding_bag import ShardedEmbeddingBag
from .frequency import hottest

__all__ = ["ShardedEmbedding", "ShardedEmbeddingBag", "hottest"]
