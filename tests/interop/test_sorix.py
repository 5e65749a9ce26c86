"""sorix with fastemb's layer: the notebook of seed 000 from its first cell to its last, and what lies around it."""

import doctest
import importlib
import os
import re
import subprocess
import sys

import numpy as np
import pytest

sorix = pytest.importorskip("sorix", reason="sorix is not installed; it needs Python 3.12: make test-sorix")

from sorix import tensor  # noqa: E402  sorix has to be there

from fastemb.interop.sorix import Embedding  # noqa: E402


def rows_of(layer, indices):
    return np.asarray(layer.W.data)[np.asarray(indices)]


# The notebook


def test_instantiating_the_layer(capsys):
    emb = Embedding(num_embeddings=10, embedding_dim=4)
    print(f"W shape: {emb.W.shape}")
    print(f"W requires_grad: {emb.W.requires_grad}")
    assert capsys.readouterr().out == "W shape: sorix.Size([10, 4])\nW requires_grad: True\n"


def test_forward_pass(capsys):
    emb = Embedding(num_embeddings=10, embedding_dim=4)
    indices = np.array([2, 0, 5])
    out = emb(indices)
    print(f"output shape : {out.shape}")
    print(f"output matches W rows? {np.allclose(out.data, emb.W.data[indices])}")
    token_ids = np.array([[1, 5, 3, 0, 7], [2, 4, 1, 6, 8]])
    print(f"embedding out shape: {emb(token_ids).shape}")
    assert capsys.readouterr().out == (
        "output shape : sorix.Size([3, 4])\noutput matches W rows? True\nembedding out shape: sorix.Size([2, 5, 4])\n"
    )
    assert re.fullmatch(r"tensor\(\[\[.*\]\], requires_grad=True\)", repr(out), re.DOTALL)


def test_index_validation(capsys):
    """fastemb's text says the position too, and gives the advice about -1 where there is a negative index alone."""
    emb_guard = Embedding(num_embeddings=5, embedding_dim=3)
    for bad in [np.array([0, -1, 2]), np.array([0, 5])]:
        try:
            emb_guard(bad)
        except IndexError as e:
            print(f"{bad!s:<12} -> IndexError: {e}")
    advice = " Note that unseen categories encoded as -1 must be mapped to a dedicated index instead."
    text = "IndexError: Embedding indices must be in [0, 5), but got values in"
    assert capsys.readouterr().out == (
        f"[ 0 -1  2]   -> {text} [-1, 2] (first at position 1).{advice}\n"
        f"[0 5]        -> {text} [0, 5] (first at position 1).\n"
    )


def test_backward_pass(capsys):
    sorix.manual_seed(0)
    emb2 = Embedding(num_embeddings=5, embedding_dim=4)
    idx = np.array([0, 2, 0])
    out2 = emb2(idx)
    loss = out2.mean()
    loss.backward()
    for row in (0, 2, 1):
        print(emb2.W.grad.data[row])
    print(np.allclose(emb2.W.grad.data[0], 2 * emb2.W.grad.data[2]))
    assert capsys.readouterr().out == (
        "[0.16666667 0.16666667 0.16666667 0.16666667]\n[0.08333334 0.08333334 0.08333334 0.08333334]\n[0. 0. 0. 0.]\n"
        "True\n"
    )


