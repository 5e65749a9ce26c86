"""Shrinking of rows whose norm exceeds a limit."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .check import first_bad


def _norms(rows, norm_type):
    x = np.abs(rows.astype(np.float64))
    largest = x.max(axis=1, initial=0)
    # By the largest element, so that the powers cannot overflow. Where it is 0, NaN or infinite it is the norm itself.
    scale = np.where(np.isfinite(largest) & (largest > 0), largest, 1)
    if np.isinf(norm_type):
        return largest
    norms = scale * ((x / scale[:, np.newaxis]) ** norm_type).sum(axis=1) ** (1 / norm_type)
    return np.where(np.isinf(largest), largest, norms)


@np.errstate(all="ignore")  # NaN and inf flow through, as they do in compiled kernels
def renorm_range(weight, rows, max_norm, norm_type, start, stop):
    """See `fastemb.kernels.cpu.renorm_range`."""
    bad = first_bad(rows, weight.shape[0], start, stop)
    if bad < 0:
        norms = _norms(weight[rows[start:stop]], norm_type)
        long = norms > max_norm
        touched = rows[start:stop][long]
        dtype = np.result_type(weight.dtype, np.float32)
        factor = (max_norm / (norms[long] + 1e-7)).astype(dtype)[:, np.newaxis]
        weight[touched] = weight[touched] * factor
    return bad


def renorm(weight: NDArray[Any], rows: NDArray[Any], max_norm: float, norm_type: float) -> int:
    """See `fastemb.kernels.cpu.renorm`."""
    return renorm_range(weight, rows, max_norm, norm_type, 0, rows.size)
