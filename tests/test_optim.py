"""Optimizers: the rules against dense float64 formulas, and what they share."""

import copy
import dataclasses
import decimal
import math
import re

import numpy as np
import pytest
from optim_formulas import RULES
from strategies import BFLOAT16, FLOATS, THREADS, in_parallel, same_bits, unchanged

import fastemb
from fastemb.optim import SGD, Adagrad, Adam, Ftrl, RMSprop, RowWiseAdagrad

rules = pytest.mark.parametrize("name", RULES)


def batches(rng, count, rows=30, length=40, width=5):
    for _ in range(count):
        indices = rng.zipf(1.3, length) % rows
        yield indices, rng.standard_normal((length, width))


@rules
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_200_steps_of_the_formula(rng, name, dtype):
    opt, formula = RULES[name]
    weight = rng.standard_normal((30, 5)).astype(dtype)
    dense, memory = weight.astype(np.float64), {}
    state = opt.init(weight)
    for t, (indices, grad) in enumerate(batches(rng, 200), start=1):
        opt.step(weight, state, indices, grad.astype(dtype))
        whole = np.zeros_like(dense)
        np.add.at(whole, indices, grad)
        formula(opt, dense, memory, whole, np.unique(indices), t)
    opt.flush(weight, state)
    assert state.step == 200
    np.testing.assert_allclose(
        weight, dense, **{np.float32: {"rtol": 2e-4, "atol": 2e-5}, np.float64: {"rtol": 1e-11}}[dtype]
    )


@rules
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("padding", [None, 1, -30])
def test_step_is_gradient_and_update(rng, name, dtype, scale, padding):
    opt, _ = RULES[name]
    weight = rng.standard_normal((30, 5)).astype(dtype)
    other, state, other_state = weight.copy(), opt.init(weight), opt.init(weight)
    options = {"padding_idx": padding, "scale_grad_by_freq": scale}
    for indices, grad in batches(rng, 3):
        grad = grad.astype(np.float64 if dtype == np.float64 else np.float32)
        with unchanged(indices, grad):
            opt.step(weight, state, indices, grad, **options)
        opt.update(other, other_state, fastemb.embedding_grad(indices, grad, 30, **options))
    assert same_bits(weight.astype(np.float64), other.astype(np.float64))
    assert state.step == other_state.step == 3
    for a, b in zip(state.arrays().values(), other_state.arrays().values(), strict=True):
        assert same_bits(a, b)


@rules
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16], ids=str)
@pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn", "max"])
@pytest.mark.parametrize("weighted", [False, True])
def test_step_of_bags_is_gradient_and_update(rng, name, dtype, mode, weighted):
    if mode == "max" and weighted:
        return
    opt, _ = RULES[name]
    weight = rng.standard_normal((30, 5)).astype(dtype)
    other, state, other_state = weight.copy(), opt.init(weight), opt.init(weight)
    acc = np.float64 if dtype == np.float64 else np.float32
    for t in range(3):
        indices, offsets = rng.integers(0, 25, 60), np.array([0, 0, 7, 30, 31])
        grad, options = rng.standard_normal((5, 5)).astype(acc), {"mode": mode, "padding_idx": 3}
        options["scale_grad_by_freq"] = t == 1 and mode != "max"
        if weighted:
            options["per_sample_weights"] = rng.uniform(0.5, 2, 60).astype(acc)
        with unchanged(indices, offsets, grad):
            opt.step_bag(weight, state, indices, offsets, grad, **options)
        opt.catch_up(other, other_state, indices, padding_idx=3)  # greatest elements are of rows that are up to date
        opt.update(other, other_state, fastemb.embedding_bag_grad(other, indices, offsets, grad, **options))
    assert same_bits(weight.astype(np.float64), other.astype(np.float64))
    assert state.step == other_state.step == 3
    for a, b in zip(state.arrays().values(), other_state.arrays().values(), strict=True):
        assert same_bits(a, b)


def test_bags_are_summed_unless_told():
    weight, rule = np.zeros((3, 1)), SGD(lr=1.0)
    rule.step_bag(weight, rule.init(weight), [[0, 1], [1, 1]], None, np.array([[1.0], [10.0]]))
    assert weight.tolist() == [[-1], [-21], [0]]


