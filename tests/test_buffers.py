"""Recycled memory of large results."""

import gc
import threading

import numpy as np
import pytest
from strategies import run_python

import fastemb
from fastemb import buffers

FLOAT32 = np.dtype(np.float32)
LARGE = (buffers.SMALLEST // 4, 2)


@pytest.fixture(autouse=True)
def _fresh():
    before = buffers.limit()
    buffers.set_limit(1 << 25)
    buffers.clear()
    yield
    buffers.clear()
    buffers.set_limit(before)


def address(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", ">f4", "V2"])
def test_arrays_are_what_empty_gives(dtype):
    dtype = np.dtype(dtype)
    for shape in [(), (0, 4), (3, 5), (1 << 20, 3), (2, 1 << 20, 1)]:
        array = buffers.empty(shape, dtype)
        assert (array.shape, array.dtype) == (shape, dtype)
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.flags.aligned
        array[...] = np.zeros((), dtype)


def test_memory_comes_back_when_the_last_array_dies():
    array = buffers.empty(LARGE, FLOAT32)
    place = address(array)
    assert place % 64 == 0
    view = array[5:].T[::2].view(np.int32)
    del array
    gc.collect()
    assert buffers.kept() == 0
    other = buffers.empty(LARGE, FLOAT32)
    assert address(other) != place
    del view
    assert buffers.kept() == 2 * buffers.SMALLEST
    again = buffers.empty(LARGE, FLOAT32)
    assert address(again) == place
    assert buffers.kept() == 0


def test_two_live_arrays_never_share():
    arrays = [buffers.empty(LARGE, FLOAT32) for _ in range(4)]
    del arrays[::2]
    arrays += [buffers.empty(LARGE, FLOAT32) for _ in range(4)]
    for i, a in enumerate(arrays):
        for b in arrays[:i]:
            assert not np.shares_memory(a, b)


def test_small_arrays_are_left_to_numpy():
    array = buffers.empty((buffers.SMALLEST // 4 - 1,), FLOAT32)
    assert array.flags.owndata
    del array
    assert buffers.kept() == 0


def test_a_block_is_not_spent_on_much_less():
    array = buffers.empty((buffers.SMALLEST,), FLOAT32)
    place = address(array)
    del array
    small = buffers.empty((buffers.SMALLEST // 4,), FLOAT32)
    assert address(small) != place
    fitting = buffers.empty((buffers.SMALLEST // 2 + 1,), FLOAT32)
    assert address(fitting) == place


def test_the_limit_holds_and_the_oldest_go_first():
    buffers.set_limit(5 * buffers.SMALLEST)
    arrays = [buffers.empty(LARGE, FLOAT32) for _ in range(3)]
    places = [address(a) for a in arrays]
    while arrays:
        del arrays[0]
    assert buffers.kept() == 4 * buffers.SMALLEST
    arrays = [buffers.empty(LARGE, FLOAT32) for _ in range(2)]
    assert {address(a) for a in arrays} == set(places[1:])
    del arrays
    buffers.set_limit(3 * buffers.SMALLEST)
    assert buffers.kept() == 2 * buffers.SMALLEST
    buffers.clear()
    assert buffers.kept() == 0


def test_switched_off():
    buffers.set_limit(0)
    array = buffers.empty(LARGE, FLOAT32)
    assert array.flags.owndata
    del array
    assert buffers.kept() == 0
    for value, limit in (("0", 0), ("1", buffers.DEFAULT_LIMIT)):
        assert int(run_python("import fastemb; print(fastemb.buffers.limit())", FASTEMB_BUFFERS=value)) == limit
    with pytest.raises(ValueError, match="^nbytes must be >= 0, got -1$"):
        buffers.set_limit(-1)


def test_arrays_alive_when_it_is_switched_off_are_not_kept():
    array = buffers.empty(LARGE, FLOAT32)
    buffers.set_limit(0)
    del array
    assert buffers.kept() == 0


def test_threads():
    failures = []

    def work(seed):
        rng = np.random.default_rng(seed)
        held = []
        for _ in range(400):
            array = buffers.empty((int(rng.integers(1, 4)) * buffers.SMALLEST // 4,), FLOAT32)
            array[:: 1 << 12] = seed
            held.append(array)
            if len(held) > 3:
                old = held.pop(int(rng.integers(0, 3)))
                failures.extend([seed] * int((old[:: 1 << 12] != seed).any()))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
    assert buffers.kept() <= buffers.limit()


def test_a_child_has_blocks_of_its_own():
    code = """
import os, threading, numpy as np
from fastemb import buffers
array = buffers.empty((1 << 20,), np.dtype(np.float32)); array[:] = 1; del array
buffers._pool.lock.acquire()  # as another thread might, at the fork
child = os.fork()
if child == 0:
    array = buffers.empty((1 << 20,), np.dtype(np.float32)); array[:] = 2; del array
    os._exit(buffers.kept() != 1 << 22)
buffers._pool.lock.release()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), buffers.empty((1 << 20,), np.dtype(np.float32))[0])
"""
    if hasattr(__import__("os"), "fork"):
        assert run_python(code).split() == ["0", "1.0"]


def test_lookups_use_it(rng):
    table = rng.standard_normal((100, 64), dtype=np.float32)
    ids = rng.integers(0, 100, 10_000)
    first = fastemb.gather(table, ids)
    place = address(first)
    assert np.array_equal(first, table[ids])
    del first
    second = fastemb.gather(table, ids[::-1].copy())
    assert address(second) == place
    assert np.array_equal(second, table[ids[::-1]])
