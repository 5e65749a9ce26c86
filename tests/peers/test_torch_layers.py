"""The PyTorch drop-in: layers and functions against torch's, in every place where torch's work."""

import copy
import inspect
import io
import os
import subprocess
import sys

import numpy as np
import pytest
from strategies import run_python

torch = pytest.importorskip("torch", reason="torch is not installed; `make test-peers` brings it")

from fastemb.interop import _torch_operators, _torch_tensors  # noqa: E402
from fastemb.interop import torch as ours  # noqa: E402

F = torch.nn.functional
IDS = torch.tensor([[3, 1, 1, 0], [4, 0, 3, 6]])
BAGS = [
    (IDS, None, {}),
    (IDS.reshape(-1), torch.tensor([0, 0, 5]), {}),
    (IDS.reshape(-1).int(), torch.tensor([0, 2, 2, 8]), {"include_last_offset": True}),
    (torch.tensor([], dtype=torch.int64), torch.tensor([0, 0]), {}),
]


@pytest.fixture(autouse=True)
def _kernels_for_every_size(monkeypatch):
    monkeypatch.setattr(_torch_tensors, "smallest", 0)


def table(dtype=torch.float64, rows=7, width=3):
    made = torch.arange(rows * width, dtype=dtype).reshape(rows, width).sin()
    return made.requires_grad_()


def gradients(out, *of):
    torch.manual_seed(0)
    found = torch.autograd.grad(out, of, torch.randn_like(out))
    return [g.to_dense() if g.is_sparse else g for g in found]


@pytest.mark.parametrize("name", ["embedding", "embedding_bag"])
def test_signatures(name):
    def arguments(function):
        return [(p.name, p.default) for p in inspect.signature(function).parameters.values()]

    assert arguments(getattr(ours, name)) == arguments(getattr(F, name))
    module = "Embedding" if name == "embedding" else "EmbeddingBag"
    for method in ("__init__", "forward", "from_pretrained"):
        assert arguments(getattr(getattr(ours, module), method)) == arguments(
            getattr(getattr(torch.nn, module), method)
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 0}, {"padding_idx": -6}, {"max_norm": 0.8, "norm_type": 1.0}])
def test_lookups(dtype, sparse, options):
    results = []
    for function in (ours.embedding, F.embedding):
        weight = table(dtype)
        out = function(IDS, weight, sparse=sparse, **options)
        results.append([out.detach(), weight.detach(), *gradients(out, weight)])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 0}, {"max_norm": 0.8}, {"sparse": True}])
@pytest.mark.parametrize("case", range(len(BAGS)))
def test_bags(mode, options, case):
    if mode == "max":
        options = {name: value for name, value in options.items() if name != "sparse"}
    ids, offsets, more = BAGS[case]
    results = []
    for function in (ours.embedding_bag, F.embedding_bag):
        weight = table()
        weights = torch.linspace(-1, 2, ids.numel(), dtype=weight.dtype).reshape(ids.shape).requires_grad_()
        weighted = {"per_sample_weights": weights} if mode == "sum" else {}
        out = function(ids, weight, offsets, mode=mode, **options, **more, **weighted)
        wanted = [weight, weights] if weighted else [weight]
        results.append([out.detach(), weight.detach(), *gradients(out, *wanted)])
    torch.testing.assert_close(*results)


def test_bags_by_frequency(monkeypatch):
    """By the definition: torch's own bags divide by the count of another index, so no size is left to them."""
    monkeypatch.undo()
    for mode in ("sum", "mean"):
        weight, other = table(), table()
        out = ours.embedding_bag(IDS, weight, mode=mode, scale_grad_by_freq=True)
        rows = F.embedding(IDS, other, scale_grad_by_freq=True)
        torch.testing.assert_close(gradients(out, weight), gradients(getattr(rows, mode)(1), other))
    for options in ({"scale_grad_by_freq": True}, {"sparse": True}):
        with pytest.raises(ValueError, match="max mode does not support"):
            ours.embedding_bag(IDS, table(), mode="max", **options)


