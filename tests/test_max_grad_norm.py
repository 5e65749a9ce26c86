"""Steps whose gradient is scaled to a greatest norm."""

import numpy as np
import pytest
from optim_formulas import RULES
from strategies import same_bits, unchanged

import fastemb
from fastemb.optim import SGD, Adam

rules = pytest.mark.parametrize("name", RULES)


@rules
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16], ids=str)
@pytest.mark.parametrize("scale", [False, True])
def test_is_that_of_clip_norm(rng, name, dtype, scale):
    rule, _ = RULES[name]
    ids, grad = (
        rng.integers(0, 25, 60),
        rng.standard_normal((60, 5)).astype(np.float64 if dtype == np.float64 else "f4"),
    )
    weight = rng.standard_normal((30, 5)).astype(dtype)
    clipped = fastemb.embedding_grad(ids, grad, 30, padding_idx=3, scale_grad_by_freq=scale)
    limit = 0.25 * clipped.norm()
    clipped.clip_norm_(limit)
    tables = [weight.copy() for _ in range(3)]
    states = [rule.init(table) for table in tables]
    options = {"padding_idx": 3, "scale_grad_by_freq": scale, "max_grad_norm": limit}
    with unchanged(ids, grad):
        rule.step(tables[0], states[0], ids, grad, **options)
    whole = fastemb.embedding_grad(ids, grad, 30, padding_idx=3, scale_grad_by_freq=scale)
    with unchanged(whole.values):
        rule.update(tables[1], states[1], whole, max_grad_norm=limit)
    rule.update(tables[2], states[2], clipped)
    near = {"float16": 2e-3, "float32": 2e-5, "float64": 1e-13}[np.dtype(dtype).name]
    for table in tables[:2]:
        np.testing.assert_allclose(table.astype(float), tables[2].astype(float), rtol=near, atol=near)
    assert not np.array_equal(tables[2], weight)


def test_a_power_of_two_is_exact(rng):
    ids, grad = np.array([1, 4, 1, 2]), np.array([[3.0, 0.0], [0.0, 8.0], [3.0, 0.0], [0.0, 0.0]], np.float32)
    weight = np.zeros((6, 2), np.float32)  # summed: 6 and 8, norm 10
    SGD().step(weight, SGD().init(weight), ids, grad, lr=1.0, max_grad_norm=5)
    assert weight.tolist() == [[0, 0], [-3, 0], [0, 0], [0, 0], [0, -4], [0, 0]]


@pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn", "max"])
@pytest.mark.parametrize("weighted", [False, True])
def test_of_bags(rng, mode, weighted):
    if mode == "max" and weighted:
        return
    weight = rng.standard_normal((30, 5))
    other, ids, offsets = weight.copy(), rng.integers(0, 25, 60), np.array([0, 0, 7, 30, 31])
    grad, options = rng.standard_normal((5, 5)), {"mode": mode, "padding_idx": 3}
    if weighted:
        options["per_sample_weights"] = rng.uniform(0.5, 2, 60)
    clipped = fastemb.embedding_bag_grad(weight, ids, offsets, grad, **options)
    assert clipped.clip_norm_(0.5) > 1
    SGD(lr=1.0).step_bag(weight, SGD().init(weight), ids, offsets, grad, max_grad_norm=0.5, **options)
    SGD(lr=1.0).update(other, SGD().init(other), clipped)
    np.testing.assert_allclose(weight, other, rtol=1e-12)


@rules
def test_at_or_below_the_limit_no_bit_changes(rng, name):
    rule, _ = RULES[name]
    ids, grad = rng.integers(0, 25, 60), rng.integers(-3, 4, (60, 5)).astype(np.float32)
    norm = fastemb.embedding_grad(ids, grad, 30).norm()
    tables = [rng.standard_normal((30, 5), dtype=np.float32)] * 4
    tables = [table.copy() for table in tables]
    for table, limit in zip(tables, (None, norm * (1 + 1e-12), 1e300, np.inf), strict=True):
        rule.step(table, rule.init(table), ids, grad, max_grad_norm=limit)
        assert same_bits(table, tables[0])