@rules
@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16], ids=str)
def test_half_width_weights_are_rounded_once_a_step(rng, name, dtype):
    opt, _ = RULES[name]
    weight = rng.standard_normal((30, 5)).astype(dtype)
    wide, state = weight.astype(np.float32), opt.init(weight)
    wide_state = opt.init(wide)
    assert all(array.dtype == np.float32 for array in state.arrays().values())
    indices, grad = next(batches(rng, 1))
    opt.step(weight, state, indices, grad.astype(dtype))
    opt.step(wide, wide_state, indices, grad.astype(dtype))
    assert np.array_equal(weight, wide.astype(dtype))


@rules
@pytest.mark.parametrize("count", THREADS)
def test_same_bits_for_any_number_of_threads(rng, name, count):
    opt, _ = RULES[name]
    weight = rng.standard_normal((30, 5), dtype=np.float32)
    one, state, one_state = weight.copy(), opt.init(weight), opt.init(weight)
    for indices, grad in batches(rng, 5, length=3000):
        with in_parallel(1):
            opt.step(one, one_state, indices, grad.astype(np.float32))
        with in_parallel(count):
            opt.step(weight, state, indices, grad.astype(np.float32))
    assert same_bits(weight, one)


@rules
def test_an_empty_gradient_counts_as_a_step_and_changes_nothing(rng, name):
    opt, _ = RULES[name]
    weight = rng.standard_normal((5, 3))
    state = opt.init(weight)
    with unchanged(weight, *state.arrays().values()):
        opt.step(weight, state, [], np.empty((0, 3)))
        opt.step(weight, state, [[2, 2]], np.ones((1, 2, 3)), padding_idx=2)
        opt.update(weight, state, fastemb.embedding_grad([2], np.ones((1, 3)), 5, padding_idx=2))
    assert state.step == 3


@rules
def test_learning_rate_of_a_step(rng, name):
    opt, _ = RULES[name]
    weight = rng.standard_normal((30, 5))
    other = weight.copy()
    state, other_state = opt.init(weight), opt.init(other)
    slow = dataclasses.replace(opt, lr=opt.lr / 8)
    for indices, grad in batches(rng, 4):
        opt.step(weight, state, indices, grad, lr=opt.lr / 8)
        slow.step(other, other_state, indices, grad)
        row_grad = fastemb.embedding_grad(indices, grad, 30)
        opt.update(weight, state, row_grad, lr=opt.lr / 8)
        slow.update(other, other_state, row_grad)
    assert same_bits(weight, other)


@rules
def test_resuming_gives_the_same_bits(rng, name):
    opt, _ = RULES[name]
    weight = rng.standard_normal((30, 5), dtype=np.float32)
    state = opt.init(weight)
    steps = [(i, g.astype(np.float32)) for i, g in batches(rng, 10)]
    for indices, grad in steps[:5]:
        opt.step(weight, state, indices, grad)
    resumed, saved = weight.copy(), copy.deepcopy(state.state_dict())
    fresh = opt.init(resumed)
    fresh.load_state_dict(saved)
    for indices, grad in steps[5:]:
        opt.step(weight, state, indices, grad)
        opt.step(resumed, fresh, indices, grad)
    assert same_bits(weight, resumed)
    assert fresh.step == 10


@rules
def test_converges_on_a_quadratic(rng, name):
    opt, _ = RULES[name]
    neutral = {"weight_decay", "lr_decay", "l1", "l2", "l2_shrinkage"} & {f.name for f in dataclasses.fields(opt)}
    rate = 1.0 if isinstance(opt, (Adagrad, RowWiseAdagrad, Ftrl)) else 0.05  # of steps that shrink on their own
    opt = dataclasses.replace(opt, lr=rate, **dict.fromkeys(neutral, 0.0))
    weight, goal = np.zeros((6, 3)), rng.standard_normal((6, 3))
    state = opt.init(weight)
    for t in range(800):
        indices = rng.integers(0, 6, 4)
        falling = 1.0 if isinstance(opt, Ftrl) else 1 - t / 800  # Ftrl's weights are in proportion to lr
        opt.step(weight, state, indices, weight[indices] - goal[indices], lr=opt.lr * falling)
    opt.flush(weight, state)
    np.testing.assert_allclose(weight, goal, atol=1e-3)


