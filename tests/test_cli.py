"""python -m fastemb."""

import json
import os
import subprocess
import sys

import pytest
from strategies import run_python

import fastemb
from fastemb import __main__ as cli
from fastemb import _warmup


def test_info_as_json(capsys):
    assert cli.main(["info", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {"versions", "cpu", "threads", "gpu", "cache", "environment"}
    assert report["versions"]["fastemb"] == fastemb.__version__
    assert report["versions"]["numpy"]
    assert report["cpu"]["cores"] >= 1
    assert report["threads"]["count"] >= 1
    assert report["threads"]["layer"] in {"omp", "tbb", "workqueue"}
    assert report["gpu"]["available"] is False
    assert report["gpu"]["reason"]
    assert report["environment"]["NUMBA_NUM_THREADS"] == os.environ["NUMBA_NUM_THREADS"]


def test_info_as_text(capsys):
    assert cli.main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "versions:"
    assert f"  fastemb              {fastemb.__version__}" in lines


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"FASTEMB_CACHE": "0"}, "switched off by FASTEMB_CACHE"),
        ({"NUMBA_DISABLE_JIT": "1"}, "NUMBA_DISABLE_JIT is set"),
        ({"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator", "NUMBA_CACHE_DIR": None}, "cannot cache function"),
    ],
)
def test_info_says_why_there_is_no_cache(environment, reason):
    report = json.loads(run_python("from fastemb import __main__; __main__.main(['info', '--json'])", **environment))
    assert report["cache"]["folder"] is None
    assert report["cache"]["reason"].startswith(reason)


def test_info_without_a_threading_layer():
    environment = {"NUMBA_THREADING_LAYER": "tbb"}
    report = json.loads(run_python("from fastemb import __main__; __main__.main(['info', '--json'])", **environment))
    assert report["threads"]["layer"] in {"tbb", None}
    assert report["threads"]["layer"] or "threading layer" in report["threads"]["reason"]


def test_no_command():
    done = subprocess.run([sys.executable, "-m", "fastemb"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "usage: python -m fastemb" in done.stderr


VARIANTS = """
import gc, json, numba.core.dispatcher
kernels = [k for k in gc.get_objects() if isinstance(k, numba.core.dispatcher.Dispatcher)]
kernels = [k for k in kernels if k.py_func.__module__.startswith("fastemb.kernels.cpu")]
print(json.dumps([f"{k.py_func.__qualname__} {types}" for k in kernels for types in k.overloads]))
"""


@pytest.mark.slow
def test_warmup_compiles_what_first_calls_need():
    # By what each process has compiled or found on disk, whoever put it there: so that nothing is compiled twice here.
    code = """
from fastemb import __main__
assert __main__.main(["warmup", "--dtype", "float32", "--index-dtype", "int64"]) == 0
"""
    *_, last, warm = run_python(code + VARIANTS, timeout=600).splitlines()
    assert last.startswith("Compiled kernels are in ")
    code = """
import numpy as np, fastemb
table = np.ones((3000, 4), np.float32)
for length in (10, 200_000):
    ids = np.arange(length) % 300
    grad = np.ones((length, 4), np.float32)
    fastemb.gather(table, ids)
    frozen = table.copy()
    frozen.flags.writeable = False
    fastemb.gather(frozen, ids)  # a memory-mapped table
    fastemb.scatter_add(table, ids, grad)
    rows = fastemb.embedding_grad(ids, grad, len(table))
    fastemb.renorm_(table, ids, 1.0)
    for rule in (fastemb.optim.SGD(), fastemb.optim.Adam()):
        rule.step(table, rule.init(table), ids, grad)
        rule.update(table, rule.init(table), rows)
"""
    used = set(json.loads(run_python(code + VARIANTS)))
    assert len(used) > 10
    assert used <= set(json.loads(warm)), sorted(used - set(json.loads(warm)))


def test_warmup_without_a_cache(monkeypatch, capsys):
    monkeypatch.setattr("fastemb.kernels.cpu.jit.cache_folder", lambda: None)
    assert cli.main(["warmup"]) == 1
    assert "Compiled kernels are not kept" in capsys.readouterr().err


@pytest.mark.slow
def test_progress_without_rich(monkeypatch, capsys):
    monkeypatch.setattr(_warmup, "optional", lambda name: None)
    calls = _warmup.warmup(["float32"], ["int64"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == calls // 2
    assert lines[0] == f"[1/{len(lines)}] gather few rows float32 int64"
