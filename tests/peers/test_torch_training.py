"""Models of the documents and of torch's users, with one import line changed."""

import copy
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; `make test-peers` brings it")

from fastemb import optim  # noqa: E402
from fastemb.interop import _torch_tensors  # noqa: E402
from fastemb.interop import torch as ours  # noqa: E402

nn, F = torch.nn, torch.nn.functional


@pytest.fixture(autouse=True)
def _kernels_for_every_size(monkeypatch):
    monkeypatch.setattr(_torch_tensors, "smallest", 0)


def text_classifier(Embedding):
    """Document 002's model."""

    class TextClassifier(nn.Module):
        def __init__(self, vocab_size, dim, num_classes):
            super().__init__()
            self.embed = Embedding(vocab_size, dim, padding_idx=0)
            self.fc = nn.Linear(dim, num_classes)

        def forward(self, ids):
            return self.fc(self.embed(ids).mean(dim=1))

    return TextClassifier(vocab_size=20, dim=8, num_classes=2)


def positions(Embedding):
    """Document 003's learned positions and biases of distances, under a lookup of words."""

    class Positions(nn.Module):
        def __init__(self, vocab_size=20, dim=8, max_len=6):
            super().__init__()
            self.max_len = max_len
            self.words = Embedding(vocab_size, dim, padding_idx=0)
            self.places = Embedding(max_len, dim)
            self.distances = Embedding(2 * max_len + 1, 1)
            self.fc = nn.Linear(dim, 2)

        def forward(self, ids):
            place = torch.arange(ids.shape[1]).unsqueeze(0).expand(len(ids), -1)
            rows = self.words(ids) + self.places(place)
            apart = (place[0].unsqueeze(0) - place[0].unsqueeze(1)).clamp(-self.max_len, self.max_len)
            bias = self.distances(apart + self.max_len).squeeze(-1)
            return self.fc((bias.softmax(-1) @ rows).mean(dim=1))

    return Positions()


def rare_tokens(Embedding):
    """Document 003's words that come from their characters when they are unknown, and its rows of limited norm."""

    class Words(nn.Module):
        def __init__(self, vocab_size=20, dim=8):
            super().__init__()
            self.token_embed = Embedding(vocab_size, dim, padding_idx=0)
            self.char_embed = Embedding(256, dim, max_norm=1.0)
            self.char_conv = nn.Conv1d(dim, dim, 3, padding=1)
            self.fc = nn.Linear(dim, 2)

        def forward(self, ids):
            output = self.token_embed(ids)
            unknown = ids == 1
            spelling = torch.arange(5).expand(int(unknown.sum()), 5) + 60
            chars = self.char_conv(self.char_embed(spelling).transpose(1, 2)).transpose(1, 2).mean(dim=1)
            return self.fc(output.masked_scatter(unknown[..., None], chars).mean(dim=1))

    return Words()


DATA = torch.tensor([[3, 4, 6, 0], [7, 5, 2, 0], [1, 9, 1, 3], [8, 8, 12, 19]])
LABELS = torch.tensor([0, 1, 1, 0])


def losses(model, call, steps=8):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(call(DATA), LABELS)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("make", [text_classifier, positions, rare_tokens])
def test_the_documents_models(make):
    mine, theirs = make(ours.Embedding), make(nn.Embedding)
    mine.load_state_dict(theirs.state_dict())
    found = losses(mine, mine)
    np.testing.assert_allclose(found, losses(theirs, theirs), rtol=1e-4)
    assert found[-1] < found[0] / 2
    padding = mine.state_dict().get("embed.weight", torch.zeros(1))[0]
    assert (padding == 0).all()


def test_a_compiled_model():
    torch._dynamo.reset()
    mine, theirs = text_classifier(ours.Embedding), text_classifier(nn.Embedding)
    mine.load_state_dict(theirs.state_dict())
    compiled = torch.compile(mine, backend="aot_eager", fullgraph=True)
    np.testing.assert_allclose(losses(mine, compiled), losses(theirs, theirs), rtol=1e-4)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # torch looks
def test_a_fused_layer_in_a_compiled_model():
    torch._dynamo.reset()
    plain = text_classifier(ours.Embedding)
    found = []
    for compiles in (False, True):
        model = copy.deepcopy(plain)
        ours.fuse(model, optim.SGD(lr=0.1))
        call = torch.compile(model, backend="aot_eager") if compiles else model
        for _ in range(3):
            call(DATA).square().sum().backward()
        found.append(model.embed.weight.detach())
    torch.testing.assert_close(*found)
    assert not torch.equal(found[0], plain.embed.weight)


PROCESS = """
import sys
import torch
from torch.nn.parallel import DistributedDataParallel
from fastemb.interop import _torch_tensors, torch as ours

_torch_tensors.smallest = 0
torch.sparse.check_sparse_tensor_invariants.disable()
rank, path = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
torch.manual_seed(0)
model = torch.nn.ModuleList([ours.Embedding(9, 3), ours.EmbeddingBag(9, 3, mode="sum", sparse=True)])


class Both(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows, self.bags = model

    def forward(self, ids):
        return self.rows(ids).sum(1) * self.bags(ids)


def grads(module, ids):
    module.zero_grad()
    module(ids).square().sum().backward()
    return [p.grad.to_dense() if p.grad.is_sparse else p.grad.clone() for p in module.parameters()]


batches = torch.tensor([[[0, 1, 1], [4, 5, 8]], [[1, 2, 3], [4, 4, 4]]])
alone = Both()
expected = [(a + b) / 2 for a, b in zip(grads(alone, batches[0]), grads(alone, batches[1]))]
alone.zero_grad()
together = grads(DistributedDataParallel(alone), batches[rank])
torch.testing.assert_close(together, expected)
torch.distributed.destroy_process_group()
"""


def test_two_processes(tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROCESS, str(rank), str(tmp_path / "meeting")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in (0, 1)
    ]
    for rank in ranks:
        said, _ = rank.communicate(timeout=120)
        assert rank.returncode == 0, said