@rules
def test_nothing_changes_after_an_error(rng, name):
    opt, _ = RULES[name]
    weight = rng.standard_normal((5, 3))
    state = opt.init(weight)
    grad = np.ones((2, 3))
    other = Adam() if isinstance(opt, SGD) else SGD()
    with unchanged(weight, *state.arrays().values()):
        for error, text, call in [
            (IndexError, "in [0, 5)", lambda: opt.step(weight, state, [0, 5], grad)),
            (
                ValueError,
                "padding_idx must be in [-5, 5), got 5",
                lambda: opt.step(weight, state, [0, 1], grad, padding_idx=5),
            ),
            (
                ValueError,
                "grad must have shape (2, 3), got (2, 2)",
                lambda: opt.step(weight, state, [0, 1], grad[:, :2]),
            ),
            (
                ValueError,
                f"lr must be {'>' if isinstance(opt, Ftrl) else '>='} 0, got -1",
                lambda: opt.step(weight, state, [0, 1], grad, lr=-1),
            ),
            (ValueError, "offsets must not decrease", lambda: opt.step_bag(weight, state, [0, 1], [0, 2, 1], grad)),
            (IndexError, "in [0, 5)", lambda: opt.step_bag(weight, state, [0, 5], [0, 1], grad)),
            (IndexError, "in [0, 5)", lambda: opt.step_bag(weight, state, [0, 5], [0, 1], grad, mode="max")),
            (ValueError, "lr must be finite, got inf", lambda: opt.step(weight, state, [0, 1], grad, lr=np.inf)),
            (TypeError, "grad must be real", lambda: opt.step(weight, state, [0, 1], grad.astype(complex))),
            (TypeError, "row_grad must be a RowGrad, got ndarray", lambda: opt.update(weight, state, weight)),
            (
                ValueError,
                "row_grad must have the shape of weight, (5, 3), got (6, 3)",
                lambda: opt.update(weight, state, fastemb.RowGrad([0], np.ones((1, 3)), 6)),
            ),
            (TypeError, "state must be a", lambda: opt.step(weight, other.init(weight), [0, 1], grad)),
        ]:
            with pytest.raises(error, match=re.escape(text)):
                call()
    assert state.step == 0


def test_float64_gradients_do_not_fit_float32_tables():
    weight = np.ones((3, 2), np.float32)
    with pytest.raises(TypeError, match=r"convert it yourself: grad.astype\(np.float32\)"):
        SGD().step(weight, SGD().init(weight), [0], np.ones((1, 2)))
    with pytest.raises(TypeError, match="row_grad.values must be real numbers that cast safely to float32"):
        SGD().update(weight, SGD().init(weight), fastemb.RowGrad([0], np.ones((1, 2)), 3))


@pytest.mark.parametrize(
    ("rule", "options", "text"),
    [
        (SGD, {"lr": -1}, "lr must be >= 0, got -1"),
        (SGD, {"lr": math.nan}, "lr must be >= 0, got nan"),
        (SGD, {"weight_decay": -0.1}, "weight_decay must be >= 0, got -0.1"),
        (Adam, {"lr": math.inf}, "lr must be finite, got inf"),
        (Adam, {"betas": (1.0, 0.9)}, "betas[0] must be < 1, got 1.0"),
        (Adam, {"betas": (0.9, -0.1)}, "betas[1] must be >= 0, got -0.1"),
        (Adam, {"betas": (0.9,)}, "betas must be two numbers, got (0.9,)"),
        (Adam, {"betas": 0.9}, "betas must be two numbers, got 0.9"),
        (Adam, {"eps": -1e-9}, "eps must be >= 0, got -1e-09"),
        (Adam, {"weight_decay": math.nan}, "weight_decay must be >= 0, got nan"),
    ],
)
def test_hyper_parameters_out_of_range(rule, options, text):
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        rule(**options)


