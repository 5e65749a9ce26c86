"""When an index out of range is reported."""

import numpy as np
import pytest

import fastemb
from fastemb import optim

MODES = ["now", "later", "off"]


@pytest.fixture
def table(rng):
    return rng.standard_normal((20, 4)).astype(np.float32)


@pytest.mark.parametrize("when", MODES)
def test_results_are_the_same(device, table, when):
    weight, ids = device.put(table), device.put(np.array([3, 0, 19]))
    with fastemb.index_check(when):
        rows = fastemb.gather(weight, ids)
        fastemb.scatter_add(weight, ids, rows)
        pooled = fastemb.embedding_bag(weight, ids, device.put(np.array([0, 1])))
    device.same_bits(rows, table[[3, 0, 19]])
    fastemb.scatter_add(table, [3, 0, 19], table[[3, 0, 19]])
    device.same_bits(weight, table)
    device.same_bits(pooled, fastemb.embedding_bag(table, [3, 0, 19], [0, 1]))


def test_an_error_at_the_end_of_the_block(device, table):
    """On the host it comes from the call itself."""
    weight, ids, bad = (device.put(x) for x in (table, np.array([1, 2]), np.array([1, 20])))
    worse, ones = device.put(np.array([-5, 0])), device.put(np.ones((2, 4), np.float32))
    adam = optim.Adam(lr=0.1)
    state, reached = adam.init(weight), False

    def block():
        nonlocal reached
        with fastemb.index_check("later"):
            fastemb.gather(weight, ids)
            fastemb.scatter_add(weight, bad, ones)
            adam.step(weight, state, worse, ones)
            reached = True

    with pytest.raises(IndexError, match=r"values in \[1, 20\] \(first at position 1\)"):
        block()
    assert reached == device.on_gpu
    device.same_bits(weight, table)
    device.same_bits(state.m, np.zeros((20, 4), np.float32))
    fastemb.gather(weight, ids)  # the block's errors are over


def test_indices_that_are_overwritten_within_the_block(device, table):
    """A buffer for ids that is used again: what it held is gone, but not that it was wrong, and where."""
    weight, ids = device.put(table), device.put(np.array([1, 20]))

    def block():
        with fastemb.index_check("later"):
            fastemb.gather(weight, ids)
            ids[...] = device.put(np.array([3, 4]))

    text = "values in" if not device.on_gpu else r"but one was not \(first at position 1\)\. The array has been changed"
    with pytest.raises(IndexError, match=text):
        block()


def test_calls_that_wait_report_it_themselves(device, table):
    weight, bad = device.put(table), device.put(np.array([1, 20]))
    ones = device.put(np.ones((2, 4), np.float32))
    calls = (
        lambda: fastemb.embedding_grad(bad, ones, 20),
        lambda: fastemb.renorm_(weight, bad, 0.1),
        lambda: fastemb.embedding_bag_grad(weight, bad, device.put(np.array([0, 1])), ones, mode="max"),
        lambda: fastemb.Embedding.from_pretrained(weight, freeze=False, max_norm=0.1)(bad),
    )
    with fastemb.index_check("later"):
        for call in calls:
            with pytest.raises(IndexError, match="first at position 1"):
                call()
    device.same_bits(weight, table)


def test_another_error_of_the_block_goes_first(device, table):
    weight, bad = device.put(table), device.put(np.array([20]))

    def block():
        with fastemb.index_check("later"):
            fastemb.gather(weight, bad)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError if device.on_gpu else IndexError):
        block()


def test_blocks_nest(device, table):
    weight, bad = device.put(table), device.put(np.array([20]))
    with fastemb.index_check("later"), pytest.raises(IndexError), fastemb.index_check("now"):
        fastemb.gather(weight, bad)


def test_unknown_mode():
    with pytest.raises(ValueError, match="check must be one of 'now', 'later', 'off', got 'never'"):
        fastemb.index_check("never").__enter__()


@pytest.mark.parametrize("when", ["later", "off"])
def test_nothing_waits_for_the_device(stand_in, rng, table, when):
    """Not one answer is fetched while lookups and steps of a training loop are started."""
    from ..cuda import standin

    weight, offsets = stand_in.asarray(table), stand_in.asarray(np.array([0, 2, 2]))
    ids, blocks = stand_in.asarray(rng.integers(0, 20, 12)), stand_in.asarray(rng.integers(0, 20, (3, 4)))
    narrow = ids.astype(np.uint8)
    grad = stand_in.asarray(np.ones((12, 4), np.float32))
    rule = optim.Adagrad(lr=0.1)
    state, layer = rule.init(weight), fastemb.Embedding(20, 4, device="cuda", optimizer=optim.SGD(lr=0.1))
    with fastemb.index_check(when):
        with standin.waits(0):
            fastemb.gather(weight, ids)
            fastemb.gather(weight, narrow)
            fastemb.scatter_add(weight, ids, grad)
            for mode in ("sum", "mean", "max"):
                fastemb.embedding_bag(weight, blocks, mode=mode, padding_idx=3)
            rule.step(weight, state, ids, grad)
            layer.fused_step(ids, grad)
            layer(ids)
        with standin.waits(1):  # whether the offsets are right
            fastemb.embedding_bag(weight, ids, offsets)


def test_one_wait_a_call(stand_in, table):
    from ..cuda import standin

    weight, ids = stand_in.asarray(table), stand_in.asarray(np.array([1, 2]))
    grad = stand_in.asarray(np.ones((2, 4), np.float32))
    rule = optim.Adam(lr=0.1)
    state = rule.init(weight)
    for call in (
        lambda: fastemb.gather(weight, ids),
        lambda: fastemb.scatter_add(weight, ids, grad),
        lambda: rule.step(weight, state, ids, grad),
        lambda: fastemb.embedding_bag(weight, ids.reshape(1, 2)),
    ):
        with standin.waits(1):
            call()
