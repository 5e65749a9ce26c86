"""Ids without bound in a table of fixed size: the layer; its hash is in test_hashed_ids.py."""

import copy
import itertools
import pickle
import re
import tracemalloc

import numpy as np
import pytest
from hash_formulas import place, slots
from optim_formulas import RULES
from oracles import numeric_gradient
from strategies import BFLOAT16, FLOATS, exactly, same_bits, unchanged

import fastemb
from fastemb.nn import HashEmbedding
from fastemb.optim import SGD, Adam


def oracle(layer, ids, table, factors=None):
    """The definition in float64, by one-hot rows."""
    flat = np.asarray(ids).reshape(-1).tolist()
    out = np.zeros((len(flat), table.shape[1]))
    for row, item in zip(out, flat, strict=True):
        w = np.ones(layer.num_hashes) if factors is None else factors[place(item, len(factors), layer.hash_seed)]
        for j, slot in enumerate(slots(item, len(table), layer.num_hashes, layer.hash_seed)):
            row += w[j] * (fastemb.one_hot(slot, len(table), np.float64) @ table)
    return out.reshape(*np.shape(ids), table.shape[1])


def small(rng, count, weighted, dtype="float64", **options):
    """A layer of whole numbers, in which rows of the few buckets meet."""
    layer = HashEmbedding(
        7, 3, num_hashes=count, weighted=weighted, num_weights=5 if weighted else None, dtype=dtype, **options
    )
    for array in layer.parameters():
        array[...] = rng.integers(-8, 9, array.shape)
    return layer


each_kind = pytest.mark.parametrize(("count", "weighted"), list(itertools.product((1, 2, 3, 4), (False, True))))


@each_kind
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_lookup_is_the_definition(rng, count, weighted, dtype):
    layer = small(rng, count, weighted, dtype, hash_seed=3)
    assert layer.weight.dtype == dtype
    for shape in [(), (0,), (40,), (3, 5), (2, 0), (2, 3, 4)]:
        ids = rng.integers(-(2**40), 2**40, shape)
        with unchanged(ids, *layer.parameters()):
            found = layer(ids)
        factors = layer.importance.astype(np.float64) if weighted else None
        wanted = oracle(layer, ids, layer.weight.astype(np.float64), factors)
        assert found.dtype == dtype
        assert found.shape == (*shape, 3)
        rounded = wanted.astype(dtype)  # whole numbers below 2**9: bfloat16 alone rounds
        assert np.array_equal(found, rounded)


def test_a_row_that_is_named_twice_adds_twice():
    layer = HashEmbedding(1, 2, num_hashes=3, init=lambda rng, s, d: np.ones(s), optimizer=SGD(lr=1.0))
    assert layer([5, 6]).tolist() == [[3, 3], [3, 3]]
    layer.backward([5], np.ones((1, 2), np.float32))
    assert layer.tables()["weight"].grad.values.tolist() == [[3, 3]]


@each_kind
def test_finite_differences(rng, count, weighted):
    layer = HashEmbedding(11, 3, num_hashes=count, weighted=weighted, num_weights=6 if weighted else None, dtype="f8")
    for array in layer.parameters():
        array[...] = rng.standard_normal(array.shape)
    ids, dy = rng.integers(0, 2**50, (4, 5)), rng.standard_normal((4, 5, 3))
    with unchanged(ids, dy):
        layer.backward(ids, dy)
        layer.backward(ids[1:], dy[1:])
    for table in layer.tables().values():
        numeric = numeric_gradient(table.weight, lambda: (layer(ids) * dy).sum() + (layer(ids[1:]) * dy[1:]).sum())
        np.testing.assert_allclose(table.grad.to_dense(), numeric, atol=1e-8)


