"""Calls on CUDA tensors run on torch's current stream; stand-ins take the place of a GPU."""

import contextlib
import types

import pytest

from fastemb import optim

torch = pytest.importorskip("torch", reason="torch is not installed; `make test-peers` brings it")

from fastemb.interop import _torch_bags, _torch_operators, _torch_optim, _torch_tensors  # noqa: E402
from fastemb.interop import torch as ours  # noqa: E402

torch.sparse.check_sparse_tensor_invariants.disable()  # or torch warns that nobody has decided


def test_the_stream_is_torchs(monkeypatch):
    streams = {"cuda:0": 7, "cuda:1": 8}
    fake = types.SimpleNamespace(cuda=types.SimpleNamespace(ExternalStream=lambda pointer: ("stream", pointer)))
    monkeypatch.setattr(_torch_tensors, "cupy", lambda: fake)
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda device: types.SimpleNamespace(cuda_stream=streams[str(device)])
    )
    for device, pointer in streams.items():
        there = types.SimpleNamespace(is_cpu=False, device=torch.device(device))
        assert _torch_tensors.stream_of(there) == ("stream", pointer)


def test_the_host_has_no_stream(monkeypatch):
    monkeypatch.setattr(_torch_tensors, "cupy", None)
    monkeypatch.setattr(torch.cuda, "current_stream", None)
    with _torch_tensors.stream_of(torch.zeros(2)) as nothing:
        assert nothing is None


@pytest.fixture
def taken(monkeypatch):
    """For each tensor whose memory was taken, whether that was on the stream."""
    inside, taken = [], []

    @contextlib.contextmanager
    def stream_of(tensor):
        inside.append(tensor)
        yield
        inside.pop()

    def array(tensor):
        taken.append(bool(inside))
        return _torch_tensors.array(tensor)

    def array_or_none(tensor):
        return None if tensor is None else array(tensor)

    for module in (_torch_operators, _torch_bags, _torch_optim):
        for name, stand_in in (("stream_of", stream_of), ("array", array), ("array_or_none", array_or_none)):
            monkeypatch.setattr(module, name, stand_in, raising=name != "array_or_none")
    monkeypatch.setattr(_torch_tensors, "smallest", 0)
    return taken


IDS = torch.tensor([[1, 2], [2, 0]])
CASES = [
    (ours.Embedding, {"max_norm": 0.5}),
    (ours.Embedding, {"sparse": True}),
    (ours.EmbeddingBag, {"mode": "sum"}),
    (ours.EmbeddingBag, {"mode": "mean", "sparse": True}),
    (ours.EmbeddingBag, {"mode": "max"}),
]


@pytest.mark.parametrize(("kind", "options"), CASES)
@pytest.mark.parametrize("fused", [False, True])
def test_memory_is_taken_on_the_stream(kind, options, fused, taken):
    made = kind(4, 3, **options)
    if fused and options.get("mode") != "max":
        ours.fuse(made, optim.Adagrad(lr=0.1))
    weights = {"per_sample_weights": torch.ones(2, 2, requires_grad=True)} if options.get("mode") == "sum" else {}
    made(IDS, **weights).sum().backward()
    if not fused and options.get("sparse"):
        ours.RowOptimizer(made.parameters(), optim.Adagrad(lr=0.1)).step()
    assert len(taken) > 2 or options.get("mode") == "max"
    assert all(taken)
