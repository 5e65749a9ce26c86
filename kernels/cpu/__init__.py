"""CPU kernels, compiled by Numba at the first call; the contract is in `fastemb.kernels`."""

from .check import first_bad
from .gather import gather, gather_range
from .group import group, group_range
from .renorm import renorm, renorm_range
from .scatter import scatter_add, scatter_add_range, segment_sum, segment_sum_range
from .update import adam, adam_range, sgd, sgd_range

__all__ = [
    "adam",
    "adam_range",
    "first_bad",
    "gather",
    "gather_range",
    "group",
    "group_range",
    "renorm",
    "renorm_range",
    "scatter_add",
    "scatter_add_range",
    "segment_sum",
    "segment_sum_range",
    "sgd",
    "sgd_range",
]
