"""torch's ways in ``benches/device.py``, on the CPU: the results of fastemb's."""

import contextlib

import numpy as np
import pytest

from benches.gpu import cases, check, problems

torch = pytest.importorskip("torch", reason="torch is not installed; `make test-peers` brings it")
torch.sparse.check_sparse_tensor_invariants.disable()  # or torch warns that nobody has decided

TOOLS = problems.Tools(np, torch, lambda when: contextlib.nullcontext())
BAGS = [("bag", "")] + [("update", rule) for rule in ("SGD", "Adagrad", "Adam", "RowWiseAdagrad")]


@pytest.mark.parametrize("stream", ["uniform", "zipf 1.15", "one row"])
@pytest.mark.parametrize(("op", "rule"), [("gather", ""), ("scatter", ""), *BAGS])
def test_torch_gives_the_same(op, rule, stream):
    hot = 16 if (op, rule) in BAGS else 1
    case = cases.Case(op, 700, 24, 60, hot, stream, "float32", rule)
    assert check.compare(case, TOOLS) == (True, {})
    names = [way.name for way in problems.ways(case, problems.device_arrays(case, np), TOOLS)]
    assert any(name.startswith("torch") for name in names) == (rule != "RowWiseAdagrad")
