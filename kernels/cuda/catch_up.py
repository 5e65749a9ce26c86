"""What rows missed while they were not touched: the steps of a dense optimizer, with gradients of zero.

The arithmetic is the CPU's, piece by piece: `fastemb.kernels.cpu.catch_up` says what the series are.
"""

import functools
import inspect
from typing import Any

import numpy as np
from numba import types
from numba.np.numpy_support import from_dtype

from .. import SERIES_TERMS as TERMS
from .. import accumulator, name_after_rule
from ..cpu import catch_up as cpu
from . import check, launch
from .check import GOOD
from .intrin import (
    block_dim_x,
    block_dim_y,
    block_x,
    div_rn,
    fma_rn,
    grid_dim_x,
    lane,
    load,
    local_array,
    store,
    sync_warp,
    thread_x,
    thread_y,
    u32,
    u64,
)
from .launch import team_mask

NOTES = """Notes
-----
Arrays are CuPy's, C-contiguous; a float16 `weight` has `state` and arithmetic in float32. See `check.mode`. The bits
are those of the CPU, whatever the grid, while no row missed more than 65,536 steps: beyond, ``pow`` is the device's.
"""

DOC = f"{cpu.DOC.partition('Notes')[0]}{NOTES}"


@functools.cache
def make_catch_up(n, number, both, add_series, rule):
    """The kernel for `n` elements an access, of type `number` once loaded: `block_dim_x` threads for a row.

    A thread has its columns in local arrays of one row, as `rule` wants them, and sums all coefficients itself: to get
    them from others costs more registers. Where not `both`, the rule uses the first state alone.
    """

    def catch_up(weight, first, second, last, rows, rates, growth, terms, groups, centres, hyper, flag, columns):
        if flag[u64(0)] != GOOD:
            return
        own, total, series = local_array((1, n), number), local_array(n, number), local_array(TERMS, types.float64)
        state = local_array((1, n), number), local_array((1, n), number)
        count, columns = u64(rows.size), u64(columns)
        team, now = block_dim_x(), types.int64(rates.size) - types.int64(1)
        mask, step = team_mask(lane(), team), u64(u32(team * u32(n)))
        stride = u64(grid_dim_x()) * u64(block_dim_y())
        r = u64(block_x()) * u64(block_dim_y()) + u64(thread_y())
        while r < count:
            row = u64(rows[r])
            since = last[row]
            missed = now - since
            c = u64(u32(thread_x() * u32(n)))
            while missed > 0 and c < columns:
                at = row * columns + c
                store(own[0], 0, load(weight, at, n))
                store(state[0][0], 0, load(first, at, n))
                if both:
                    store(state[1][0], 0, load(second, at, n))
                for k in range(n):
                    total[k] = 0
                g = u64(0)
                while g < u64(centres.size) and groups[g] < missed:
                    i, end = groups[g], min(groups[g + u64(1)], missed)
                    for k in range(TERMS):
                        series[k] = 0
                    while i < end:
                        rate = div_rn(rates[u64(since + i) + u64(1)], growth[u64(now)])
                        for k in range(TERMS):
                            series[k] = fma_rn(rate, terms[u64(i) * u64(TERMS) + u64(k)], series[k])
                        i += 1
                    add_series(total, state, 0, series, centres[g], hyper)
                    g += u64(1)
                rule(own, state, 0, total, number(div_rn(growth[u64(since)], growth[u64(now)])), missed, hyper)
                store(weight, at, load(own[0], 0, n))
                store(first, at, load(state[0][0], 0, n))
                if both:
                    store(second, at, load(state[1][0], 0, n))
                c += step
            sync_warp(mask)  # all have read it
            if thread_x() == 0:
                last[row] = now
            r += stride

    return catch_up


def _catch_up_pass(both: bool, add_series: Any, rule: Any) -> tuple[Any, Any]:
    """Make the driver and its range form for a rule."""

    def driver(
        weight: Any,
        state: Any,
        last: Any,
        rows: Any,
        rates: Any,
        growth: Any,
        terms: Any,
        groups: Any,
        centres: Any,
        hyper: tuple[float, ...],
    ) -> int:
        flag = check.begin(rows, weight.shape[0])
        if rows.size:
            columns = weight.shape[1]
            n = launch.width(columns, weight, *state[: 1 + both])
            kernel = make_catch_up(n, from_dtype(accumulator(weight.dtype)), both, add_series, rule)
            grid, block = launch.teams(rows.size, launch.lanes(columns, n))
            history = rates, growth, terms, groups, centres, tuple(np.float64(x) for x in hyper)
            launch.run(kernel, grid, block, weight, *state, last, rows, *history, flag, np.uint64(columns))
        return check.answer(flag, rows, weight.shape[0])

    def range_form(
        weight: Any,
        state: Any,
        last: Any,
        rows: Any,
        rates: Any,
        growth: Any,
        terms: Any,
        groups: Any,
        centres: Any,
        hyper: tuple[float, ...],
        start: int,
        stop: int,
    ) -> int:
        bad = driver(weight, state, last, rows[start:stop], rates, growth, terms, groups, centres, hyper)
        return bad if bad < 0 else start + bad

    name_after_rule(range_form, driver, rule, DOC.format(rule=inspect.cleandoc(rule.__doc__ or "")))
    range_form.__module__ = driver.__module__ = __name__
    return range_form, driver


momentum_missed_range, momentum_missed = _catch_up_pass(False, cpu._add_series, cpu._momentum_missed)  # noqa: SLF001
adam_missed_range, adam_missed = _catch_up_pass(True, cpu._add_adam_series, cpu._adam_missed)  # noqa: SLF001
