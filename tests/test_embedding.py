"""The layer around one table."""

import copy
import math
import pickle
import re

import numpy as np
import pytest
from strategies import BFLOAT16, FLOATS, read_only, same_bits, unchanged

import fastemb
from fastemb.optim import SGD, Adam


def test_lookup_and_attributes():
    layer = fastemb.Embedding(10, 4, seed=0)
    ids = np.array([[1, 5, 3], [9, 0, 1]])
    assert np.array_equal(layer(ids), layer.weight[ids])
    assert (layer.num_embeddings, layer.embedding_dim) == (10, 4)
    assert layer.weight.dtype == np.float32
    assert layer.grad is None
    assert layer.state is None
    assert layer.parameters()[0] is layer.weight
    assert repr(layer) == "Embedding(10, 4, dtype=float32)"


@pytest.mark.parametrize("dtype", [*FLOATS, "bfloat16", "float16"], ids=str)
@pytest.mark.parametrize("init", ["uniform_fan", "normal", "zeros"])
def test_initialisers(dtype, init):
    a, b, c = (fastemb.Embedding(400, 50, dtype=dtype, init=init, seed=seed).weight for seed in (1, 1, 2))
    assert a.dtype == (BFLOAT16 if dtype == "bfloat16" else dtype)
    assert a.flags.c_contiguous
    assert a.flags.writeable
    assert np.array_equal(a, b)
    assert np.array_equal(a, c) == (init == "zeros")
    values = a.astype(np.float64)
    spread = {"uniform_fan": math.sqrt(1 / 400 / 3), "normal": 1.0, "zeros": 0.0}[init]
    assert values.std() == pytest.approx(spread, rel=0.03)
    assert abs(values.mean()) <= 0.03 * spread
    if init == "uniform_fan":
        assert 0.99 / 20 < np.abs(values).max() <= 1.01 / 20


def test_uniform_fan_stays_within_its_bound():
    weight = fastemb.Embedding(3, 20_000, dtype="float64", seed=5).weight
    assert np.abs(weight).max() <= math.sqrt(1 / 3)


def test_own_initialisers():
    shapes = []

    def ones(rng, shape, dtype):
        shapes.append((shape, dtype))
        return np.asfortranarray(np.full(shape, rng.integers(1, 2)))

    layer = fastemb.Embedding(3, 2, init=ones, dtype="float64", seed=np.random.default_rng(0))
    assert shapes == [((3, 2), np.float64)]
    assert same_bits(layer.weight, np.ones((3, 2)))
    constant = np.ones((3, 2), np.float32)
    layer = fastemb.Embedding(3, 2, init=lambda *_: np.broadcast_to(constant[:1], (3, 2)))
    with unchanged(constant):
        layer.weight[0] = 5
    assert layer.weight.tolist() == [[5, 5], [1, 1], [1, 1]]
    with pytest.raises(ValueError, match=r"^init must return an array of shape \(3, 2\), got \(2, 3\)$"):
        fastemb.Embedding(3, 2, init=lambda *_: np.ones((2, 3)))
    with pytest.raises(ValueError, match="^init must be one of .* or a callable, got 'xavier'$"):
        fastemb.Embedding(3, 2, init="xavier")
    mine = np.ones((3, 2), np.float32)
    layer = fastemb.Embedding(3, 2, init=lambda *_: mine, padding_idx=0)
    assert mine.all()
    assert not np.shares_memory(layer.weight, mine)
    for bad in (np.ones((3, 2), complex), np.full((3, 2), "1"), np.ma.ones((3, 2))):
        with pytest.raises(TypeError, match="init must return real numbers|what init returns must be"):
            fastemb.Embedding(3, 2, init=lambda *_, bad=bad: bad)
    with pytest.raises(TypeError, match="^init must be a name or a callable"):
        fastemb.Embedding(3, 2, init=3)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        ((0, 4), {}, ValueError, "num_embeddings must be >= 1, got 0"),
        ((4, 0), {}, ValueError, "embedding_dim must be >= 1, got 0"),
        ((-3, 4), {}, ValueError, "num_embeddings must be >= 1, got -3"),
        ((4.0, 4), {}, TypeError, "num_embeddings must be an integer, got 4.0"),
        ((4, True), {}, TypeError, "embedding_dim must be an integer, got True"),
        ((4, 4), {"padding_idx": 4}, ValueError, "padding_idx must be in [-4, 4), got 4"),
        ((4, 4), {"padding_idx": -5}, ValueError, "padding_idx must be in [-4, 4), got -5"),
        ((4, 4), {"padding_idx": 1.0}, TypeError, "padding_idx must be an integer, got 1.0"),
        ((4, 4), {"max_norm": -1}, ValueError, "max_norm must be >= 0, got -1"),
        ((4, 4), {"norm_type": 0}, ValueError, "norm_type must be > 0, got 0"),
        ((4, 4), {"optimizer": "adam"}, TypeError, "optimizer must be a fastemb.optim.Optimizer, got str"),
        ((4, 4), {"dtype": "int32"}, TypeError, "dtype must be float16, bfloat16, float32 or float64, got int32"),
        ((4, 4), {"device": "gpu"}, ValueError, "device must be 'cpu', 'cuda' or 'cuda:<number>', got 'gpu'"),
        ((4, 4), {"device": "cuda:x"}, ValueError, "device must be 'cpu', 'cuda' or 'cuda:<number>', got 'cuda:x'"),
        ((4, 4), {"device": 0}, ValueError, "device must be 'cpu', 'cuda' or 'cuda:<number>', got 0"),
    ],
)
def test_options_out_of_range(arguments, options, error, text):
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        fastemb.Embedding(*arguments, **options)


