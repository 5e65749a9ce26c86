"""The PyTorch drop-in on torch's own samples of the four operations, and on its test file where there is a copy."""

import os
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; `make test-peers` brings it")
pytest.importorskip("expecttest", reason="torch's samples need it; `make test-peers` brings it")

from fastemb.interop import _torch_tensors  # noqa: E402
from fastemb.interop import torch as ours  # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
OPERATIONS = {
    "nn.functional.embedding": (torch.nn.functional.embedding, ours.embedding),
    "nn.functional.embedding_bag": (torch.nn.functional.embedding_bag, ours.embedding_bag),
}
EXCLUDED = {
    "test_embedding_bag_2D_padding_idx": "compares the number of entries of sparse gradients: ours are coalesced",
}
"""Tests of torch's file that kernels which serve every size do not pass."""


@pytest.fixture(params=[0, _torch_tensors.smallest], ids=["kernels", "as it comes"])
def smallest(request, monkeypatch):
    """Kernels for every size, and for sizes that are worth it: samples are small."""
    monkeypatch.setattr(_torch_tensors, "smallest", request.param)
    return request.param


@pytest.fixture(scope="module")
def internal():
    """(op_db, module_db) of the installed torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch.jit.script, which torch itself calls
        from torch.testing._internal import common_methods_invocations, common_modules
    return common_methods_invocations.op_db, common_modules.module_db


def results(call, weight, sample):
    """What an operation gives and does: result, table, gradients of the table and of the weights."""
    weight = weight.detach().clone().requires_grad_(weight.requires_grad)
    options = dict(sample.kwargs)
    weights = options.get("per_sample_weights")
    if weights is not None:
        weights = options["per_sample_weights"] = weights.detach().clone().requires_grad_(weights.requires_grad)
    out = call(*sample.args, weight, **options)
    wanted = [t for t in (weight, weights) if t is not None and t.requires_grad]
    grads = torch.autograd.grad(out, wanted, torch.ones_like(out)) if wanted else []
    return [out.detach(), weight.detach(), *(g.to_dense() if g.is_sparse else g for g in grads)]


def test_samples_of_the_functions(internal, smallest, capsys):
    ran = errors = 0
    for op in internal[0]:
        if op.name not in OPERATIONS:
            continue
        theirs, mine = OPERATIONS[op.name]
        for dtype in DTYPES:
            for requires_grad in (False, True):
                for sample in op.sample_inputs("cpu", dtype, requires_grad=requires_grad):
                    got, expected = (results(call, sample.input, sample) for call in (mine, theirs))
                    torch.testing.assert_close(got, expected)
                    ran += 1
        for bad in op.error_inputs("cpu") if op.error_inputs_func else ():
            sample = bad.sample_input
            with pytest.raises(bad.error_type, match=bad.error_regex):
                mine(*sample.args, sample.input, **sample.kwargs)
            errors += 1
    assert ran > 100
    assert errors > 0
    with capsys.disabled():
        print(f"\n{ran} samples and {errors} errors of torch's functions, kernels from {smallest} elements")


def test_samples_of_the_modules(internal, smallest, capsys):
    ran = errors = 0
    for info in internal[1]:
        if info.module_cls not in (torch.nn.Embedding, torch.nn.EmbeddingBag):
            continue
        mine = getattr(ours, info.module_cls.__name__)
        for dtype in DTYPES:
            for inputs in info.module_inputs_func(info, "cpu", dtype, requires_grad=True, training=True):
                made, called = inputs.constructor_input, inputs.forward_input
                modules = [kind(*made.args, **made.kwargs).to(dtype) for kind in (mine, info.module_cls)]
                modules[0].load_state_dict(modules[1].state_dict())
                assert repr(modules[0]) == repr(modules[1])
                outs = [module(*called.args, **called.kwargs) for module in modules]
                for out in outs:
                    out.sum().backward()
                torch.testing.assert_close(*outs)
                torch.testing.assert_close(*(module.weight.grad for module in modules))
                ran += 1
        for bad in info.module_error_inputs_func(info, "cpu", torch.float32, requires_grad=False, training=False):
            made, called = bad.module_error_input.constructor_input, bad.module_error_input.forward_input
            with pytest.raises(bad.error_type, match=bad.error_regex):
                mine(*made.args, **made.kwargs)(*called.args, **called.kwargs)
            errors += 1
    assert ran > 0
    assert errors > 0
    with capsys.disabled():
        print(f"\n{ran} samples and {errors} errors of torch's modules, kernels from {smallest} elements")


REPLACE = """
import sys, pytest, torch
from fastemb.interop import _torch_tensors, torch as ours
_torch_tensors.smallest = int(sys.argv[1])
torch.nn.Embedding, torch.nn.EmbeddingBag = ours.Embedding, ours.EmbeddingBag
torch.nn.functional.embedding, torch.nn.functional.embedding_bag = ours.embedding, ours.embedding_bag
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""


@pytest.mark.skipif(
    "FASTEMB_TORCH_TESTS" not in os.environ,
    reason="FASTEMB_TORCH_TESTS names no copy of test/nn/test_embedding.py of torch's sources",
)
def test_the_test_file_of_torch(smallest, tmp_path, capsys):
    chosen = [] if smallest else ["-k", " and ".join(f"not {name}" for name in EXCLUDED)]
    command = [sys.executable, "-c", REPLACE, str(smallest), *chosen, os.environ["FASTEMB_TORCH_TESTS"]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout[-4000:]
    with capsys.disabled():
        print(f"\ntorch's test file, kernels from {smallest} elements: {done.stdout.splitlines()[-1]}")
