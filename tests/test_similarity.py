"""Lengths, cosines and neighbours of rows."""

import tracemalloc

import numpy as np
import pytest
from strategies import BFLOAT16, out_of_range, unchanged

from fastemb.nn import cosine_similarity, nearest, normalize_


@pytest.mark.parametrize("dtype", ["float16", BFLOAT16, "float32", "float64"], ids=str)
@pytest.mark.parametrize("max_norm", [None, 1.0, 2.5, 0.0])
def test_rows_are_divided_by_their_length(rng, dtype, max_norm):
    weight = (rng.standard_normal((9000, 7)) * rng.choice([0.1, 1, 3], (9000, 1))).astype(dtype)
    weight[17] = 0
    wide = weight.astype(np.float64)
    length = np.linalg.norm(wide, axis=1, keepdims=True)
    wanted = wide / np.maximum(np.where(length == 0, 1, length), max_norm or 0)  # seed 003: div_ by the clamped norm
    assert normalize_(weight, max_norm=max_norm) is weight
    near = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 3e-7, "float64": 1e-15}[np.dtype(dtype).name]
    np.testing.assert_allclose(weight.astype(np.float64), wanted, rtol=2 * near, atol=near)
    assert (weight[17] == 0).all()


def test_short_rows_keep_their_bits_with_a_limit_of_one(rng):
    weight = rng.uniform(-0.1, 0.1, (100, 5))
    with unchanged(weight):
        normalize_(weight, max_norm=1.0)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_lengths_beyond_the_squares_of_single_precision(size):
    weight = np.array([[3, 4]], np.float32) * np.float32(size)
    np.testing.assert_allclose(normalize_(weight), [[0.6, 0.8]], rtol=1e-6)


def test_bad_rows_stay_alone():
    weight = np.array([[np.nan, 1], [3, 4], [np.inf, 1]])
    normalize_(weight)
    assert np.isnan(weight[0]).all()
    assert weight[1].tolist() == [0.6, 0.8]


