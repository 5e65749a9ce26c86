"""The tests of several ranks, on one to four."""

import re
import sys
from pathlib import Path

import pytest
from sharded.launch import ROOT, mpiexec

FILES = sorted(Path(__file__).parent.glob("ranks_*.py"))


OPTIONS = ["-q", "-c", ROOT / "pyproject.toml", "--rootdir", ROOT, "-p", "no:cacheprovider", "--benchmark-disable"]


def passed(ranks, *files):
    """How many tests of some files each rank has passed; none has skipped one."""
    done = mpiexec(ranks, "-m", "pytest", *OPTIONS, *files, FASTEMB_TEST_RANKS="1")
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout
    (count,) = set(re.findall(r"(\d+) passed", done.stdout))
    return int(count)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_on_ranks(ranks):
    assert passed(ranks, *FILES) > 200


@pytest.mark.skipif(sys.platform != "linux", reason="the emulator of kernels for CUDA is for Linux")
def test_rows_on_gpus_without_gpus():
    assert passed(2, Path(__file__).with_name("gpu_ranks.py")) == 4
