"""Pooled lookups in JAX, against rows of ``jnp.take`` and against fastemb's own on NumPy arrays."""

import numpy as np
import pytest

import fastemb

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy

from fastemb.interop.jax import embedding_bag  # noqa: E402  JAX has to be there

from .lookups import NUM_ROWS, WIDTH, exactly, some_ids, take, whole  # noqa: E402

LINEAR = ["sum", "mean", "sqrtn"]


def pooled(weight, ids, weights, mode):
    """The definition, for bags of one length."""
    total = weights.sum(axis=1) if mode == "mean" else jnp.sqrt((weights**2).sum(axis=1))
    found = (take(weight, ids) * weights[..., None]).sum(axis=1)
    return found if mode == "sum" else found / total[:, None]


BOUNDS = {
    "2-D": {},
    "offsets": {"offsets": [0, 4, 8]},
    "last offset": {"offsets": [0, 4, 8, 12], "include_last_offset": True},
}


@pytest.mark.parametrize(
    ("mode", "bounds"), [*((mode, "2-D") for mode in LINEAR), ("mean", "offsets"), ("mean", "last offset")]
)
def test_values_and_gradients(x64, mode, bounds):
    dtype = "float64" if x64 else "float32"
    ids = np.array([[1, 4, 4, 0], [9, 0, 2, 3], [5, 5, 5, 5]])  # four of a bag: means of whole numbers are exact
    weight, ones, of = whole((NUM_ROWS, WIDTH), 0, dtype), np.ones(ids.shape, dtype), whole((3, WIDTH), 1, dtype)
    flat = ids.reshape(-1) if BOUNDS[bounds] else ids

    def both(function):
        return jax.jit(lambda weight, of: (function(weight), jax.vjp(function, weight)[1](of)[0]))(weight, of)

    found = both(lambda weight: embedding_bag(weight, flat, mode=mode, **BOUNDS[bounds]))
    wanted = both(lambda weight: pooled(weight, ids, ones, mode))
    exactly(found[0], wanted[0])
    exactly(found[1], wanted[1])


@pytest.mark.parametrize("mode", LINEAR)
def test_weights_and_second_derivatives(mode):
    weight, ids, of = whole((NUM_ROWS, 1)), some_ids((3, 4)), whole((3, 1), 1)
    weights = np.array([[1.0, 2, 3, 2], [4, 1, 2, 1], [2, 2, 2, 2]], np.float32)

    def all_of(function):
        loss = lambda *a: (function(*a) * of).sum()  # noqa: E731
        grad = jax.grad(loss, (0, 1))
        return jax.tree.leaves(jax.jit(lambda *a: (grad(*a), jax.jacrev(grad, (0, 1))(*a)))(weight, weights))

    found = all_of(lambda weight, w: embedding_bag(weight, ids, mode=mode, per_sample_weights=w))
    wanted = all_of(lambda weight, w: pooled(weight, ids, w, mode))
    assert len(found) == 6
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


IDS, OFFSETS = np.array([3, 3, 1, 2, 4, 4, 3, 0, 1]), np.array([0, 2, 2, 6, 9])
"""Bags that are empty, that hold the row 3 alone, and with `WEIGHTS` one whose weights add up to zero."""

WEIGHTS = np.array([1, 2, 1, -1, 2, -2, 4, 1, 3])


@pytest.mark.parametrize("mode", LINEAR)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("padding", [None, 3])
def test_same_as_on_numpy_arrays(mode, weighted, padding):
    dtype = "float32"
    weight, of = (np.asarray(whole(shape, 0, dtype)) for shape in ((NUM_ROWS, WIDTH), (5, WIDTH)))
    weights = WEIGHTS.astype(dtype) if weighted else None
    given = {"mode": mode, "padding_idx": padding, "per_sample_weights": weights}

    @jax.jit
    def all_of(weight, weights, of):
        options = {"mode": mode, "padding_idx": padding}
        function = lambda *a: embedding_bag(a[0], IDS, OFFSETS, per_sample_weights=a[1], **options)  # noqa: E731
        alone = embedding_bag(weight, IDS, OFFSETS, per_sample_weights=weights if weighted else None, **options)
        return alone, *jax.vjp(function, weight, weights)[1](of)

    values, grad, grad_of_weights = all_of(weight, np.ones(IDS.size, dtype) if weights is None else weights, of)
    rtol = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(values, fastemb.embedding_bag(weight, IDS, OFFSETS, **given), rtol=rtol)
    wanted = fastemb.embedding_bag_grad(weight, IDS, OFFSETS, of, **given).to_dense()
    np.testing.assert_allclose(grad, wanted, rtol=rtol, atol=rtol)
    wanted = fastemb.embedding_bag_weight_grad(weight, IDS, OFFSETS, of, **given)
    np.testing.assert_allclose(grad_of_weights, wanted, rtol=16 * rtol, atol=16 * rtol)


@pytest.mark.parametrize("padding", [None, 3])
def test_greatest_elements(x64, padding):
    """Of equal elements the first has the gradient, where ``jnp.max`` shares it out."""
    dtype = "float64" if x64 else "float32"
    weight, of = (np.asarray(whole(shape, 0, dtype)) for shape in ((NUM_ROWS, WIDTH), (5, WIDTH)))
    given = {"mode": "max", "padding_idx": padding}
    function = lambda weight: embedding_bag(weight, IDS, OFFSETS, **given)  # noqa: E731
    values, grad = jax.jit(lambda w, of: (function(w), jax.vjp(function, w)[1](of)[0]))(weight, of)
    exactly(values, fastemb.embedding_bag(weight, IDS, OFFSETS, **given))
    exactly(grad, fastemb.embedding_bag_grad(weight, IDS, OFFSETS, of, **given).to_dense())


