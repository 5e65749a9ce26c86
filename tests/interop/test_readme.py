"""The example of README with torch runs, and trains."""

import re
from pathlib import Path

import torch

README = Path(__file__).parents[2] / "README.md"


def test_training_in_torch():
    (code,) = re.findall(r"```python\n(import torch\n.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    torch.manual_seed(0)
    exec(code, names)
    layer, table = names["layer"], names["model"][0].weight
    torch.manual_seed(0)
    start = torch.nn.Embedding(50_000, 64, padding_idx=0).weight
    moved = (layer.weight != start).any(dim=1).nonzero().ravel().tolist()
    assert moved == [3, 14]
    torch.testing.assert_close(layer.weight[3], start[3] - 0.01)  # Adam's first step
    assert table.grad is None
    other = torch.nn.Embedding(50_000, 64).weight
    assert (table != other).any(dim=1).nonzero().ravel().tolist() == [3, 14]
