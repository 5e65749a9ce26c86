"""Threads: when kernels use them, callers at once, and children made by fork, under every threading layer."""

import os
import sys
import textwrap

import numba
import numpy as np
import pytest
from strategies import run_python

from fastemb.kernels.cpu import threads

NEEDS_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="GNU OpenMP comes with Numba's Linux wheels alone")
LAYERS = ["workqueue", pytest.param("omp", marks=NEEDS_LINUX)]

PROBLEM = """
    import hashlib, os, sys
    import numpy as np
    import fastemb
    from fastemb.kernels.cpu import threads

    rng = np.random.default_rng(1)
    table = rng.standard_normal((5000, 64), dtype=np.float32)
    ids = rng.integers(0, 5000, 300_000)
    grad = rng.standard_normal((300_000, 64), dtype=np.float32)

    def digest():
        weight = table.copy()
        opt = fastemb.optim.Adam()
        state = opt.init(weight)
        opt.step(weight, state, ids, grad)
        fastemb.renorm_(weight, ids, 1.0)
        fastemb.scatter_add(weight, ids, grad)
        return hashlib.sha256(fastemb.gather(weight, ids)).hexdigest()
"""


def run(code, **environment):
    """Words printed by a script with PROBLEM before it, on four threads."""
    return run_python(
        textwrap.dedent(PROBLEM) + textwrap.dedent(code), **{"NUMBA_NUM_THREADS": "4", **environment}
    ).split()


@pytest.fixture(scope="module")
def serial():
    """The digest of one thread."""
    return run("print(digest())", NUMBA_NUM_THREADS="1")[0]


@pytest.mark.parametrize("layer", LAYERS)
def test_the_layer_is_used_and_gives_the_same_bits(serial, layer):
    out = run(
        "print(digest()); import numba; print(numba.threading_layer(), numba.get_num_threads())",
        NUMBA_THREADING_LAYER=layer,
    )
    assert out == [serial, layer, "4"]


@pytest.mark.parametrize("layer", LAYERS)
def test_callers_at_once(serial, layer):
    code = """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(4) as pool:
            print(*[task.result() for task in [pool.submit(digest) for _ in range(12)]])
    """
    assert run(code, NUMBA_THREADING_LAYER=layer) == [serial] * 12


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("generations", [1, 2])
def test_children_after_parallel_work(serial, layer, generations):
    code = f"""
        print(digest(), flush=True)
        for _ in range({generations}):
            child = os.fork()
            if child:
                _, status = os.waitpid(child, 0)
                os._exit(os.waitstatus_to_exitcode(status) != 0)
            assert threads.chunks(1 << 40) == 1
            print(digest(), flush=True)
    """
    assert run(code, NUMBA_THREADING_LAYER=layer) == [serial] * (1 + generations)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
@pytest.mark.parametrize("layer", LAYERS)
def test_children_while_another_thread_is_in_a_kernel(serial, layer):
    code = """
        import threading
        digest()
        stop = threading.Event()
        def work():
            while not stop.is_set():
                digest()
        worker = threading.Thread(target=work)
        worker.start()
        for _ in range(3):
            child = os.fork()
            if child == 0:
                print(digest(), flush=True)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            assert status == 0, status
        stop.set()
        worker.join()
    """
    assert run(code, NUMBA_THREADING_LAYER=layer) == [serial] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_child_of_a_process_that_started_no_threads_may_start_its_own(serial):
    code = """
        child = os.fork()
        if child == 0:
            print(digest(), threads.chunks(1 << 40), flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(digest())
    """
    assert run(code) == [serial, "4", serial]


def test_small_work_stays_in_the_callers_thread():
    assert threads.chunks(0) == 1
    assert threads.chunks(threads.SERIAL_BELOW - 1) == 1


def test_large_work_uses_the_threads_that_numba_is_set_to():
    before = numba.get_num_threads()
    try:
        for count in (1, 2, 5, 8):
            numba.set_num_threads(count)
            assert threads.chunks(1 << 30) == count
    finally:
        numba.set_num_threads(before)


@pytest.mark.parametrize(("total", "parts"), [(10, 3), (0, 4), (2, 5), (2**62, 7), (1000, 1)])
def test_split_covers_the_range_evenly(total, parts):
    bounds = [int(b) for b in threads.split(total, parts)]
    assert (bounds[0], bounds[-1], len(bounds)) == (0, total, parts + 1)
    sizes = np.diff(bounds)
    assert sizes.min() >= 0
    assert sizes.max() - sizes.min() <= 1
