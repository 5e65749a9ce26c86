"""What is timed: for each question a case, with fastemb's way and the others, on the same arrays.

Everything that times something takes its cases from here.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import scipy.sparse

import fastemb

from . import shapes

SIZES = (10, 100, 1_000, 10_000, 20_000, 50_000)
"""Vocabularies of the headline."""

WIDTH = 64
LENGTH = 1024


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to compute the result of a case.

    `input_bytes` is what it is given besides the table: ids, one-hot matrix, gradient.
    """

    name: str
    call: Callable[[], object]
    input_bytes: int


@dataclasses.dataclass(frozen=True)
class Case:
    """Ways to one result, fastemb's first; `check` raises unless they all give it.

    `distinct` is how many different rows the ids name.
    """

    name: str
    sizes: dict[str, int]
    distinct: int
    ways: tuple[Way, ...]
    check: Callable[[], None]


def _nbytes(*arrays):
    return sum(array.nbytes for array in arrays)


def lookup(num_rows, ids, width=WIDTH):
    """Rows of a table: by index, and as a product with a one-hot matrix, dense and sparse."""
    table = shapes.table(num_rows, width)
    dense = fastemb.one_hot(ids, num_rows)
    sparse = scipy.sparse.csr_array((np.ones(ids.size, np.float32), (np.arange(ids.size), ids)), dense.shape)
    ways = (
        Way("fastemb.gather", lambda: fastemb.gather(table, ids), ids.nbytes),
        Way("W[ids]", lambda: table[ids], ids.nbytes),
        Way("one-hot build", lambda: fastemb.one_hot(ids, num_rows), ids.nbytes),
        Way("one-hot matmul", lambda: dense @ table, dense.nbytes),
        Way("sparse matmul", lambda: sparse @ table, _nbytes(sparse.data, sparse.indices, sparse.indptr)),
    )

    def check():
        rows = table[ids]
        for way in ways:
            expected = dense if way.name == "one-hot build" else rows
            np.testing.assert_array_equal(way.call(), expected, err_msg=way.name)

    return Case("lookup", {"N": num_rows, "D": width, "L": ids.size}, np.unique(ids).size, ways, check)


def scatter(num_rows, ids, width=WIDTH):
    """The gradient of a lookup, added into a table."""
    target = np.zeros((num_rows, width), np.float32)
    grad = shapes.gradient(ids.size, width)
    dense = fastemb.one_hot(ids, num_rows)

    def by_matmul():
        np.add(target, dense.T @ grad, out=target)

    ways = (
        Way("fastemb.scatter_add", lambda: fastemb.scatter_add(target, ids, grad), _nbytes(ids, grad)),
        Way("np.add.at", lambda: np.add.at(target, ids, grad), _nbytes(ids, grad)),
        Way("one-hot.T matmul", by_matmul, _nbytes(dense, grad)),
    )

    def check():
        expected = np.zeros_like(target)
        np.add.at(expected, ids, grad)
        for way in ways:
            target[:] = 0
            way.call()
            np.testing.assert_array_equal(target, expected, err_msg=way.name)

    return Case("scatter_add", {"N": num_rows, "D": width, "L": ids.size}, np.unique(ids).size, ways, check)


def adam_step(num_rows, ids, width=WIDTH):
    """One step of Adam: on the touched rows, and on the whole table with a dense gradient."""
    rule = fastemb.optim.Adam()
    start = shapes.table(num_rows, width)
    table = start.copy()
    state = rule.init(table)
    grad = shapes.gradient(ids.size, width)
    dense_grad = np.zeros_like(table)
    np.add.at(dense_grad, ids, grad)
    dense_state = rule.init(table)

    def by_rows():
        rule.step(table, state, ids, grad)

    def dense():
        _dense_adam(rule, table, dense_state, dense_grad)

    def dense_from_ids():
        whole = np.zeros_like(table)
        np.add.at(whole, ids, grad)
        _dense_adam(rule, table, dense_state, whole)

    ways = (
        Way("fastemb Adam.step", by_rows, _nbytes(ids, grad)),
        Way("dense step", dense, dense_grad.nbytes),
        Way("np.add.at + dense step", dense_from_ids, _nbytes(ids, grad)),
    )

    def check():
        # From a state of zeros the first step moves the touched rows alone, in every way.
        results = []
        for way in ways:
            table[:] = start
            for kept in (state, dense_state):
                kept.step, kept.m[:], kept.v[:] = 0, 0, 0
            way.call()
            results.append(table.copy())
        for way, result in zip(ways, results, strict=True):
            np.testing.assert_allclose(result, results[0], rtol=1e-6, atol=1e-7, err_msg=way.name)

    return Case("adam_step", {"N": num_rows, "D": width, "L": ids.size}, np.unique(ids).size, ways, check)


def _dense_adam(rule, table, state, grad):
    """Adam as it is written with NumPy: in place, whole arrays."""
    beta1, beta2 = rule.betas
    state.step += 1
    rate = rule.lr * math.sqrt(1 - beta2**state.step) / (1 - beta1**state.step)
    state.m += (1 - beta1) * (grad - state.m)
    state.v += (1 - beta2) * (grad * grad - state.v)
    table -= rate * (state.m / (np.sqrt(state.v) + rule.eps))


HEADLINE = (lookup, scatter, adam_step)
"""The cases of ``python -m benches``."""