def test_training_loop(capsys):
    sorix.manual_seed(42)
    emb3 = Embedding(num_embeddings=5, embedding_dim=4)
    optimizer = sorix.optim.Adam(emb3.parameters(), lr=1e-2)
    target = tensor(np.ones((3, 4), dtype=np.float32))
    idx_train = np.array([0, 1, 2])
    for epoch in range(50):
        optimizer.zero_grad()
        out = emb3(idx_train)
        loss = ((out - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        if epoch % 10 == 0 or epoch == 49:
            print(f"Epoch {epoch:3d} | loss = {float(loss.data):.6f}")
    assert capsys.readouterr().out.splitlines() == [
        "Epoch   0 | loss = 1.061576",
        "Epoch  10 | loss = 0.875063",
        "Epoch  20 | loss = 0.711495",
        "Epoch  30 | loss = 0.571944",
        "Epoch  40 | loss = 0.455625",
        "Epoch  49 | loss = 0.369055",
    ]


def test_several_fields():
    word_emb = Embedding(num_embeddings=10000, embedding_dim=32)
    cat_emb = Embedding(num_embeddings=50, embedding_dim=8)
    word_ids, cat_ids = np.array([3, 14, 52, 7]), np.array([5, 12, 11, 23])
    w, c = word_emb(word_ids), cat_emb(cat_ids)
    combined = sorix.cat([w, c], dim=1)
    assert (str(w.shape), str(c.shape)) == ("sorix.Size([4, 32])", "sorix.Size([4, 8])")
    assert str(combined.shape) == "sorix.Size([4, 40])"
    combined.sum().backward()
    assert np.flatnonzero(word_emb.W.grad.data.any(axis=1)).tolist() == [3, 7, 14, 52]
    assert (cat_emb.W.grad.data[cat_ids] == 1).all()


def test_no_grad():
    emb4 = Embedding(num_embeddings=10, embedding_dim=4)
    with sorix.no_grad():
        out_eval = emb4(np.array([1, 3, 5]))
    assert out_eval.requires_grad is False
    np.testing.assert_array_equal(out_eval.data, rows_of(emb4, [1, 3, 5]))


# Around it


@pytest.mark.parametrize("indices", [3, [3, 1], [], [[1, 2], [3, 1]], np.uint8([7, 7]), np.zeros((0, 2), int)])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_indices_of_any_shape(indices, as_tensor):
    emb = Embedding(10, 4)
    given = tensor(np.asarray(indices, int)) if as_tensor else indices
    out = emb(given)
    wanted = rows_of(emb, np.asarray(indices, int))
    assert (out.data.shape, out.data.dtype) == (wanted.shape, np.float32)
    np.testing.assert_array_equal(out.data, wanted)
    (out * 3).sum().backward()
    grad = np.zeros((10, 4), np.float32)
    np.add.at(grad, np.asarray(indices, int), np.float32(3))
    np.testing.assert_array_equal(emb.W.grad.data, grad)


@pytest.mark.parametrize("indices", [[0.5], [True], np.eye(3), tensor(np.ones(2))])
def test_indices_that_are_none(indices):
    with pytest.raises(TypeError, match="indices must be integers"):
        Embedding(3, 4)(indices)


@pytest.mark.parametrize(
    ("sizes", "error", "text"),
    [
        ((0, 4), ValueError, "num_embeddings must be >= 1, got 0"),
        ((4, -1), ValueError, "embedding_dim must be >= 1, got -1"),
        ((4.0, 1), TypeError, "num_embeddings must be an integer, got 4.0"),
    ],
)
def test_sizes(sizes, error, text):
    with pytest.raises(error, match=text):
        Embedding(*sizes)


def test_the_table_is_the_only_parameter():
    emb = Embedding(10, 16)
    assert [p is emb.W for p in emb.parameters()] == [True]
    assert list(emb.state_dict()) == ["W"]
    assert repr(emb) == "Embedding(num_embeddings=10, embedding_dim=16)"
    assert repr(sorix.nn.Sequential(emb)).splitlines()[1] == f"  (0): {emb!r}"
    assert emb.W.data.dtype == np.float32
    bound = np.sqrt(1 / 10)
    assert np.abs(Embedding(10, 10_000).W.data).max() == pytest.approx(bound, rel=1e-3)
    other = Embedding(10, 16)
    other.load_state_dict(emb.state_dict())
    np.testing.assert_array_equal(other([4]).data, emb([4]).data)


def test_gradients_add_up_where_the_optimizer_keeps_them():
    emb = Embedding(6, 2)
    optimizer = sorix.optim.SGD(emb.parameters(), lr=0.5)
    memory, before = emb.W.grad.data, emb.W.data.copy()
    emb([1, 4]).sum().backward()
    (emb([4]).sum() + emb([4, 0]).sum()).backward()
    assert emb.W.grad.data is memory
    np.testing.assert_array_equal(memory[:, 0], [1, 1, 0, 0, 3, 0])
    optimizer.step()
    np.testing.assert_array_equal(emb.W.data, before - np.float32(0.5) * memory)


def test_gradients_of_another_width():
    emb = Embedding(3, 2)
    (emb([1]) * tensor(np.full((1, 2), 0.5))).sum().backward()  # float64
    assert emb.W.grad.data.dtype == np.float32
    np.testing.assert_array_equal(emb.W.grad.data, [[0, 0], [0.5, 0.5], [0, 0]])


def test_a_frozen_table():
    emb = Embedding(3, 2)
    emb.W.requires_grad = False
    out = emb([1])
    assert not out.requires_grad
    assert emb.parameters() == []


def test_second_derivatives():
    emb = Embedding(4, 2)
    emb.W.data[:] = np.arange(8).reshape(4, 2)
    (first,) = sorix.grad((emb([1, 3, 1]) ** 3).sum(), emb.W, create_graph=True)
    wanted = np.array([[0], [2], [0], [1]]) * 3 * np.arange(8).reshape(4, 2) ** 2
    np.testing.assert_array_equal(first.data, wanted)
    (second,) = sorix.grad(first.sum(), emb.W)
    np.testing.assert_array_equal(second.data, np.array([[0], [2], [0], [1]]) * 6 * np.arange(8).reshape(4, 2))


def test_a_model_with_other_layers():
    class Model(sorix.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = Embedding(20, 8)
            self.out = sorix.nn.Linear(8, 1)

        def forward(self, ids):
            return self.out(self.words(ids))

    sorix.manual_seed(0)
    model, losses = Model(), []
    assert len(model.parameters()) == 3
    optimizer = sorix.optim.Adam(model.parameters(), lr=0.05)
    ids, target = np.arange(20) % 5, tensor((np.arange(20) % 5)[:, None].astype(np.float32))
    untouched = model.words.W.data[5:].copy()
    for _ in range(60):
        optimizer.zero_grad()
        loss = ((model(ids) - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.data))
    assert losses[-1] < 0.01 * losses[0]
    np.testing.assert_array_equal(model.words.W.data[5:], untouched)


def test_examples():
    result = doctest.testmod(importlib.import_module("fastemb.interop.sorix"))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.skipif(
    "FASTEMB_SORIX_TESTS" not in os.environ, reason="FASTEMB_SORIX_TESTS names no file of sorix's tests"
)
def test_the_tests_of_sorix_itself():
    """Those of its layer, as they are in its repository, with this layer in the place of its own."""
    code = "import sys, pytest, sorix.nn, fastemb.interop.sorix as ours; sorix.nn.Embedding = ours.Embedding; "
    code += "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', sys.argv[1]]))"
    command = [sys.executable, "-c", code, os.environ["FASTEMB_SORIX_TESTS"]]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
