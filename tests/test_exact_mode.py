"""Mode "exact": rows that are not touched move on as with dense gradients, made up for when they are read."""

import copy
import re

import numpy as np
import pytest
from optim_formulas import dense_adam, dense_momentum, every_row
from strategies import BFLOAT16, same_bits, unchanged

import fastemb
from fastemb.optim import SGD, Adam, Momentum

dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])

SETTINGS = {
    "Adam": (Adam(lr=0.01), dense_adam),
    "Adam decay": (Adam(lr=0.01, betas=(0.8, 0.99), eps=1e-4, weight_decay=0.01), dense_adam),
    "Momentum": (Momentum(lr=0.01), dense_momentum),
    "Momentum nesterov decay": (Momentum(lr=0.01, nesterov=True, weight_decay=0.1), dense_momentum),
}


@pytest.mark.parametrize("name", SETTINGS)
@dtypes
@pytest.mark.parametrize("scheduled", [False, True])
def test_1000_steps_of_zipf_batches_are_those_of_the_dense_rule(rng, name, dtype, scheduled):
    """Rows are looked up, and their gradients depend on what was read, as in training."""
    lazy, formula = SETTINGS[name]
    exact = copy.copy(lazy)
    object.__setattr__(exact, "mode", "exact")
    start = rng.standard_normal((300, 6))
    layers = [
        fastemb.Embedding.from_pretrained(start.astype(dtype), freeze=False, optimizer=rule) for rule in (exact, lazy)
    ]
    dense, memory, target = start.astype(dtype).astype(np.float64), {}, rng.standard_normal((300, 6))
    whole = every_row(formula)
    for t in range(1, 1001):
        ids = rng.zipf(1.2, 40) % 300
        noise = rng.standard_normal((40, 6)).astype(dtype)  # or Adam divides one rounding error by another in the end
        rate = lazy.lr * (1 + np.sin(t / 40)) if scheduled else lazy.lr
        for layer in layers:
            dy = (layer(ids) - target[ids] + noise).astype(dtype)
            layer.backward(ids, dy)
            layer.step(lr=rate)
        grad = np.zeros_like(dense)
        np.add.at(grad, ids, dense[ids] - target[ids] + noise)
        rule = copy.copy(lazy)
        object.__setattr__(rule, "lr", rate)
        whole(rule, dense, memory, grad, None, t)
    layers[0].flush()
    exactly, lazily = (np.abs(layer.weight - dense).max() for layer in layers)
    assert exactly < (1e-5 if dtype == np.float32 else 1e-13)
    assert lazily > 0.05


@pytest.mark.parametrize("rule", [Adam(mode="exact"), Momentum(mode="exact", weight_decay=0.1)])
def test_a_table_is_the_same_however_rows_catch_up(rng, rule):
    weight = rng.standard_normal((50, 4))
    tables = [weight.copy() for _ in range(3)]
    states = [rule.init(table) for table in tables]
    for t in range(120):
        ids, grad = rng.integers(0, 50, 6), rng.standard_normal((6, 4))
        for table, state in zip(tables, states, strict=True):
            rule.step(table, state, ids, grad)
        if t % 7 == 0:
            rule.catch_up(tables[1], states[1], rng.integers(0, 50, (3, 5)).astype(np.uint8))
        if t % 40 == 0:
            rule.flush(tables[2], states[2])
            assert states[2].missed.now == 0
    for table, state in zip(tables, states, strict=True):
        rule.flush(table, state)
        with unchanged(table, *state.arrays().values()):
            rule.flush(table, state)
            rule.catch_up(table, state, np.arange(50))
        np.testing.assert_allclose(table, tables[0], rtol=1e-13)


