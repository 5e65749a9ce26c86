"""A user's own kernel, written with the functions of kernels/cuda: the example of its README, run in the emulator."""

import functools

import numpy as np
import pytest

from fastemb.kernels.cuda import check, launch
from fastemb.kernels.cuda.check import GOOD
from fastemb.kernels.cuda.intrin import (
    block_dim_x,
    block_dim_y,
    block_x,
    grid_dim_x,
    load_stream,
    mul_rn,
    store_stream,
    thread_x,
    thread_y,
    u64,
)

from .launched import emulated as emulated


@functools.cache
def make_scaled_gather(n):
    def scaled_gather(out, weight, scale, indices, flag, columns):
        if flag[u64(0)] != GOOD:  # an index is bad: nothing is written
            return
        r = u64(block_x()) * u64(block_dim_y()) + u64(thread_y())
        while r < u64(indices.size):
            source, factor = u64(indices[r]) * columns, scale[r]
            c = u64(thread_x()) * u64(n)
            while c < columns:
                store_stream(out, r * columns + c, mul_rn(load_stream(weight, source + c, n), factor))
                c += u64(block_dim_x()) * u64(n)
            r += u64(grid_dim_x()) * u64(block_dim_y())

    return scaled_gather


def scaled_gather(out, weight, scale, indices):
    """``out[k, :] = scale[k] * weight[indices[k], :]`` in one pass; the first bad position, or -1."""
    flag, columns = check.begin(indices, weight.shape[0]), weight.shape[1]
    n = launch.width(columns, out, weight)
    grid, block = launch.teams(indices.size, launch.lanes(columns, n))
    launch.run(make_scaled_gather(n), grid, block, out, weight, scale, indices, flag, np.uint64(columns))
    return check.answer(flag, indices, weight.shape[0])


def problem(dtype, columns):
    rng = np.random.default_rng(0)
    weight, scale = rng.standard_normal((50, columns)).astype(dtype), rng.standard_normal(300).astype(dtype)
    return np.full((300, columns), np.nan, dtype), weight, scale, rng.integers(0, 50, 300)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("columns", [1, 6, 64, 257])
@pytest.mark.usefixtures("emulated")
def test_a_lookup_that_scales(dtype, columns):
    out, weight, scale, indices = problem(dtype, columns)
    before = [array.copy() for array in (weight, scale, indices)]
    assert scaled_gather(out, weight, scale, indices) == -1
    np.testing.assert_array_equal(out, scale[:, np.newaxis] * weight[indices])
    for array, kept in zip((weight, scale, indices), before, strict=True):
        np.testing.assert_array_equal(array, kept)


@pytest.mark.parametrize("bad", [50, -1, -(2**63)])
@pytest.mark.usefixtures("emulated")
def test_a_bad_index_is_found_and_nothing_written(bad):
    out, weight, scale, indices = problem("float32", 8)
    indices[[70, 200]] = bad
    assert scaled_gather(out, weight, scale, indices) == 70
    assert np.isnan(out).all()
