"""Arithmetic, bits and places of `intrin`: as NumPy has them."""

import numpy as np
import pytest
from numba import types
from numba.core.errors import TypingError

from fastemb.kernels.cuda.intrin import (
    add_rn,
    block_dim_x,
    block_dim_y,
    block_x,
    block_y,
    clz,
    div_rn,
    fence,
    ffs,
    fma_rn,
    full,
    grid_dim_x,
    grid_dim_y,
    larger,
    load,
    mul_rn,
    popc,
    sqrt_rn,
    store,
    sub_rn,
    thread_x,
    thread_y,
    u32,
    u64,
)

from .emulator import Kernel
from .kernels import F32, F64, U32, U64

SPECIAL = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, 1 / 3, 1e-310]
BINARY = {
    add_rn: np.add,
    sub_rn: np.subtract,
    mul_rn: np.multiply,
    div_rn: np.divide,
    larger: lambda x, y: np.where((y > x) | (np.isnan(y) & ~np.isnan(x)), y, x),
}


def bits(x):
    """Numbers as bits, all NaN alike: a device has one."""
    return np.where(np.isnan(x), np.array(np.nan, x.dtype), x).view(f"u{x.itemsize}")


def pairs(rng, dtype):
    with np.errstate(over="ignore"):
        x, y = np.meshgrid(SPECIAL, SPECIAL)
        random = rng.standard_normal((2, 112)) * 10.0 ** rng.integers(-30, 30, (2, 112))
        return np.concatenate([[x.ravel(), y.ravel()], random], axis=1).astype(dtype)


@pytest.mark.parametrize("table", [F32, F64], ids=str)
@pytest.mark.parametrize("operation", BINARY, ids=lambda operation: BINARY[operation].__name__)
def test_two_numbers(rng, operation, table):
    def kernel(out, x, y):
        at = u64(thread_x() * u32(2))
        store(out, at, operation(load(x, at, 2), load(y, at, 2)))
        out[256 + thread_x()] = operation(x[thread_x()], y[thread_x()])

    x, y = pairs(rng, str(table.dtype))
    out = np.zeros(384, x.dtype)
    Kernel(kernel, (table, table, table))[1, 128](out, x, y)
    with np.errstate(all="ignore"):
        expected = BINARY[operation](x, y)
    np.testing.assert_array_equal(bits(out[:256]), bits(expected))
    np.testing.assert_array_equal(bits(out[256:]), bits(expected[:128]))


@pytest.mark.parametrize("table", [F32, F64], ids=str)
def test_a_number_stands_for_a_tuple_of_it(rng, table):
    def kernel(out, x):
        at = u64(thread_x() * u32(2))
        values = load(x, at, 2)
        store(out, at, sub_rn(mul_rn(values, values[0]), full(x[0], 2)))
        store(out, at + u64(8), sqrt_rn(mul_rn(values, values)))

    x = rng.standard_normal(8).astype(str(table.dtype))
    out = np.zeros(16, x.dtype)
    Kernel(kernel, (table, table))[1, 4](out, x)
    np.testing.assert_array_equal(out[:8], x * np.repeat(x[::2], 2) - x[0])
    np.testing.assert_array_equal(out[8:], np.sqrt(x * x))


def test_fused_operation_is_rounded_once():
    def kernel(out, x):
        out[0] = fma_rn(x[0], x[0], -mul_rn(x[0], x[0]))

    x, out = np.array([1 + 2.0**-23], np.float32), np.zeros(1, np.float32)
    Kernel(kernel, (F32, F32))[1, 1](out, x)
    assert out[0] == 2.0**-46


@pytest.mark.parametrize("table", [U32, U64], ids=str)
def test_bits(table):
    def kernel(out, x):
        t = thread_x()
        out[0, t], out[1, t], out[2, t] = popc(x[t]), ffs(x[t]), clz(x[t])

    width = table.dtype.bitwidth
    x = np.array([0, 1, 2, 2**width - 1, 2 ** (width - 1), 0b101000], str(table.dtype))
    out = np.zeros((3, 6), np.uint32)
    Kernel(kernel, (types.uint32[:, ::1], table))[1, 6](out, x)
    numbers = [int(k) for k in x]
    assert out[0].tolist() == [k.bit_count() for k in numbers]
    assert out[1].tolist() == [(k & -k).bit_length() for k in numbers]
    assert out[2].tolist() == [width - k.bit_length() for k in numbers]


def test_places():
    def kernel(out):
        row = block_y() * block_dim_y() + thread_y()
        column = block_x() * block_dim_x() + thread_x()
        fence()
        out[row, column] = row * (grid_dim_x() * block_dim_x()) + column + u32(1000) * grid_dim_y()

    out = np.zeros((6, 20), np.uint32)
    Kernel(kernel, (types.uint32[:, ::1],))[(4, 2), (5, 3), 6](out)
    assert (out == 2000 + np.arange(120).reshape(6, 20)).all()


def test_width_is_known_to_the_compiler():
    def kernel(out, x, n):
        store(out, 0, load(x, 0, n))

    with pytest.raises(TypingError, match="load"):
        Kernel(kernel, (F32, F32, types.int64))


def test_operations_that_do_not_go_together():
    def mixed(out, x):
        out[0] = add_rn(x[0], 1.5)

    def lengths(out, x):
        store(out, 0, add_rn(load(x, 0, 2), load(x, 0, 4)))

    for kernel in (mixed, lengths):
        with pytest.raises(TypeError, match="no add_rn of"):
            Kernel(kernel, (F32, F32))
