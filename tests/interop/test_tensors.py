"""Arrays and tensors of other libraries in every operation: read where they lie, written there, or refused."""

import array
import gc

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import fastemb
from fastemb import optim

HOW = {
    "torch": torch.from_numpy,
    "memoryview": memoryview,
    "interface": lambda a: type("Array", (), {"__array_interface__": a.__array_interface__, "keeps": a})(),
}
"""Ways to hand an array's own memory over."""


@pytest.fixture(params=HOW)
def give(request):
    return HOW[request.param]


@pytest.fixture
def table(rng):
    return rng.standard_normal((9, 4)).astype(np.float32)


IDS = np.array([3, 0, 3, 8])
ROWS = np.arange(16, dtype=np.float32).reshape(4, 4)


def test_reading(give, table):
    before = table.copy()
    weight, ids, rows = give(table), give(IDS.copy()), give(ROWS.copy())
    np.testing.assert_array_equal(fastemb.gather(weight, ids), table[IDS])
    np.testing.assert_array_equal(fastemb.one_hot(ids, 9), np.eye(9)[IDS])
    expected = fastemb.embedding_grad(IDS, ROWS, 9)
    np.testing.assert_array_equal(fastemb.embedding_grad(ids, rows, 9).values, expected.values)
    offsets = give(np.array([0, 1]))
    pooled = fastemb.embedding_bag(weight, ids, offsets, mode="sum")
    np.testing.assert_array_equal(pooled, fastemb.embedding_bag(table, IDS, [0, 1], mode="sum"))
    grad = give(ROWS[:2].copy())
    found = fastemb.embedding_bag_grad(weight, ids, offsets, grad)
    np.testing.assert_array_equal(found.values, fastemb.embedding_bag_grad(table, IDS, [0, 1], ROWS[:2]).values)
    found = fastemb.embedding_bag_weight_grad(weight, ids, offsets, grad)
    np.testing.assert_array_equal(found, fastemb.embedding_bag_weight_grad(table, IDS, [0, 1], ROWS[:2]))
    np.testing.assert_array_equal(table, before)


def test_writing(give, table):
    """The memory that was given is what changes, and the object that was given is what comes back."""
    for operation in (
        lambda weight, ids, rows: fastemb.scatter_add(weight, ids, rows),
        lambda weight, ids, rows: fastemb.renorm_(weight, ids, 0.5),
    ):
        expected, changed = table.copy(), table.copy()
        operation(expected, IDS, ROWS)
        given = give(changed)
        assert operation(given, give(IDS.copy()), give(ROWS.copy())) is given
        np.testing.assert_array_equal(changed, expected)
        assert (changed != table).any()


@pytest.mark.parametrize("rule", [optim.SGD(lr=0.1), optim.Adam(lr=0.1), optim.RowWiseAdagrad(lr=0.1)])
def test_training(give, table, rule):
    expected, changed = table.copy(), table.copy()
    weight = give(changed)
    states = rule.init(expected), rule.init(weight)
    for _ in range(2):
        rule.step(expected, states[0], IDS, ROWS)
        rule.step(weight, states[1], give(IDS.copy()), give(ROWS.copy()))
    rule.step_bag(expected, states[0], IDS, [0, 2], ROWS[:2])
    rule.step_bag(weight, states[1], give(IDS.copy()), [0, 2], give(ROWS[:2].copy()))
    np.testing.assert_array_equal(changed, expected)


def test_results_into_what_is_given(give, table):
    memory = np.full((4, 4), np.nan, np.float32)
    out = give(memory)
    assert fastemb.gather(table, IDS, out=out) is out
    np.testing.assert_array_equal(memory, table[IDS])
    memory[:] = np.nan
    assert fastemb.embedding_bag(table, IDS, [0, 1, 2, 3], out=out) is out
    np.testing.assert_array_equal(memory, table[IDS])
    with pytest.raises(ValueError, match="out must not overlap weight"):
        fastemb.gather(table, IDS, out=give(table[:4]))


