"""The kernels on the GPU: Numba's CUDA target, on arrays that already lie in the memory of a device.

The contract is that of `fastemb.kernels`: the same functions with the same parameters, outputs first, nothing written
where an index is bad. What differs:

- A kernel is a plain Python function on flat, C-contiguous arrays; indices and sizes are uint32 and uint64, loops are
  ``while``, and there is no ``//``: Numba wraps negative indices and checks divisors, which costs more than the work.
- ``n``, a whole number that the kernel closes over, is the number of elements in one access: 4, 2 or 1 (8 for
  float16). Whoever launches it sees to it that the address of every row is a multiple of the bytes of an access.
- What Numba cannot say is in `intrin`, the one file with LLVM IR and PTX and the one that imports ``numba.cuda``.
- No fused multiply-add unless asked for (`intrin.fma_rn`): kernels are compiled with NVVM's ``-fma=0``, so that a rule
  has the same bits as on the CPU. Division and square root are rounded to nearest and subnormal numbers are kept;
  only floating-point `intrin.red_add` and `intrin.atomic_add` in float32 flush them to zero.

A driver starts its kernels on CuPy's current stream and returns. Only the check of the indices waits for the device,
and `check.mode` says whether it does. ``name_range(..., start, stop)`` is the driver for a part of the positions, rows,
runs or bags. Tables may be float16, with arithmetic and state in float32. Beyond the functions of the other backends
there is `scatter.scatter_add_unordered`. ``README.md`` says how a kernel is written, launched and tested, and what the
compiler made of each.
"""

from .bag import bag_divisors, bag_divisors_range, bag_max, bag_max_range, bag_sum, bag_sum_range
from .bag_grad import (
    bag_dots,
    bag_dots_range,
    bag_max_grad,
    bag_max_grad_range,
    bag_numbers,
    bag_numbers_range,
    bag_winners,
    bag_winners_range,
)
from .catch_up import adam_missed, adam_missed_range, momentum_missed, momentum_missed_range
from .check import first_bad
from .gather import gather, gather_range
from .group import group, group_bags, group_bags_range, group_range
from .renorm import renorm, renorm_range
from .scatter import scatter_add, scatter_add_range, segment_sum, segment_sum_range
from .update import (
    adagrad,
    adagrad_range,
    adam,
    adam_range,
    ftrl,
    ftrl_range,
    momentum,
    momentum_range,
    rmsprop,
    rmsprop_range,
    rowwise_adagrad,
    rowwise_adagrad_range,
    sgd,
    sgd_range,
)

__all__ = [
    "adagrad",
    "adagrad_range",
    "adam",
    "adam_missed",
    "adam_missed_range",
    "adam_range",
    "bag_divisors",
    "bag_divisors_range",
    "bag_dots",
    "bag_dots_range",
    "bag_max",
    "bag_max_grad",
    "bag_max_grad_range",
    "bag_max_range",
    "bag_numbers",
    "bag_numbers_range",
    "bag_sum",
    "bag_sum_range",
    "bag_winners",
    "bag_winners_range",
    "first_bad",
    "ftrl",
    "ftrl_range",
    "gather",
    "gather_range",
    "group",
    "group_bags",
    "group_bags_range",
    "group_range",
    "momentum",
    "momentum_missed",
    "momentum_missed_range",
    "momentum_range",
    "renorm",
    "renorm_range",
    "rmsprop",
    "rmsprop_range",
    "rowwise_adagrad",
    "rowwise_adagrad_range",
    "scatter_add",
    "scatter_add_range",
    "segment_sum",
    "segment_sum_range",
    "sgd",
    "sgd_range",
]
