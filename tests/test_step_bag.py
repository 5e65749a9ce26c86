"""Steps of pooled lookups: what ordinary arrays get the short way is what all others get."""

import re

import numpy as np
import pytest
from strategies import in_parallel, same_bits, unchanged
from test_optim import RULES

import fastemb
from fastemb.optim import SGD, Adam, Momentum, Optimizer

OFFSETS = [0, 0, 7, 30, 31, 60, 60]
"""Offsets of bags of 60 positions, some of them empty."""


@pytest.fixture
def long_way_closed(monkeypatch):
    """Whoever checks arrays one by one fails."""
    monkeypatch.delattr(Optimizer, "_prepare")


def problem(rng, dtype=np.float32, num_rows=30):
    indices, offsets = rng.integers(0, num_rows, 60), np.array(OFFSETS)
    return rng.standard_normal((num_rows, 5)).astype(dtype), indices, offsets, rng.standard_normal((7, 5)).astype(dtype)


def assert_same(weight, state, other, other_state):
    assert same_bits(weight, other)
    assert state.step == other_state.step
    for a, b in zip(state.arrays().values(), other_state.arrays().values(), strict=True):
        assert same_bits(a, b)


@pytest.mark.parametrize("name", [name for name, (rule, _) in RULES.items() if getattr(rule, "mode", "lazy") == "lazy"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.usefixtures("long_way_closed")
def test_the_short_way_is_gradient_and_update(rng, name, dtype, count, monkeypatch):
    opt, _ = RULES[name]
    weight = problem(rng, dtype)[0]
    other, state, other_state = weight.copy(), opt.init(weight), opt.init(weight)
    gradients = []
    for t in range(1, 4):
        _, indices, offsets, grad = problem(rng, dtype)
        with in_parallel(count), unchanged(indices, offsets, grad):
            opt.step_bag(weight, state, indices, offsets, grad, lr=0.5 / t)
        gradients.append(fastemb.embedding_bag_grad(other, indices, offsets, grad, mode="sum"))
    monkeypatch.undo()
    for t, gradient in enumerate(gradients, 1):
        opt.update(other, other_state, gradient, lr=0.5 / t)
    assert_same(weight, state, other, other_state)


def _read_only(array):
    array.flags.writeable = False
    return array


def _apart(array):
    """The same numbers, but not one after the other."""
    wide = np.zeros((*array.shape, 2), array.dtype)
    wide[..., 0] = array
    return wide[..., 0]


def _rows_apart(array):
    wide = np.zeros((len(array), 9), array.dtype)
    wide[:, :5] = array
    return wide[:, :5]


@pytest.mark.parametrize(
    ("which", "change"),
    [
        ("weight", _rows_apart),
        ("weight", lambda weight: weight.view(type("Table", (np.ndarray,), {}))),
        ("indices", lambda indices: indices.astype(np.int32)),
        ("indices", lambda indices: indices.astype(">i8")),
        ("indices", _read_only),
        ("indices", _apart),
        ("indices", np.ndarray.tolist),
        ("offsets", lambda offsets: offsets.astype(np.uint8)),
        ("offsets", np.ndarray.tolist),
        ("grad", _read_only),
        ("grad", _apart),
        ("grad", lambda grad: grad.astype(np.float16).astype(np.float32)[::-1]),
        ("grad", np.ndarray.tolist),
    ],
)
@pytest.mark.parametrize("rule", [SGD(), Adam()], ids=["SGD", "Adam"])
def test_arrays_that_are_not_ordinary_get_the_same(rng, which, change, rule):
    weight, indices, offsets, grad = problem(rng)
    given = {"weight": weight.copy(), "indices": indices, "offsets": offsets, "grad": grad}
    given[which] = change(given[which].copy())
    if which == "grad":
        grad = np.array(given["grad"], np.float32)
    state, other_state = rule.init(weight), rule.init(given["weight"])
    rule.step_bag(weight, state, indices, offsets, grad)
    rule.step_bag(state=other_state, **given)
    assert_same(weight, state, np.array(given["weight"]), other_state)


def test_what_a_checkpointer_asked_for_is_noted(rng):
    weight, indices, offsets, grad = problem(rng, num_rows=100)
    state = SGD().init(weight)
    state.changed = np.zeros(100, np.bool)
    SGD().step_bag(weight, state, indices, offsets, grad)
    assert np.flatnonzero(state.changed).tolist() == np.unique(indices).tolist()


def test_offsets_may_lie_in_the_table():
    table = np.zeros((4, 5), np.float32)  # as integers zeros too
    offsets = table.reshape(-1)[:2].view(np.int64)
    state = SGD(lr=1.0).init(table)
    SGD(lr=1.0).step_bag(table, state, np.array([3]), offsets, np.ones((1, 5), np.float32))
    assert table.tolist() == [[0] * 5] * 3 + [[-1] * 5]


@pytest.mark.usefixtures("long_way_closed")
def test_a_step_of_nothing_is_a_step():
    weight = np.ones((3, 5), np.float32)
    state = SGD().init(weight)
    SGD().step_bag(weight, state, np.empty(0, np.int64), np.zeros(2, np.int64), np.ones((2, 5), np.float32))
    assert (weight == 1).all()
    assert state.step == 1


def _with(array, at, number):
    array = array.copy()
    array[at] = number
    return array


def _with_step(state, step):
    state.step = step
    return state


@pytest.mark.parametrize(
    ("error", "text", "name", "change"),
    [
        (ValueError, "weight is read-only", "weight", lambda given: _read_only(given["weight"].copy())),
        (IndexError, "(first at position 6)", "indices", lambda given: _with(given["indices"], 6, 30)),
        (IndexError, "but got values in [-1, ", "indices", lambda given: _with(given["indices"], 59, -1)),
        (ValueError, "offsets must begin with 0, got 1", "offsets", lambda given: _with(given["offsets"], 0, 1)),
        (ValueError, "must not decrease, got 3 after 7", "offsets", lambda given: _with(given["offsets"], 3, 3)),
        (ValueError, "at most the number of indices", "offsets", lambda given: _with(given["offsets"], 6, 61)),
        (ValueError, "grad must have shape (7, 5), got (6, 5)", "grad", lambda given: given["grad"][:6].copy()),
        (TypeError, "cast safely to float32, got float64", "grad", lambda given: given["grad"].astype(float)),
        (ValueError, "lr must be >= 0, got -1", "lr", lambda given: -1.0),
        (TypeError, "lr must be a real number, got '1'", "lr", lambda given: "1"),
        (TypeError, "state must be a AdamState", "state", lambda given: Momentum().init(given["weight"])),
        (TypeError, "state must be a AdamState", "state", lambda given: None),
        (ValueError, "state.m must have shape (30, 5)", "state", lambda given: Adam().init(given["weight"][1:])),
        (ValueError, "must be made by init", "state", lambda given: Adam(mode="exact").init(given["weight"])),
        (ValueError, "state.step must be >= 0, got -1", "state", lambda given: _with_step(given["state"], -1)),
        (ValueError, "weight must not overlap grad", "grad", lambda given: given["weight"][3:10]),
        (ValueError, "state.v must not overlap grad", "grad", lambda given: given["state"].v[:7]),
        (ValueError, "weight must not overlap state.m", "weight", lambda given: given["state"].m),
        (
            ValueError,
            "weight must not overlap indices",
            "indices",
            lambda given: given["weight"].ravel()[:120].view(int),
        ),
    ],
)
def test_nothing_changes_after_an_error(rng, error, text, name, change):
    weight, indices, offsets, grad = problem(rng)
    weight[:] = 0  # as indices too
    state = Adam().init(weight)
    given = {"weight": weight, "state": state, "indices": indices, "offsets": offsets, "grad": grad}
    given[name] = change(given)
    step = state.step
    with unchanged(weight, indices, offsets, grad, state.m, state.v), pytest.raises(error, match=re.escape(text)):
        Adam().step_bag(**given)
    assert state.step == step
