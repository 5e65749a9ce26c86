"""Every kernel of kernels/cuda with the types that it is compiled for: what the drivers ask `launch` for, written down.

Nothing runs: drivers are called with small arrays, and a compiler that only notes what it is given. So a kernel is here
as it is launched, for rows of the bytes that decide about the width of its accesses.
"""

import functools
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from fastemb.kernels import SUM_BLOCK
from fastemb.kernels.cuda import bag, bag_grad, catch_up, check, launch, scatter, update
from fastemb.kernels.cuda.gather import gather
from fastemb.kernels.cuda.group import group, group_bags
from fastemb.kernels.cuda.renorm import renorm

EMPTY = np.empty(0, np.float32)
HYPER = {"sgd": 2, "momentum": 5, "adagrad": 3, "rowwise_adagrad": 3, "rmsprop": 7, "adam": 5, "ftrl": 4}
STATE = {"sgd": "", "momentum": "r1", "adagrad": "r", "rowwise_adagrad": "1", "rmsprop": "rrr", "adam": "rr"}
"""Arrays of state: rows as wide as those of the table, or one number for each."""


@dataclass(frozen=True)
class Entry:
    """A kernel as `launch` compiles it.

    Attributes
    ----------
    function : callable
        The kernel, a plain Python function.
    signature : tuple of numba types
        One for each parameter.
    table : numpy dtype
        Of the table that its driver was called with.
    columns : int
        D of that table.
    """

    function: Any
    signature: tuple[Any, ...]
    table: np.dtype[Any]
    columns: int


def launched(capability, driver, *arguments):
    """The kernels that a driver launches on a device of a compute capability, each with its signature."""
    found = []

    def note(function, signature):
        found.append((function, signature))
        return lambda grid, block, given: None

    of_device = 10 * capability[0] + capability[1]
    with mock.patch.object(launch, "compiler", note), mock.patch.object(launch, "capability", return_value=of_device):
        driver(*arguments)
    return found


def _ids(count=64, dtype=np.int64):
    return np.zeros(count, dtype)


def _bags(dtype, columns, count=64, bags=2):
    offsets = np.linspace(0, count, bags + 1).astype(np.int64)
    return np.empty((bags, columns), dtype), np.ones((9, columns), dtype), _ids(count), offsets


def _gather(dtype, columns):
    return gather, np.empty((64, columns), dtype), np.ones((9, columns), dtype), _ids()


def _group(dtype, columns):
    rows, starts, positions, count = (np.zeros(n, np.int64) for n in (64, 65, 64, 1))
    return group, rows, starts, positions, count, _ids(), 9, -1


def _group_bags(dtype, columns):
    _, *outputs, ids, num_rows, padding_idx = _group(dtype, columns)
    return group_bags, *outputs, ids, np.array([0, 32, 64]), num_rows, padding_idx


def _bag_sum(dtype, columns, *, weighted=False, **sizes):
    out, table, ids, offsets = _bags(dtype, columns, **sizes)
    factors = np.ones(ids.size if weighted else 0, np.result_type(dtype, np.float32))
    divisors = np.ones(len(out) if weighted else 0, factors.dtype)
    return bag.bag_sum, out, table, ids, offsets, factors, divisors, -1


def _bag_max(dtype, columns):
    return bag.bag_max, *_bags(dtype, columns), -1


def _bag_divisors(dtype, columns):
    _, _, ids, offsets = _bags(dtype, columns)
    return bag.bag_divisors, np.empty(2, dtype), ids, offsets, np.ones(64, dtype), -1, False


def _bag_winners(dtype, columns):
    _, *rest = _bags(dtype, columns)
    return bag_grad.bag_winners, np.zeros((2, columns), np.int64), *rest, -1


def _bag_max_grad(dtype, columns):
    grad, winners = np.ones((2, columns), dtype), np.zeros((2, columns), np.int64)
    return bag_grad.bag_max_grad, np.ones((9, columns), dtype), grad, winners, _ids()


def _bag_dots(dtype, columns):
    grad, *rest = _bags(dtype, columns)
    return bag_grad.bag_dots, np.empty(64, np.result_type(dtype, np.float32)), *rest, grad, -1


def _bag_numbers(dtype, columns):
    return bag_grad.bag_numbers, _ids(), _ids(), np.array([0, 32, 64])


def _runs(count=64):
    return np.arange(9), np.linspace(0, count, 10).astype(np.int64), np.arange(count)


def _update(name):
    def call(dtype, columns, *, count=64):
        state_dtype = np.result_type(dtype, np.float32)
        state = tuple(np.ones((9, columns if kind == "r" else 1), state_dtype) for kind in STATE.get(name, "rr"))
        table, grad = np.ones((9, columns), dtype), np.ones((count, columns), dtype)
        hyper = (0.5,) * HYPER[name]
        return getattr(update, name), table, state, grad, *_runs(count), EMPTY.astype(state_dtype), hyper, False

    return call


def _step(name):
    def call(dtype, columns):
        _, table, state, grad, _, _, _, _, hyper, scaled = _update(name)(dtype, columns)
        return update.step, name, table, state, _ids(), grad, -1, hyper, scaled

    return call