@pytest.mark.parametrize("padding", [2, -3])
def test_padding(padding):
    layer = fastemb.Embedding(5, 3, padding_idx=padding, init=lambda rng, s, d: np.ones(s), optimizer=SGD(lr=1.0))
    assert layer.padding_idx == 2
    assert layer.weight[:, 0].tolist() == [1, 1, 0, 1, 1]
    ids = np.array([2, 0, 2, 1])
    layer.backward(ids, np.ones((4, 3), np.float32))
    assert layer.grad.rows.tolist() == [0, 1]
    layer.step()
    assert layer.weight[:, 0].tolist() == [0, 0, 0, 1, 1]
    layer.weight[2] = 7
    assert layer([2]).tolist() == [[7, 7, 7]]  # the stored row
    layer.backward([2, 2], np.ones((2, 3), np.float32))
    assert layer.grad.values.shape == (0, 3)
    layer.step()
    assert layer.state.step == 2


def test_gradients_add_up_until_the_step():
    layer = fastemb.Embedding(5, 2, init="zeros", optimizer=SGD(lr=1.0), dtype="float64")
    layer.backward([0, 1], np.ones((2, 2)))
    layer.backward([[1], [4]], np.full((2, 1, 2), 2.0))
    assert layer.grad.to_dense()[:, 0].tolist() == [1, 3, 0, 0, 2]
    layer.step(lr=0.5)
    assert layer.weight[:, 1].tolist() == [-0.5, -1.5, 0, 0, -1]
    assert layer.grad is None
    with unchanged(layer.weight):
        layer.step()
    assert layer.state.step == 1
    layer.backward([0], np.ones((1, 2)))
    layer.zero_grad()
    assert layer.grad is None


def test_float32_gradients_of_a_float64_table_are_summed_in_float64():
    layer = fastemb.Embedding(2, 1, dtype="float64")
    layer.backward([0, 0, 0], np.array([[2.0**24], [1], [1]], np.float32))
    assert layer.grad.values[0, 0] == 2**24 + 2


def test_scale_grad_by_freq():
    layer = fastemb.Embedding(5, 2, scale_grad_by_freq=True)
    layer.backward([1, 1, 3], np.ones((3, 2), np.float32))
    assert layer.grad.values.tolist() == [[1, 1], [1, 1]]


def test_max_norm_shrinks_what_is_looked_up():
    layer = fastemb.Embedding(3, 2, max_norm=1.0, init=lambda rng, s, d: np.full(s, 3.0), dtype="float64")
    rows = layer([1, 1])
    assert np.array_equal(rows, layer.weight[[1, 1]])
    np.testing.assert_allclose(np.linalg.norm(layer.weight, axis=1), [18**0.5, 1, 18**0.5], rtol=1e-6)
    with unchanged(layer.weight), pytest.raises(IndexError):
        layer([0, 3])
    layer = fastemb.Embedding(3, 2, max_norm=1.0, norm_type=np.inf, init=lambda rng, s, d: np.full(s, 3.0))
    np.testing.assert_allclose(layer([0]), [[1, 1]], rtol=1e-6)


def test_no_optimizer():
    layer = fastemb.Embedding(3, 2)
    layer.backward([0], np.ones((1, 2), np.float32))
    with pytest.raises(RuntimeError, match="this layer has no optimizer"):
        layer.step()
    assert layer.grad is not None