def test_the_kernels_do_the_work_and_nothing_is_copied(monkeypatch):
    seen = []

    def gather(weight, indices):
        seen.append((weight, indices))
        return np.full((*indices.shape, weight.shape[1]), 7.0)

    monkeypatch.setattr(_torch_operators.functional, "gather", gather)
    weight = table()
    out = ours.embedding(IDS, weight)
    assert (out == 7).all()
    ((array, indices),) = seen
    assert (array.ctypes.data, indices.ctypes.data) == (weight.data_ptr(), IDS.data_ptr())


@pytest.mark.parametrize(
    ("weight", "ids"),
    [
        (table().half(), IDS),
        (table().bfloat16(), IDS),
        (torch.arange(21).reshape(7, 3), IDS),
        (table().to("meta"), IDS.to("meta")),
        (table().detach().as_subclass(type("Own", (torch.Tensor,), {})), IDS),
    ],
    ids=["half", "bfloat16", "integers", "meta", "subclass"],
)
def test_what_torch_serves_itself(weight, ids, monkeypatch):
    monkeypatch.setattr(_torch_operators.functional, "gather", None)
    out, expected = ours.embedding(ids, weight), F.embedding(ids, weight)
    assert type(out) is type(expected)
    assert out.device == expected.device
    if not out.is_meta:
        torch.testing.assert_close(out, expected)


def test_without_torch():
    code = "import sys; sys.modules['torch'] = None; import fastemb.interop.torch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ImportError: fastemb.interop.torch needs PyTorch: pip install 'fastemb[torch]'" in done.stderr
    code = "import sys, fastemb, fastemb.interop; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_backends():
    found = ours.backends()
    assert {name for name, served in found.items() if served == "fastemb.kernels.cpu"} == {"cpu float32", "cpu float64"}
    assert found["cpu bfloat16"] == "torch"


