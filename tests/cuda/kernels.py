"""Small kernels for the tests of the tools, and how to write one."""

from numba import types

from fastemb.kernels.cuda.intrin import (
    block_dim_x,
    block_dim_y,
    block_x,
    grid_dim_x,
    load,
    load_stream,
    local_array,
    red_add,
    shared_array,
    store,
    store_stream,
    sync_block,
    thread_x,
    thread_y,
    u32,
    u64,
)

F32, F64, F16 = types.float32[::1], types.float64[::1], types.float16[::1]
I32, I64, U32, U64 = types.int32[::1], types.int64[::1], types.uint32[::1], types.uint64[::1]
COUNT = types.uint32


def make_gather(n):
    """``out[r] = weight[indices[r]]``: a row of threads for each row, `n` elements a thread."""

    def gather(out, weight, indices, rows, columns):
        r = u32(block_x() * block_dim_y() + thread_y())
        while r < rows:
            source, target = u64(indices[r]) * u64(columns), u64(r) * u64(columns)
            c = u32(thread_x() * u32(n))
            while c < columns:
                store_stream(out, target + u64(c), load_stream(weight, source + u64(c), n))
                c = u32(c + block_dim_x() * u32(n))
            r = u32(r + grid_dim_x() * block_dim_y())

    return gather


def gather_signature(table=F32, indices=I64):
    """The types of what a gather takes."""
    return table, table, indices, COUNT, COUNT


def make_scatter(n, at_once):
    """``target[indices[r]] += updates[r]``, `at_once` numbers in one instruction."""

    def scatter(target, updates, indices, rows, columns):
        r = u32(block_x() * block_dim_y() + thread_y())
        while r < rows:
            source, row = u64(r) * u64(columns), u64(indices[r]) * u64(columns)
            c = u32(thread_x() * u32(n))
            while c < columns:
                red_add(target, row + u64(c), load_stream(updates, source + u64(c), n), at_once)
                c = u32(c + block_dim_x() * u32(n))
            r = u32(r + grid_dim_x() * block_dim_y())

    return scatter


def make_rule(rule, n):
    """A rule of the CPU, with a state of two arrays: each thread has `n` columns of the row in registers."""

    def step(weight, first, second, grad, hyper):
        at = u64(u32(block_x() * block_dim_x() + thread_x()) * u32(n))
        if at >= u64(weight.size):
            return
        own, total = local_array((1, n), weight.dtype), local_array(n, weight.dtype)
        one, two = local_array((1, n), weight.dtype), local_array((1, n), weight.dtype)
        store(own[0], 0, load(weight, at, n))
        store(one[0], 0, load(first, at, n))
        store(two[0], 0, load(second, at, n))
        store(total, 0, load(grad, at, n))
        rule(own, (one, two), 0, total, hyper)
        store(weight, at, load(own[0], 0, n))
        store(first, at, load(one[0], 0, n))
        store(second, at, load(two[0], 0, n))

    return step


def make_reversal(barrier):
    """Blocks of 64 numbers backwards, by way of shared memory; right with a barrier alone."""

    def kernel(out, x):
        t, i = thread_x(), block_x() * block_dim_x() + thread_x()
        block = shared_array(64, types.float32)
        block[t] = x[i]
        if barrier:
            sync_block()
        out[i] = block[63 - t]

    return kernel
