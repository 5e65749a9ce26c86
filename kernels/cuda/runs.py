"""The pass over runs of duplicates that every gradient operation is: sum a run's gradient rows, then apply a row rule.

A team of lanes takes a run: each lane sums its columns of the gradient rows in registers, gives the sums to the rule,
and stores the row of the table and of its state. No gradient is written, and there are no atomics.

Sums are cut every `SUM_BLOCK` positions of a run, as on the CPU, and so have the same bits. Pieces of a fixed number of
positions of the sorted whole would split work a little more evenly, but cut each run elsewhere. Of runs with more
positions a first kernel sums the pieces, each by a team of its own; the pass adds these partial sums in their order. So
no team adds more than `SUM_BLOCK` rows one after the other, however uneven the runs are.

The partial sum of a piece has a place that can be told from where the piece begins: nothing is counted, and the host
waits for nothing. Of `SUM_BLOCK` positions in a line at most two are beginnings of pieces of long runs, one of a run
that began before them, and one of the run that begins there: it leaves no place for another. Hence two places for each
`SUM_BLOCK` positions, the second for a run's first piece.
"""

import functools
import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.np.numpy_support import from_dtype

from .. import SUM_BLOCK, accumulator, name_after_rule
from . import check, launch
from .check import GOOD
from .fold import device_function, make_fold
from .intrin import (
    add_rn,
    block_dim_x,
    block_dim_y,
    block_x,
    div_rn,
    full,
    grid_dim_x,
    lane,
    load,
    load_stream,
    local_array,
    mul_rn,
    store,
    sync_warp,
    thread_x,
    thread_y,
    u32,
    u64,
)

SHIFT = SUM_BLOCK.bit_length() - 1
"""`SUM_BLOCK` is a power of two: a position is divided by it without a division."""

ROW, NUMBER, NOTHING = "row", "number", "nothing"
"""What an array of the state has for a row of the table."""

AT_ONCE = 4
"""Rows of a run that a lane asks for before it adds the first; most runs are short."""


@dataclass(frozen=True)
class Form:
    """What a kernel is made for.

    Attributes
    ----------
    n : int
        Elements of an access.
    dtype : numba type
        Of sums and of the state.
    state : tuple of str
        `ROW`, `NUMBER` or `NOTHING` for each array of the state.
    weighted, divided : bool
        Whether gradient rows have coefficients, and whether they are divided by the length of their run.
    counted : bool
        Whether the number of runs lies on the device.
    """

    n: int
    dtype: Any
    state: tuple[str, ...]
    weighted: bool
    divided: bool
    counted: bool


# A run's sum


@functools.cache
def make_sum(n, dtype, weighted, divided):
    """A piece: add to `total` the `n` columns from `c` on of the gradient rows at the positions ``[k, end)``."""

    @device_function
    def add(total, asked, divisor):
        _, _, factor, columns = asked
        own = local_array(n, dtype)
        store(own, 0, columns)  # the gradient may be narrower than the sum
        term = load(own, 0, n)
        if weighted:
            term = mul_rn(term, dtype(factor))
        if divided:
            term = div_rn(term, divisor)
        return add_rn(total, term)

    return make_fold(add, n, AT_ONCE, weighted)


@functools.cache
def make_run_sum(n, dtype, weighted, divided):
    """A piece: add to `total` the columns from `c` on of a run's rows, or of its partial sums if it has several."""
    add_rows = make_sum(n, dtype, weighted, divided)

    @device_function
    def add_run(total, grad, partial, positions, coefficients, lo, hi, c, columns):
        if hi - lo <= u64(SUM_BLOCK):
            return add_rows(total, grad, positions, coefficients, lo, hi, c, columns, dtype(hi - lo))
        at, step = (lo >> u64(SHIFT)) * u64(2) * columns + c, columns * u64(2)
        total = add_rn(total, load_stream(partial, at + columns, n))
        left = (hi - lo - u64(1)) >> u64(SHIFT)
        while left >= u64(4):
            first, second = load_stream(partial, at + step, n), load_stream(partial, at + step * u64(2), n)
            third, fourth = load_stream(partial, at + step * u64(3), n), load_stream(partial, at + step * u64(4), n)
            total = add_rn(add_rn(add_rn(add_rn(total, first), second), third), fourth)
            at += step * u64(4)
            left -= u64(4)
        while left > u64(0):
            at += step
            total = add_rn(total, load_stream(partial, at, n))
            left -= u64(1)
        return total

    return add_run


