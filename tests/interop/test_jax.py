"""Lookups in JAX, against ``jnp.take``: values, gradients and batches; whole numbers, so that sums are exact."""

import doctest
import importlib
import re

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy

from jax.experimental.checkify import checkify  # noqa: E402  JAX has to be there

from fastemb.interop.jax import check_indices, embedding  # noqa: E402

from .lookups import NUM_ROWS, WIDTH, exactly, gradient, some_ids, take, whole  # noqa: E402

# Rows


@pytest.mark.parametrize("shape", [(), (0,), (7,), (2, 5), (2, 3, 4)])
def test_rows_and_their_gradient(x64, shape):
    dtype, index_dtype = ("float64", "int64") if x64 else ("float32", "int32")
    weight, ids, of = (
        whole((NUM_ROWS, WIDTH), 0, dtype),
        some_ids(shape, 0, index_dtype),
        whole((*shape, WIDTH), 1, dtype),
    )
    wanted = np.zeros(weight.shape, dtype)
    np.add.at(wanted, np.asarray(ids), of)
    exactly(embedding(weight, ids), np.asarray(weight)[ids])
    exactly(jax.jit(embedding)(weight, ids), np.asarray(weight)[ids])
    exactly(jax.jit(lambda *a: gradient(embedding, *a))(weight, ids, of), wanted)


def test_gradients_are_those_of_take(x64):
    dtype = "float64" if x64 else "float32"
    weight, ids, of = whole((NUM_ROWS, WIDTH), 0, dtype), some_ids((4, 7)), whole((4, 7, WIDTH), 1, dtype)
    exactly(gradient(embedding, weight, ids, of), gradient(take, weight, ids, of))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_tables_of_half_the_width(dtype):
    weight, ids = whole((NUM_ROWS, WIDTH), dtype=jnp.dtype(dtype)), some_ids((40,))
    exactly(embedding(weight, ids), take(weight, ids))
    of = whole((40, WIDTH), 1, jnp.dtype(dtype))
    exactly(gradient(embedding, weight, ids, of), gradient(take, weight, ids, of))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_dtypes_of_ids(dtype):
    weight, ids = whole((NUM_ROWS, WIDTH)), some_ids((7,), dtype=dtype)
    exactly(embedding(weight, ids), take(weight, ids))


@pytest.mark.parametrize("weight_shape", [(0, 3), (4, 0), (0, 0), (1, 1)])
@pytest.mark.parametrize("length", [0, 2])
def test_small_tables(weight_shape, length):
    weight, ids = whole(weight_shape), jnp.zeros(length, int)
    of = whole((length, weight_shape[1]), 1)
    rows, grad = jax.jit(lambda *a: (embedding(*a[:2]), gradient(embedding, *a)))(weight, ids, of)
    assert rows.shape == of.shape
    assert grad.shape == weight.shape
    assert np.isnan(rows).all() if weight_shape[0] == 0 else (rows == weight[:1]).all()
    assert (grad[:1] == of.sum(axis=0)).all()
    assert (grad[1:] == 0).all()


@pytest.mark.parametrize("padding", [3, 3 - NUM_ROWS])
def test_padding_gets_no_gradient(padding):
    weight, ids, of = whole((NUM_ROWS, WIDTH)), np.array([[3, 9, 3], [0, 3, 9]]), whole((2, 3, WIDTH), 1)
    padded = lambda weight, ids: embedding(weight, ids, padding_idx=padding)  # noqa: E731
    wanted = np.zeros(weight.shape, np.float32)
    np.add.at(wanted, ids, of)
    assert wanted[3].any()
    wanted[3] = 0
    exactly(padded(weight, ids), np.asarray(weight)[ids])
    exactly(gradient(padded, weight, ids, of), wanted)


@pytest.mark.parametrize("bad", [NUM_ROWS, NUM_ROWS + 1, -1, -NUM_ROWS, 2**31 - 1, -(2**31)])
def test_out_of_range_is_nan_and_has_no_gradient(bad):
    weight, ids, of = whole((NUM_ROWS, WIDTH)), np.array([4, bad, 4, 9]), whole((4, WIDTH), 1)
    rows, grad, tangent = all_of_it(weight, ids, of)
    expected = np.asarray(weight)[[4, 0, 4, 9]]
    expected[1] = np.nan
    exactly(rows, expected)
    exactly(tangent, np.nan_to_num(expected))
    wanted = np.zeros(weight.shape, np.float32)
    np.add.at(wanted, [4, 4, 9], np.asarray(of)[[0, 2, 3]])
    exactly(grad, wanted)


@jax.jit
def all_of_it(weight, ids, of):
    tangent = jax.jvp(lambda weight: embedding(weight, ids), (weight,), (weight,))[1]
    return embedding(weight, ids), gradient(embedding, weight, ids, of), tangent