@pytest.mark.parametrize("mode", [*LINEAR, "max"])
def test_a_bag_with_a_bad_index(mode):
    """It is NaN; its gradient is that of a bag of the others, but for what "mean" and "sqrtn" divide by."""
    weight, bad = whole((NUM_ROWS, WIDTH)), jnp.array([1, 4, NUM_ROWS, 2, 2, 7, -1, 7])
    of = np.array([[1.0], [3 if mode in ("sum", "max") else 0], [0], [3]], np.float32) * np.ones((4, WIDTH), np.float32)

    @jax.jit
    def both(weight, ids, offsets):
        function = lambda weight: embedding_bag(weight, ids, offsets, mode=mode, padding_idx=2)  # noqa: E731
        return function(weight), jax.vjp(function, weight)[1](of)[0]

    found, grad = both(weight, bad, jnp.array([0, 2, 5, 7]))
    wanted, wanted_grad = both(weight, jnp.array([1, 4, 7, 7]), jnp.array([0, 2, 2, 3]))
    assert np.isnan(found[1:3]).all()
    exactly(found[np.array([0, 3])], wanted[np.array([0, 3])])
    exactly(grad, wanted_grad)


@pytest.mark.parametrize("mode", ["mean", "max"])
@pytest.mark.parametrize("axes", [(None, 0, None), (0, None, None), (0, 0, 0), (None, None, 0)])
def test_batches(mode, axes):
    weight = whole((4, NUM_ROWS, WIDTH) if axes[0] == 0 else (NUM_ROWS, WIDTH))
    ids, of = some_ids((4, 6) if axes[1] == 0 else (6,)), whole((4, 3, WIDTH), 1)
    offsets = jnp.array([[0, 2, 2], [0, 0, 6], [0, 1, 4], [0, 3, 3]])
    offsets = offsets if axes[2] == 0 else offsets[0]

    def one(weight, ids, offsets, of):
        function = lambda weight: embedding_bag(weight, ids, offsets, mode=mode, padding_idx=5)  # noqa: E731
        return function(weight), jax.vjp(function, weight)[1](of)[0]

    values, grads = jax.jit(jax.vmap(one, (*axes, 0)))(weight, ids, offsets, of)
    alone = jax.jit(one)
    for k in range(4):
        mine = [a if axis is None else a[k] for a, axis in zip((weight, ids, offsets, of), (*axes, 0), strict=True)]
        value, grad = alone(*mine)
        np.testing.assert_allclose(values[k], value, rtol=1e-6)
        np.testing.assert_allclose(grads[k], grad, rtol=1e-6)


def test_a_batch_with_one_table_makes_one_gradient():
    weight, ids, of = whole((NUM_ROWS, WIDTH)), some_ids((4, 6)), whole((4, 2, WIDTH), 1)
    batch = lambda weight: jax.vmap(lambda ids: embedding_bag(weight, ids, [0, 4], mode="sum"))(ids)  # noqa: E731
    grad = jax.jit(lambda weight: jax.vjp(batch, weight)[1](of)[0])
    wanted = np.zeros(weight.shape, np.float32)
    np.add.at(wanted, ids, np.repeat(of, [4, 2], axis=1))
    exactly(grad(weight), wanted)
    assert f"[4,{NUM_ROWS},{WIDTH}]" not in str(grad.trace(weight).jaxpr)


ONE = np.array([[0, 1]])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda w: embedding_bag(w, ONE[0]), ValueError, "offsets must be given for 1-D indices"),
        (lambda w: embedding_bag(w, ONE, [0]), ValueError, "offsets must be None for 2-D indices"),
        (lambda w: embedding_bag(w, ONE[None]), ValueError, "indices must be 1-D with offsets, or 2-D"),
        (lambda w: embedding_bag(w, ONE[0], ONE), ValueError, "offsets must be 1-D, got shape"),
        (lambda w: embedding_bag(w, ONE[0], ONE[0, :0]), ValueError, "offsets must not be empty with 2 indices"),
        (lambda w: embedding_bag(w, ONE[0], [0.5]), TypeError, "offsets must be integers"),
        (lambda w: embedding_bag(w, ONE, mode="min"), ValueError, "mode must be one of"),
        (
            lambda w: embedding_bag(w.astype("float16"), ONE),
            TypeError,
            "must be float32 or float64, got float16",
        ),
        (lambda w: embedding_bag(w, ONE, per_sample_weights=w), ValueError, r"must have shape \(1, 2\), got \(10, 3\)"),
        (lambda w: embedding_bag(w, ONE, per_sample_weights=np.ones((1, 2))), TypeError, "float32, got float64"),
        (lambda w: embedding_bag(w, ONE, per_sample_weights=ONE > 0), TypeError, "float32, got bool"),
        (lambda w: embedding_bag(w, ONE, mode="max", per_sample_weights=[[1, 1]]), ValueError, "mode 'max'"),
    ],
)
@pytest.mark.parametrize("jit", [False, True])
def test_errors(call, error, text, jit):
    with pytest.raises(error, match=text):
        (jax.jit(call) if jit else call)(whole((NUM_ROWS, WIDTH)))


@pytest.mark.parametrize(
    ("offsets", "last", "text"),
    [
        ([1], False, "begin with 0, got 1"),
        ([0, 3, 2], False, "got 2 after 3 at position 2"),
        ([0, 2], True, "end with"),
    ],
)
def test_wrong_offsets_are_an_error_of_the_computation(offsets, last, text):
    function = jax.jit(lambda weight, offsets: embedding_bag(weight, [1, 2, 3], offsets, include_last_offset=last))
    with pytest.raises(jax.errors.JaxRuntimeError, match=text):
        function(whole((NUM_ROWS, WIDTH)), jnp.array(offsets)).block_until_ready()