def test_a_layer_around_a_tensor(give, table):
    emb = fastemb.Embedding.from_pretrained(give(table))
    np.testing.assert_array_equal(emb(give(IDS.copy())), table[IDS])
    assert np.shares_memory(emb.weight, table)


@pytest.mark.parametrize("make", [torch.from_numpy, HOW["interface"]])
def test_memory_is_kept_alive(make):
    """A frozen layer is all that refers to the memory of the tensor."""
    source = np.random.default_rng(0).standard_normal((1000, 64))
    expected, tensor = source.copy(), make(source)
    emb = fastemb.Embedding.from_pretrained(tensor)
    del source, tensor
    gc.collect()
    np.ones((1000, 64))  # would take the memory
    np.testing.assert_array_equal(emb(np.arange(1000)), expected)


def test_no_copy_of_a_table(table):
    """What is written through one shows in the other: a copy would not."""
    weight = torch.from_numpy(table)
    emb = fastemb.Embedding.from_pretrained(weight)
    weight[3] = 7
    assert (emb([3]) == 7).all()


@pytest.mark.parametrize("call", ["gather", "scatter_add", "updates", "grad", "out", "step"])
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: torch.ones(4, 4, requires_grad=True), r"torch\.float32 .*use tensor\.detach\(\)"),
        (lambda: torch.ones(4, 4, dtype=torch.bfloat16), r"dtype torch\.bfloat16 cannot be read"),
        (lambda: torch.ones(4, 4).to_sparse(), "layout other than torch.strided"),
        (lambda: torch.ones(4, 4, device="meta"), "meta"),
        (lambda: jnp.ones((4, 4), jnp.bfloat16), "dtype bfloat16 cannot be read"),
    ],
)
def test_what_is_not_handed_over(call, make, text):
    table, ids, rows, rule = np.zeros((4, 4), np.float32), [0, 1, 2, 3], np.ones((4, 4), np.float32), optim.SGD(lr=1.0)
    calls = {
        "gather": lambda x: fastemb.gather(x, ids),
        "scatter_add": lambda x: fastemb.scatter_add(x, ids, rows),
        "updates": lambda x: fastemb.scatter_add(table, ids, x),
        "grad": lambda x: fastemb.embedding_grad(ids, x, 4),
        "out": lambda x: fastemb.gather(table, ids, out=x),
        "step": lambda x: rule.step(table, rule.init(table), ids, x),
    }
    with pytest.raises(TypeError, match=f"^(weight|target|updates|grad|out) of type .*{text}"):
        calls[call](make())
    assert not table.any()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: jnp.ones((4, 4)), "read-only"),
        (lambda: memoryview(bytes(64)).cast("f", (4, 4)), "read-only"),
        (lambda: torch.ones(4, 4).T, "must have C-contiguous rows to be written in place"),
        (lambda: torch.ones(4, 8)[:, ::2], "must have C-contiguous rows to be written in place"),
    ],
)
def test_what_cannot_be_written(make, text):
    given = make()
    for call in (
        lambda: fastemb.scatter_add(given, [0], np.ones((1, 4), np.float32)),
        lambda: fastemb.renorm_(given, [0], 0.1),
        lambda: optim.SGD(lr=1.0).step(given, optim.State(), [0], np.ones((1, 4), np.float32)),
    ):
        with pytest.raises(ValueError, match=text):
            call()
    np.testing.assert_array_equal(fastemb.gather(given, [0]), np.asarray(given)[:1])  # but read


def test_indices_of_the_standard_library(table):
    np.testing.assert_array_equal(fastemb.gather(table, array.array("h", [8, 1])), table[[8, 1]])
    np.testing.assert_array_equal(fastemb.gather(table, memoryview(np.array([8, 1], np.uint8))), table[[8, 1]])