def test_what_cannot_be_normalised():
    frozen = np.ones((2, 2))
    frozen.flags.writeable = False
    for call, error, text in (
        (lambda: normalize_(frozen), ValueError, "weight is read-only"),
        (lambda: normalize_(np.ones((2, 2)), max_norm=-1), ValueError, "max_norm must be >= 0, got -1"),
        (lambda: normalize_(np.ones((2, 2), int)), TypeError, "weight must"),
    ):
        with pytest.raises(error, match=text):
            call()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cosines(rng, dtype):
    a, b = rng.standard_normal((6, 1, 5)).astype(dtype), rng.standard_normal((4, 5)).astype(dtype)
    with unchanged(a, b):
        cosines = cosine_similarity(a, b)
    wanted = (a * b).sum(-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))
    assert (cosines.shape, cosines.dtype) == ((6, 4), np.dtype(dtype))
    np.testing.assert_allclose(cosines, wanted, rtol=1e-5 if dtype == "float32" else 1e-13)
    assert cosine_similarity([0.0, 0.0], [1.0, 2.0]) == 0
    assert cosine_similarity([1e-200, 0.0], [1e200, 0.0]) == 1
    assert abs(cosine_similarity(a, a)).max() <= 1
    assert cosine_similarity([3, 4], [4, 3]) == pytest.approx(0.96)
    with pytest.raises(ValueError, match="a and b must have one width, got 2 and 3"):
        cosine_similarity([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(TypeError, match="a must be real"):
        cosine_similarity([1j], [1.0])


def by_hand(weight, query, metric):
    weight, query = weight.astype(float), query.astype(float)
    if metric == "dot":
        return query @ weight.T
    if metric == "euclidean":
        return -np.linalg.norm(query[:, np.newaxis] - weight, axis=-1)
    return query @ weight.T / (np.linalg.norm(query, axis=1)[:, np.newaxis] * np.linalg.norm(weight, axis=1))


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_neighbours_are_those_of_all_scores(rng, metric, dtype):
    weight = rng.standard_normal((10_000, 6)).astype(dtype)  # more than one block
    query = rng.standard_normal((5, 6)).astype(dtype)
    with unchanged(weight, query):
        found = nearest(weight, query, k=7, metric=metric)
    scores = by_hand(weight, query, metric)
    assert found.rows.shape == found.scores.shape == (5, 7)
    for rows, got, all_scores in zip(found.rows, found.scores, scores, strict=True):
        best = np.sort(all_scores)[::-1][:7]
        np.testing.assert_allclose(got, best, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(all_scores[rows], best, rtol=1e-3, atol=2e-3)
        assert len(set(rows.tolist())) == 7
    if dtype == "float64":
        assert np.array_equal(found.rows, np.argsort(-scores, axis=1, kind="stable")[:, :7])


def test_of_equal_scores_the_lower_row_comes_first():
    weight = np.ones((9000, 2))
    assert nearest(weight, [1.0, 1.0], k=3).rows.tolist() == [0, 1, 2]
    assert nearest(weight, [1.0, 1.0], k=3, exclude=[1, 0]).rows.tolist() == [2, 3, 4]


def test_shapes_and_ends():
    weight = np.eye(3)
    assert nearest(weight, weight[1], k=10).rows.tolist() == [1, 0, 2]
    assert nearest(weight, np.ones((2, 2, 3)), k=2).rows.shape == (2, 2, 2)
    assert nearest(np.empty((0, 3)), [1.0, 0, 0]).rows.shape == (0,)
    assert nearest(weight, np.empty((0, 3))).rows.shape == (0, 3)
    assert nearest(weight, weight[0], exclude=[0, 1, 2]).rows.shape == (0,)
    rows = nearest(np.array([[np.nan], [1.0], [-1.0]]), [1.0], metric="dot").rows
    assert rows.tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"k": 0}, ValueError, "k must be >= 1, got 0"),
        ({"metric": "l1"}, ValueError, "metric must be one of 'cosine', 'dot', 'euclidean', got 'l1'"),
        ({"query": np.ones(2)}, ValueError, "query must have width 3, got 2"),
        ({"query": [1j, 0, 0]}, TypeError, "query must be real"),
        ({"query": 1.0}, ValueError, r"query must have at least one axis, got shape \(\)"),
        ({"exclude": [3]}, IndexError, out_of_range(3, 3, 3, 0)),
        ({"exclude": [0.5]}, TypeError, "must be integers"),
    ],
)
def test_errors(options, error, text):
    with pytest.raises(error, match=text):
        nearest(np.eye(3), **{"query": np.ones(3), **options})


def test_no_array_of_all_scores(rng):
    weight, query = rng.standard_normal((200_000, 4), dtype=np.float32), rng.standard_normal((32, 4), dtype=np.float32)
    nearest(weight, query)
    tracemalloc.start()
    nearest(weight, query)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 * 200_000 * 4 / 4


def test_a_bar_is_shown_where_it_is_asked_for(capsys):
    nearest(np.eye(3), np.ones(3), progress=True)
    assert "nearest" in capsys.readouterr().err
    nearest(np.eye(3), np.ones(3))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_distances_of_what_is_far_from_zero(rng, dtype, offset):
    weight = (offset + 0.01 * rng.standard_normal((5000, 8))).astype(dtype)
    query = weight[:20]
    found = nearest(weight, query, k=5, metric="euclidean")
    scores = by_hand(weight, query, "euclidean")
    best = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    np.testing.assert_allclose(found.scores, np.take_along_axis(scores, best, 1), rtol=1e-4, atol=1e-6)
    assert (found.rows == best).mean() > 0.99


def test_distances_whose_squares_leave_single_precision():
    weight = np.array([[1e20, 0], [1.1e20, 0], [3e20, 0]], np.float32)
    found = nearest(weight, weight[1], k=3, metric="euclidean")
    assert found.rows.tolist() == [1, 0, 2]
    np.testing.assert_allclose(found.scores, [0, -1e19, -1.9e20], rtol=1e-5)


def test_tables_without_columns():
    assert nearest(np.ones((3, 0)), np.ones((2, 0)), k=2).rows.tolist() == [[0, 1], [0, 1]]
    assert cosine_similarity(np.ones((3, 0)), np.ones((3, 0))).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match=r"^a and b must broadcast against each other, got \(2, 3\) and \(4, 3\)$"):
        cosine_similarity(np.ones((2, 3)), np.ones((4, 3)))
