"""The arrays of a case on a device, fastemb's way and its peers' to the result, and what each has to move.

`Tools.xp` is CuPy; with NumPy in its place the same code runs on the CPU, which is how the tests run it.
"""

import dataclasses
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

import fastemb
from fastemb import optim

from .. import shapes
from . import cases

LR = 2.0**-6

TORCH_RULES = {"SGD": "SGD", "Adagrad": "Adagrad", "Adam": "SparseAdam"}
"""Rules that torch has for sparse gradients too."""


@dataclasses.dataclass(frozen=True)
class Tools:
    """What cases are made with; None where it is missing.

    `unordered` is the scatter-add by atomics, which is on a GPU alone; `index_check` is fastemb's.
    """

    xp: ModuleType
    torch: ModuleType | None
    index_check: Callable[[str], Any]
    unordered: Callable[..., int] | None = None


@dataclasses.dataclass(frozen=True)
class Way:
    """A call, and the arrays that it writes: the first is the result. None where the call returns it."""

    name: str
    call: Callable[[], Any]
    arrays: tuple[Any, ...] | None = None

    def results(self):
        """Call it; its arrays."""
        returned = self.call()
        return (returned,) if self.arrays is None else self.arrays


@dataclasses.dataclass(frozen=True)
class Arrays:
    """Table, ids, where bags begin, and gradient or updates: one row for each bag, which of lookups is each index."""

    weight: Any
    ids: Any
    offsets: Any
    grad: Any