def test_norms_are_over_all_rows_however_many(rng):
    """Taken some rows at a time: 1,500 rows of 1,024 numbers are more than that."""
    ids, grad = rng.integers(0, 1500, 4000), rng.standard_normal((4000, 1024), dtype=np.float32)
    weight = np.zeros((1500, 1024), np.float32)
    SGD(lr=1.0).step(weight, SGD().init(weight), ids, grad, max_grad_norm=2.0)
    np.testing.assert_allclose(np.linalg.norm(weight.astype(float)), 2.0, rtol=1e-6)
    total = fastemb.embedding_grad(ids, grad, 1500).to_dense()
    np.testing.assert_allclose(weight, -total * (2.0 / np.linalg.norm(total.astype(float))), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_norms_beyond_the_range_of_squares(size):
    weight = np.zeros((3, 2))
    grad = np.array([[3.0, 0], [0, 4.0]]) * size
    SGD(lr=1.0).step(weight, SGD().init(weight), [0, 2], grad, max_grad_norm=size)
    np.testing.assert_allclose(weight, np.array([[-0.6, 0], [0, 0], [0, -0.8]]) * size, rtol=1e-15)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_rows_do_not_spread(bad):
    weight = np.zeros((3, 1))
    SGD(lr=1.0).step(weight, SGD().init(weight), [0, 2], [[bad], [100.0]], max_grad_norm=1.0)
    assert np.isnan(weight[0]) if np.isnan(bad) else np.isinf(weight[0])
    assert weight[1:, 0].tolist() == [0, -100]


def test_zero_stops_everything_but_the_count():
    weight, rule = np.ones((3, 1)), Adam()
    state = rule.init(weight)
    with unchanged(weight):
        rule.step(weight, state, [0, 2], np.ones((2, 1)), max_grad_norm=0)
        rule.step(weight, state, [], np.ones((0, 1)), max_grad_norm=0)
    assert state.step == 2


@pytest.mark.parametrize(
    ("limit", "error", "text"),
    [
        (-1, ValueError, "max_grad_norm must be >= 0, got -1"),
        (np.nan, ValueError, "max_grad_norm must be >= 0, got nan"),
        ("1", TypeError, "max_grad_norm must be a real number, got '1'"),
    ],
)
def test_limits_that_are_none(limit, error, text):
    weight, rule = np.ones((3, 1)), Adam()
    state, grad = rule.init(weight), np.ones((2, 1))
    layer = fastemb.Embedding.from_pretrained(np.ones((3, 1)), freeze=False, optimizer=rule)
    layer.backward([1], np.ones((1, 1)))
    pending = layer.grad
    for call in (
        lambda: rule.step(weight, state, [0, 1], grad, max_grad_norm=limit),
        lambda: rule.step_bag(weight, state, [0, 1], [0, 1], grad, max_grad_norm=limit),
        lambda: rule.step_bag(weight, state, [0, 1], [0, 1], grad, mode="max", max_grad_norm=limit),
        lambda: rule.update(weight, state, fastemb.RowGrad([0, 1], grad, 3), max_grad_norm=limit),
        lambda: layer.step(max_grad_norm=limit),
        lambda: layer.fused_step([0, 1], grad, max_grad_norm=limit),
    ):
        with unchanged(weight, layer.weight, layer.grad.values), pytest.raises(error, match=f"^{text}$"):
            call()
        assert layer.grad is pending
    assert (state.step, layer.state.step) == (0, 0)


def test_of_a_layer():
    layer = fastemb.Embedding.from_pretrained(np.zeros((3, 1)), freeze=False, optimizer=SGD(lr=1.0))
    layer.backward([0], [[3.0]])
    layer.backward([1], [[4.0]])
    layer.step(max_grad_norm=2.5)
    assert layer.weight[:, 0].tolist() == [-1.5, -2, 0]


@pytest.mark.parametrize("name", ["fields", "hashed", "pruned", "rare"])
def test_of_layers_of_several_tables(rng, name):
    made = {
        "fields": lambda: fastemb.nn.FieldEmbedding({"a": (9, 3), "b": (9, 2)}, optimizer=SGD(lr=1.0), seed=0),
        "hashed": lambda: fastemb.nn.HashEmbedding(9, 5, weighted=True, optimizer=SGD(lr=1.0), seed=0),
        "pruned": lambda: fastemb.nn.PrunedEmbedding(9, 5, optimizer=SGD(lr=1.0), seed=0),
        "rare": lambda: fastemb.nn.RareTokenEmbedding(9, 5, optimizer=SGD(lr=1.0), seed=0),
    }[name]
    ids, dy = rng.integers(1, 9, (6, 2) if name == "fields" else 6), rng.standard_normal((6, 5), dtype=np.float32)
    tokens = {"tokens": ["a", "bc", "d", "e", "f", "gg"]} if name == "rare" else {}
    fused, stepped = made(), made()
    before = [array.copy() for array in fused.parameters()]
    with pytest.raises(ValueError, match="^max_grad_norm must be >= 0, got -1$"):
        fused.fused_step(ids, dy, max_grad_norm=-1, **tokens)
    assert all(table.grad is None for table in fused.tables().values())
    fused.fused_step(ids, dy, max_grad_norm=0.5, **tokens)
    moved = np.sqrt(sum(((a - b).astype(float) ** 2).sum() for a, b in zip(fused.parameters(), before, strict=True)))
    assert moved == pytest.approx(0.5, rel=1e-5)
    stepped.backward(ids, dy, **tokens)
    stepped.step(max_grad_norm=0.5)
    for a, b in zip(fused.parameters(), stepped.parameters(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
