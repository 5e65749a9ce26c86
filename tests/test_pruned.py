"""Tables that give up rows."""

import copy

import numpy as np
import pytest
from strategies import out_of_range, unchanged

from fastemb.nn import PrunedEmbedding
from fastemb.optim import SGD, Adam, Momentum, RowWiseAdagrad

VECTORS = np.array([[3.0, 1.0], [0.1, 0.0], [0.0, 2.0], [-0.2, 0.2], [5.0, -5.0]])


def test_the_smallest_go_as_in_the_source_document(rng):
    """Seed 003: magnitudes, torch.quantile of them, rows below it are zeros."""
    weight = rng.standard_normal((50, 4))
    magnitudes = np.abs(weight).sum(axis=1)
    kept = magnitudes >= np.quantile(magnitudes, 0.3)
    emb = PrunedEmbedding.from_pretrained(weight)
    moved = emb.prune(ratio=0.3)
    assert np.array_equal(emb(np.arange(50)), weight * kept[:, np.newaxis])
    assert np.array_equal(moved, np.where(kept, np.cumsum(kept) - 1, -1))
    assert emb.num_rows == kept.sum() == 35
    assert np.array_equal(emb.weight, weight[kept])
    assert np.array_equal(emb.row_of, moved)


def test_the_memory_of_pruned_rows_is_given_up(rng):
    emb = PrunedEmbedding(1000, 8, optimizer=Adam(), seed=0)
    emb.prune(keep=100)
    assert [a.shape for a in emb.parameters()] == [(101, 8)]
    assert emb.tables()["table"].state.m.shape == (101, 8)
    assert emb.weight.base is not None
    assert emb.weight.base.nbytes == 101 * 8 * 4


@pytest.mark.parametrize(("ratio", "rows"), [(0, 5), (0.2, 4), (0.25, 4), (0.5, 3), (1, 1)])
def test_ratios(ratio, rows):
    emb = PrunedEmbedding.from_pretrained(VECTORS)
    emb.prune(ratio=ratio)
    assert emb.num_rows == rows


def test_aliases_stay_together():
    """https://github.com/explosion/spaCy/issues/5397: duplicates were kept, or keys of one row separated."""
    cat, kitty, dog, puppy, fish = range(5)
    row_of = [0, 0, 1, 1, 2]
    emb = PrunedEmbedding.from_pretrained(VECTORS[[4, 0, 1]], row_of=row_of)
    assert emb.prune(keep=2).tolist() == [0, 1, -1]
    assert emb.row_of.tolist() == [0, 0, 1, 1, -1]
    assert np.array_equal(emb([cat, kitty, dog, puppy, fish]), [*VECTORS[[4, 4, 0, 0]], [0, 0]])
    assert emb.prune(keep=1).tolist() == [0, -1]
    assert emb([kitty, puppy]).tolist() == [[5, -5], [0, 0]]


def test_by_frequency():
    emb = PrunedEmbedding.from_pretrained(VECTORS[:3], row_of=[0, 1, 1, 2])
    counts = np.array([5, 3, 3, 4])
    with unchanged(counts):
        assert emb.prune(keep=2, by="frequency", counts=counts).tolist() == [0, 1, -1]  # 5, 3 + 3, 4
    assert emb.prune(ratio=0.5, by="frequency", counts=[5, 3, 3, 4]).tolist() == [-1, 0]


def test_of_equal_rows_the_first_stay():
    emb = PrunedEmbedding.from_pretrained(np.ones((6, 2)))
    assert emb.prune(keep=2).tolist() == [0, 1, -1, -1, -1, -1]
    emb = PrunedEmbedding.from_pretrained(np.ones((6, 2)))
    assert emb.prune(ratio=0.5).tolist() == [0, 1, 2, 3, 4, 5]  # none is below the quantile


