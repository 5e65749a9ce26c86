"""The emulator says so where a kernel is wrong."""

import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest
from numba import types

from fastemb.kernels.cuda import intrin
from fastemb.kernels.cuda.intrin import (
    ALL_LANES,
    atomic_add,
    block_dim_x,
    block_x,
    cuda,
    load,
    red_add,
    shared_array,
    shuffle,
    store,
    sync_block,
    sync_warp,
    thread_x,
)

from . import offline
from .emulator import EmulationError, Kernel, NotEmulatedError
from .kernels import F32, F64, I32, make_reversal


def numbers(rng, n):
    return rng.standard_normal(n).astype(np.float32)


@pytest.mark.parametrize("seed", range(5))
def test_missing_barrier_gives_wrong_numbers(rng, seed):
    x = numbers(rng, 256)
    out = np.zeros_like(x)
    Kernel(make_reversal(False), (F32, F32))[4, 64, seed](out, x)
    wrong = out.reshape(4, 64) != x.reshape(4, 64)[:, ::-1]
    assert np.isnan(out[wrong.ravel()]).all(), "what was never written is NaN, in later blocks too"
    assert wrong.sum(axis=1).all()


def test_barrier_that_only_a_random_order_misses(rng):
    def kernel(out, x):
        block, t = shared_array(32, types.float32), thread_x()
        block[t] = x[t]
        out[t] = block[max(t, 1) - 1]  # what the thread before has written, if it was there before

    x = numbers(rng, 32)
    kernel = Kernel(kernel, (F32, F32))
    wrong = []
    for seed in range(4):
        out = np.zeros_like(x)
        kernel[1, 32, seed](out, x)
        wrong.append((out != x[np.maximum(np.arange(32), 1) - 1]).any())
    assert wrong == [False, True, True, True]


@pytest.mark.parametrize("waits", [False, True])
def test_seeds_make_orders(waits):
    def kernel(turn, last):
        if waits:
            sync_block()
        turn[block_x() * block_dim_x() + thread_x()] = atomic_add(last, 0, 1)

    kernel = Kernel(kernel, (I32, I32))
    orders = []
    for seed in (0, 1, 2, 2):
        turn = np.zeros(96, np.int32)
        kernel[3, 32, seed](turn, np.zeros(1, np.int32))
        assert sorted(turn) == list(range(96))
        orders.append(turn)
    assert orders[0].tolist() == list(range(96))
    assert (orders[1] != orders[0]).any()
    assert (orders[2] != orders[1]).any()
    assert (orders[3] == orders[2]).all()
    assert orders[1][0] // 32 != 0 or orders[2][0] // 32 != 0, "blocks have an order too"
    assert (np.diff(orders[1][:32]) != 1).any(), "and threads"


def test_divergent_collective_is_a_deadlock():
    def kernel(x):
        if thread_x() < 16:
            x[0] = shuffle(ALL_LANES, x[0], 0)
        elif thread_x() < 30:
            sync_block()

    first = kernel.__code__.co_firstlineno
    expected = (
        f"threads 0-15 at a shuffle in line {first + 2} for lanes 0xffffffff; "
        f"threads 16-29 at a block barrier in line {first + 4}; threads 30-31 returned"
    )
    with pytest.raises(EmulationError, match=expected):
        Kernel(kernel, (F32,))[1, 32, 4](np.zeros(1, np.float32))


def test_barriers_in_two_branches_are_a_deadlock():
    def kernel(x):
        if thread_x() < 16:
            sync_block()
        else:
            sync_block()

    with pytest.raises(EmulationError, match=r"deadlock: threads 0-15 at a block barrier in line"):
        Kernel(kernel, (F32,))[1, 32](np.zeros(1, np.float32))


def test_lanes_that_are_not_of_a_mask():
    def outsider(x):
        sync_warp(1)

    def absent(x):
        if thread_x() < 2:
            x[0] = shuffle(3, x[0], 5)

    with pytest.raises(EmulationError, match=r"outsider.*thread \(1, 0, 0\): calls a collective of lanes 0x00000001"):
        Kernel(outsider, (F32,))[1, 32](np.zeros(1, np.float32))
    with pytest.raises(EmulationError, match=r"absent.*a shuffle from a lane that is not in 0x00000003"):
        Kernel(absent, (F32,))[1, 32](np.zeros(1, np.float32))


def reader(n):
    return lambda out, x, at: store(out, 0, load(x, at, n))


def writer(n):
    return lambda out, x, at: store(out, at, load(x, 0, n))


def streamer(n):
    return lambda out, x, at: intrin.store_stream(out, 0, intrin.load_stream(x, at, n))


def adder(n):
    return lambda out, x, at: red_add(out, at, load(x, 0, n), n)


def plain_reader(_):
    def kernel(out, x, at):
        out[0] = x[at]

    return kernel


@pytest.mark.parametrize("make", [reader, writer, streamer, adder, plain_reader])
@pytest.mark.parametrize(("n", "at"), [(4, 96), (4, 100), (4, -4), (2, 98), (1, 98), (1, -99), (1, 10**6)])
def test_out_of_bounds(make, n, at):
    out, x = np.zeros(98, np.float32), np.zeros(98, np.float32)
    kernel = Kernel(make(n), (F32, F32, types.int64))
    kernel[1, 1](out, x, 92)
    if make is plain_reader:
        at = at if at >= 98 else -100  # Numba wraps a negative index
    with pytest.raises(EmulationError, match=r"out of bounds: (reads|writes) \d+ bytes at byte -?\d+ of argument [01]"):
        kernel[1, 1](out, x, at)


