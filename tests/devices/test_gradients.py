"""Scatter-add, gradients of lookups, and their arithmetic on every device."""

import numpy as np
import pytest

import fastemb


def problem(rng, dtype=np.float32, size=40, width=6):
    ids = rng.integers(0, 9, size)
    return ids, rng.standard_normal((size, width)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("update_dtype", "width"), [("int16", 6), ("float16", 8), ("float32", 5)])
def test_scatter_add(device, rng, dtype, update_dtype, width):
    table, ids = rng.standard_normal((9, width)).astype(dtype), rng.integers(0, 9, (4, 10))
    updates = rng.integers(-9, 9, (4, 10, width)).astype(update_dtype)
    target = device.put(table)
    assert fastemb.scatter_add(target, device.put(ids), device.put(updates)) is target
    device.same_bits(target, fastemb.scatter_add(table, ids, updates))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_scatter_add_in_any_order(device, rng, dtype):
    """Whole numbers have one sum."""
    table, ids = rng.integers(-9, 9, (9, 6)).astype(dtype), rng.integers(0, 9, 40)
    updates = rng.integers(-9, 9, (40, 6)).astype("int8")
    target = device.put(table)
    assert fastemb.scatter_add(target, device.put(ids), device.put(updates), deterministic=False) is target
    device.same_bits(target, fastemb.scatter_add(table, ids, updates))
    with pytest.raises(IndexError):
        fastemb.scatter_add(target, [9], updates[:1].tolist(), deterministic=False)


@pytest.mark.parametrize("given", [{}, {"padding_idx": 3}, {"padding_idx": -1, "scale_grad_by_freq": True}])
@pytest.mark.parametrize("dtype", ["int16", "float16", "float32", "float64"])
def test_embedding_grad(device, rng, dtype, given):
    ids, grad = problem(rng)
    grad = (8 * grad).astype(dtype)
    expected = fastemb.embedding_grad(ids, grad, 9, **given)
    device.same_rows(fastemb.embedding_grad(device.put(ids), device.put(grad), 9, **given), expected)


def test_gradients_of_any_strides(device, rng):
    ids, grad = problem(rng)
    expected = fastemb.embedding_grad(ids[::2], grad.T[:, ::2].T, 9)
    device.same_rows(fastemb.embedding_grad(device.put(ids)[::2], device.put(grad).T[:, ::2].T, 9), expected)


def test_long_runs(device, rng):
    ids, grad = problem(rng, size=3000)
    ids[:] = ids > 0
    device.same_rows(fastemb.embedding_grad(device.put(ids), device.put(grad), 9), fastemb.embedding_grad(ids, grad, 9))


@pytest.mark.parametrize("shape", [(0,), (), (2, 0, 3)])
def test_few_indices(device, shape):
    ids, grad = np.full(shape, 4), np.ones((*shape, 5), np.float32)
    device.same_rows(fastemb.embedding_grad(device.put(ids), device.put(grad), 9), fastemb.embedding_grad(ids, grad, 9))
    table = np.zeros((9, 5))
    target = device.put(table)
    fastemb.scatter_add(target, device.put(ids), device.put(grad))
    device.same_bits(target, fastemb.scatter_add(table, ids, grad))


def test_numbers_go_where_the_array_is(device, rng):
    ids, grad = problem(rng, size=3)
    expected = fastemb.embedding_grad(ids, grad, 9)
    device.same_rows(fastemb.embedding_grad(ids.tolist(), device.put(grad), 9), expected)
    expected = fastemb.embedding_grad(ids, grad.tolist(), 9)
    device.same_rows(fastemb.embedding_grad(device.put(ids), grad.tolist(), 9), expected)


@pytest.mark.parametrize("bad", [-1, 9, 2**40])
def test_nothing_is_changed_by_an_index_out_of_range(device, rng, bad):
    ids, grad = problem(rng)
    ids[7] = bad
    target = device.put(np.full((9, 6), 0.5, np.float32))
    for call in (
        lambda: fastemb.scatter_add(target, device.put(ids), device.put(grad)),
        lambda: fastemb.renorm_(target, device.put(ids), 0.1),
        lambda: fastemb.embedding_grad(device.put(ids), device.put(grad), 9),
    ):
        with pytest.raises(IndexError, match=r"\(first at position 7\)"):
            call()
    device.same_bits(target, np.full((9, 6), 0.5, np.float32))


@pytest.mark.parametrize("norm_type", [1, 2, 3.5, np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_renorm(device, rng, dtype, norm_type):
    table, ids = rng.standard_normal((9, 6)).astype(dtype), np.array([[4, 2], [4, 8]], np.uint8)
    weight = device.put(table)
    assert fastemb.renorm_(weight, device.put(ids), 0.75, norm_type) is weight
    found = weight.get() if device.on_gpu else weight
    fastemb.renorm_(table, ids, 0.75, norm_type)
    np.testing.assert_allclose(found, table, rtol=4 * np.finfo(dtype).eps)
    untouched = [0, 1, 3, 5, 6, 7]
    np.testing.assert_array_equal(found[untouched], table[untouched])


class TestRowGrad:
    """Arithmetic on gradients of some rows."""

    @pytest.fixture
    def pair(self, rng):
        first, second = (fastemb.embedding_grad(*problem(rng, size=5), 9) for _ in range(2))
        return first, second

    def put(self, device, grad):
        return fastemb.RowGrad(device.put(grad.rows), device.put(grad.values), grad.num_rows)

    def test_sum(self, device, pair):
        first, second = pair
        device.same_rows(self.put(device, first) + self.put(device, second), first + second)

    def test_dense(self, device, pair):
        device.same_bits(self.put(device, pair[0]).to_dense(), pair[0].to_dense())

    @pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30, np.nan, np.inf, 0.0])
    def test_norm_and_clipping(self, device, pair, scale):
        grad = fastemb.RowGrad(pair[0].rows, pair[0].values.astype(np.float64), 9)
        grad.values[:] *= scale * 1e-170 if scale == 1e-30 else scale * 1e170 if scale == 1e30 else scale
        on_device = self.put(device, grad)
        assert on_device.clip_norm_(0.5) == pytest.approx(grad.clip_norm_(0.5), rel=1e-14, nan_ok=True)
        assert on_device.norm() == pytest.approx(grad.norm(), rel=1e-14, nan_ok=True)

    def test_no_rows(self, device):
        grad = fastemb.RowGrad([], device.xp.zeros((0, 3), np.float32), 9)
        assert grad.norm() == 0.0
        device.same_bits(grad.to_dense(), np.zeros((9, 3), np.float32))

    @pytest.mark.parametrize(
        ("rows", "error", "text"),
        [
            ([2, 2], ValueError, "ascending and distinct, got 2 after 2 at position 1"),
            ([3, 9], ValueError, r"rows must be in \[0, 9\), got values in \[3, 9\]"),
            ([3.0, 4.0], TypeError, "rows must be integers, got float64"),
        ],
    )
    def test_wrong_rows(self, device, rows, error, text):
        with pytest.raises(error, match=text):
            fastemb.RowGrad(device.put(np.array(rows)), device.put(np.ones((2, 3))), 9)

    def test_to_and_fro(self, device, pair):
        moved = pair[0].to(device.name)
        device.same_rows(moved, pair[0])
        assert moved.to(device.name) is moved
        back = moved.to("cpu")
        np.testing.assert_array_equal(back.values, pair[0].values)
        np.testing.assert_array_equal(back.rows, pair[0].rows)
