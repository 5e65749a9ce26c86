"""The emulator does what a GPU does."""

import numpy as np
import pytest
from numba import njit, types

from fastemb.kernels.cuda.intrin import (
    ALL_LANES,
    atomic_add,
    atomic_cas,
    atomic_max,
    atomic_min,
    ballot,
    block_dim_x,
    block_x,
    cuda,
    ffs,
    full,
    lane,
    load,
    match_any,
    popc,
    red_add,
    shared_array,
    shuffle,
    shuffle_down,
    shuffle_up,
    shuffle_xor,
    store,
    sync_block,
    thread_x,
    thread_y,
    u32,
    u64,
)

from .emulator import Kernel
from .kernels import COUNT, F16, F32, F64, I32, I64, U32, gather_signature, make_gather, make_reversal, make_scatter

LAUNCHES = [(8, (8, 4)), (1, (32, 1), 7), (3, (5, 3), 11), (64, (1, 32), 2)]


def numbers(rng, n):
    return rng.standard_normal(n).astype(np.float32)


@pytest.mark.parametrize("launch", LAUNCHES, ids=str)
@pytest.mark.parametrize(("n", "columns"), [(4, 64), (4, 4), (2, 6), (1, 33)])
def test_gather(rng, n, columns, launch):
    weight, indices = numbers(rng, 20 * columns), rng.integers(0, 20, 77)
    out = np.full(77 * columns, np.nan, np.float32)
    kept = weight.copy(), indices.copy()
    Kernel(make_gather(n), gather_signature())[launch](out, weight, indices, 77, columns)
    np.testing.assert_array_equal(out.reshape(77, -1), weight.reshape(20, -1)[indices])
    np.testing.assert_array_equal(weight, kept[0])
    np.testing.assert_array_equal(indices, kept[1])


@pytest.mark.parametrize("table", [F64, I32, I64, U32], ids=str)
def test_gather_of_other_dtypes(rng, table):
    weight = rng.integers(0, 1000, 40).astype(str(table.dtype))
    indices, out = np.array([3, 0, 9], np.int32), np.zeros(12, weight.dtype)
    Kernel(make_gather(2), gather_signature(table, I32))[2, (1, 2)](out, weight, indices, 3, 4)
    np.testing.assert_array_equal(out.reshape(3, 4), weight.reshape(10, 4)[indices])