@pytest.mark.parametrize("rule", [SGD(lr=1.0), Adam(lr=0.1), RowWiseAdagrad(lr=0.1), Adam(lr=0.1, mode="exact")])
def test_training_keeps_pruned_ids_zero_and_goes_on_with_the_others(rng, rule):
    weight = rng.standard_normal((12, 3))
    emb, full = (PrunedEmbedding.from_pretrained(weight, optimizer=rule) for _ in range(2))
    for layer in (emb, full):
        layer.fused_step(np.arange(12), np.ones((12, 3)))
    moved = emb.prune(keep=8)
    pruned, kept = np.flatnonzero(moved < 0), np.flatnonzero(moved >= 0)
    for _ in range(3):
        ids, dy = rng.integers(0, 12, 30), rng.standard_normal((30, 3))
        emb.backward(ids, dy)
        emb.step()
        chosen = np.isin(ids, kept)
        full.fused_step(ids[chosen], dy[chosen])
    emb.flush()
    full.flush()
    assert (emb(pruned) == 0).all()
    np.testing.assert_allclose(emb(kept), full(kept), rtol=1e-13)
    assert emb.tables()["table"].state.step == 4


def test_gradients_of_aliases_add_up():
    emb = PrunedEmbedding.from_pretrained(np.zeros((2, 1)), row_of=[0, 0, 1, -1], optimizer=SGD(lr=1.0))
    emb.fused_step([0, 1, 2, 3], [[1.0], [2.0], [4.0], [8.0]])
    assert emb([0, 1, 2, 3]).ravel().tolist() == [-3, -3, -4, 0]


def test_restored_ids_are_zeros_that_train():
    emb = PrunedEmbedding.from_pretrained(VECTORS, optimizer=Momentum(lr=1.0))
    emb.fused_step([0, 1], np.ones((2, 2)))
    emb.prune(keep=2)  # 0 and 4
    assert emb.restore([1, 4, 1]).tolist() == [2]
    assert emb.row_of.tolist() == [0, 2, -1, -1, 1]
    assert emb([1, 2]).tolist() == [[0, 0], [0, 0]]
    emb.fused_step([0, 1, 2], np.ones((3, 2)))
    assert emb([1, 2]).tolist() == [[-1, -1], [0, 0]]  # no momentum of the row before
    assert emb([0]).tolist() == [[3 - 1 - 1.9, 1 - 1 - 1.9]]
    assert emb.restore(values=[[7, 8], [9, 10]]).tolist() == [3, 4]
    assert emb([2, 3]).tolist() == [[7, 8], [9, 10]]
    assert emb.restore().tolist() == []
    assert emb.num_rows == 5


