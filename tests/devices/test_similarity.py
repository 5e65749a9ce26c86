"""Lengths, cosines and nearest rows on every device."""

import numpy as np
import pytest

from fastemb import _arrays
from fastemb.nn import cosine_similarity, nearest, normalize_, similarity

from .results import GPUS, assert_close, on_host

CLOSE = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}


@pytest.fixture
def table(rng):
    rows = rng.integers(-9, 10, (40, 5)).astype(np.float32)
    rows[7] = 0
    rows[9] = rows[3]
    return rows


@pytest.mark.parametrize("max_norm", [None, 0.0, 6.0])
@pytest.mark.parametrize("dtype", CLOSE)
def test_unit_rows(device, table, dtype, max_norm):
    table = table.astype(dtype)
    weight = device.put(table)
    assert normalize_(weight, max_norm=max_norm) is weight
    assert_close(device, weight, normalize_(table.copy(), max_norm=max_norm), CLOSE[dtype], CLOSE[dtype])


@pytest.mark.parametrize("scale", [1e-30, 1e30, np.nan, np.inf])
def test_rows_of_any_size(device, table, scale):
    with np.errstate(all="ignore"):
        table[3] *= np.float32(scale)
    weight = device.put(table)
    assert_close(device, normalize_(weight), normalize_(table))


def test_no_rows_and_no_columns(device):
    for shape in ((0, 5), (3, 0)):
        device.same_bits(normalize_(device.xp.zeros(shape, np.float32)), np.zeros(shape, np.float32))
    nothing = device.xp.zeros((3, 0), np.float32)
    device.same_bits(cosine_similarity(nothing, nothing), np.zeros(3, np.float32))
    found = nearest(device.xp.zeros((0, 5), np.float32), device.xp.zeros((2, 5), np.float32), 3)
    device.same_bits(found.rows, np.zeros((2, 0), np.int64))


@pytest.mark.parametrize("dtype", CLOSE)
def test_cosines(device, table, dtype):
    table = table.astype(dtype)
    expected = cosine_similarity(table[:4, np.newaxis], table)
    close = max(CLOSE["float32"], CLOSE[dtype] if dtype == "float64" else 0)
    rows = device.put(table)
    assert_close(device, cosine_similarity(rows[:4, np.newaxis], rows), expected, close, close)
    assert_close(device, cosine_similarity(rows[0], rows), expected[0], close, close)


def test_lists_go_where_the_array_is(device, table):
    rows, wide = device.put(table), table.astype(np.float64)
    expected = cosine_similarity(wide[1], wide)
    assert_close(device, cosine_similarity(wide[1].tolist(), rows), expected, 1e-12, 1e-12)
    assert_close(device, cosine_similarity(rows, wide[1].tolist()), expected, 1e-12, 1e-12)
    expected = nearest(table, wide[3].tolist(), 2, metric="dot")
    found = nearest(rows, wide[3].tolist(), 2, metric="dot")
    device.same_bits(found.rows, expected.rows)


@pytest.mark.parametrize("exclude", [None, [3, 12, 39], np.array([[9], [9]], np.uint8)], ids=str)
@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
def test_nearest(device, table, monkeypatch, metric, exclude):
    monkeypatch.setattr(similarity, "BLOCK", 16)  # so that several blocks are merged
    queries = table[[3, 20]].reshape(2, 1, 5)
    expected = nearest(table, queries, 6, metric=metric, exclude=exclude)
    left_out = device.put(exclude) if isinstance(exclude, np.ndarray) else exclude
    found = nearest(device.put(table), device.put(queries), 6, metric=metric, exclude=left_out)
    if metric == "dot":  # sums of small whole numbers, in any order
        device.same_bits(found.rows, expected.rows)
        device.same_bits(found.scores, expected.scores)
    else:
        assert_close(device, found.scores, expected.scores, 1e-5, 1e-5)
        rows = on_host(found.rows)
        assert all(len(set(row)) == 6 for row in rows.reshape(-1, 6).tolist())
        assert exclude is None or not set(np.ravel(exclude).tolist()) & set(rows.ravel().tolist())


def test_more_than_there_are_and_not_a_number(device, table):
    table[5] = np.nan
    found = nearest(device.put(table[:9]), device.put(table[3]), 100, metric="dot")
    device.same_bits(found.rows, nearest(table[:9], table[3], 100, metric="dot").rows)
    assert int(found.rows[-1]) == 5


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"query": np.ones(4)}, ValueError, "query must have width 5, got 4"),
        ({"exclude": np.array([1, 40])}, IndexError, r"\[0, 40\), but got values in \[1, 40\]"),
        ({"query": np.ones(5, bool)}, TypeError, "query must be real numbers"),
    ],
)
def test_wrong_arrays(device, table, change, error, text):
    given = {"weight": table, "query": table[0], **change}
    with pytest.raises(error, match=text):
        nearest(**{name: device.put(array) for name, array in given.items()})


@pytest.mark.parametrize("device", GPUS, indirect=True)
def test_arrays_on_two_devices(device, table):
    there = device.put(table)
    for first, second in ((table, there), (there, table)):
        with pytest.raises(TypeError, match=r"one device, got weight on .* and query on"):
            nearest(first, second[0])
        with pytest.raises(TypeError, match=r"one device, got weight on .* and exclude on"):
            nearest(first, first[0], exclude=second[:3, 0].astype(np.int64))
        with pytest.raises(TypeError, match=r"one device, got b on .* and a on"):
            cosine_similarity(first, second)


def test_blocks_are_those_of_indices():
    assert similarity.BLOCK == _arrays.BLOCK
