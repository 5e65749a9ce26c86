"""What rows missed while they were not touched, step by step; forms and arguments as in `fastemb.kernels.cpu`."""

from typing import Any

import numpy as np

from .. import accumulator, name_after_rule
from .check import first_bad


def _momentum_missed(weight, state, rate, active, hyper):
    """``buf = mu * buf; W = W - rate * buf``, for every missed step.

    State (buf, touched), (N, D) and (N, 1), the second unused; hyper (mu,).
    """
    (mu,) = hyper
    buf, touched = state
    buf = np.where(active, mu * buf, buf)
    return np.where(active, weight - rate * buf, weight), (buf, touched)


def _adam_missed(weight, state, rate, active, hyper):
    """``m *= b1; v *= b2; W = W - rate * m / (sqrt(v) + eps)``, for every missed step.

    State (m, v), each (N, D); hyper (b1, b2, eps). Numbers whose m is 0 do not move.
    """
    b1, b2, eps = hyper
    m, v = state
    m, v = np.where(active, b1 * m, m), np.where(active, b2 * v, v)
    moving = active & (m != 0)
    return np.where(moving, weight - rate * (m / (np.sqrt(v) + eps)), weight), (m, v)


def _catch_up_pass(rule: Any) -> tuple[Any, Any]:
    """Make the range form and the driver that apply `rule` to (U, D) float64 blocks, a missed step at a time."""

    @np.errstate(all="ignore")  # NaN and inf flow through, as they do in compiled kernels
    def range_form(weight, state, last, rows, rates, growth, terms, groups, centres, hyper, start, stop):
        bad = first_bad(rows, weight.shape[0], start, stop)
        if bad < 0:
            touched, now = rows[start:stop], rates.size - 1
            since = last[touched]
            block = weight[touched].astype(np.float64) * (growth[since] / growth[now])[:, np.newaxis]
            blocks = tuple(array[touched].astype(np.float64) for array in state)
            longest = int(groups[-1])
            for i in range(1, min(int((now - since).max(initial=0)), longest) + 1):
                active = (since + i <= now)[:, np.newaxis]
                rate = (rates[np.minimum(since + i, now)] / growth[now])[:, np.newaxis]
                block, blocks = rule(block, blocks, rate, active, hyper)
            rest = np.maximum(now - since - longest, 0)[:, np.newaxis]  # these only fade
            weight[touched] = block.astype(accumulator(weight.dtype))
            for k, moved in enumerate(blocks):
                state[k][touched] = moved * hyper[k] ** rest if k < len(hyper) else moved
            last[touched] = now
        return bad

    def driver(weight, state, last, rows, rates, growth, terms, groups, centres, hyper):
        return range_form(weight, state, last, rows, rates, growth, terms, groups, centres, hyper, 0, rows.size)

    name_after_rule(range_form, driver, rule, rule.__doc__)
    return range_form, driver


momentum_missed_range, momentum_missed = _catch_up_pass(_momentum_missed)
adam_missed_range, adam_missed = _catch_up_pass(_adam_missed)