@pytest.mark.parametrize("rule", [Adam(lr=0.1, mode="exact"), Momentum(lr=0.1, mode="exact")], ids=["Adam", "Momentum"])
def test_history_is_saved_and_loaded(rng, rule):
    layer = fastemb.Embedding(30, 4, optimizer=rule, seed=1)
    other = fastemb.Embedding(30, 4, optimizer=rule, seed=2)
    for t in range(60):
        ids, dy = rng.integers(0, 30, 5), rng.standard_normal((5, 4), dtype=np.float32)
        layer.fused_step(ids, dy)
        if t == 29:
            other.load_state_dict(copy.deepcopy(layer.state_dict()))
        if t > 29:
            other.fused_step(ids, dy)
    assert other.state.step == 60
    assert other.state.state_dict()["history"].shape == (2, 61)
    assert same_bits(layer.weight, other.weight)
    for name, array in layer.state.state_dict().items():
        assert name == "step" or same_bits(array, other.state.state_dict()[name])
    layer.flush()
    other.flush()
    assert same_bits(layer.weight, other.weight)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"history": np.ones((2, 0))}, "state 'history' must have shape (2, steps + 1) and dtype float64, got (2, 0)"),
        ({"history": np.ones(3)}, "state 'history' must have shape (2, steps + 1) and dtype float64, got (3,)"),
        ({"history": np.ones((2, 3), "f4")}, "state 'history' must have shape (2, steps + 1) and dtype float64"),
        ({"last": np.zeros(4, np.int64)}, "state 'last' must have shape (5,) and dtype int64, got (4,) and int64"),
        ({"last": np.zeros(5, np.int32)}, "state 'last' must have shape (5,) and dtype int64, got (5,) and int32"),
        ({"last": np.full(5, 2)}, "state 'last' must be in [0, 2), got values in [2, 2]"),
        ({"last": np.full(5, -1)}, "state 'last' must be in [0, 2), got values in [-1, -1]"),
        ({"history": np.array([[0.0, np.nan], [1, 1]])}, "state 'history' must be finite, and its second row positive"),
        ({"history": np.array([[0.0, 1], [1, 0]])}, "state 'history' must be finite, and its second row positive"),
        ({"more": 1}, "state must have the entries ['history', 'last', 'm', 'step', 'v'], got"),
    ],
)
def test_histories_that_do_not_fit(change, text):
    rule, weight = Adam(mode="exact"), np.ones((5, 2))
    state = rule.init(weight)
    rule.step(weight, state, [1], np.ones((1, 2)))
    saved = copy.deepcopy(state.state_dict())
    with unchanged(state.m, state.v, state.missed.last), pytest.raises(ValueError, match=f"^{re.escape(text)}"):
        state.load_state_dict({**saved, "step": 7, "m": saved["m"] + 1, **change})
    assert state.step == 1


@pytest.mark.parametrize("case", ["lazy state", "exact state", "state of another table"])
def test_states_of_the_other_mode(case):
    weight, exact, lazy = np.ones((5, 2)), Adam(mode="exact"), Adam()
    rule, state = {
        "lazy state": (exact, lazy.init(weight)),
        "exact state": (lazy, exact.init(weight)),
        "state of another table": (exact, exact.init(np.ones((4, 2)))),
    }[case]
    for call in (
        lambda: rule.step(weight, state, [1], np.ones((1, 2))),
        lambda: rule.catch_up(weight, state, [1]),
        lambda: rule.flush(weight, state),
    ):
        with unchanged(weight, state.m, state.v), pytest.raises(ValueError, match=r"^state must be made by init"):
            call()
    assert not rule.serves(weight, state)


def test_options_that_exact_mode_refuses():
    with pytest.raises(ValueError, match=re.escape("mode must be one of 'lazy', 'exact', got 'dense'")):
        Adam(mode="dense")
    with pytest.raises(ValueError, match=re.escape("mode must be one of 'lazy', 'exact', got None")):
        Momentum(mode=None)
    with pytest.raises(ValueError, match=re.escape("betas must have betas[0]**2 < betas[1] in mode 'exact'")):
        Adam(betas=(0.9, 0.81), mode="exact")
    weight, rule = np.ones((5, 2)), Adam(weight_decay=0.5, mode="exact")
    state = rule.init(weight)
    with (
        unchanged(weight, state.m),
        pytest.raises(ValueError, match=r"^lr \* weight_decay must be < 1 in mode 'exact'"),
    ):
        rule.step(weight, state, [1], np.ones((1, 2)), lr=2.0)
    assert (state.step, state.missed.now) == (0, 0)


