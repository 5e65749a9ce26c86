"""Lookup on every device."""

import numpy as np
import pytest

import fastemb

INDEX_DTYPES = ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"]


@pytest.fixture
def table(rng):
    return rng.standard_normal((20, 6)).astype(np.float32)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("index_dtype", INDEX_DTYPES)
def test_gather(device, rng, table, dtype, index_dtype):
    table, ids = table.astype(dtype), rng.integers(0, 20, (3, 5)).astype(index_dtype)
    weight, given = device.put(table), device.put(ids)
    device.same_bits(fastemb.gather(weight, given), table[ids])
    device.same_bits(weight, table)
    device.same_bits(given, ids)


@pytest.mark.parametrize("ids", [3, [], [[1, 2], [0, 19]], np.int64(7), (4, 4)])
def test_numbers_go_where_the_table_is(device, table, ids):
    rows = fastemb.gather(device.put(table), ids)
    device.same_bits(rows, table[np.array(ids, np.int64)])


def test_indices_of_any_strides(device, table):
    ids = np.arange(12).reshape(3, 4)
    device.same_bits(fastemb.gather(device.put(table), device.put(ids).T[::2]), table[ids.T[::2]])


def test_into_an_array(device, table):
    out = device.put(np.full((4, 6), np.nan, np.float32))
    assert fastemb.gather(device.put(table), device.put(np.array([3, 0, 3, 19])), out=out) is out
    device.same_bits(out, table[[3, 0, 3, 19]])


@pytest.mark.parametrize(
    ("ids", "lo", "hi", "first"),
    [
        (np.array([1, 20, -1]), -1, 20, 1),
        (np.array([[1, 2], [3, 200]], np.uint8), 1, 200, 3),
        (np.array([5, 2**63 + 1], np.uint64), 5, 2**63 + 1, 1),
        (np.array([5, -7], np.int32), -7, 5, 1),
        ([0, 2**70], 0, 2**70, 1),
    ],
)
def test_an_index_out_of_range(device, table, ids, lo, hi, first):
    out = device.put(np.full((*np.shape(ids), 6), np.nan, np.float32))
    given = ids if isinstance(ids, list) else device.put(ids)
    text = rf"\[0, 20\), but got values in \[{lo}, {hi}\] \(first at position {first}\)\."
    with pytest.raises(IndexError, match=text):
        fastemb.gather(device.put(table), given, out=out)
    assert bool(device.xp.isnan(out).all())


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"out": lambda xp: xp.zeros((2, 5), np.float32)}, ValueError, r"out must have shape \(2, 6\), got \(2, 5\)"),
        ({"out": lambda xp: xp.zeros((2, 6))}, ValueError, "out must have dtype float32, got float64"),
        ({"out": lambda xp: xp.zeros((2, 12), np.float32)[:, ::2]}, ValueError, "out must be C-contiguous"),
        ({"weight": lambda xp: xp.zeros((3, 3), np.int64)}, TypeError, "weight must be float16, .*got int64"),
        ({"weight": lambda xp: xp.zeros(3)}, ValueError, r"weight must be 2-D \(N, D\), got shape \(3,\)"),
        ({"indices": lambda xp: xp.zeros(3)}, TypeError, "indices must be integers, got float64"),
        ({"indices": lambda xp: xp.zeros(3, bool)}, TypeError, "indices must be integers, got bool"),
        ({"indices": lambda xp: xp.eye(3)}, TypeError, "looks like a one-hot array"),
    ],
)
def test_wrong_arrays(device, table, change, error, text):
    given = {"weight": device.put(table), "indices": device.put(np.array([0, 1]))}
    given |= {name: make(device.xp) for name, make in change.items()}
    with pytest.raises(error, match=text):
        fastemb.gather(**given)


def test_an_output_that_overlaps(device):
    memory = device.put(np.zeros((6, 4), np.float32))
    with pytest.raises(ValueError, match="out must not overlap weight"):
        fastemb.gather(memory[:4], device.put(np.array([0, 1])), out=memory[3:5])


def test_one_hot(device, rng):
    ids = rng.integers(0, 7, (2, 3)).astype(np.uint8)
    device.same_bits(fastemb.one_hot(device.put(ids), 7), np.eye(7, dtype=np.float32)[ids])
    with pytest.raises(IndexError, match=r"\[0, 3\)"):
        fastemb.one_hot(device.put(np.array([3])), 3)
