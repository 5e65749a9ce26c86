"""A writer that is killed at any moment leaves what it saved last, or what it was saving, whole."""

import json
import sys

import pytest
from strategies import run_python

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="needs os.fork and SIGKILL")]

# A child saves one version after the other, and tells which it has saved; version k is told by its rows and its step.
CODE = """
import json, os, pathlib, random, signal, time
import numpy as np
import fastemb
from fastemb.io import Checkpointer, load_layer, save_layer

ROWS, WIDTH = 64, 256
random.seed(0)
folder = pathlib.Path(folder)
folder.mkdir()

def version(k):
    rows = np.arange(ROWS)
    return np.maximum(k - (k - rows) % ROWS, 0)  # row r was last changed by the last version that is r modulo ROWS

def change(emb, k):
    row = [k % ROWS]
    emb.state.mark(row)
    for array in (emb.weight, emb.state.m, emb.state.v):
        array[row] = k
    emb.state.step = k

def write_files(tell):
    emb = load_layer(folder / "layer")
    while True:
        change(emb, emb.state.step + 1)
        save_layer(emb, folder / "layer")
        tell(emb.state.step)

def write_deltas(tell):
    checkpointer = Checkpointer.resume(folder)
    emb = checkpointer.layer
    while True:
        change(emb, emb.state.step + 1)
        checkpointer.save(full=emb.state.step % 7 == 0)
        tell(emb.state.step)
        if emb.state.step % 5 == 0:
            checkpointer.compact()

emb = fastemb.Embedding(ROWS, WIDTH, init="zeros", optimizer=fastemb.optim.Adam())
if deltas:
    Checkpointer(emb, folder).save()
else:
    save_layer(emb, folder / "layer")
saved, left, versions = 0, 0, set()
for _ in range(50):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        (write_deltas if deltas else write_files)(lambda k: os.write(write, b"%d\\n" % k))
    os.close(write)
    told = os.read(read, 100)
    time.sleep(random.uniform(0, 0.02))
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    with open(read, "rb") as pipe:
        told += pipe.read()
    saved = int(told.split()[-1])
    left += any(path.name.startswith(".") for path in folder.iterdir())
    found = load_layer(folder if deltas else folder / "layer")
    k = found.state.step
    assert k in (saved, saved + 1), (saved, k)
    for array in (found.weight, found.state.m, found.state.v):
        assert np.array_equal(array, np.repeat(version(k)[:, np.newaxis], WIDTH, axis=1)), k
    versions.add(k)
if deltas:
    checkpointer = Checkpointer.resume(folder)
    checkpointer.save(full=True)
    names = ["base.safetensors"]
else:
    save_layer(found, folder / "layer")
    names = ["layer"]
after = sorted(path.name for path in folder.iterdir() if path.name in names or not path.name.startswith(".fastemb-"))
print(json.dumps({"left": left, "versions": len(versions), "after": after, "all": len(list(folder.iterdir()))}))
"""


@pytest.mark.parametrize("deltas", [False, True], ids=["file", "deltas"])
def test_killed_50_times(tmp_path, deltas):
    found = json.loads(run_python(f"folder, deltas = {str(tmp_path / 'saved')!r}, {deltas}\n{CODE}"))
    assert found["left"] >= 5  # kills did come while files were written
    assert found["versions"] >= 25
    assert found["after"] == (["base.safetensors"] if deltas else ["layer"])
    if not deltas:
        assert found["all"] == 1  # and what was left is gone
