"""The examples of the Markdown files run and print what they say."""

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

RUN_ELSEWHERE = {"import cupy": "devices/test_readme.py", "import torch": "interop/test_readme.py"}
"""First lines of blocks of README that need more than NumPy and Numba, and the tests that run them."""


@pytest.mark.parametrize("file", ["README.md", "kernels/README.md"])
def test_examples(file):
    result = doctest.testfile(str(ROOT / file), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0


def test_no_python_block_escapes_the_check():
    for file in [*ROOT.glob("*.md"), *ROOT.glob("kernels/*.md"), *ROOT.glob("benches/*.md")]:
        text = file.read_text()
        for block in text.split("```python\n")[1:]:
            elsewhere = RUN_ELSEWHERE.get(block.partition("\n")[0])
            if elsewhere is None:
                assert block.startswith(">>> "), f"{file.name}: write it with >>> so that it is run"
            else:
                assert "README.md" in (Path(__file__).parent / elsewhere).read_text()