def test_errors_are_those_of_torch_and_tell_the_rest():
    for function in (F.embedding, ours.embedding):
        with pytest.raises(IndexError, match="^index out of range in self$") as caught:
            function(torch.tensor([1, 9]), table())
    assert "must be in [0, 7), but got values in [1, 9]" in str(caught.value.__context__)
    weight, before = table(), table()
    with pytest.raises(IndexError):
        ours.embedding(torch.tensor([1, 9]), weight, max_norm=0.1)
    assert torch.equal(weight, before)
    for function in (F.embedding_bag, ours.embedding_bag):
        with pytest.raises(RuntimeError, match="Expected idx >= 0 && idx < num_embeddings"):
            function(torch.tensor([[1, 9]]), table())
    weight = table()
    product = (weight * weight).sum()
    ours.embedding(IDS, weight, max_norm=0.1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


@pytest.mark.parametrize("power", [1, 3])
def test_gradcheck_of_lookups(power):
    def call(weight):
        return ours.embedding(IDS, weight) ** power

    assert torch.autograd.gradcheck(call, table(), check_batched_grad=True)
    assert torch.autograd.gradgradcheck(call, table(), check_batched_grad=True)


@pytest.mark.parametrize("options", [{"padding_idx": 1}, {"scale_grad_by_freq": True}])
def test_second_derivatives_with_options(options):
    weight = table()

    def first(grad):
        (found,) = torch.autograd.grad(ours.embedding(IDS, weight, **options), weight, grad, create_graph=True)
        return found

    grad = torch.linspace(0, 1, 24, dtype=weight.dtype).reshape(2, 4, 3).requires_grad_()
    assert torch.autograd.gradcheck(first, grad)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding_idx", [None, 0])
@pytest.mark.parametrize("case", range(3))
def test_gradcheck_of_bags(mode, padding_idx, case):
    ids, offsets, more = BAGS[case]
    weights = torch.linspace(-1, 2, 8, dtype=torch.float64).reshape(ids.shape).requires_grad_()

    def call(weight, *weights):
        weighted = {"per_sample_weights": weights[0]} if weights else {}
        return ours.embedding_bag(ids, weight, offsets, mode=mode, padding_idx=padding_idx, **more, **weighted)

    inputs = (table(), weights) if mode == "sum" else (table(),)
    assert torch.autograd.gradcheck(call, inputs, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(call, inputs, check_batched_grad=True)


class Model(torch.nn.Module):
    """Every kind of layer."""

    def __init__(self, nn=ours):
        super().__init__()
        self.words = nn.Embedding(7, 4, padding_idx=0)
        self.short = nn.Embedding(7, 4, max_norm=1.0)
        self.bag = nn.EmbeddingBag(7, 4, mode="sum")
        self.best = nn.EmbeddingBag(7, 4, mode="max", padding_idx=3)
        self.mean = nn.EmbeddingBag(7, 4)
        self.head = torch.nn.Linear(4, 2)

    def forward(self, ids, weights=None):
        rows = self.words(ids).mean(1) + self.short(ids).sum(1)
        return self.head(rows + self.bag(ids, per_sample_weights=weights) + self.best(ids) + self.mean(ids))


def twins():
    """Our model, and torch's with the same numbers."""
    theirs = Model(torch.nn)
    mine = Model()
    mine.load_state_dict(theirs.state_dict())
    return mine, theirs


def test_modules_are_those_of_torch():
    mine, theirs = twins()
    assert repr(mine) == repr(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert isinstance(mine.words, torch.nn.Embedding)
    assert isinstance(mine.bag, torch.nn.EmbeddingBag)
    saved = io.BytesIO()
    torch.save(mine.state_dict(), saved)
    saved.seek(0)
    theirs.load_state_dict(torch.load(saved, weights_only=True))
    again = copy.deepcopy(mine)
    assert type(again.words) is ours.Embedding
    torch.testing.assert_close(again(IDS), mine(IDS))


def step_of(model, call):
    model.zero_grad()
    out = call(IDS, torch.linspace(0, 1, 8).reshape(2, 4))
    out.square().sum().backward()
    return [out.detach(), *(p.grad for p in model.parameters()), *(p.detach() for p in model.parameters())]


def test_training_step():
    mine, theirs = twins()
    torch.testing.assert_close(step_of(mine, mine), step_of(theirs, theirs))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(backend, dynamic):
    torch._dynamo.reset()
    mine, theirs = twins()
    compiled = torch.compile(mine, fullgraph=True, backend=backend, dynamic=dynamic)
    torch.testing.assert_close(step_of(mine, compiled), step_of(theirs, theirs))
    with torch.no_grad():
        torch.testing.assert_close(compiled(IDS[:1]), theirs(IDS[:1]))


def test_operators_as_torch_checks_them():
    weight, grad = table(), torch.ones(2, 4, 3, dtype=torch.float64)
    torch.library.opcheck(_torch_operators.lookup.operator, (weight, IDS, -1, False, False))
    torch.library.opcheck(_torch_operators.scatter.operator, (grad.requires_grad_(), IDS, 7, 0, False))


def test_autocast_no_grad_and_inference():
    mine, theirs = twins()
    for context in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16)):
        with context:
            out, expected = mine(IDS), theirs(IDS)
            torch.testing.assert_close(out, expected)
            assert (out.requires_grad, out.is_inference()) == (expected.requires_grad, expected.is_inference())


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch calls it itself
def test_a_device_as_context_and_transforms():
    weight = table().detach()
    with torch.device("cpu"):
        torch.testing.assert_close(ours.embedding(IDS, weight), F.embedding(IDS, weight))
    for mine, theirs in ((ours.embedding, F.embedding), (ours.embedding_bag, F.embedding_bag)):
        both = [lambda w, f=f: f(IDS, w).square().sum() for f in (mine, theirs)]
        torch.testing.assert_close(*(torch.func.grad(f)(weight) for f in both))
        if theirs is F.embedding:  # torch's bags have no forward mode
            torch.testing.assert_close(*(torch.func.jvp(f, (weight,), (weight,)) for f in both))


WORKERS = """
import multiprocessing, torch
from fastemb.interop.torch import Embedding

class Lookups(torch.utils.data.Dataset):
    def __init__(self, layer):
        self.layer = layer

    def __len__(self):
        return 4

    def __getitem__(self, k):
        with torch.no_grad():
            return self.layer(torch.arange(k, 40_000 + k) % 100).sum(0)

data = Lookups(Embedding(100, 16))
expected = torch.stack([data[k] for k in range(4)])
context = multiprocessing.get_context("fork")
loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context=context)
torch.testing.assert_close(torch.cat(list(loader)), expected)
print("the same")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_workers_that_fork():
    """In a process of its own: this one may have threads of other libraries, which do not survive a fork."""
    assert run_python(WORKERS) == "the same\n"