@pytest.mark.parametrize("huge", [2**31, 2**32 + 4, -(2**32) + 4, 2**63 - 1, 2**64 - 1, 2**70])
def test_numbers_that_jax_would_cut_off(x64, huge):
    weight = whole((NUM_ROWS, WIDTH))
    forms: list = [[4, huge]]
    forms += [np.array([4, huge], dtype) for dtype in (np.int64, np.uint64) if 0 <= huge <= np.iinfo(dtype).max]
    for ids in forms:
        found = embedding(weight, ids)
        exactly(found[0], weight[4])
        assert jnp.isnan(found[1]).all()


# Batches and derivatives


def in_batches(function, axes):
    """Values, the gradient of all of a batch, and that of each of its elements, compiled once."""
    batch = jax.vmap(function, axes)
    each = jax.vmap(lambda *a: gradient(function, *a), (*axes, 0))
    return jax.jit(lambda *a: (batch(*a[:2]), gradient(batch, *a), each(*a)))


@pytest.mark.parametrize("axes", [(None, 0), (None, 1), (0, None), (1, None), (2, None), (0, 0), (2, 1)])
def test_batches(axes):
    shape = [NUM_ROWS, WIDTH]
    if axes[0] is not None:
        shape.insert(axes[0], 4)
    weight, ids, of = (
        whole(shape),
        some_ids((4, 4)),
        whole((4, 4, WIDTH) if axes[1] is not None else (4, 4, 4, WIDTH), 1),
    )
    ours, theirs = in_batches(embedding, axes), in_batches(take, axes)
    for given in (ids, ids.at[1, 2].set(NUM_ROWS + 2).at[3, 0].set(NUM_ROWS)):
        for found, wanted in zip(ours(weight, given, of), theirs(weight, given, of), strict=True):
            exactly(found, wanted)


def test_batches_of_batches():
    weight, ids, of = whole((2, NUM_ROWS, WIDTH)), some_ids((3, 5)), whole((2, 3, 5, WIDTH), 1)
    ours, theirs = (in_batches(jax.vmap(f, (None, 0)), (0, None)) for f in (embedding, take))
    for found, wanted in zip(ours(weight, ids, of), theirs(weight, ids, of), strict=True):
        exactly(found, wanted)


def test_a_batch_with_one_table_makes_one_gradient():
    weight, ids = whole((NUM_ROWS, WIDTH)), some_ids((7, 5))
    loss = lambda weight: jax.vmap(lambda ids: embedding(weight, ids))(ids).sum()  # noqa: E731
    made = str(jax.make_jaxpr(jax.grad(loss))(weight))
    assert f"f32[{NUM_ROWS},{WIDTH}]" in made
    assert f"[7,{NUM_ROWS},{WIDTH}]" not in made


def test_derivatives_of_second_order():
    weight, ids = whole((4, 2)), jnp.array([0, 2, 0, 3])
    losses = [lambda weight, f=f: (f(weight, ids) ** 3).sum() for f in (embedding, take)]
    wanted = jax.jit(jax.hessian(losses[1]))(weight)
    for twice in (jax.hessian, lambda f: jax.jacrev(jax.grad(f)), lambda f: jax.jacfwd(jax.jacfwd(f))):
        exactly(jax.jit(twice(losses[0]))(weight), wanted)


# Errors and text


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda w, i: embedding(w[0], i), ValueError, r"weight must be 2-D \(N, D\), got shape \(3,\)"),
        (lambda w, i: embedding(w.astype(int), i), TypeError, "weight must be float16, .* or float64, got int32"),
        (lambda w, i: embedding(w, i.astype(float)), TypeError, "indices must be integers, got float32"),
        (lambda w, i: embedding(w, [0.5]), TypeError, "indices must be integers, got float64"),
        (lambda w, i: embedding(w, i > 0), TypeError, "indices must be integers, got bool"),
        (lambda w, i: embedding(w, i, padding_idx=10), ValueError, "padding_idx"),
    ],
)
@pytest.mark.parametrize("jit", [False, True])
def test_errors(call, error, text, jit):
    with pytest.raises(error, match=text):
        (jax.jit(call) if jit else call)(whole((NUM_ROWS, WIDTH)), jnp.array([0, 1]))


def test_an_error_by_checkify():
    def look_up(weight, ids):
        check_indices(ids, weight.shape[0])
        return embedding(weight, ids)

    weight = whole((5, WIDTH))
    for compiled in (checkify(jax.jit(look_up)), jax.jit(checkify(look_up))):
        for ids in ([0, 4], []):
            error, rows = compiled(weight, jnp.array(ids, int))
            assert error.get() is None
            exactly(rows, take(weight, jnp.array(ids, int)))
        error, _ = compiled(weight, jnp.array([[0, -1], [7, 2]]))
        text = re.escape("Embedding indices must be in [0, 5), but got values in [-1, 7] (first at position 1).")
        with pytest.raises(jax.experimental.checkify.JaxRuntimeError, match=text):
            error.throw()


def test_examples():
    result = doctest.testmod(importlib.import_module("fastemb.interop.jax"))
    assert result.attempted > 0
    assert result.failed == 0
