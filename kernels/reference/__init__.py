"""Plain NumPy kernels: the oracle of every test, and the path of dtypes that Numba does not have."""

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
