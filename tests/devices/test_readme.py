"""The example of README, run where there is no GPU."""

import re
from pathlib import Path

import numpy as np

import fastemb

README = Path(__file__).parents[2] / "README.md"


def test_training_on_a_gpu(stand_in):
    (code,) = re.findall(r"```python\n(import cupy\n.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    exec(code, names)
    emb = fastemb.Embedding(50_000, 64, optimizer=fastemb.optim.Adam(lr=0.01), seed=0)
    ids = np.array([[3, 14, 3], [15, 9, 2]])
    for _ in range(10):
        emb.fused_step(ids, 2 * (emb(ids) - 1))
    np.testing.assert_array_equal(names["weight"], emb.weight)
    assert names["emb"].device == "cpu"