def test_rows_that_cannot_be_brought_up_to_date():
    weight, rule = np.ones((5, 2)), Adam(mode="exact")
    state = rule.init(weight)
    for row in (0, 1):
        rule.step(weight, state, [row], np.ones((1, 2)))
    frozen = weight.copy()
    frozen.flags.writeable = False
    zeros = np.zeros((5, 2))
    with unchanged(weight, zeros, state.m, state.v, state.missed.last):
        for error, text, call in [
            (IndexError, "in [0, 5), but got values in [0, 5]", lambda: rule.catch_up(weight, state, [0, 5])),
            (TypeError, "must be integers", lambda: rule.catch_up(weight, state, [0.0])),
            (ValueError, "weight is read-only", lambda: rule.catch_up(frozen, state, [0])),
            (ValueError, "weight is read-only", lambda: rule.flush(frozen, state)),
            (ValueError, "padding_idx must be in [-5, 5)", lambda: rule.flush(weight, state, padding_idx=5)),
            (ValueError, "must not overlap", lambda: rule.catch_up(zeros, state, zeros.view(np.int64))),
        ]:
            with pytest.raises(error, match=re.escape(text)):
                call()
    assert state.missed.now == 2


@pytest.mark.parametrize("rule", [SGD(), Adam(), Momentum()], ids=lambda r: type(r).__name__)
def test_lazy_rules_have_nothing_to_catch_up(rng, rule):
    weight = rng.standard_normal((5, 2))
    state = rule.init(weight)
    rule.step(weight, state, [1], np.ones((1, 2)))
    rule.step(weight, state, [2], np.ones((1, 2)))
    with unchanged(weight, *state.arrays().values()):
        rule.catch_up(weight, state, [1, 3])
        rule.flush(weight, state)
        with pytest.raises(IndexError):
            rule.catch_up(weight, state, [5])
    assert "last" not in state.state_dict()


@pytest.mark.parametrize("padding", [2, -3])
def test_the_padding_row_does_not_move(padding):
    rule = Adam(lr=0.1, weight_decay=0.5, mode="exact")
    layer = fastemb.Embedding.from_pretrained(np.ones((5, 2)), freeze=False, padding_idx=padding, optimizer=rule)
    for row in (0, 1, 1):
        layer.fused_step([row, 2], np.ones((2, 2)))
    assert layer([2]).tolist() == [[1, 1]]
    layer.flush()
    assert layer.weight[2].tolist() == [1, 1]
    np.testing.assert_allclose(layer.weight[[3, 4]], 0.95**3, rtol=1e-15)
    assert (layer.weight[[0, 1]] < 0.95**3).all()


def test_rows_without_gradient_do_not_move_whatever_eps():
    """Dense Adam with eps 0 divides 0 by 0 there."""
    weight, rule = np.ones((5, 2)), Adam(eps=0.0, mode="exact")
    state = rule.init(weight)
    for _ in range(3):
        rule.step(weight, state, [1], np.ones((1, 2)))
    rule.flush(weight, state)
    assert (weight[[0, 2, 3, 4]] == 1).all()
    assert (weight[1] < 1).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_numbers_stay_in_their_row(bad):
    weight, rule = np.ones((5, 2), np.float32), Adam(mode="exact")
    state = rule.init(weight)
    rule.step(weight, state, [1, 2], np.array([[bad, 1], [1, 1]], np.float32))
    for _ in range(3):
        rule.step(weight, state, [3], np.ones((1, 2), np.float32))
    rule.flush(weight, state)
    assert np.isnan(weight).tolist() == [[False, False], [True, False], *[[False, False]] * 3]