@pytest.mark.parametrize("at_once", [4, 2, 1])
def test_vector_reductions_add_every_update(rng, at_once):
    target, updates = np.zeros((9, 32), np.float32), rng.integers(-50, 50, (100, 32)).astype(np.float32)
    indices = rng.integers(0, 9, 100)
    expected = target.copy()
    np.add.at(expected, indices, updates)
    signature = (F32, F32, I64, COUNT, COUNT)
    Kernel(make_scatter(4, at_once), signature)[4, (8, 4), 3](target.ravel(), updates.ravel(), indices, 100, 32)
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_float16_is_storage(n):
    def twice(out, x):
        at = u64(thread_x() * u32(n))
        store(out, at, load(x, at, n))

    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    out32, back = np.zeros(1024, np.float32), np.zeros(1024, np.float16)
    widen, narrow = (
        (Kernel(twice, s) for s in ((F32, F16), (F16, F32))) if n <= 4 else (None, Kernel(twice, (F16, F16)))
    )
    for part in every.reshape(-1, 1024):
        if n == 8:
            narrow[1, 128](back, part)
        else:
            widen[1, 1024 // n](out32, part)
            np.testing.assert_array_equal(out32, part.astype(np.float32))
            narrow[1, 1024 // n](back, out32)
        np.testing.assert_array_equal(back, part)


def test_float16_is_rounded_to_nearest_even(rng):
    def narrow(out, x):
        store(out, thread_x() * u32(2), load(x, thread_x() * u32(2), 2))

    x = np.concatenate([numbers(rng, 1000) * 10.0 ** rng.integers(-9, 6, 1000), [65519, 65520, 1e30, -np.inf]])
    x = np.concatenate([x, 1 + np.arange(20) / 2048]).astype(np.float32)
    out = np.zeros(1024, np.float16)
    Kernel(narrow, (F16, F32))[1, 512](out, x)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out, x.astype(np.float16))


@pytest.mark.parametrize("seed", range(5))
def test_shared_memory(rng, seed):
    x = numbers(rng, 256)
    out = np.zeros_like(x)
    Kernel(make_reversal(True), (F32, F32))[4, 64, seed](out, x)
    np.testing.assert_array_equal(out.reshape(4, 64), x.reshape(4, 64)[:, ::-1])


def test_shared_memory_is_reached_by_vectors(rng):
    def kernel(out, x):
        block, at = shared_array(256, types.float32), thread_x() * u32(4)
        store(block, at, load(x, at, 4))
        sync_block()
        store(out, at, load(block, u64(252) - at, 4))

    x, out = numbers(rng, 256), np.zeros(256, np.float32)
    Kernel(kernel, (F32, F32))[1, 64, 5](out, x)
    np.testing.assert_array_equal(out.reshape(64, 4), x.reshape(64, 4)[::-1])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint32", "int64", "uint64"])
def test_shuffles(rng, dtype):
    def kernel(out, x):
        i = block_x() * block_dim_x() + thread_x()
        out[i] = shuffle_down(ALL_LANES, x[i], 3)
        out[i + 64] = shuffle_up(ALL_LANES, x[i], 5)
        out[i + 128] = shuffle_xor(ALL_LANES, x[i], 16)
        out[i + 192] = shuffle(ALL_LANES, x[i], 31 - lane())

    x = (rng.standard_normal(64) * 2.0**40).astype(dtype) if dtype[0] == "f" else rng.integers(0, 2**31, 64, dtype)
    if dtype.endswith("64") and dtype[0] != "f":
        x *= x.dtype.type(2**20)
    out, kind = np.zeros(256, dtype), getattr(types, dtype)[::1]
    Kernel(kernel, (kind, kind))[2, 32, 9](out, x)
    lanes, warps = np.arange(32), x.reshape(2, 32)
    down = warps[:, np.where(lanes + 3 < 32, lanes + 3, lanes)]
    up = warps[:, np.where(lanes >= 5, lanes - 5, lanes)]
    np.testing.assert_array_equal(out.reshape(4, 2, 32), [down, up, warps[:, lanes ^ 16], warps[:, ::-1]])


def test_votes_and_bits(rng):
    def kernel(out, x):
        i = block_x() * block_dim_x() + thread_x()
        lanes = ballot(ALL_LANES, x[i] > types.float32(0))
        below = u32((u32(1) << lane()) - u32(1))
        out[i], out[i + 96], out[i + 192] = lanes, popc(lanes & below), ffs(lanes)

    x, out = numbers(rng, 96), np.zeros(288, np.uint32)
    Kernel(kernel, (U32, F32))[1, 96](out, x)
    positive = (x > 0).reshape(3, 32)
    lanes = (positive << np.arange(32)).sum(axis=1)
    np.testing.assert_array_equal(out[:96], np.repeat(lanes, 32))
    np.testing.assert_array_equal(out[96:192].reshape(3, 32), np.cumsum(positive, axis=1) - positive)
    np.testing.assert_array_equal(out[192:], np.repeat(positive.argmax(axis=1) + 1, 32))


@pytest.mark.parametrize("keys", [I32, I64], ids=str)
def test_match(rng, keys):
    def kernel(out, x):
        i = block_x() * block_dim_x() + thread_x()
        out[i] = match_any(ALL_LANES, x[i])

    x = rng.integers(0, 5, 64).astype(str(keys.dtype))
    x[:32] *= 2 ** (x.dtype.itemsize * 8 - 4)
    out = np.zeros(64, np.uint32)
    Kernel(kernel, (U32, keys))[1, 64](out, x)
    warps = x.reshape(2, 32)
    same = (warps[:, :, None] == warps[:, None, :]) << np.arange(32)
    np.testing.assert_array_equal(out.reshape(2, 32), same.sum(axis=2))


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_atomics(rng, dtype):
    def kernel(out, x):
        value = x[thread_x()]
        atomic_add(out, 0, value)
        atomic_min(out, 1, value)
        atomic_max(out, 2, value)
        if atomic_cas(out, 3, 7, value) == 7:
            atomic_add(out, 4, 1)

    x = rng.integers(np.iinfo(dtype).max - 50, np.iinfo(dtype).max, 40, dtype)
    out, kind = np.array([0, 2**31 - 1, 0, 7, 0], dtype), getattr(types, dtype)[::1]
    Kernel(kernel, (kind, kind))[1, 40, 3](out, x)
    assert out[0] == x.sum(dtype=dtype)
    assert (out[1], out[2], out[4]) == (min(x.min(), 2**31 - 1), x.max(), 1)
    assert out[3] in x


@pytest.mark.parametrize("table", [F32, F64], ids=str)
def test_floats_are_added(table):
    def kernel(out, old):
        old[thread_x()] = atomic_add(out, 0, 1.5)
        red_add(out, 1, full(old.dtype.type(0.25), 1), 1)

    out, old = np.zeros(2, str(table.dtype)), np.zeros(50, str(table.dtype))
    Kernel(kernel, (table, table))[1, 50, 8](out, old)
    assert out.tolist() == [75.0, 12.5]
    assert sorted(old) == [1.5 * k for k in range(50)]


def test_functions_that_kernels_call(rng):
    @cuda.jit(device=True)
    def scaled(x, by):
        return x * by + thread_y()

    @njit
    def root(x):
        return np.sqrt(x)

    def kernel(out, x):
        i = thread_y() * block_dim_x() + thread_x()
        out[i] = scaled(root(x[i]), types.float32(3))

    x, out = np.abs(numbers(rng, 64)), np.zeros(64, np.float32)
    Kernel(kernel, (F32, F32))[1, (16, 4)](out, x)
    np.testing.assert_array_equal(out, np.sqrt(x) * np.float32(3) + np.repeat(np.arange(4), 16).astype(np.float32))
