"""The compile cache: found again by another process, and never a reason to fail."""

import shutil
from pathlib import Path

import pytest
from strategies import run_python

import fastemb

WORK = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import numpy as np, fastemb
    from fastemb.kernels.cpu import jit
    from fastemb.kernels.cpu.group import _cut_packed
    rows, starts, positions, count = np.full((4, 4), -1)
    keys = np.array([1 << 2 | 0, 1 << 2 | 2, 3 << 2 | 1], np.uint64)
    starts[0] = 0
    count[0] = _cut_packed(rows, starts, positions, keys, 2, 9, 0, 3, 0, 0)  # of a factory, and soon compiled
    found = rows[:2].tolist(), starts[:3].tolist(), positions[:3].tolist(), count[0]
    assert found == ([1, 3], [0, 2, 3], [0, 2, 1], 2), found
    table = np.ones((4, 3))
    assert fastemb.gather(table, [3]).tolist() == [[1, 1, 1]]
hits = sum(sum(k.stats.cache_hits.values()) for k in (fastemb.kernels.cpu.gather_range, _cut_packed))
print(fastemb.__file__, jit.cache_folder(), hits, len(caught), sep="\\n")
for warning in caught:
    print(warning.category.__name__, warning.message)
"""


def run(code, folder, **environment):
    """Lines printed by a process that imports the package from `folder`, with no cache set but by `environment`."""
    unset = dict.fromkeys(("NUMBA_CACHE_DIR", "FASTEMB_CACHE", "XDG_CACHE_HOME"))
    return run_python(code, folder="/", **{**unset, "PYTHONPATH": str(folder), **environment}).splitlines()


@pytest.fixture
def copied(tmp_path):
    """A folder with a copy of the installed package, without its caches."""
    target = tmp_path / "site"
    shutil.copytree(Path(fastemb.__file__).parent, target / "fastemb", ignore=shutil.ignore_patterns("__pycache__"))
    return target


def forbid_caches(folder):
    """Where a folder of compiled kernels would go, put a file: not even root can write there."""
    for package in [folder / "fastemb", *(p.parent for p in folder.rglob("__init__.py"))]:
        shutil.rmtree(package / "__pycache__", ignore_errors=True)
        (package / "__pycache__").write_text("")
    return {"HOME": None, "XDG_CACHE_HOME": "/dev/null/none", "PYTHONDONTWRITEBYTECODE": "1"}


def test_another_process_finds_the_kernels(copied):
    file, folder, hits, warned, *_ = run(WORK, copied)
    assert Path(file).parent == copied / "fastemb"
    assert (hits, warned) == ("0", "0")
    assert list(Path(folder).glob("*.nbc"))
    assert run(WORK, copied)[2:] == ["2", "0"]


def test_a_change_in_any_kernel_file_makes_all_stale(copied):
    run(WORK, copied)
    source = copied / "fastemb/kernels/cpu/check.py"
    source.write_text(source.read_text() + "\n# changed\n")
    assert run(WORK, copied)[2] == "0"
    assert run(WORK, copied)[2] == "2"


def test_no_folder_can_be_written(copied):
    _, folder, hits, warned, text = run(WORK, copied, **forbid_caches(copied))
    assert (folder, hits, warned) == ("None", "0", "1")
    assert text.startswith("RuntimeWarning fastemb cannot keep compiled kernels on disk (")
    assert "Set NUMBA_CACHE_DIR to a writable folder, or FASTEMB_CACHE=0" in text


def test_a_folder_that_is_gone_at_the_first_call(copied, tmp_path):
    cache = tmp_path / "cache"
    code = WORK.replace(
        "    rows, starts, positions, count =",
        f"    import shutil, pathlib, fastemb.kernels.cpu; cache = pathlib.Path({str(cache)!r})\n"
        "    shutil.rmtree(cache); cache.write_text('')\n    rows, starts, positions, count =",
    )
    *_, warned, text = run(code, copied, NUMBA_CACHE_DIR=str(cache))
    assert warned == "1"
    assert text.startswith("RuntimeWarning fastemb cannot keep compiled kernels on disk (")


def test_copies_of_the_same_sources_share_a_folder_that_is_named(copied, tmp_path):
    other, cache = tmp_path / "another", tmp_path / "cache"
    shutil.copytree(copied, other, symlinks=True)
    first, second = (run(WORK, place, NUMBA_CACHE_DIR=str(cache)) for place in (copied, other))
    assert first[1:] == [second[1], "0", "0"]
    assert second[2:] == ["2", "0"]
    source = other / "fastemb/kernels/cpu/rows.py"
    source.write_text(source.read_text() + "\n")
    changed = run(WORK, other, NUMBA_CACHE_DIR=str(cache))
    assert changed[1] != first[1]
    assert changed[2] == "0"
    assert run(WORK, copied, NUMBA_CACHE_DIR=str(cache))[2] == "2"


def test_a_damaged_cache_is_compiled_again(copied, tmp_path):
    cache = tmp_path / "cache"
    run(WORK, copied, NUMBA_CACHE_DIR=str(cache))
    for file in cache.rglob("*.nb[ci]"):
        file.write_bytes(file.read_bytes()[:40])
    assert run(WORK, copied, NUMBA_CACHE_DIR=str(cache))[2] == "0"
    assert run(WORK, copied, NUMBA_CACHE_DIR=str(cache))[2:] == ["2", "0"]


@pytest.mark.parametrize("value", ["0", "off", "FALSE"])
def test_the_switch(copied, value):
    assert run(WORK, copied, FASTEMB_CACHE=value)[1:] == ["None", "0", "0"]
    assert not list(copied.rglob("*.nb[ci]"))


def test_the_switch_on(copied):
    assert run(WORK, copied, FASTEMB_CACHE="1")[1] != "None"


def test_the_package_works_without_compiling(copied):
    code = """