@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_long_histories_do_not_overflow(rng, decay):
    rule = Momentum(lr=0.5, weight_decay=decay, mode="exact")
    weight, state = np.ones((3, 2)), rule.init(np.ones((3, 2)))
    dense, memory = weight.copy(), {}
    for t in range(1, 2001):  # (1 / (1 - 0.45)) ** 2000 is beyond 1e500
        grad = np.zeros((3, 2))
        grad[[0] if t % 900 else [0, 1]] = rng.standard_normal(2)
        rule.step(weight, state, [0] if t % 900 else [0, 1], grad[[0] if t % 900 else [0, 1]])
        every_row(dense_momentum)(rule, dense, memory, grad, None, t)
    assert np.isfinite(state.missed.rates).all()
    rule.flush(weight, state)
    np.testing.assert_allclose(weight, dense, rtol=1e-9, atol=1e-100)


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16], ids=str)
def test_half_width_rows_are_rounded_once(rng, dtype):
    rule = Adam(lr=0.1, mode="exact")
    weight = rng.standard_normal((20, 3)).astype(dtype)
    wide = weight.astype(np.float64)
    state, wide_state = rule.init(weight), rule.init(wide)
    ids, grad = rng.integers(0, 15, 9), rng.standard_normal((9, 3)).astype(np.float32)
    for w, s, g in ((weight, state, grad), (wide, wide_state, grad.astype(np.float64))):
        rule.step(w, s, ids, g)
        w[:] = w.astype(dtype)
        for _ in range(300):
            rule.step(w, s, [19], g[:1] * 0)
        rule.flush(w, s)
    unit = np.finfo(np.float16).eps if dtype == np.float16 else 2.0**-8
    np.testing.assert_allclose(weight.astype(np.float64), wide, rtol=unit, atol=unit / 100)


def test_a_bag_reads_rows_that_have_caught_up(rng):
    layer = fastemb.EmbeddingBag(
        10, 2, mode="sum", optimizer=Momentum(lr=1.0, momentum=0.5, mode="exact"), init="zeros"
    )
    layer.fused_step([3], [0], np.ones((1, 2), np.float32))
    layer.fused_step([4], [0], np.ones((1, 2), np.float32))
    assert layer([[3, 3], [4, 0]]).tolist() == [[-3, -3], [-1, -1]]


def test_another_rule_finds_rows_up_to_date():
    layer = fastemb.Embedding(10, 2, optimizer=Momentum(lr=1.0, momentum=0.5, mode="exact"), init="zeros")
    layer.fused_step([3], np.ones((1, 2), np.float32))
    layer.fused_step([4], np.ones((1, 2), np.float32))
    state = layer.state
    layer.optimizer = Momentum(lr=2.0, momentum=0.25, mode="exact")
    assert layer.state is state
    assert layer.weight[3].tolist() == [-1.5, -1.5]
    layer.optimizer = SGD()
    assert layer.state.missed is None


def test_rows_catch_up_before_they_are_shrunk():
    rule = Momentum(lr=1.0, momentum=0.5, mode="exact")
    layer = fastemb.Embedding(10, 1, max_norm=1.25, optimizer=rule, init="zeros")
    layer.fused_step([3], np.ones((1, 1), np.float32))
    layer.fused_step([4], np.ones((1, 1), np.float32))
    np.testing.assert_allclose(layer([3]), [[-1.25]], rtol=1e-6)


@pytest.mark.parametrize("betas", [(0.9, 0.8101), (0.5, 0.2501), (0.3, 0.1), (0.0, 0.0)])
@dtypes
def test_rows_far_behind_are_numbers(betas, dtype):
    weight, dense, memory = np.ones((2, 1), dtype), np.ones((2, 1)), {}
    rule = Adam(lr=0.001, betas=betas, mode="exact")
    state = rule.init(weight)
    for t in range(1, 2501):
        grad = np.array([[1.0], [0.0]] if t == 1 else [[0.0], [1.0]], dtype)
        row = [0] if t == 1 else [1]
        rule.step(weight, state, row, grad[row])
        every_row(dense_adam)(rule, dense, memory, grad.astype(np.float64), None, t)
    rule.flush(weight, state)
    np.testing.assert_allclose(weight, dense, rtol=1e-4 if dtype == np.float32 else 1e-10)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_steps_of_bags_are_those_of_the_dense_rule(rng, mode):
    weight, memory = rng.standard_normal((12, 3)), {}
    dense, rule = weight.copy(), Adam(lr=0.05, mode="exact")
    state = rule.init(weight)
    for t in range(1, 60):
        ids, offsets, dy = rng.integers(0, 12, 7), np.array([0, 3]), rng.standard_normal((2, 3))
        rule.step_bag(weight, state, ids, offsets, dy, mode=mode)  # without a lookup before it
        grad = fastemb.embedding_bag_grad(dense, ids, offsets, dy, mode=mode).to_dense()
        every_row(dense_adam)(rule, dense, memory, grad, None, t)
    rule.flush(weight, state)
    np.testing.assert_allclose(weight, dense, rtol=1e-11)