@pytest.mark.parametrize("rule", [SGD, Adam])
def test_hyper_parameters_are_numbers_and_frozen(rule):
    with pytest.raises(TypeError, match="^lr must be a real number, got '0.1'$"):
        rule(lr="0.1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule().lr = 1.0
    for bad in (True, 1j, np.complex64(1), np.ones(2), [0.1], None):
        with pytest.raises(TypeError, match="^lr must be a real number, got"):
            rule(lr=bad)
    for number in (np.float16(0.5), np.float32(0.5), decimal.Decimal("0.5"), np.array(0.5), 1):
        assert type(rule(lr=number).lr) is float
    with pytest.raises(ValueError, match="^lr must be finite, got 1000"):
        rule(lr=10**400)
    assert hash(rule(lr=0.5)) == hash(rule(lr=0.5))
    assert rule(lr=np.float32(0.5)) == rule(lr=0.5)


def test_defaults():
    assert dataclasses.asdict(SGD()) == {"lr": 1e-2, "weight_decay": 0.0}
    assert dataclasses.asdict(Adam()) == {
        "lr": 1e-3,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "weight_decay": 0.0,
        "mode": "lazy",
    }


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda s: s.pop("m"), "state must have the entries ['m', 'step', 'v'], got ['step', 'v']"),
        (lambda s: s.update(x=1), "state must have the entries ['m', 'step', 'v'], got ['m', 'step', 'v', 'x']"),
        (
            lambda s: s.update(v=np.ones((2, 2))),
            "state 'v' must have shape (3, 2) and dtype float64, got (2, 2) and float64",
        ),
        (
            lambda s: s.update(m=np.ones((3, 2), "f4")),
            "state 'm' must have shape (3, 2) and dtype float64, got (3, 2) and float32",
        ),
        (lambda s: s.update(step=-1), "step must be >= 0, got -1"),
    ],
)
def test_states_that_do_not_fit(change, text):
    state = Adam().init(np.ones((3, 2)))
    saved = {"step": 4, "m": np.ones((3, 2)), "v": np.ones((3, 2))}
    change(saved)
    with unchanged(state.m, state.v), pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        state.load_state_dict(saved)
    assert state.step == 0


def test_a_state_that_cannot_be_written_is_not_loaded_in_part():
    state = Adam().init(np.ones((3, 2)))
    state.v.flags.writeable = False
    with unchanged(state.m, state.v), pytest.raises(ValueError, match=r"^state\.v is read-only"):
        state.load_state_dict({"step": 4, "m": np.ones((3, 2)), "v": np.ones((3, 2))})
    assert state.step == 0
    with pytest.raises(TypeError, match="^state must be a mapping, got NoneType$"):
        state.load_state_dict(None)


@pytest.mark.parametrize("step", [-1, 2**63, 1.5, None])
def test_step_counts_that_are_none(step):
    weight = np.ones((3, 2))
    state = Adam().init(weight)
    state.step = step
    with unchanged(weight, state.m, state.v), pytest.raises((ValueError, TypeError), match=r"^state\.step must be"):
        Adam().step(weight, state, [0], np.ones((1, 2)))
    assert state.step is step


def test_scale_grad_by_freq_is_a_truth_value():
    weights = np.zeros((2, 3, 1))
    for weight, flag in zip(weights, ([], "yes"), strict=True):
        SGD(lr=1.0).step(weight, SGD().init(weight), [0, 0], np.ones((2, 1)), scale_grad_by_freq=flag)
    assert weights[:, 0, 0].tolist() == [-2, -1]


@pytest.mark.parametrize(
    ("m", "error", "text"),
    [
        (np.zeros((3, 3)), ValueError, "state.m must have shape (3, 2) and dtype float64, got (3, 3) and float64"),
        (
            np.zeros((3, 2), "f4"),
            ValueError,
            "state.m must have shape (3, 2) and dtype float64, got (3, 2) and float32",
        ),
        (np.zeros((2, 3)).T, ValueError, "state.m must have C-contiguous rows"),
        ([[0.0]], TypeError, "state.m must be an array, got list"),
    ],
)
def test_states_of_another_table(m, error, text):
    weight = np.ones((3, 2))
    state = Adam().init(weight)
    state.m = m
    with unchanged(weight), pytest.raises(error, match=f"^{re.escape(text)}"):
        Adam().step(weight, state, [0], np.ones((1, 2)))


def test_a_layer_keeps_the_state_that_a_new_rule_can_use():
    layer = fastemb.Embedding(5, 3, optimizer=RMSprop(lr=0.1))
    state = layer.state
    layer.optimizer = RMSprop(lr=0.2)
    assert layer.state is state
    layer.optimizer = RMSprop(lr=0.2, momentum=0.9)  # needs another array
    assert layer.state is not state
    layer.backward([1], np.ones((1, 3), np.float32))
    layer.step()
    assert layer.state.step == 1


def test_an_initial_accumulator_beyond_single_precision():
    state = Adagrad(initial_accumulator=1e300).init(np.ones((2, 2), np.float32))
    assert np.isinf(state.S).all()


def test_names_of_mixed_kinds():
    state = Adam().init(np.ones((2, 2)))
    with pytest.raises(ValueError, match=re.escape("state must have the entries ['m', 'step', 'v'], got ['1', 'm']")):
        state.load_state_dict({1: 2, "m": 3})
    with pytest.raises(ValueError, match=re.escape("state_dict must have the entries ['weight'], got ['1', 'weight']")):
        fastemb.Embedding(2, 2).load_state_dict({1: 2, "weight": 3})