@functools.cache
def make_sum_pieces(form: Form):
    """The kernel that sums the pieces of long runs, each into its place in `partial`: see above."""
    n, dtype, counted = form.n, form.dtype, form.counted
    add_rows = make_sum(n, dtype, form.weighted, form.divided)

    def sum_pieces(partial, grad, rows, starts, positions, coefficients, count, flag, places, columns):
        if flag[u64(0)] != GOOD:
            return
        columns = u64(columns)
        runs = u64(count[u64(0)]) if counted else u64(rows.size)
        if runs == u64(0):
            return
        place = u64(block_x()) * u64(block_dim_y()) + u64(thread_y())
        while place < places:
            is_first = place & u64(1)
            block = (place >> u64(1)) << u64(SHIFT)
            inside = block + is_first * u64(SUM_BLOCK - 1)
            u, above = u64(0), runs  # the last run that begins at `inside` or before
            while u + u64(1) < above:
                middle = (u + above) >> u64(1)
                if u64(starts[middle]) <= inside:
                    u = middle
                else:
                    above = middle
            lo, hi = u64(starts[u]), u64(starts[u + u64(1)])
            k = lo
            if is_first == u64(0) and lo < block:
                k = lo + (((block - lo + u64(SUM_BLOCK - 1)) >> u64(SHIFT)) << u64(SHIFT))
            begins_here = (lo >= block) == (is_first == u64(1)) and lo <= inside
            if begins_here and k < hi and hi - lo > u64(SUM_BLOCK):
                end = min(hi, k + u64(SUM_BLOCK))
                c = u64(u32(thread_x() * u32(n)))
                while c < columns:
                    zero = full(dtype(0), n)
                    total = add_rows(zero, grad, positions, coefficients, k, end, c, columns, dtype(hi - lo))
                    store(partial, place * columns + c, total)
                    c += u64(u32(block_dim_x() * u32(n)))
            place += u64(grid_dim_x()) * u64(block_dim_y())

    return sum_pieces


# A row of the state


@functools.cache
def make_state(kinds, n):
    """Three pieces: load the `n` columns at ``at`` of a row of the state, store them, store what a row has once."""
    if not kinds:

        @device_function
        def nothing(own, state, row, at):
            pass

        return nothing, nothing, nothing

    kind = kinds[0]
    fetch_others, keep_others, finish_others = make_state(kinds[1:], n)

    @device_function
    def fetch(own, state, row, at):
        if kind == ROW:
            store(own[0][0], 0, load(state[0], at, n))
        if kind == NUMBER:
            own[0][0, 0] = state[0][row]
        fetch_others(own[1:], state[1:], row, at)

    @device_function
    def keep(own, state, row, at):
        if kind == ROW:
            store(state[0], at, load(own[0][0], 0, n))
        keep_others(own[1:], state[1:], row, at)

    @device_function
    def finish(own, state, row, at):
        if kind == NUMBER:
            state[0][row] = own[0][0, 0]
        finish_others(own[1:], state[1:], row, at)

    return fetch, keep, finish


# The pass


@dataclass(frozen=True)
class Pass:
    """What is done with a run, beside its sum.

    Attributes
    ----------
    rule : jitted function
        ``rule(weight, state, row, total, hyper)`` changes `n` columns of a row in place, given their summed gradient.
    measure : function, optional
        For a rule that needs to know a number of the whole row: ``measure(form, add_run)`` makes the piece
        ``(grad, partial, positions, coefficients, lo, hi, columns) -> (number, sums)``: the number is appended to
        `hyper`, and the sums are those of the lane's last columns, which need not be made again if it has no others.
    onto_weight : bool
        Whether the row of the table is where the sum begins.
    """

    rule: Any
    measure: Any = None
    onto_weight: bool = False


@functools.cache
def make_row_pass(what: Pass, form: Form):
    """The kernel: a team of `block_dim_x` lanes for a run."""
    n, dtype, rule, onto_weight, counted = form.n, form.dtype, what.rule, what.onto_weight, form.counted
    arrays, meets = len(form.state), NUMBER in form.state
    add_run = make_run_sum(n, dtype, form.weighted, form.divided)
    fetch, keep, finish = make_state(form.state, n)
    measures = what.measure is not None
    measure: Any = what.measure(form, add_run) if measures else None

    def row_pass(weight, state, grad, rows, starts, positions, coefficients, partial, hyper, count, flag, columns):
        if flag[u64(0)] != GOOD:
            return
        columns = u64(columns)
        own, total = local_array((1, n), dtype), local_array(n, dtype)
        own_state = (local_array((1, n), dtype), local_array((1, n), dtype), local_array((1, n), dtype))[:arrays]
        team = launch.team_mask(lane(), block_dim_x())
        step, first = u64(u32(block_dim_x() * u32(n))), u64(u32(thread_x() * u32(n)))
        runs = u64(count[u64(0)]) if counted else u64(rows.size)
        stride = u64(grid_dim_x()) * u64(block_dim_y())
        u = u64(block_x()) * u64(block_dim_y()) + u64(thread_y())
        row = lo = hi = u64(0)
        if u < runs:
            row, lo, hi = u64(rows[u]), u64(starts[u]), u64(starts[u + u64(1)])
        while u < runs:
            u += stride
            next_row = next_lo = next_hi = u64(0)
            if u < runs:  # asked for a run ahead: what a run is has to be there before its rows can be asked for
                next_row, next_lo, next_hi = u64(rows[u]), u64(starts[u]), u64(starts[u + u64(1)])
            known, sums = hyper, full(dtype(0), n)
            if measures:
                mean, sums = measure(grad, partial, positions, coefficients, lo, hi, columns)
                known = hyper + (mean,)  # noqa: RUF005  Numba cannot unpack there
            c = first
            while c < columns:
                at = row * columns + c
                store(own[0], 0, load(weight, at, n))
                fetch(own_state, state, row, at)
                if not measures or columns > step:
                    sums = load(own[0], 0, n) if onto_weight else full(dtype(0), n)
                    sums = add_run(sums, grad, partial, positions, coefficients, lo, hi, c, columns)
                store(total, 0, sums)
                rule(own, own_state, 0, total, known)
                store(weight, at, load(own[0], 0, n))
                keep(own_state, state, row, at)
                c += step
            if meets:  # all lanes have read what one will write
                sync_warp(u32(team))
                if thread_x() == u32(0):
                    finish(own_state, state, row, u64(0))
            row, lo, hi = next_row, next_lo, next_hi

    return row_pass


