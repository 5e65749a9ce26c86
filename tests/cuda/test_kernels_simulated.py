"""Some kernels, with their drivers, in Numba's own simulator: it runs their Python, a thread of the system for each."""

import os
import subprocess
import sys

from .offline import ROOT

HEAD = """
import numpy as np
from fastemb.kernels import reference
from fastemb.kernels.cuda import check, intrin, launch, scatter
from fastemb.kernels.cuda.gather import gather
from fastemb.kernels.cuda.renorm import renorm

def simulator(function, signature):
    kernel = intrin.cuda.jit(function)
    return lambda grid, block, arguments: kernel[grid, block](*arguments)

assert intrin.SIMULATED
launch.compiler, launch.THREADS = simulator, 32
rng = np.random.default_rng(1)
weight, indices = rng.standard_normal((7, 6)).astype(np.float32), rng.integers(0, 7, 5)
"""


def simulate(code):
    """A process of its own, as Numba reads the switch when it is imported."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", HEAD + code],
        cwd=ROOT,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_gather_renorm_and_scatter():
    done = simulate("""
for columns in (6, 5, 4):
    table, out = np.ascontiguousarray(weight[:, :columns]), np.full((5, columns), np.nan, np.float32)
    assert gather(out, table, indices) == -1
    np.testing.assert_array_equal(out, table[indices])
    for p in (1.0, 2.0, 3.0, np.inf):
        ours, wanted, rows = table.copy(), table.copy(), np.array([6, 0, 3])
        assert renorm(ours, rows, 1.0, p) == reference.renorm(wanted, rows, 1.0, p) == -1
        assert not np.array_equal(wanted, table)
        np.testing.assert_allclose(ours, wanted, rtol=2e-7)
    whole = np.trunc(out * 9)
    ours, wanted = table.round(), table.round()
    assert scatter.scatter_add_unordered(ours, indices, whole) == -1
    np.add.at(wanted, indices, whole)
    np.testing.assert_array_equal(ours, wanted)
""")
    assert done.returncode == 0, done.stderr


def test_bad_indices_write_nothing():
    done = simulate("""
indices[[2, 4]] = 7
before, out = weight.copy(), np.full((5, 6), np.nan, np.float32)
assert gather(out, weight, indices) == renorm(weight, indices, 0.0, 2.0) == 2
assert np.isnan(out).all() and (weight == before).all()
""")
    assert done.returncode == 0, done.stderr


def test_an_unchecked_index_is_out_of_bounds():
    done = simulate("""
indices[2] = 7
with check.mode("off"):
    gather(np.empty((5, 6), np.float32), weight, indices)
""")
    assert done.returncode == 1
    assert "IndexError" in done.stderr