@pytest.mark.parametrize("dtype", ["float16", BFLOAT16], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_half_width_gradients_are_of_single_precision(rng, dtype, weighted):
    layer, twin = (small(np.random.default_rng(5), 2, weighted, kind) for kind in (dtype, "float32"))
    ids = rng.integers(0, 100, 30)
    dy = rng.integers(-4, 5, (30, 3))
    layer.backward(ids, dy.astype(dtype))
    twin.backward(ids, dy.astype(np.float32))
    for name, table in layer.tables().items():
        assert table.grad.values.dtype == np.float32
        assert same_bits(table.grad.values, twin.tables()[name].grad.values)


@each_kind
@pytest.mark.parametrize("name", RULES)
def test_fused_steps_have_the_bits_of_backward_and_step(rng, name, count, weighted):
    rule = RULES[name][0]
    one, two, three = (
        HashEmbedding(30, 4, num_hashes=count, weighted=weighted, optimizer=rule, seed=3) for _ in range(3)
    )
    for lr in (None, 0.125, 0.25):
        ids, dy = rng.integers(0, 1000, (4, 9)), rng.standard_normal((4, 9, 4)).astype(np.float32)
        one.fused_step(ids, dy, lr=lr)
        two.backward(ids, dy)
        two.step(lr=lr)
        three.backward(ids[:2], dy[:2])
        three.fused_step(ids[2:], dy[2:], lr=lr)
    for key in one.tables():
        a, b, c = (layer.tables()[key] for layer in (one, two, three))
        assert a.grad is b.grad is c.grad is None
        assert same_bits(a.weight, b.weight)
        np.testing.assert_allclose(a.weight, c.weight, rtol=1e-3, atol=1e-4)
        assert a.state.step == b.state.step == c.state.step == 3


@pytest.mark.parametrize("weighted", [False, True])
def test_errors_change_nothing(weighted):
    layer = HashEmbedding(10, 2, weighted=weighted, optimizer=SGD(lr=1.0))
    dy = np.ones((2, 2), np.float32)
    layer.backward([1, 2], dy)
    pending = [table.grad for table in layer.tables().values()]
    with unchanged(*layer.parameters()):
        for call, error, text in [
            (lambda: layer.backward([1], dy), ValueError, "dy must have shape (1, 2), got (2, 2)"),
            (lambda: layer.fused_step([1, 2], dy[:, :1]), ValueError, "dy must have shape (2, 2), got (2, 1)"),
            (lambda: layer.fused_step([1, 2], dy, lr=-1), ValueError, "lr must be >= 0, got -1"),
            (lambda: layer.step(lr=-1), ValueError, "lr must be >= 0, got -1"),
        ]:
            with pytest.raises(error, match=exactly(text)):
                call()
        with pytest.raises(TypeError, match="^dy must be real numbers that cast safely to float32, got float64"):
            layer.backward([1, 2], dy.astype(np.float64))
    assert all(a is table.grad for a, table in zip(pending, layer.tables().values(), strict=True))
    layer.zero_grad()
    assert not any(table.grad for table in layer.tables().values())


def test_without_an_optimizer():
    layer = HashEmbedding(10, 2, weighted=True)
    with pytest.raises(RuntimeError, match="^this layer has no optimizer"):
        layer.step()
    with pytest.raises(RuntimeError, match="^this layer has no optimizer"):
        layer.fused_step([1], np.ones((1, 2), np.float32))
    layer.tables()["weight"].optimizer = SGD()  # one of the two tables alone
    with unchanged(*layer.parameters()), pytest.raises(RuntimeError, match="^this layer has no optimizer"):
        layer.fused_step([1], np.ones((1, 2), np.float32))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        ((0, 4), {}, ValueError, "num_buckets must be >= 1, got 0"),
        ((4.0, 4), {}, TypeError, "num_buckets must be an integer, got 4.0"),
        ((4, 0), {}, ValueError, "embedding_dim must be >= 1, got 0"),
        ((4, None), {}, TypeError, "embedding_dim must be an integer, got None"),
        ((4, 4), {"num_hashes": 0}, ValueError, "num_hashes must be >= 1, got 0"),
        ((4, 4), {"num_hashes": 5}, ValueError, "num_hashes must be <= 4, got 5"),
        ((4, 4), {"num_hashes": True}, TypeError, "num_hashes must be an integer, got True"),
        ((4, 4), {"hash_seed": -1}, ValueError, "hash_seed must be >= 0, got -1"),
        ((4, 4), {"hash_seed": 2**63}, ValueError, f"hash_seed must be <= {2**63 - 1}, got {2**63}"),
        ((4, 4), {"hash_seed": None}, TypeError, "hash_seed must be an integer, got None"),
        ((4, 4), {"num_weights": 3}, ValueError, "num_weights is for weighted=True alone, got 3"),
        ((4, 4), {"weighted": True, "num_weights": 0}, ValueError, "num_weights must be >= 1, got 0"),
        ((4, 4), {"optimizer": "adam"}, TypeError, "optimizer must be a fastemb.optim.Optimizer, got str"),
        ((4, 4), {"dtype": "int8"}, TypeError, "dtype must be float16, bfloat16, float32 or float64, got int8"),
    ],
)
def test_options_out_of_range(arguments, options, error, text):
    with pytest.raises(error, match=exactly(text)):
        HashEmbedding(*arguments, **options)


