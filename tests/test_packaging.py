"""What is listed, shipped and laid out agrees with what is there."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SOURCES = sorted([*ROOT.glob("fastemb/**/*.py"), *ROOT.glob("kernels/**/*.py"), *ROOT.glob("benches/**/*.py")])


def test_listed_packages_are_the_folders():
    folders = {
        "fastemb." + str(path.parent.relative_to(ROOT)).replace("/", ".")
        for path in ROOT.glob("kernels/**/__init__.py")
    }
    own = (path for path in ROOT.glob("fastemb/**/__init__.py") if "kernels" not in path.parts)
    folders |= {str(path.parent.relative_to(ROOT)).replace("/", ".") for path in own}
    assert sorted(folders) == sorted(PROJECT["tool"]["setuptools"]["packages"])


def test_symlink():
    link = ROOT / "fastemb/kernels"
    assert link.is_symlink()
    assert str(link.readlink()) == "../kernels"


def test_kernels_are_not_importable_by_themselves():
    done = subprocess.run(
        [sys.executable, "-c", "import kernels"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "ImportError: import fastemb.kernels, not kernels" in done.stderr


def test_dependencies_at_run_time():
    names = {re.match(r"\w+", requirement)[0] for requirement in PROJECT["project"]["dependencies"]}
    assert names == {"numba", "numpy"}


def imports(path):
    """(level, module) of every import in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""
        elif isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_arrows_run_one_way(path):
    part = path.relative_to(ROOT).parts
    for level, module in imports(path):
        if level == 0:
            assert module.split(".")[0] not in {"kernels", "tests"}
            assert part[0] == "benches" or module.split(".")[0] != "benches"
        if part[0] == "kernels":
            assert not module.startswith("fastemb")
            assert level < len(part), "a kernel file reaches out of kernels/"
        if part[:2] == ("fastemb", "nn"):
            assert not module.startswith("kernels"), "layers use functional and optim"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_are_small(path):
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("path", sorted(ROOT.glob("kernels/**/*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_kernel_states_its_flags(path):
    text = path.read_text()
    assert not re.search(r"@jit(?!\(fastmath=(EXACT|REASSOCIATE)[,)])", text)
    assert path.name == "jit.py" or "njit" not in re.sub(r"``@njit``", "", text)


@pytest.mark.parametrize("operation", ["check", "gather", "group", "renorm", "scatter", "update"])
def test_one_operation_has_one_file_name(operation):
    assert (ROOT / f"kernels/cpu/{operation}.py").exists()
    assert (ROOT / f"kernels/reference/{operation}.py").exists()
    assert operation == "check" or (ROOT / f"tests/test_{operation}.py").exists()
