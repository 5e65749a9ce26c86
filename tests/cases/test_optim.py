"""Optimizer steps on the touched rows: laziness, decay, eps, duplicates, aliasing."""

import math
import tracemalloc

import numpy as np
import pytest
from strategies import exactly, unchanged

import fastemb
from fastemb.optim import SGD, Adam, AdamState


def adam(row, m, v, g, t, *, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8, decay=0.0):
    """One step of a row, as the papers write it: new row, m and v."""
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
    rate = lr * math.sqrt(1 - b2**t) / (1 - b1**t)
    return row * (1 - lr * decay) - rate * m / (np.sqrt(v) + eps), m, v


def table(num_rows=5, width=2, dtype=np.float64):
    return np.random.default_rng(0).standard_normal((num_rows, width)).astype(dtype)


def arrays(weight, state):
    return [weight, *state.arrays().values()]


def close(*pairs):
    for got, wanted in pairs:
        np.testing.assert_allclose(got, wanted, rtol=1e-13, atol=0)


@pytest.mark.parametrize("fused", [False, True], ids=["update", "step"])
def test_a_row_decays_only_when_it_is_touched(fused):
    """https://github.com/clab/dynet/issues/70: momentum of a row decays only at steps in which the row occurs."""
    weight, rule = table(), Adam(lr=0.1)
    start, state, g = weight.copy(), rule.init(weight), np.array([[0.5, -2.0]])
    for t in range(1, 11):
        ids = [3] if t in (1, 10) else [0]
        if fused:
            rule.step(weight, state, ids, g)
        else:
            rule.update(weight, state, fastemb.RowGrad(ids, g, 5))
    row, m, v = adam(start[3], 0.0, 0.0, g[0], 1, lr=0.1)
    row, m, v = adam(row, m, v, g[0], 10, lr=0.1)  # t is global; eight steps have not touched m and v
    close((weight[3], row), (state.m[3], m), (state.v[3], v))
    assert state.step == 10


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("rule", [SGD(lr=0.1, weight_decay=0.01), Adam(lr=0.1, weight_decay=0.01)])
def test_rows_out_of_the_batch_keep_their_bits(rule, dtype):
    """https://github.com/apache/mxnet/issues/17728 and /9177: laziness was on unasked and changed results.

    Here every rule is lazy and says so: rows out of the batch keep weight and state, momentum included.
    """
    weight = table(dtype=dtype)
    state = rule.init(weight)
    rule.step(weight, state, [0, 1, 2, 3, 4], np.ones((5, 2), dtype))
    others = [a[[0, 2, 3]] for a in arrays(weight, state)]
    touched = weight[[1, 4]].copy()
    rule.step(weight, state, [4, 1, 4], np.ones((3, 2), dtype))
    for now, before in zip(arrays(weight, state), others, strict=True):
        assert now[[0, 2, 3]].tobytes() == before.tobytes()
    assert (weight[[1, 4]] != touched).all()