def _scatter_add(dtype, columns, *, unordered=False):
    driver = scatter.scatter_add_unordered if unordered else scatter.scatter_add
    return driver, np.ones((9, columns), dtype), _ids(), np.ones((64, columns), dtype)


def _segment_sum(dtype, columns, *, count=64):
    values, grad = np.ones((9, columns), dtype), np.ones((count, columns), dtype)
    return scatter.segment_sum, values, grad, *_runs(count), np.ones(count, np.result_type(dtype, np.float32)), False


def _renorm(p):
    return lambda dtype, columns: (renorm, np.ones((9, columns), dtype), np.arange(9), 1.0, p)


def _missed(name, width_of_second, hyper):
    def call(dtype, columns):
        number = np.result_type(dtype, np.float32)
        state = np.ones((9, columns), number), np.ones((9, width_of_second or columns), number)
        history = np.ones(5), np.ones(5), np.ones((4, 8)), np.array([0, 4]), np.ones(1), (0.5,) * hyper
        return getattr(catch_up, name), np.ones((9, columns), dtype), state, np.zeros(9, int), np.arange(9), *history

    return call


def _first_bad(dtype, columns):
    return check.first_bad, _ids(), 9, 0, 64


def _some(call, **options):
    return functools.partial(call, **options)


F16, F32, F64 = np.float16, np.float32, np.float64
WIDE, EVEN, ODD = 64, 6, 5
"""Numbers of columns for accesses of 16 bytes, of two float32 and of one number."""

CALLS = {
    "first_bad": (_first_bad, F32, WIDE),
    "gather": (_gather, F32, WIDE),
    "gather, D even": (_gather, F32, EVEN),
    "gather, D odd": (_gather, F32, ODD),
    "gather, float16, D odd": (_gather, F16, ODD),
    "group": (_group, F32, WIDE),
    "bag_sum, long bags": (_some(_bag_sum, count=256), F32, WIDE),
    "bag_sum, short bags": (_some(_bag_sum, bags=32), F32, WIDE),
    "bag_sum, weighted": (_some(_bag_sum, count=256, weighted=True), F32, WIDE),
    "bag_sum, D odd": (_some(_bag_sum, count=256), F32, ODD),
    "bag_sum, float16": (_some(_bag_sum, count=256), F16, WIDE),
    "bag_sum, float64": (_some(_bag_sum, count=256), F64, WIDE),
    "bag_max": (_bag_max, F32, WIDE),
    "bag_divisors": (_bag_divisors, F32, WIDE),
    "bag_winners": (_bag_winners, F32, WIDE),
    "bag_max_grad": (_bag_max_grad, F32, WIDE),
    "bag_dots": (_bag_dots, F32, WIDE),
    "bag_numbers": (_bag_numbers, F32, WIDE),
    "group_bags": (_group_bags, F32, WIDE),  # kernels of both
    **{name: (_update(name), F32, WIDE) for name in HYPER},
    "adam, long runs": (_some(_update("adam"), count=2 * SUM_BLOCK), F32, WIDE),
    "adam, D odd": (_update("adam"), F32, ODD),
    "adam, float16": (_update("adam"), F16, WIDE),
    "adam, float64": (_update("adam"), F64, WIDE),
    "step, adam": (_step("adam"), F32, WIDE),
    "step, rowwise_adagrad": (_step("rowwise_adagrad"), F32, WIDE),
    "scatter_add": (_scatter_add, F32, WIDE),
    "scatter_add_unordered": (_some(_scatter_add, unordered=True), F32, WIDE),
    "segment_sum": (_segment_sum, F32, WIDE),
    "renorm, p 1": (_renorm(1.0), F32, WIDE),
    "renorm, p 2": (_renorm(2.0), F32, WIDE),
    "renorm, p inf": (_renorm(np.inf), F32, WIDE),
    "renorm, any p": (_renorm(3.0), F32, WIDE),
    "renorm, p 2, D odd": (_renorm(2.0), F32, ODD),
    "renorm, p 2, float16": (_renorm(2.0), F16, WIDE),
    "renorm, p 2, float64": (_renorm(2.0), F64, WIDE),
    "momentum_missed": (_missed("momentum_missed", 1, 1), F32, WIDE),
    "adam_missed": (_missed("adam_missed", 0, 3), F32, WIDE),
    "adam_missed, D odd": (_missed("adam_missed", 0, 3), F32, ODD),
    "adam_missed, float64": (_missed("adam_missed", 0, 3), F64, WIDE),
}
"""What is called: a function that makes the driver and its arguments, the dtype of the table, D."""


@functools.cache
def kernels(capability=(9, 0)):
    """`Entry` for each name: of the call, and of the kernel where the call launches several that were not there yet."""
    entries, seen = {}, set()
    for name, (call, dtype, columns) in CALLS.items():
        new = [found for found in dict.fromkeys(launched(capability, *call(dtype, columns))) if found not in seen]
        seen.update(new)
        for function, signature in new:
            label = f"{name}: {function.__name__}" if len(new) > 1 else name
            entries[label] = Entry(function, signature, np.dtype(dtype), columns)
    return entries