def small(case):
    """The same operation on few rows, so that a plain NumPy result is there in no time."""
    return dataclasses.replace(
        case, num_rows=min(case.num_rows, 500), bags=min(case.bags, max(1, 2048 // case.hot)), name=""
    )


def host_arrays(case):
    """Whole numbers on the host: sums are exact in every order."""
    dtype = np.dtype(case.dtype)
    ids, _ = cases.indices(case.stream, case.num_rows, case.length)
    table = shapes.table(case.num_rows, case.width, dtype)
    return Arrays(table, ids, _offsets(np, case), shapes.gradient(case.bags, case.width).astype(dtype))


def device_arrays(case, xp):
    """Arrays made where they are used; sums of this gradient depend on their order."""
    ids, _ = cases.indices(case.stream, case.num_rows, case.length)
    grad = None
    if case.op in ("scatter", "update"):
        grad = xp.arange(case.bags * case.width, dtype=np.float32).reshape(case.bags, case.width)
        grad = xp.sin(grad, out=grad).astype(case.dtype, copy=False)
    weight = xp.ones((case.num_rows, case.width), case.dtype)
    return Arrays(weight, xp.asarray(ids), _offsets(xp, case), grad)


def _offsets(xp, case):
    return xp.arange(0, case.length, case.hot, dtype=np.int64)


def _gather(case, arrays, tools):
    xp, torch = tools.xp, tools.torch
    out = xp.full((case.length, case.width), np.nan, case.dtype)
    yield Way("fastemb", functools.partial(fastemb.gather, arrays.weight, arrays.ids, out=out), (out,))
    if torch:
        weight, ids, target = (torch.from_dlpack(a) for a in (arrays.weight, arrays.ids, out))
        yield Way("torch index_select", functools.partial(torch.index_select, weight, 0, ids, out=target), (out,))
    yield Way("cupy.take", functools.partial(xp.take, arrays.weight, arrays.ids, axis=0, out=out), (out,))


def _bag(case, arrays, tools):
    torch, out = tools.torch, tools.xp.full((case.bags, case.width), np.nan, case.dtype)
    given = arrays.weight, arrays.ids, arrays.offsets
    yield Way("fastemb", functools.partial(fastemb.embedding_bag, *given, mode="sum", out=out), (out,))
    if torch:
        weight, ids, offsets = (torch.from_dlpack(a) for a in given)
        theirs = functools.partial(torch.nn.functional.embedding_bag, ids, weight, offsets, mode="sum")
        yield Way("torch embedding_bag", theirs)


def _scatter(case, arrays, tools):
    xp, torch = tools.xp, tools.torch
    weight, ids, updates = arrays.weight, arrays.ids, arrays.grad
    yield Way("fastemb", functools.partial(fastemb.scatter_add, weight, ids, updates), (weight,))
    if tools.unordered and case.dtype != "float16":
        yield Way("fastemb unordered", functools.partial(tools.unordered, weight, ids, updates), (weight,))
    if torch:
        target, index, source = (torch.from_dlpack(a) for a in (weight, ids, updates))
        yield Way("torch index_add_", functools.partial(target.index_add_, 0, index, source), (weight,))
    yield Way("cupyx.scatter_add", functools.partial(xp.add.at, weight, ids, updates), (weight,))  # its other name


def _update(case, arrays, tools):
    weight, ids, offsets, grad = arrays.weight, arrays.ids, arrays.offsets, arrays.grad
    rule = rule_of(case)
    state = rule.init(weight)
    step = functools.partial(rule.step_bag, weight, state, ids, offsets, grad)
    yield Way("fastemb", step, (weight, *state.arrays().values()))
    if tools.torch and case.rule in TORCH_RULES:
        yield Way(f"torch sparse {TORCH_RULES[case.rule]}", _torch_step(case, arrays, tools.torch), (weight,))


def _torch_step(case, arrays, torch):
    """Gradient and step alone, as fastemb's: the pooled lookup is done once and kept."""
    weight, ids, offsets, grad = (
        torch.from_dlpack(a) for a in (arrays.weight, arrays.ids, arrays.offsets, arrays.grad)
    )
    layer = torch.nn.EmbeddingBag(*weight.shape, mode="sum", sparse=True, _weight=weight)
    optimizer = getattr(torch.optim, TORCH_RULES[case.rule])(layer.parameters(), lr=LR)
    pooled = layer(ids, offsets)

    def step():
        optimizer.zero_grad()
        pooled.backward(grad, retain_graph=True)
        optimizer.step()

    return step


WAYS = {"gather": _gather, "bag": _bag, "scatter": _scatter, "update": _update}


def ways(case, arrays, tools):
    """The ways to the result of a case, fastemb's first."""
    return list(WAYS[case.op](case, arrays, tools))


def rule_of(case):
    """The rule of a step."""
    return getattr(optim, case.rule)(lr=LR)


def expected(case, arrays):
    """What the arrays of fastemb's way must hold, by plain NumPy on host arrays that are left as they are."""
    weight, ids = arrays.weight, arrays.ids
    if case.op == "gather":
        return (weight[ids],)
    if case.op == "bag":
        return (weight[ids].reshape(case.bags, case.hot, case.width).sum(axis=1, dtype=np.float64).astype(case.dtype),)
    if case.op == "scatter":
        wide = weight.astype(np.float64)
        np.add.at(wide, ids, arrays.grad)
        return (wide.astype(case.dtype),)
    table, rule = shapes.unaligned(weight), rule_of(case)  # the reference kernels work on this one
    state = rule.init(table)
    rule.step_bag(table, state, ids, arrays.offsets, arrays.grad)
    return (table, *state.arrays().values())


def state_bytes(case):
    """Of a row, of the state of the rule."""
    if case.op != "update":
        return 0
    row = np.ones((1, case.width), case.dtype)
    return sum(array.nbytes for array in rule_of(case).init(row).arrays().values())


def moved(case):
    """(algorithmic bytes, distinct-row bytes): a row for each index, or each distinct row once; indices in both.

    A sum reads a row of updates for each index and reads and writes rows of the table. A step reads the gradient of a
    bag for each of its indices, or once, and reads and writes each distinct row of table and state in either count.
    """
    _, distinct = cases.indices(case.stream, case.num_rows, case.length)
    row, length, ids = case.row_bytes, case.length, 8 * case.length
    if case.op == "gather":
        return ids + 2 * length * row, ids + (distinct + length) * row
    if case.op == "bag":
        given = ids + (8 + row) * case.bags
        return given + length * row, given + distinct * row
    if case.op == "scatter":
        return ids + 3 * length * row, ids + (length + 2 * distinct) * row
    changed = ids + 2 * distinct * (row + state_bytes(case))
    return changed + length * row, changed + case.bags * row


def memory(case):
    """Bytes of a device that a case takes at most, its peers with it."""
    tables = case.num_rows * (case.row_bytes + 2 * state_bytes(case))
    per_index = 4 * max(case.row_bytes, 4 * case.width) + 128  # torch's sparse gradients, and scratch of the grouping
    return tables + case.length * per_index + case.bags * case.row_bytes * 2