def test_a_failed_backward_keeps_what_is_pending():
    layer = fastemb.Embedding(3, 2)
    layer.backward([0], np.ones((1, 2), np.float32))
    pending = layer.grad
    for error, ids, dy in [
        (IndexError, [3], np.ones((1, 2), np.float32)),
        (ValueError, [0], np.ones((2, 2), np.float32)),
        (TypeError, [0], np.ones((1, 2))),
    ]:
        with pytest.raises(error, match="dy must|indices must be in"):
            layer.backward(ids, dy)
    assert layer.grad is pending


def test_from_pretrained_frozen_shares():
    weight = np.full((4, 3), 2.0)
    layer = fastemb.Embedding.from_pretrained(weight, padding_idx=0, optimizer=SGD())
    assert layer.weight is weight
    with unchanged(weight):
        layer.backward([1], np.ones((1, 3)))
        layer.step()
    assert layer.grad is None
    assert layer.parameters() == []
    assert layer([0]).tolist() == [[2, 2, 2]]  # a padding row is taken as it is


def test_from_pretrained_trains_a_copy():
    weight = np.full((4, 3), 2.0)
    layer = fastemb.Embedding.from_pretrained(weight, freeze=False, optimizer=SGD(lr=1.0))
    with unchanged(weight):
        layer.backward([1], np.ones((1, 3)))
        layer.step()
    assert layer.weight[:, 0].tolist() == [2, 1, 2, 2]


def test_from_pretrained_layouts():
    table = np.arange(12.0).reshape(4, 3)
    for weight in (np.asfortranarray(table), read_only(table), table.astype(">f8"), table.astype("f4")):
        frozen = fastemb.Embedding.from_pretrained(weight)
        assert frozen.weight is weight
        assert np.array_equal(frozen([3, 1]), table[[3, 1]])
        trained = fastemb.Embedding.from_pretrained(weight, freeze=False, optimizer=Adam(), dtype="float32")
        trained.backward([0], np.ones((1, 3), np.float32))
        trained.step()
        assert trained.weight.dtype == np.float32
        assert trained.weight.dtype.isnative
    converted = fastemb.Embedding.from_pretrained(table, dtype="float32")
    assert converted.weight.dtype == np.float32
    with pytest.raises(ValueError, match="weight is read-only"):
        fastemb.Embedding.from_pretrained(read_only(table), max_norm=1.0)([0])
    with pytest.raises(ValueError, match="^num_embeddings must be >= 1, got 0$"):
        fastemb.Embedding.from_pretrained(np.ones((0, 3)))
    with pytest.raises(TypeError, match="^weight must be an array, got list$"):
        fastemb.Embedding.from_pretrained([[1.0]])


def train(layer, rng, steps):
    for _ in range(steps):
        ids = rng.integers(0, 6, 5)
        layer.backward(ids, layer(ids) - 1)
        layer.step()


@pytest.mark.parametrize("optimizer", [SGD(), Adam()], ids=lambda o: type(o).__name__)
def test_state_dict_resumes_with_the_same_bits(optimizer):
    rngs = np.random.default_rng(3), np.random.default_rng(3)
    layer = fastemb.Embedding(6, 3, optimizer=optimizer, seed=1)
    train(layer, rngs[0], 5)
    saved = copy.deepcopy(layer.state_dict())
    train(layer, rngs[0], 5)
    resumed = fastemb.Embedding(6, 3, optimizer=optimizer, seed=2)
    resumed.load_state_dict(saved)
    train(fastemb.Embedding(6, 3, optimizer=optimizer), rngs[1], 5)
    train(resumed, rngs[1], 5)
    assert same_bits(layer.weight, resumed.weight)
    assert resumed.state.step == 10
    clone = pickle.loads(pickle.dumps(layer))
    assert same_bits(clone.weight, layer.weight)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda s: s.pop("optimizer"), "state_dict must have the entries ['optimizer', 'weight'], got ['weight']"),
        (lambda s: s.update(weight=np.ones((5, 3), "f4")), "weight must have shape (6, 3) and dtype float32"),
        (lambda s: s.update(weight=np.ones((6, 3))), "weight must have shape (6, 3) and dtype float32"),
        (lambda s: s["optimizer"].update(m=np.ones((6, 2), "f4")), "state 'm' must have shape (6, 3)"),
    ],
)
def test_state_dicts_that_do_not_fit(change, text):
    layer = fastemb.Embedding(6, 3, optimizer=Adam())
    saved = copy.deepcopy(layer.state_dict())
    saved["weight"] += 1
    saved["optimizer"]["v"] += 1
    change(saved)
    with unchanged(layer.weight, layer.state.m, layer.state.v), pytest.raises(ValueError, match=re.escape(text)):
        layer.load_state_dict(saved)