import numpy as np, fastemb
table, ids, grad = np.ones((300, 2)), np.arange(5000) % 7, np.ones((5000, 2))
fastemb.scatter_add(table, ids, grad)
rule = fastemb.optim.SGD(lr=1.0)
rule.step(table, rule.init(table), ids, grad)
fastemb.renorm_(table, [299], 1.0)
print(fastemb.gather(table, ids[:3]).sum(), fastemb.gather(table, ids).sum())
"""
    assert run(code, copied, NUMBA_DISABLE_JIT="1") == ["6.0 10000.0"]


def test_rules_of_one_signature_are_told_apart(copied):
    with (copied / "fastemb/kernels/cpu/update.py").open("a") as source:
        source.write("""
@jit(fastmath=EXACT)
def _ascent(weight, state, total, numbers):
    return weight + numbers[0] * total, state


ascent_range, ascent = row_pass(_ascent)
""")
    code = """
import numpy as np
from fastemb.kernels.cpu import update
for name in NAMES:
    table = np.zeros((2, 1))
    runs = np.array([1]), np.array([0, 1]), np.arange(1), np.empty(0)
    getattr(update, name)(table, (), np.ones((1, 1)), *runs, (1.0, 1.0), False)
    print(table[1, 0])
"""
    assert run(code.replace("NAMES", "('sgd', 'ascent')"), copied) == ["-1.0", "1.0"]
    assert run(code.replace("NAMES", "('ascent', 'sgd')"), copied) == ["1.0", "-1.0"]


def test_rules_that_two_processes_compiled_are_told_apart(copied):
    """Each process counts its functions from one, so code of two rules could come to the third under one name."""
    code = """
import numpy as np, fastemb
from fastemb import optim
for rule in RULES:
    table = np.zeros((2, 1))
    state = rule.init(table)
    for _ in range(2):
        rule.step(table, state, [1], np.ones((1, 1)))
    print(table[1, 0].round(6))
"""
    rules = {"optim.Adam(lr=0.1)": "-0.2", "optim.Momentum(lr=0.1, momentum=0.5)": "-0.25"}
    run(code.replace("RULES", "[optim.SGD(lr=0.1)]"), copied)  # from here on each process compiles its rule alone
    for rule, moved in rules.items():
        assert run(code.replace("RULES", f"[{rule}]"), copied) == [moved]
    assert run(code.replace("RULES", f"[{', '.join(rules)}]"), copied) == [*rules.values()]


def test_variants_have_files_of_their_own(copied):
    code = "import numpy as np, fastemb; print(fastemb.gather(np.ones((2, 1), '{}'), [1])[0, 0])"
    folder = copied / "fastemb/kernels/cpu/__pycache__"
    for dtype in ("f4", "f8"):
        assert run(code.format(dtype), copied) == ["1.0"]
    assert (
        len(list(folder.glob("gather.gather_range-*.nbi"))) == len(list(folder.glob("gather.gather_range-*.nbc"))) == 2
    )