def test_attributes():
    layer = HashEmbedding(10, 4, seed=0)
    assert repr(layer) == "HashEmbedding(10, 4, num_hashes=2, dtype=float32)"
    assert (layer.num_buckets, layer.embedding_dim, layer.num_hashes, layer.hash_seed) == (10, 4, 2, 0)
    assert layer.importance is None
    assert [a is layer.weight for a in layer.parameters()] == [True]
    assert same_bits(layer.weight, fastemb.Embedding(10, 4, seed=0).weight)
    layer = HashEmbedding(10, 4, num_hashes=3, weighted=True, hash_seed=9, seed=1)
    assert repr(layer) == (
        "HashEmbedding(10, 4, num_hashes=3, weighted=True, num_weights=10, hash_seed=9, dtype=float32)"
    )
    assert layer.importance.tolist() == np.ones((10, 3)).tolist()
    assert [a.shape for a in layer.parameters()] == [(10, 4), (10, 3)]
    for name in ("num_hashes", "hash_seed", "num_buckets", "weight"):
        with pytest.raises(AttributeError):
            setattr(layer, name, 1)
    assert np.array_equal(pickle.loads(pickle.dumps(layer))([5, 6]), layer([5, 6]))


# What it is for


def test_memory_does_not_depend_on_ids():
    dy = np.ones((64, 8), np.float32)
    layer = HashEmbedding(100, 8, weighted=True, optimizer=Adam())
    peaks = []
    for top in (10, 2**62):
        ids = np.arange(64) * (top // 64) + top
        layer.fused_step(ids, dy)  # compiled by now
        tracemalloc.start()
        layer(ids)
        layer.fused_step(ids, dy)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert max(peaks) < 200_000
    assert sum(a.nbytes for a in layer.parameters()) == 4 * (100 * 8 + 100 * 2)


@pytest.mark.parametrize(("count", "weighted"), [(1, False), (2, False), (2, True), (4, True)])
def test_training_reduces_the_loss(rng, count, weighted):
    words = [f"item {i}" for i in range(50)]
    target = rng.standard_normal((50, 4)).astype(np.float32)
    layer = HashEmbedding(400, 4, num_hashes=count, weighted=weighted, optimizer=Adam(lr=0.05), seed=1)
    losses = []
    for _ in range(150):
        error = layer(words) - target
        losses.append(float((error**2).mean()))
        layer.fused_step(words, error)
    assert losses[-1] < (0.3 if count == 1 else 0.05) * losses[0]


def test_factors_tell_ids_with_the_same_rows_apart():
    alike = [i for i in range(100) if slots(i, 2, 2) == [0, 1]]
    ids = [alike[0], next(i for i in alike if place(i, 64) != place(alike[0], 64))]
    target = np.array([[1.0, 1.0], [-1.0, 1.0]])
    losses = {}
    for weighted in (False, True):
        layer = HashEmbedding(2, 2, weighted=weighted, num_weights=64 if weighted else None, dtype="f8", seed=1)
        for table in layer.tables().values():
            table.optimizer = Adam(lr=0.05)
        for _ in range(300):
            error = layer(ids) - target
            layer.fused_step(ids, error)
        losses[weighted] = (error**2).mean()
    assert losses[False] > 0.4
    assert losses[True] < 0.01


@pytest.mark.parametrize("weighted", [False, True])
def test_state_dict_resumes_with_the_same_bits(rng, weighted):
    options = {"weighted": weighted, "hash_seed": 6, "optimizer": Adam(lr=0.1)}
    layer = HashEmbedding(20, 3, **options, seed=1)
    batches = [(rng.integers(0, 10**9, 8), rng.standard_normal((8, 3)).astype(np.float32)) for _ in range(6)]
    for ids, dy in batches[:3]:
        layer.fused_step(ids, dy)
    saved = pickle.loads(pickle.dumps(layer.state_dict()))
    assert (saved["num_hashes"], saved["hash_seed"]) == (2, 6)
    assert set(saved) == {"weight", "num_hashes", "hash_seed"} | ({"importance"} if weighted else set())
    resumed = HashEmbedding(20, 3, **options, seed=2)
    resumed.load_state_dict(saved)
    for ids, dy in batches[3:]:
        assert same_bits(layer(ids), resumed(ids))
        layer.fused_step(ids, dy)
        resumed.fused_step(ids, dy)
    for a, b in zip(layer.parameters(), resumed.parameters(), strict=True):
        assert same_bits(a, b)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda s: s.update(hash_seed=7), ValueError, "hash_seed must be that of the layer, 6, got 7: ids would hash"),
        (lambda s: s.update(num_hashes=3), ValueError, "num_hashes must be that of the layer, 2, got 3: ids would"),
        (lambda s: s.update(hash_seed="6"), TypeError, "hash_seed must be an integer, got '6'"),
        (lambda s: s.pop("hash_seed"), ValueError, "state_dict must have the entries ['hash_seed', 'importance', "),
        (lambda s: s.pop("importance"), ValueError, "state_dict must have the entries ['hash_seed', 'importance', "),
        (lambda s: s.update(bias=1), ValueError, "state_dict must have the entries ['hash_seed', 'importance', "),
        (lambda s: s["importance"].update(weight=np.ones((3, 2), "f4")), ValueError, "weight must have shape (20, 2)"),
        (lambda s: s["weight"].update(weight=np.ones((20, 3))), ValueError, "weight must have shape (20, 3) and dtype"),
        (lambda s: s.update(importance=None), TypeError, "state_dict must be a mapping, got NoneType"),
    ],
)
def test_state_dicts_that_do_not_fit(change, error, text):
    layer = HashEmbedding(20, 3, weighted=True, hash_seed=6)
    saved = copy.deepcopy(layer.state_dict())
    for name in ("weight", "importance"):
        saved[name]["weight"] += 1
    change(saved)
    with unchanged(*layer.parameters()), pytest.raises(error, match="^" + re.escape(text)):
        layer.load_state_dict(saved)


def test_a_step_without_a_lookup_reads_rows_up_to_date(rng):
    layers = [
        HashEmbedding(20, 3, weighted=True, optimizer=Adam(lr=0.1, mode="exact"), dtype="float64", seed=0)
        for _ in range(2)
    ]
    for _ in range(6):
        ids, dy = rng.integers(0, 50, 5), rng.standard_normal((5, 3))
        layers[0].fused_step(ids, dy)
        layers[1].flush()
        layers[1].fused_step(ids, dy)
    for layer in layers:
        layer.flush()
    for mine, wanted in zip(layers[0].parameters(), layers[1].parameters(), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-11)
