"""Problems for JAX, of whole numbers, so that sums are exact, and ``jnp.take`` as the oracle."""

import jax
import jax.numpy as jnp
import numpy as np

NUM_ROWS, WIDTH = 10, 3


def whole(shape, seed=0, dtype="float32"):
    return jnp.asarray(np.random.default_rng(seed).integers(-8, 8, shape).astype(dtype))


def some_ids(shape, seed=0, dtype="int32"):
    return jnp.asarray(np.random.default_rng(seed).integers(0, NUM_ROWS, shape).astype(dtype))


def take(weight, ids):
    return jnp.take(weight, ids, axis=0)


def gradient(function, weight, ids, of):
    """That of a lookup, given that of its result."""
    return jax.vjp(lambda weight: function(weight, ids), weight)[1](of)[0]


def exactly(found, wanted):
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_array_equal(found, wanted)