@pytest.mark.parametrize("make", [reader, writer, streamer, adder])
@pytest.mark.parametrize(("n", "at"), [(4, 2), (4, 1), (2, 1)])
def test_misaligned(make, n, at):
    kernel = Kernel(make(n), (F32, F32, types.int64))
    with pytest.raises(
        EmulationError, match=r"thread \(0, 0, 0\): misaligned: (reads|writes) (8|16) bytes at byte \d+"
    ):
        kernel[1, 1](np.zeros(100, np.float32), np.zeros(100, np.float32), at)


def test_alignment_is_that_of_the_array():
    memory, out = np.zeros(101, np.float32), np.zeros(100, np.float32)
    with pytest.raises(EmulationError, match="misaligned"):
        Kernel(reader(4), (F32, F32, types.int64))[1, 1](out, memory[1:], 0)


def test_shared_memory_has_bounds():
    def kernel(out):
        block = shared_array(8, types.float32)
        block[thread_x()] = 1

    with pytest.raises(
        EmulationError, match=r"thread \(8, 0, 0\): out of bounds: writes 4 bytes at byte 32 of a shared"
    ):
        Kernel(kernel, (F32,))[1, 9](np.zeros(1, np.float32))


def test_arrays_that_may_not_be_written():
    x = np.zeros(4, np.float32)
    x.flags.writeable = False
    with pytest.raises(EmulationError, match="read-only: writes 16 bytes at byte 0 of argument 0"):
        Kernel(writer(4), (F32, F32, types.int64))[1, 1](x, np.zeros(4, np.float32), 0)


def test_arrays_that_share_memory():
    def kernel(whole, part):
        part[0] = whole[5] + 1

    whole = np.arange(8, dtype=np.float32)
    Kernel(kernel, (F32, F32))[1, 1](whole, whole[5:])
    assert whole.tolist() == [0, 1, 2, 3, 4, 6, 6, 7]


def test_what_is_not_known_is_named():
    def active(out):
        out[0] = cuda.activemask()

    def sine(out):
        out[0] = np.sin(out[0])

    def sleep(out):
        cuda.threadfence_system()
        cuda.nanosleep(1)

    with pytest.raises(NotEmulatedError, match=r"activemask\.b32"):
        Kernel(active, (I32,))
    with pytest.raises(NotEmulatedError, match="__nv_sinf"):
        Kernel(sine, (F32,))
    with pytest.raises(NotEmulatedError, match="nanosleep"):
        Kernel(sleep, (F32,))


def test_arguments_are_checked():
    kernel = Kernel(reader(4), (F32, F32, types.uint32))
    good = np.zeros(8, np.float32)
    for bad, message in [
        ((good, good), "takes 3 arguments, not 2"),
        ((good, good.astype(float), 0), r"argument 1 is array\(float32, 1d, C\), not float64 with 1 axes"),
        ((good, good.reshape(2, 4), 0), "argument 1 is .*, not float32 with 2 axes"),
        ((good, good[::2], 0), "argument 1 is"),
        ((good, [0.0], 0), r"argument 1 is .*, not \[0\.0\]"),
        ((good, good, -1), "argument 2 is uint32, not -1"),
        ((good, good, 0.5), r"argument 2 is uint32, not 0\.5"),
    ]:
        with pytest.raises(TypeError, match=message):
            kernel[1, 1](*bad)
    with pytest.raises(ValueError, match="a block has 1 to 1024 threads"):
        kernel[1, 1025](good, good, 0)


def test_accesses_that_no_device_has_do_not_compile():
    for make, signature, message in [
        (reader(8), (F32, F32, types.int64), "at most 16 bytes, not 8 of float32"),
        (reader(3), (F32, F32, types.int64), "not 3 of float32"),
        (reader(4), (F64, F64, types.int64), "not 4 of float64"),
        (adder(2), (F64, F64, types.int64), "no red_add of"),
        (reader(1), (F32, types.float32[:], types.int64), "C-contiguous, not"),
        (reader(1), (F32, F32, types.float64), "an index is a whole number, not float64"),
    ]:
        with pytest.raises(TypeError, match=message):
            Kernel(make, signature)


def test_another_numba_cuda_is_refused(monkeypatch):
    monkeypatch.setattr(offline, "VERSION", "0.0")
    with pytest.raises(RuntimeError, match=f"made for numba-cuda 0.0, not {metadata.version('numba-cuda')}"):
        Kernel(reader(1), (F32, F32, types.int64))


@pytest.mark.parametrize("before", [False, True])
def test_guarded_arrays_end_a_process(before):
    code = f"""
import numpy as np
from tests.cuda.emulator import guarded
x = guarded(np.arange(10.0), before={before})
assert x.tolist() == list(range(10))
print("within", flush=True)
import ctypes
ctypes.c_double.from_address(x.ctypes.data + ({-8 if before else 80})).value
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=offline.ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("within\n", -11), done.stderr