def test_byte_order_is_native():
    layer = fastemb.Embedding(3, 2, dtype=">f4", optimizer=SGD(lr=1.0), max_norm=1.0)
    layer.backward([0], layer([0]))
    layer.step()
    assert layer.weight.dtype.isnative


def test_options_are_fixed_but_the_optimizer_is_not():
    layer = fastemb.Embedding(3, 2, padding_idx=-1, max_norm=2, norm_type=1, scale_grad_by_freq=True)
    assert (layer.padding_idx, layer.max_norm, layer.norm_type, layer.scale_grad_by_freq) == (2, 2.0, 1.0, True)
    for name in ("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "num_embeddings"):
        with pytest.raises(AttributeError):
            setattr(layer, name, 1)
    layer.optimizer = Adam(lr=0.1)
    layer.backward([0], np.ones((1, 2), np.float32))
    layer.step()
    state = layer.state
    layer.optimizer = Adam(lr=0.01)
    assert layer.state is state
    layer.optimizer = SGD()
    assert type(layer.state) is fastemb.optim.State
    assert layer.state.step == 0
    layer.optimizer = None
    assert layer.state is None
    with pytest.raises(TypeError, match="^optimizer must be"):
        layer.optimizer = "sgd"


@pytest.mark.parametrize("saved", [None, {"weight": None}, {"weight": np.ma.ones((3, 2), "f4")}])
def test_state_dicts_of_another_kind(saved):
    layer = fastemb.Embedding(3, 2)
    with unchanged(layer.weight), pytest.raises((TypeError, ValueError), match="weight must|must be a mapping"):
        layer.load_state_dict(saved)


def test_a_width_that_is_known_later():
    emb = fastemb.Embedding(64, padding_idx=3, optimizer=fastemb.optim.Adam(), seed=1)
    assert (emb.num_embeddings, emb.embedding_dim, emb.state) == (64, None, None)
    assert repr(emb).startswith("Embedding(64, None, padding_idx=3")
    for call in (lambda: emb([1]), lambda: emb.weight, emb.state_dict, emb.parameters):
        with pytest.raises(RuntimeError, match=r"^embedding_dim of this layer is not known yet: pass it, or call bind"):
            call()
    emb.bind(5)
    same = fastemb.Embedding(64, 5, padding_idx=3, optimizer=fastemb.optim.Adam(), seed=1)
    assert same_bits(emb.weight, same.weight)
    assert (emb.weight[3] == 0).all()
    assert emb.state.m.shape == (64, 5)
    emb.bind(5)
    with pytest.raises(ValueError, match="^embedding_dim must be 5, as it is already, got 7$"):
        emb.bind(7)


def test_a_consumer_states_the_width():
    class Linear:
        in_features = 12

    emb = fastemb.Embedding(4)
    emb.bind(Linear())
    assert emb.weight.shape == (4, 12)
    bag = fastemb.EmbeddingBag(4)
    bag.bind(3)
    assert bag([[0, 1]]).shape == (1, 3)
    for bad, error in ((0, ValueError), (2.0, TypeError), (2**31, ValueError), (None, TypeError)):
        with pytest.raises(error, match="^embedding_dim must be"):
            fastemb.Embedding(4).bind(bad)


@pytest.mark.parametrize("name", ["num_embeddings", "embedding_dim"])
def test_sizes_have_a_limit(name):
    sizes = {"num_embeddings": 1, "embedding_dim": 1, name: 2**31}
    with pytest.raises(ValueError, match=rf"^{name} must be <= 2147483647, got 2147483648$"):
        fastemb.Embedding(**sizes)


def test_a_layer_can_be_pickled_whatever_made_its_table():
    emb = fastemb.Embedding(4, 2, init=lambda rng, shape, dtype: np.ones(shape), optimizer=fastemb.optim.Adam())
    assert same_bits(pickle.loads(pickle.dumps(emb)).weight, emb.weight)
    later = pickle.loads(pickle.dumps(fastemb.Embedding(4, seed=3)))
    later.bind(2)
    assert same_bits(later.weight, fastemb.Embedding(4, 2, seed=3).weight)


def test_a_table_that_is_not_there_yet_is_no_attribute():
    emb = fastemb.Embedding(4, optimizer=fastemb.optim.SGD())
    assert not hasattr(emb, "weight")
    assert not hasattr(emb, "nothing")
    with pytest.raises(RuntimeError, match="not known yet"):
        emb.step()