@pytest.mark.parametrize("fused", [False, True], ids=["update", "step"])
@pytest.mark.parametrize("rule", [SGD(), Adam()])
def test_a_step_costs_the_touched_rows(rule, fused):
    """https://github.com/keras-team/keras/issues/19992: (1 - beta) * m was dense, so was the work of a step."""
    weight = np.zeros((1_000_000, 64), np.float32)
    state = rule.init(weight)
    ids, grad = np.arange(1024) * 900, np.ones((1024, 64), np.float32)

    def step():
        if fused:
            rule.step(weight, state, ids, grad)
        else:
            rule.update(weight, state, fastemb.embedding_grad(ids, grad, 1_000_000))

    step()  # compiles
    tracemalloc.start()
    try:
        step()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < (grad.nbytes // 2 if fused else 2 * grad.nbytes)
    assert state.step == 2
    assert (weight[ids] < 0).all()


@pytest.mark.parametrize("grad", [0.0, 0.25])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weight_decay_is_decoupled_and_of_touched_rows(dtype, grad):
    """https://github.com/pytorch/pytorch/issues/1285, /30402, /25484: sparse gradients had no weight decay at all."""
    start = np.arange(1, 11).reshape(5, 2).astype(dtype)
    weight, rule = start.copy(), SGD(lr=0.5, weight_decay=0.01)
    rule.step(weight, rule.init(weight), [1], np.full((1, 2), grad, dtype))
    wanted = start.copy()
    wanted[1] = wanted[1] * dtype(1 - 0.5 * 0.01) - dtype(0.5 * grad)
    assert np.array_equal(weight, wanted)

    weight, rule = start.copy(), Adam(lr=0.5, weight_decay=0.01)
    state = rule.init(weight)
    rule.step(weight, state, [1], np.full((1, 2), grad, dtype))
    row, m, v = adam(start[1].astype(float), 0.0, 0.0, grad, 1, lr=0.5, decay=0.01)
    tight = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(weight[1], row, rtol=tight, atol=0)
    np.testing.assert_allclose(state.m[1], [m, m], rtol=tight, atol=0)  # the decay does not enter the state
    np.testing.assert_allclose(state.v[1], [v, v], rtol=tight, atol=0)
    assert np.array_equal(np.delete(weight, 1, axis=0), np.delete(start, 1, axis=0))


def test_defaults():
    """https://github.com/mlcommons/training/pull/622: tools differ in their defaults of eps and nobody notices."""
    assert SGD() == SGD(lr=1e-2, weight_decay=0.0)
    assert Adam() == Adam(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    assert SGD(1e-3) != SGD()


@pytest.mark.parametrize("eps", [0.0, 1e-8, 0.5])
def test_eps_stands_outside_the_uncorrected_root(eps):
    """https://github.com/mlcommons/training/pull/622: inside or outside of the root, before or after the correction."""
    weight, rule = table(), Adam(lr=0.1, betas=(0.8, 0.9), eps=eps)
    state, g, wanted = rule.init(weight), np.array([[0.5, -2.0]]), weight[2]
    wanted, m, v = wanted.copy(), 0.0, 0.0
    for t in (1, 2, 3):
        rule.step(weight, state, [2], t * g)
        wanted, m, v = adam(wanted, m, v, t * g[0], t, lr=0.1, b1=0.8, b2=0.9, eps=eps)
    close((weight[2], wanted), (state.m[2], m), (state.v[2], v))


@pytest.mark.parametrize("fused", [False, True], ids=["update", "step"])
def test_duplicates_are_summed_before_the_rule(fused):
    """https://github.com/pytorch/pytorch/pull/36786: raw duplicates are other values than their sum."""
    weight, rule, ids, g = table(), Adam(lr=0.1), [3, 1, 3], np.array([[1.0, -2.0], [5.0, 6.0], [3.0, 4.0]])
    start, state = weight.copy(), rule.init(weight)
    if fused:
        rule.step(weight, state, ids, g)
    else:
        rule.update(weight, state, fastemb.embedding_grad(ids, g, 5))
    for r, total in ((3, g[0] + g[2]), (1, g[1])):
        row, m, v = adam(start[r], 0.0, 0.0, total, 1, lr=0.1)
        close((weight[r], row), (state.m[r], m), (state.v[r], v))


def test_half_width_duplicates_do_not_overflow():
    """https://github.com/pytorch/pytorch/pull/36786: 40000 twice for one id is inf in half precision, finite here."""
    weight, rule = np.zeros((5, 1), np.float16), SGD(lr=1 / 80_000)
    rule.step(weight, rule.init(weight), [3, 3], np.full((2, 1), 40_000, np.float16))
    assert weight.ravel().tolist() == [0, 0, 0, -1, 0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_bad_gradients_stay_in_their_row(bad, dtype):
    """https://github.com/pytorch/pytorch/pull/36786: inf and NaN must arrive where the next check looks for them."""
    weight, rule = np.ones((5, 1), dtype), Adam(lr=0.5, betas=(0.5, 0.75), eps=0.0)
    state = rule.init(weight)
    rule.step(weight, state, [3, 1], np.array([[bad], [1]], dtype))
    assert np.isnan(weight[3, 0])  # inf / inf
    assert np.array_equal(weight[[0, 1, 2, 4], 0], np.array([1, 0.5, 1, 1], dtype))
    assert np.array_equal(state.m[[3, 1], 0], [bad, 0.5], equal_nan=True)


READ_ONLY = "{} is read-only and this operation writes into it"
ORDER = "{} must be in native byte order to be written in place, got '>f4'"
OVERLAP = "{} must not overlap {} in memory"


def step_on(weight, m=None, v=None, grad=None, ids=(0, 1)):
    state = AdamState(m=np.zeros(weight.shape, np.float32) if m is None else m, v=np.zeros(weight.shape, np.float32))
    state.v = state.v if v is None else v
    grad = np.ones((2, weight.shape[1]), np.float32) if grad is None else grad
    with unchanged(weight, state.m, state.v, grad):
        try:
            Adam().step(weight, state, ids, grad)
        finally:
            assert state.step == 0


def test_a_bad_id_changes_nothing():
    """https://github.com/jax-ml/jax/issues/8634: forward and backward had different rules for ids out of range."""
    text = "Embedding indices must be in [0, 4), but got values in [1, 4] (first at position 1)."
    with pytest.raises(IndexError, match=exactly(text)):
        step_on(np.ones((4, 2), np.float32), ids=(1, 4))


@pytest.mark.parametrize("target", ["weight", "m", "v"])
def test_arrays_that_cannot_be_written(target):
    """https://github.com/numba/numba/issues/1229: read-only arrays were written; numba/issues/2243: big-endian ones."""
    name = target if target == "weight" else f"state.{target}"
    frozen = np.ones((4, 2), np.float32)
    frozen.flags.writeable = False
    for array, message in ((frozen, READ_ONLY), (np.ones((4, 2), ">f4"), ORDER)):
        given = {"weight": np.ones((4, 2), np.float32), target: array}
        with pytest.raises(ValueError, match=exactly(message.format(name))):
            step_on(**given)


def test_arrays_that_overlap():
    """NumPy item_selection.c at 1f90bbb5 guards against aliases; a step has more arrays to mix up."""
    memory = np.ones((8, 2), np.float32)
    for given, names in (
        ({"weight": memory[:4], "m": memory[3:7]}, ("weight", "state.m")),
        ({"weight": memory[:4], "v": memory[:4]}, ("weight", "state.v")),
        ({"weight": memory[:4].copy(), "m": memory[:4], "v": memory[2:6]}, ("state.m", "state.v")),
        ({"weight": memory[:4], "grad": memory[3:5]}, ("weight", "grad")),
        ({"weight": memory[:4].copy(), "m": memory[:4], "grad": memory[:2]}, ("state.m", "grad")),
    ):
        with pytest.raises(ValueError, match=exactly(OVERLAP.format(*names))):
            step_on(**given)
