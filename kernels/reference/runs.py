"""The pass over runs of duplicates that every gradient operation is: sum a run's gradients, then apply a row rule."""

from typing import Any

import numpy as np

from .. import SUM_BLOCK, accumulator, name_after_rule
from .check import first_bad


def sum_runs(grad, starts, positions, coefficients, scale_grad_by_freq, start, stop, dtype):
    """Sums of runs, cut every SUM_BLOCK positions: (U, D) of `dtype`.

    ``total[u] = sum over k in run u of coefficients[k] * grad[positions[k]]``.
    """
    lengths = np.diff(starts[start : stop + 1])
    run = np.repeat(np.arange(stop - start), lengths)
    place = np.arange(run.size) - np.repeat(starts[start:stop] - starts[start], lengths)
    terms = grad[positions[starts[start] : starts[stop]]].astype(dtype)
    if coefficients.size:
        terms *= coefficients[starts[start] : starts[stop], np.newaxis]
    if scale_grad_by_freq:
        terms /= lengths[run].astype(dtype)[:, np.newaxis]
    total = np.zeros((stop - start, grad.shape[1]), dtype)
    for cut in range(0, int(lengths.max(initial=0)), SUM_BLOCK):
        part = np.zeros_like(total)
        chosen = (place >= cut) & (place < cut + SUM_BLOCK)
        np.add.at(part, run[chosen], terms[chosen])  # one by one, in order
        total += part
    return total


def row_pass(rule: Any) -> tuple[Any, Any]:
    """Make the range form and the driver that sum each run's gradient and hand all sums to `rule`.

    ``rule(weight, state, total, hyper) -> (new weight, new state)`` on the (U, D) blocks of touched rows.
    """

    @np.errstate(all="ignore")  # NaN and inf flow through, as they do in compiled kernels
    def range_form(weight, state, grad, rows, starts, positions, coefficients, hyper, scale_grad_by_freq, start, stop):
        bad = first_bad(rows, weight.shape[0], start, stop)
        if bad < 0:
            dtype = accumulator(weight.dtype)
            touched = rows[start:stop]
            total = sum_runs(grad, starts, positions, coefficients, scale_grad_by_freq, start, stop, dtype)
            blocks = tuple(array[touched] if len(array) else array for array in state)
            hyper = tuple(dtype.type(h) for h in hyper)
            weight[touched], blocks = rule(weight[touched].astype(dtype), blocks, total, hyper)
            for array, block in zip(state, blocks, strict=True):
                if len(array):  # an option of the rule may leave one without rows
                    array[touched] = block
        return bad

    def driver(weight, state, grad, rows, starts, positions, coefficients, hyper, scale_grad_by_freq):
        return range_form(
            weight, state, grad, rows, starts, positions, coefficients, hyper, scale_grad_by_freq, 0, rows.size
        )

    name_after_rule(range_form, driver, rule, rule.__doc__)
    return range_form, driver
