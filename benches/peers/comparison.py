"""One comparison of the peer table, and what the files of cases share."""

import dataclasses
import importlib.util
from collections.abc import Callable

import numba
import numpy as np
import threadpoolctl

PEERS = {
    "torch": "pip install torch==2.13.0",
    "fbgemm_gpu": "pip install --no-deps fbgemm-gpu-cpu==1.8.0",
    "gensim": "pip install gensim",
    "scipy": "pip install scipy",
}
"""Modules of the peers, and how to get them."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """fastemb's way and a peer's to one result.

    `target` is the least ratio of peer time to fastemb time, None where the figure is for the record; `nbytes` is what
    has to move, for the share of copy bandwidth; `equal` raises unless both give the same; `samples` is how often each
    is timed, 0 for the usual number. `limit` moves what no way can do without moving, and does nothing else: a target
    that it does not reach is out of reach on this machine.
    """

    case: str
    peer: str
    ours: Callable[[], object]
    theirs: Callable[[], object]
    target: float | None
    equal: Callable[[], None]
    nbytes: int = 0
    samples: int = 0
    limit: Callable[[], object] | None = None


def has(module):
    """Whether a peer is installed."""
    return importlib.util.find_spec(module) is not None


def same(ours, theirs):
    """A check that two calls give the same array."""

    def check():
        np.testing.assert_array_equal(np.asarray(ours()), np.asarray(theirs()))

    return check


def filled(ours, kernel, out):
    """A check that a kernel fills `out` with what a call gives."""

    def check():
        out[:] = np.nan
        assert kernel() == -1
        np.testing.assert_array_equal(out, ours())

    return check


def set_threads(count):
    """Give fastemb, torch and BLAS the same number of threads."""
    numba.set_num_threads(count)
    threadpoolctl.threadpool_limits(count)
    if has("torch"):
        import torch

        torch.set_num_threads(count)
        torch.sparse.check_sparse_tensor_invariants.disable()  # its default, but said aloud it warns no more
