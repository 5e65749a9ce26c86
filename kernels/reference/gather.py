"""Row lookup: ``out[k, :] = weight[indices[k], :]``."""

from typing import Any

from numpy.typing import NDArray

from .check import first_bad


def gather_range(out, weight, indices, start, stop):
    """See `fastemb.kernels.cpu.gather_range`."""
    bad = first_bad(indices, weight.shape[0], start, stop)
    if bad < 0:
        out[start:stop] = weight[indices[start:stop]]
    return bad


def gather(out: NDArray[Any], weight: NDArray[Any], indices: NDArray[Any]) -> int:
    """See `fastemb.kernels.cpu.gather`."""
    return gather_range(out, weight, indices, 0, indices.size)