# Drivers


def _kinds(weight: Any, state: tuple[Any, ...]) -> tuple[str, ...]:
    columns = weight.shape[1]
    return tuple(NOTHING if not len(a) else ROW if a.shape[1] == columns > 1 else NUMBER for a in state)


def start_row_pass(
    what: Pass,
    weight: Any,
    state: tuple[Any, ...],
    grad: Any,
    runs: tuple[Any, Any, Any],
    coefficients: Any,
    hyper: tuple[float, ...],
    scale_grad_by_freq: bool,
    flag: Any,
    count: Any = None,
) -> None:
    """Start the kernels of a pass over `runs`, (rows, starts, positions); `count`, where given, says how many are.

    Nothing happens to a table without columns.
    """
    rows, starts, positions = runs
    columns = weight.shape[1]
    if not columns or not rows.size:
        return
    xp, dtype = launch.namespace(weight), accumulator(weight.dtype)
    pieces = -(-positions.size // SUM_BLOCK) * 2 if positions.size > SUM_BLOCK else 0
    partial = xp.empty((pieces, columns), dtype)
    kinds = _kinds(weight, state)
    whole = [array for array, kind in zip(state, kinds, strict=True) if kind == ROW]
    n = launch.width(columns, weight, grad, *whole, partial)  # partial is in the kernel even where it is empty
    counted = count is not None
    form = Form(n, from_dtype(dtype), kinds, coefficients.size > 0, bool(scale_grad_by_freq), counted)
    counts = count if counted else rows
    lanes, last = launch.lanes(columns, n), np.uint64(columns)
    if pieces:
        given = partial, grad, rows, starts, positions, coefficients, counts, flag, np.uint64(pieces), last
        launch.run(make_sum_pieces(form), *launch.teams(pieces, lanes), *given)
    numbers = tuple(np.float64(h) for h in hyper)
    launch.run(
        make_row_pass(what, form),
        *launch.teams(rows.size, lanes),
        weight, state, grad, rows, starts, positions, coefficients, partial, numbers, counts, flag, last,
    )  # fmt: skip


DOC = """{rule}

As `fastemb.kernels.cpu.{name}`, on contiguous arrays of CuPy; the table may be float16 too, its state and all
arithmetic then being float32. ``name_range(..., start, stop)`` does the runs ``[start, stop)``, ``name(...)`` all.

Notes
-----
Has the bits that the CPU has, for float16 those of `fastemb.kernels.reference`; no atomics, and the host waits for
nothing but the check (see `fastemb.kernels.cuda.check.mode`). Takes ``positions.size / 512`` rows of scratch if
`positions` has more than `fastemb.kernels.SUM_BLOCK`.
"""


def row_pass(rule: Any, home: str, *, of: Any = None, measure: Any = None) -> tuple[Any, Any]:
    """Make the range form and the driver of a rule.

    Parameters
    ----------
    rule, measure
        As for `Pass`.
    home : str
        The module that they are for.
    of : function, optional
        The rule of the CPU that has the documentation, if `rule` is not that.

    Returns
    -------
    range_form, driver : function
        As `fastemb.kernels.cpu.runs.row_pass` makes them.
    """
    what = Pass(rule, measure)

    def driver(weight, state, grad, rows, starts, positions, coefficients, hyper, scale_grad_by_freq):
        flag = check.begin(rows, weight.shape[0])
        runs = rows, starts, positions
        start_row_pass(what, weight, state, grad, runs, coefficients, hyper, scale_grad_by_freq, flag)
        return check.answer(flag, rows, weight.shape[0])

    def range_form(weight, state, grad, rows, starts, positions, coefficients, hyper, scale_grad_by_freq, start, stop):
        part = rows[start:stop], starts[start : stop + 1], positions
        bad = driver(weight, state, grad, *part, coefficients, hyper, scale_grad_by_freq)
        return bad if bad < 0 else start + bad

    named = rule if of is None else of
    name = named.__name__.removeprefix("_")
    name_after_rule(range_form, driver, named, DOC.format(rule=inspect.cleandoc(named.__doc__ or ""), name=name))
    range_form.__module__ = driver.__module__ = home
    return range_form, driver
