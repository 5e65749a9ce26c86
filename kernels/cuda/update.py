"""Optimizer steps on the touched rows alone: gradients summed over duplicates and applied in one pass.

What the rules of `fastemb.kernels.cpu.update` state for vectors, `rules` states for the numbers of a lane.
"""

import functools
from typing import Any

from numba import types

from .. import accumulator
from ..cpu import update as cpu
from . import check, launch
from .fold import device_function
from .group import grouped
from .intrin import (
    add_rn,
    block_dim_x,
    div_rn,
    full,
    lane,
    mul_rn,
    shuffle,
    shuffle_xor,
    thread_x,
    u32,
    u64,
)
from .launch import team_mask
from .rules import _adagrad, _adam, _ftrl, _momentum, _rmsprop, _rowwise_adagrad, _sgd
from .runs import Form, Pass, row_pass, start_row_pass

LINE = 64
"""Bytes in which the CPU squares numbers at once: a sum of squares is made of as many parts as that holds numbers."""


@functools.cache
def for_each(exchange, n):
    """A piece: ``exchange(mask, x, lane)`` for each of `n` numbers in a tuple."""
    if n == 1:

        @device_function
        def each(mask, values, lane):
            return (exchange(mask, values[0], lane),)

    else:
        half, middle = for_each(exchange, n // 2), n // 2

        @device_function
        def each(mask, values, lane):
            return half(mask, values[:middle], lane) + half(mask, values[middle:], lane)

    return each


@functools.cache
def sum_by_halves(n):
    """A piece: the sum of `n` numbers, the second half of them added to the first, and so on."""
    if n == 1:

        @device_function
        def fold(values):
            return values[0]

    else:
        rest, middle = sum_by_halves(n // 2), n // 2

        @device_function
        def fold(values):
            return rest(add_rn(values[:middle], values[middle:]))

    return fold


def make_mean_of_squares(form: Form, add_run):
    """A piece: the mean of the squares of a run's sum, in the order of the CPU, as float64; and the lane's last sums.

    Part j of the sum is of the columns j, j + parts, j + 2 * parts, ... one after the other. So a team goes through its
    columns a line at a time, and each lane gets the squares of its parts from the lane that has that line.
    """
    n, dtype = form.n, form.dtype
    parts = LINE * 8 // dtype.bitwidth
    line = parts // n  # lanes that have one
    get, get_opposite, fold = for_each(shuffle, n), for_each(shuffle_xor, n), sum_by_halves(n)

    @device_function
    def mean_of_squares(grad, partial, positions, coefficients, lo, hi, columns):
        team, place = u32(block_dim_x()), u32(thread_x())
        mask, own = u32(team_mask(lane(), team)), u32(lane() - place + (place & u32(line - 1)))
        total = full(dtype(0), n)
        sums, begin = full(dtype(0), n), u64(0)
        while begin < columns:
            c = begin + u64(u32(place * u32(n)))
            squares = sums = full(dtype(0), n)
            if c < columns:
                sums = add_run(sums, grad, partial, positions, coefficients, lo, hi, c, columns)
                squares = mul_rn(sums, sums)
            first = u32(0)
            while first < team:
                total = add_rn(total, get(mask, squares, u32(own + first)))
                first = u32(first + u32(line))
            begin += u64(u32(team * u32(n)))
        offset = u32(line // 2)
        while offset > u32(0):
            if offset < team:  # else the other half is zeros
                total = add_rn(total, get_opposite(mask, total, offset))
            offset = u32(offset >> u32(1))
        return types.float64(div_rn(fold(total), dtype(columns))), sums

    return mean_of_squares


def _row_pass(rule, measure=None):
    return row_pass(rule, __name__, of=getattr(cpu, rule.__name__), measure=measure)


sgd_range, sgd = _row_pass(_sgd)
momentum_range, momentum = _row_pass(_momentum)
adagrad_range, adagrad = _row_pass(_adagrad)
rowwise_adagrad_range, rowwise_adagrad = _row_pass(_rowwise_adagrad, make_mean_of_squares)
rmsprop_range, rmsprop = _row_pass(_rmsprop)
adam_range, adam = _row_pass(_adam)
ftrl_range, ftrl = _row_pass(_ftrl)

PASSES = {
    "sgd": Pass(_sgd),
    "momentum": Pass(_momentum),
    "adagrad": Pass(_adagrad),
    "rowwise_adagrad": Pass(_rowwise_adagrad, make_mean_of_squares),
    "rmsprop": Pass(_rmsprop),
    "adam": Pass(_adam),
    "ftrl": Pass(_ftrl),
}


def step(
    rule: str,
    weight: Any,
    state: tuple[Any, ...],
    indices: Any,
    grad: Any,
    padding_idx: int,
    hyper: tuple[float, ...],
    scale_grad_by_freq: bool,
) -> int:
    """Group the indices of a lookup and apply a rule to its gradient, without waiting for the number of distinct rows.

    Parameters
    ----------
    rule : str
        Name of a rule in this module.
    weight : (N, D) ndarray of CuPy, float16, float32 or float64
        Changed in place at the distinct `indices`, C-contiguous.
    state : tuple of arrays
        What the rule keeps, changed likewise.
    indices : (L,) int32 or int64
        Never written.
    grad : (L, D) float16, float32 or float64, C-contiguous
        Gradient of the lookup's result; not wider than the sums.
    padding_idx : int
        Positions with this index are left out; -1 leaves none out.
    hyper : tuple of float
        The numbers of the rule.
    scale_grad_by_freq : bool
        Divide each row of `grad` by the number of times that its index occurs.

    Returns
    -------
    int
        Position of the first index outside ``[0, N)``, nothing changed then; or -1. See `check.mode`.

    Notes
    -----
    The bits of `group` and the rule, one after the other. Takes ``5 * L`` integers of scratch and ``L / 512`` rows.
    """
    num_rows = weight.shape[0]
    answers, runs = grouped(indices, num_rows, padding_idx)
    flag, count = answers[:1], answers[1:]
    none = launch.namespace(weight).empty(0, accumulator(weight.dtype))
    what = PASSES[rule]
    start_row_pass(what, weight, state, grad, runs, none, hyper, scale_grad_by_freq, flag, count)
    return check.answer(flag, indices, num_rows)
