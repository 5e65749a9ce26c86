"""Kernels in Numba's own simulator, each in a process of its own: the switch is read when Numba is imported."""

import os
import subprocess
import sys

import pytest

from .offline import ROOT

HEAD = """
import warnings
import numpy as np
from fastemb.kernels.cuda import intrin, simulated
from fastemb.kernels.cuda.intrin import *
from fastemb.kernels.cuda.intrin import cuda
from tests.cuda.kernels import make_gather, make_scatter
assert intrin.SIMULATED
rng = np.random.default_rng(1)
weight, indices = rng.standard_normal((7, 8)).astype(np.float32), rng.integers(0, 7, 6)
"""


def simulate(code):
    """What a process prints and what it says when it fails, where the simulator is on."""
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", HEAD + code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_gather_and_scatter():
    done = simulate("""
for n in (4, 2, 1):
    out = np.full((6, 8), np.nan, np.float32)
    cuda.jit(make_gather(n))[2, (2, 2)](out.ravel(), weight.ravel(), indices, 6, 8)
    np.testing.assert_array_equal(out, weight[indices])
half = np.zeros((6, 8), np.float16)
cuda.jit(make_gather(8))[1, (1, 3)](half.ravel(), weight.astype(np.float16).ravel(), indices, 6, 8)
np.testing.assert_array_equal(half, weight.astype(np.float16)[indices])
whole = np.trunc(weight * 9)
target, expected = np.zeros((3, 8), np.float32), np.zeros((3, 8), np.float32)
np.add.at(expected, indices[:6] % 3, whole[:6])
cuda.jit(make_scatter(4, 2))[2, (2, 2)](target.ravel(), whole.ravel(), indices % 3, 6, 8)
np.testing.assert_array_equal(target, expected)
""")
    assert done.returncode == 0, done.stderr


def test_block_and_warp():
    done = simulate("""
@cuda.jit
def kernel(out, x, bits):
    t = thread_x()
    first, second = shared_array(32, x.dtype), shared_array(32, x.dtype)
    first[t], second[t] = x[t], -x[t]
    sync_block()
    out[t] = first[31 - t] + shuffle_down(ALL_LANES, second[t], 1) + shuffle_xor(ALL_LANES, x[t], 3)
    bits[t] = ballot(ALL_LANES, x[t] > 0) ^ match_any(ALL_LANES, t % 5)
    atomic_max(bits, 32, popc(bits[t]))
x, out, bits = weight.ravel()[:32], np.zeros(32, np.float32), np.zeros(33, np.int64)
kernel[1, 32](out, x, bits)
lanes = np.arange(32)
np.testing.assert_array_equal(out, x[::-1] - x[np.minimum(lanes + 1, 31)] + x[lanes ^ 3])
match = [sum(1 << j for j in range(32) if j % 5 == k % 5) for k in range(32)]
votes = sum(1 << k for k in range(32) if x[k] > 0)
assert bits[:32].tolist() == [votes ^ m for m in match]
assert bits[32] == max(int(b).bit_count() for b in bits[:32])
""")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("indices[2] = 7\ncuda.jit(make_gather(4))[2, 2](weight.ravel(), weight.ravel(), indices, 6, 8)", "IndexError"),
        (
            "simulated.TIMEOUT = 0.5\n"
            "@cuda.jit\ndef kernel(x):\n    if thread_x() < 3:\n        x[0] = ballot(ALL_LANES, True)\n"
            "kernel[1, 32](np.zeros(1, np.int64))",
            "warp 0: not all lanes of 0xffffffff came to a collective",
        ),
    ],
    ids=["out of bounds", "divergent"],
)
def test_what_the_simulator_refuses(code, message):
    done = simulate(code)
    assert done.returncode == 1
    assert message in done.stderr


def test_every_name_has_both_forms():
    code = """
import inspect
names = [n for n in dir(simulated) if not n.startswith("_") and inspect.isroutine(getattr(simulated, n))]
print(sorted(names) == sorted(n for n in names if getattr(intrin, n) is getattr(simulated, n)))
print(all(getattr(intrin, n).__doc__ for n in names if n not in ("u32", "u64")))
"""
    done = simulate(code)
    assert done.stdout == "True\nTrue\n", done.stderr