def test_state_of_a_layer_pruned_in_another_way(rng):
    one, two = (PrunedEmbedding(20, 3, optimizer=Adam(), seed=seed) for seed in (1, 2))
    one.fused_step(np.arange(20), rng.standard_normal((20, 3), dtype=np.float32))
    one.prune(keep=7)
    one.fused_step(np.arange(20), rng.standard_normal((20, 3), dtype=np.float32))
    two.prune(keep=12)
    two.load_state_dict(copy.deepcopy(one.state_dict()))
    assert np.array_equal(two.row_of, one.row_of)
    for layer in (one, two):
        layer.fused_step(np.arange(20), np.ones((20, 3), np.float32))
    assert np.array_equal(two(np.arange(20)), one(np.arange(20)))
    before = two.row_of, two(np.arange(20))
    for change in (
        {"weight": np.ones((8, 3))},
        {"row_of": [0] * 19},
        {"row_of": [8] * 20},
        {"m": 1},
        {"weight": np.ones(3)},
    ):
        with pytest.raises(ValueError, match=r"must (have|be|end)"):
            two.load_state_dict({**one.state_dict(), **change})
        assert np.array_equal(two.row_of, before[0])
        assert np.array_equal(two(np.arange(20)), before[1])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda e: e.prune(), ValueError, "either ratio or keep must be given"),
        (lambda e: e.prune(ratio=0.1, keep=1), ValueError, "either ratio or keep must be given"),
        (lambda e: e.prune(ratio=1.5), ValueError, "ratio must be <= 1, got 1.5"),
        (lambda e: e.prune(ratio=-0.5), ValueError, "ratio must be >= 0, got -0.5"),
        (lambda e: e.prune(keep=6), ValueError, "keep must be <= 5, got 6"),
        (lambda e: e.prune(keep=2, by="age"), ValueError, "by must be one of 'magnitude', 'frequency', got 'age'"),
        (lambda e: e.prune(keep=2, by="frequency"), ValueError, r"counts must be numbers of shape \(5,\)"),
        (lambda e: e.restore([5]), IndexError, out_of_range(5, 5, 5, 0)),
        (lambda e: e.restore(values=np.ones((1, 2))), ValueError, r"values must have shape \(0, 2\), got \(1, 2\)"),
        (lambda e: e([-1]), IndexError, out_of_range(5, -1, -1, 0)),
        (lambda e: e([0.0]), TypeError, "must be integers"),
        (lambda e: e.restore(values=np.full((0, 2), 1j)), TypeError, "values must be real"),
        (lambda e: e.prune(keep=2, counts=[1] * 5), ValueError, "counts are for by='frequency'"),
        (lambda e: e.prune(keep=2, by="frequency", counts=[1, np.nan, 3, 4, 5]), ValueError, "counts must be finite"),
        (lambda e: e.restore([5, -1, 2**70]), IndexError, "must be in"),
        (lambda e: e.restore([0, 9, -1]), IndexError, out_of_range(5, -1, 9, 1)),
        (lambda e: PrunedEmbedding(3, None), TypeError, "embedding_dim must be an integer, got None"),
        (
            lambda e: PrunedEmbedding.from_pretrained(VECTORS, padding_idx=0),
            ValueError,
            "padding_idx and freeze cannot",
        ),
        (lambda e: PrunedEmbedding.from_pretrained(VECTORS, freeze=True), ValueError, "padding_idx and freeze cannot"),
        (lambda e: PrunedEmbedding(3, 2, row_of=[0, 1]), ValueError, r"row_of must have shape \(3,\), got \(2,\)"),
        (lambda e: PrunedEmbedding(3, 2, row_of=[0, 1, -2]), ValueError, r"row_of must be in \[-1, 2\)"),
        (lambda e: PrunedEmbedding(3, 2, padding_idx=0), ValueError, "padding_idx cannot be used here"),
    ],
)
def test_errors(call, error, text):
    emb = PrunedEmbedding.from_pretrained(VECTORS, optimizer=Adam())
    with unchanged(emb.weight), pytest.raises(error, match=text):
        call(emb)
    assert emb.num_rows == 5


def test_pending_gradients_are_not_lost():
    emb = PrunedEmbedding.from_pretrained(VECTORS, optimizer=SGD(lr=1.0))
    emb.backward([0], np.ones((1, 2)))
    for call in (lambda: emb.prune(keep=1), emb.restore, lambda: emb.load_state_dict(emb.state_dict())):
        with pytest.raises(RuntimeError, match="a gradient is pending"):
            call()
    emb.step()
    emb.prune(keep=1)
    assert repr(emb) == "PrunedEmbedding(5 ids on 1 rows, 2, optimizer=SGD(lr=1.0, weight_decay=0.0), dtype=float64)"


def test_everything_may_go():
    emb = PrunedEmbedding.from_pretrained(VECTORS)
    assert emb.prune(keep=0).tolist() == [-1] * 5
    assert emb([[0, 4]]).tolist() == [[[0, 0], [0, 0]]]
    assert emb.restore().tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_cannot_be_compared_is_not_pruned(bad):
    vectors = VECTORS.copy()
    vectors[2, 0] = bad
    emb = PrunedEmbedding.from_pretrained(vectors)
    for options in ({"ratio": 0.1}, {"keep": 2}):
        with pytest.raises(ValueError, match="^rows must be finite to be compared, row 2 is not$"):
            emb.prune(**options)
    assert emb.num_rows == 5


def test_pruned_ids_stay_zeros_whatever_is_loaded():
    emb = PrunedEmbedding.from_pretrained(VECTORS)
    emb.prune(keep=2)
    saved = {name: array.copy() for name, array in emb.state_dict().items()}
    saved["weight"][-1] = 7
    with pytest.raises(ValueError, match="weight must end with a row of zeros"):
        emb.load_state_dict(saved)
    assert (emb([1]) == 0).all()
