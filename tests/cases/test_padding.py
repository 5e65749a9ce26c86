"""padding_idx: no gradient and no update in any size regime, and a lookup that returns the stored row."""

import numpy as np
import pytest
from strategies import unchanged

import fastemb
from fastemb._arrays import BLOCK
from fastemb.kernels import SUM_BLOCK
from fastemb.kernels.cpu.radix import INSERTION_BELOW, NARROW_BELOW
from fastemb.kernels.cpu.threads import SERIAL_BELOW

D = 8
ROW_BYTES = 4 * D
# Around torch's 768 and around every size at which this library changes its way of working.
EDGES = (768, INSERTION_BELOW, SUM_BLOCK, NARROW_BELOW, BLOCK, SERIAL_BELOW // ROW_BYTES, SERIAL_BELOW // 2)
LENGTHS = [1, 2, *sorted({edge + d for edge in EDGES for d in (-1, 0, 1)})]


def sgd_step(ids, grad, padding_idx):
    weight, sgd = np.zeros((10, D), np.float32), fastemb.optim.SGD(lr=1.0)
    sgd.step(weight, sgd.init(weight), ids, grad, padding_idx=padding_idx)
    return -weight


def layer_backward(ids, grad, padding_idx):
    layer = fastemb.Embedding(10, D, padding_idx=padding_idx)
    layer.backward(ids, grad)
    return layer.grad.to_dense()


GRADIENTS = {
    "embedding_grad": lambda ids, grad, pad: fastemb.embedding_grad(ids, grad, 10, padding_idx=pad).to_dense(),
    "sgd_step": sgd_step,
    "layer": layer_backward,
}


@pytest.mark.parametrize("index_type", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("gradient", GRADIENTS.values(), ids=GRADIENTS.keys())
def test_no_gradient_in_any_size_regime(gradient, length, index_type):
    """https://github.com/pytorch/pytorch/issues/26302 and /28716: above 768 ids the padding row got a gradient.

    The same kernel dropped one index, so the other rows' gradients are counted as well.
    """
    ids, grad = np.zeros((1, length), index_type), np.ones((1, length, D), np.float32)
    with unchanged(ids, grad):
        assert np.array_equal(gradient(ids, grad, 0), np.zeros((10, D)))

    ids[0] = np.arange(length) % 10
    ids[0, -1] = 9
    counts = np.bincount(ids[0], minlength=10).astype(np.float32)
    for padding_idx in (0, 9, -7, None):
        wanted = np.repeat(counts[:, np.newaxis], D, axis=1)
        if padding_idx is not None:
            wanted[padding_idx] = 0
        assert np.array_equal(gradient(ids, grad, padding_idx), wanted)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("rule", [fastemb.optim.SGD(weight_decay=0.1), fastemb.optim.Adam(weight_decay=0.1)])
def test_a_batch_of_padding_alone(rule, dtype):
    """https://github.com/pytorch/pytorch/issues/82486: the empty gradient had shape (0, 0) and SparseAdam crashed."""
    ids, dy = np.array([[0, 0]]), np.ones((1, 2, 1), dtype)
    grad = fastemb.embedding_grad(ids, dy, 5, padding_idx=0)
    assert (grad.rows.shape, grad.values.shape, grad.shape) == ((0,), (0, 1), (5, 1))

    layer = fastemb.Embedding(5, 1, padding_idx=0, optimizer=rule, dtype=dtype, seed=0)
    layer.backward(ids, dy)
    assert layer.grad.values.shape == (0, 1)
    with unchanged(layer.weight, *layer.state.arrays().values()):
        layer.step()
    assert layer.state.step == 1

    weight = np.ones((5, 1), dtype)
    state = rule.init(weight)
    with unchanged(weight, *state.arrays().values()):
        rule.update(weight, state, grad if dtype != np.float16 else fastemb.RowGrad([], np.zeros((0, 1), dtype), 5))
        rule.step(weight, state, ids, dy, padding_idx=0)
    assert state.step == 2


def test_lookup_returns_the_stored_row():
    """https://github.com/pytorch/pytorch/pull/46714 and /47184, https://github.com/pytorch/pytorch/issues/1812.

    Users disagreed whether the padding row must read as zeros or is merely not trained: here as in torch, the latter.
    """
    layer = fastemb.Embedding(10, 3, padding_idx=0, seed=0)
    assert not layer.weight[0].any()
    assert layer.weight[1:].all()
    assert np.array_equal(layer([1, 2, 0]), layer.weight[[1, 2, 0]])

    weight = np.random.default_rng(0).random((10, 3))
    with unchanged(weight):
        for freeze in (True, False):
            pretrained = fastemb.Embedding.from_pretrained(weight, padding_idx=0, freeze=freeze)
            assert np.array_equal(pretrained([1, 2, 0]), weight[[1, 2, 0]])
    pretrained.backward([1, 2, 0], np.ones((3, 3)))
    assert pretrained.grad.rows.tolist() == [1, 2]


def test_gradient_is_the_derivative_but_for_the_padding_row():
    """https://github.com/pytorch/pytorch/pull/99181: numerical and analytic gradients differ at the padding row."""
    rng = np.random.default_rng(0)
    weight, ids = rng.integers(1, 9, (4, 2)).astype(float), np.array([2, 0, 1, 0])
    dy = rng.integers(1, 9, (4, 2)).astype(float)
    analytic = fastemb.embedding_grad(ids, dy, 4, padding_idx=0).to_dense()
    numerical = np.zeros((4, 2))
    for at in np.ndindex(4, 2):  # the loss is linear in the table, so a difference of 1 is exact
        moved = weight.copy()
        moved[at] += 1
        numerical[at] = (fastemb.gather(moved, ids) * dy).sum() - (fastemb.gather(weight, ids) * dy).sum()
    assert np.array_equal(analytic[1:], numerical[1:])
    assert numerical[0].all()
    assert not analytic[0].any()


@pytest.mark.parametrize(("padding_idx", "trained"), [(None, [0, 1, 2]), (0, [1, 2])])
def test_row_zero_trains_unless_named(padding_idx, trained):
    """https://github.com/ibalazevic/TuckER/issues/17: padding_idx=0 although id 0 was an entity: it never trained."""
    layer = fastemb.Embedding(4, 2, padding_idx=padding_idx, optimizer=fastemb.optim.SGD(lr=1.0), seed=0)
    before = layer.weight.copy()
    layer.backward([0, 1, 2], np.ones((3, 2), np.float32))
    layer.step()
    assert np.flatnonzero((layer.weight != before).all(axis=1)).tolist() == trained
    assert np.flatnonzero((layer.weight != before).any(axis=1)).tolist() == trained
