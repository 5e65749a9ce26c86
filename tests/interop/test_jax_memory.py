"""JAX's arrays are read where they lie, by operations and in compiled code; and no callback waits for ever."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

import fastemb

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy

from fastemb.interop import _jax_host  # noqa: E402  JAX has to be there
from fastemb.interop.jax import embedding, embedding_bag  # noqa: E402

from .lookups import some_ids, whole  # noqa: E402

IDS, OF = np.array([[3, 9, 3], [0, 1, 9]]), np.ones((2, 3, 4), np.float32)


@pytest.fixture(scope="module")
def table():
    """(1_000_000, 4): sixteen megabytes."""
    return jnp.arange(4_000_000, dtype=jnp.float32).reshape(-1, 4)


READING = {
    "gather": lambda table, ids, of: fastemb.gather(table, ids),
    "one_hot": lambda table, ids, of: fastemb.one_hot(ids, 10),
    "embedding_grad": lambda table, ids, of: fastemb.embedding_grad(ids, of, 10).to_dense(),
    "embedding_bag": lambda table, ids, of: fastemb.embedding_bag(table, ids),
    "embedding_bag_grad": lambda table, ids, of: fastemb.embedding_bag_grad(table, ids, None, of[:, 0]).values,
    "embedding_bag_weight_grad": lambda table, ids, of: fastemb.embedding_bag_weight_grad(
        table, ids, None, of[:, 0], per_sample_weights=of[:, :, 0]
    ),
    "nearest": lambda table, ids, of: fastemb.nn.nearest(table[:10], of[0], k=2).rows,
}


@pytest.mark.parametrize("name", READING)
def test_reading_operations_take_arrays_of_jax_and_copy_no_table(table, name):
    operation = READING[name]
    wanted = operation(np.asarray(table), IDS, OF)
    given = table, jnp.asarray(IDS), jnp.asarray(OF)
    operation(*given)  # what is compiled or kept is there now
    tracemalloc.start()
    found = operation(*given)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert type(found) is np.ndarray
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(found, wanted)
    assert peak < table.nbytes / 16


def test_an_array_of_jax_is_not_written():
    table = whole((4, 2))
    for call in (
        lambda: fastemb.scatter_add(table, [0], np.ones((1, 2), np.float32)),
        lambda: fastemb.renorm_(table, [0], 1.0),
        lambda: fastemb.gather(np.ones((3, 2), np.float32), [0], out=jnp.ones((1, 2))),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()
    np.testing.assert_array_equal(table, whole((4, 2)))


def test_compiled_code_hands_over_the_memory_of_the_table(table, monkeypatch):
    seen = []

    def see(weight, ids, **options):
        seen.append((weight.ctypes.data, ids.dtype, options.keys()))
        return fastemb.gather(weight, ids, **options)

    monkeypatch.setattr(_jax_host, "gather", see)
    rows = jax.jit(embedding)(table, jnp.asarray(IDS))
    np.testing.assert_array_equal(rows, np.asarray(table)[IDS])
    assert seen == [(table.unsafe_buffer_pointer(), np.int32, {"out"})]


def test_an_error_on_the_host_is_one_of_the_computation(monkeypatch):
    """Nothing is swallowed, KeyboardInterrupt neither, and the next call is right again."""
    for error in (MemoryError("no room"), KeyboardInterrupt()):
        with monkeypatch.context() as patch:
            patch.setattr(_jax_host, "gather", lambda *_, **__: raise_(error))  # noqa: B023
            with pytest.raises(jax.errors.JaxRuntimeError, match=str(error) or "KeyboardInterrupt"):
                embedding(whole((5, 2)), some_ids(3) % 5).block_until_ready()
    np.testing.assert_array_equal(embedding(whole((5, 2)), [1]), whole((5, 2))[1:2])


def raise_(error):
    raise error


MANY = """
import os
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import jax, jax.numpy as jnp
from fastemb.interop.jax import embedding, embedding_bag

@jax.jit
def busy(table):
    for _ in range(3):
        table = jnp.sin(table) + 1
    return table

@jax.jit
def step(table, ids):
    def loss(table):
        return sum((embedding(table, ids + k) ** 2).sum() + embedding_bag(table, ids[None] + k).sum() for k in range(3))
    return table - 1e-6 * jax.grad(loss)(table)

table, ids = jnp.ones((100_000, 32)), jnp.arange(20_000) % 1000
for _ in range(4):
    table = step(busy(table), ids)
print(bool(jnp.isfinite(table).all()))
"""


def test_large_arrays_in_a_loop_on_one_core():
    """There a callback that waits for JAX waits for the only thread of its pool, which is its own: for ever."""
    found = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, timeout=120, check=False)
    assert found.stdout == "True\n", found.stderr


def test_large_bags():
    table, ids = whole((100_000, 16)), np.random.default_rng(0).integers(0, 100_000, (4096, 16))
    found = jax.jit(lambda table, ids: embedding_bag(table, ids, mode="sum"))(table, ids)
    np.testing.assert_array_equal(found, np.asarray(table)[ids].sum(axis=1))
