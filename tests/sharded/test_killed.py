"""A rank that dies ends the job, with a message; training goes on from the checkpoint on another number of ranks."""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from sharded.launch import mpiexec

import fastemb

SCRIPT = Path(__file__).with_name("training.py")
STEPS = 12
SECONDS = 60
"""Within which a job has to end, Python's start on loaded machines included."""


@pytest.fixture(scope="module")
def expected():
    """The table after all steps in one process that nobody interrupts."""
    from sharded import training

    emb = fastemb.Embedding.from_pretrained(training.table(), freeze=False, optimizer=training.optimizer())
    for t in range(STEPS):
        ids = training.ids_of(t)
        emb.fused_step(ids, training.gradient_of(emb(ids)))
    return emb.weight


def run(ranks, folder, *arguments):
    return mpiexec(ranks, "-m", "mpi4py", SCRIPT, folder, STEPS, *arguments, seconds=SECONDS)


def alive(folder):
    """Whether a process of the last job is still there."""
    for path in folder.glob("*.pid"):
        try:
            os.kill(int(path.read_text()), 0)
        except ProcessLookupError:
            continue
        return True
    return False


def files_in(folder):
    """The names of all files."""
    return {path.name for path in folder.iterdir()}


def named_in(folder):
    """The names of a whole checkpoint's files."""
    files = json.loads((folder / "manifest.json").read_text())["files"]
    return {"manifest.json", *(file["name"] for file in files)}


def test_ranks_without_an_accident(tmp_path, expected):
    done = run(3, tmp_path)
    assert done.returncode == 0, done.stdout
    np.testing.assert_array_equal(np.load(tmp_path / "table.npy"), expected)


@pytest.mark.parametrize(
    ("how", "at", "saved", "message"),
    [
        ("kill", 7, 6, "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"),
        ("kill-in-save", 5, 3, "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"),
        ("raise", 10, 9, "ArithmeticError: only here"),
    ],
)
def test_a_rank_dies_and_others_go_on(tmp_path, expected, how, at, saved, message):
    done = run(3, tmp_path, how, 1, at)
    assert done.returncode != 0
    assert "from step 0 on 3 ranks" in done.stdout
    assert message in done.stdout
    assert not (tmp_path / "table.npy").exists()
    deadline = time.monotonic() + 10
    while alive(tmp_path):
        assert time.monotonic() < deadline, "a rank is still there"
        time.sleep(0.05)
    checkpoints = tmp_path / "checkpoints"
    assert (how == "kill-in-save") == (files_in(checkpoints) != named_in(checkpoints))
    ranks = 2 if how == "kill" else 4
    done = run(ranks, tmp_path)
    assert done.returncode == 0, done.stdout
    assert f"from step {saved} on {ranks} ranks" in done.stdout
    np.testing.assert_array_equal(np.load(tmp_path / "table.npy"), expected)
    assert files_in(checkpoints) == named_in(checkpoints)
