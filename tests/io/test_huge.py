"""Tables many times larger than memory: looked up, pooled and trained in 2 GB."""

import json
import sys

import pytest
from strategies import run_python

CODE = """
import json, pathlib, resource, time
GB = 1 << 30
# Two files of 40 GB are mapped; all else, Python and libraries and threads included, has 2 GB of addresses.
resource.setrlimit(resource.RLIMIT_AS, (82 * GB, 82 * GB))

import numpy as np
import fastemb
from fastemb import io

path, width = pathlib.Path(folder), 128
rows = 40 * GB // (4 * width)
rule = fastemb.optim.Adagrad(lr=0.5)
table = io.create_table(path / "table.npy", rows, width)
state = io.open_state(path / "state.safetensors", rule, table)
layer = fastemb.Embedding.from_pretrained(table, freeze=False, copy=False, optimizer=rule, state=state)
assert layer.weight is table and layer.state is state

try:
    np.array(table)
except MemoryError:
    pass  # the limit is one

rng = np.random.default_rng(0)
# All over the table, most in runs: some file systems take seconds to remove a file of ten thousand pieces.
runs = rng.integers(0, rows - 400, 30)[:, np.newaxis] + np.arange(400)
used = np.unique(np.concatenate((runs.ravel(), rng.integers(0, rows, 500), [0, rows - 1])))
small = fastemb.Embedding(used.size, width, init="zeros", optimizer=rule)
for _ in range(10):
    chosen = rng.integers(0, used.size, 3_000)
    grad = rng.standard_normal((3_000, width), np.float32)
    ids = used[chosen]
    assert np.array_equal(layer(ids), small(chosen))
    layer.fused_step(ids, grad)
    small.fused_step(chosen, grad)
bags = chosen.reshape(-1, 6)
pooled = fastemb.embedding_bag(table, used[bags], mode="sum")
assert np.array_equal(pooled, fastemb.embedding_bag(small.weight, bags, mode="sum"))
io.flush(table, state)
del layer, table, state

table = io.open_table(path / "table.npy")
state = io.open_state(path / "state.safetensors", rule, table)
assert state.step == 10
assert small.weight.any(axis=1).mean() > 0.9
assert np.array_equal(fastemb.gather(table, used), small.weight)
assert np.array_equal(fastemb.gather(state.S, used), small.state.S)
lines = pathlib.Path("/proc/self/status").read_text().splitlines()
sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith("kB")}
files = [(file.stat().st_size, 512 * file.stat().st_blocks) for file in path.iterdir()]
print(json.dumps({"peak": sizes["VmHWM"], "addresses": sizes["VmPeak"], "files": files}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of addresses, and files with holes")
def test_a_table_of_40_gb_in_2_gb(tmp_path):
    found = json.loads(run_python(f"folder = {str(tmp_path)!r}\n{CODE}", NUMBA_NUM_THREADS="2"))
    for file in tmp_path.iterdir():
        file.unlink()
    assert len(found["files"]) == 2
    assert all(size >= 40 << 30 and on_disk < 200 << 20 for size, on_disk in found["files"])
    assert found["addresses"] <= 82 << 30
    assert found["peak"] < 1 << 30, found  # what was in memory at once, pages of the files included
