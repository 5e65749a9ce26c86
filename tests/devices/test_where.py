"""Where arrays are, and what is said where they cannot be."""

import numpy as np
import pytest
from strategies import run_python

import fastemb
from fastemb import _compat, optim


@pytest.fixture
def weight(stand_in):
    return stand_in.zeros((5, 3), np.float32)


HOST_IDS, HOST_ROWS = np.array([1, 2]), np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("call", "first", "second"),
    [
        (lambda w, ids, rows: fastemb.gather(w, HOST_IDS), "weight", "indices"),
        (lambda w, ids, rows: fastemb.gather(w, ids, out=HOST_ROWS), "weight", "out"),
        (lambda w, ids, rows: fastemb.scatter_add(w, HOST_IDS, rows), "target", "indices"),
        (lambda w, ids, rows: fastemb.scatter_add(w, ids, HOST_ROWS), "target", "updates"),
        (lambda w, ids, rows: fastemb.embedding_grad(ids, HOST_ROWS, 5), "grad", "indices"),
        (lambda w, ids, rows: fastemb.renorm_(w, HOST_IDS, 1.0), "weight", "indices"),
        (lambda w, ids, rows: fastemb.embedding_bag(w, ids, HOST_IDS), "indices", "offsets"),
        (lambda w, ids, rows: fastemb.embedding_bag(w, HOST_IDS, [0]), "weight", "indices"),
        (
            lambda w, ids, rows: fastemb.embedding_bag(w, ids, [0], per_sample_weights=HOST_ROWS[:, 0]),
            "weight",
            "per_sample_weights",
        ),
        (lambda w, ids, rows: fastemb.embedding_bag_grad(w, ids, [0], HOST_ROWS[:1]), "weight", "grad"),
        (lambda w, ids, rows: optim.SGD(lr=1.0).step(w, optim.State(), HOST_IDS, rows), "weight", "indices"),
        (lambda w, ids, rows: optim.SGD(lr=1.0).step(w, optim.State(), ids, HOST_ROWS), "weight", "grad"),
        (
            lambda w, ids, rows: optim.SGD(lr=1.0).update(w, optim.State(), fastemb.RowGrad([1, 2], HOST_ROWS, 5)),
            "weight",
            "row_grad.values",
        ),
        (lambda w, ids, rows: fastemb.RowGrad(ids, HOST_ROWS, 5), "values", "rows"),
        (
            lambda w, ids, rows: fastemb.RowGrad(ids, rows, 5) + fastemb.RowGrad([1, 2], HOST_ROWS, 5),
            "the first gradient",
            "the second",
        ),
    ],
)
def test_arrays_on_two_devices(stand_in, weight, call, first, second):
    ids, rows = stand_in.asarray(HOST_IDS), stand_in.asarray(HOST_ROWS)
    with pytest.raises(
        TypeError, match=f"^all arrays of a call must lie on one device, got {first} on .* and {second} on"
    ):
        call(weight, ids, rows)
    assert not weight.any()
    assert (HOST_ROWS == 1).all()


def test_state_on_another_device(stand_in, weight):
    rule = optim.Adagrad(lr=1.0)
    with pytest.raises(TypeError, match=r"got weight on cuda:0 and state\.S on cpu"):
        rule.step(weight, rule.init(np.zeros((5, 3), np.float32)), [1], np.ones((1, 3), np.float32).tolist())


def test_a_second_gpu(stand_in):
    with stand_in.cuda.Device(1):
        other = fastemb.Embedding(5, 3, device="cuda")
        assert other.device == "cuda:1"
        other([1, 2])
    with pytest.raises(RuntimeError, match=r"weight is on cuda:1, and the current device is cuda:0: call it in"):
        other([1, 2])
    assert fastemb.Embedding(5, 3, device="cuda:1").device == "cuda:1"
    assert other.to("cuda:0").device == "cuda:0"
    other([1, 2])
    with pytest.raises(ValueError, match="device must be one of the 2 GPUs 'cuda:0' to 'cuda:1', got 'cuda:2'"):
        fastemb.Embedding(5, 3, device="cuda:2")


def test_memory_of_another_library(stand_in):
    """What says where its memory lies is worked on there."""
    table = stand_in.arange(12, dtype=np.float32).reshape(4, 3)

    class Tensor:
        __cuda_array_interface__ = table.__cuda_array_interface__

    ids = stand_in.asarray(np.array([3, 0]))
    rows = fastemb.gather(Tensor(), ids)
    assert isinstance(rows, stand_in.ndarray)
    assert (rows.get() == [[9, 10, 11], [0, 1, 2]]).all()
    target = Tensor()
    assert fastemb.scatter_add(target, ids, rows) is target
    assert (table.get()[[0, 3]] == [[0, 2, 4], [18, 20, 22]]).all()


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda xp: xp.zeros((4, 6), np.float32)[:, ::2], ValueError, "weight must be C-contiguous on a GPU"),
        (
            lambda xp: xp.zeros((4, 3), np.int32),
            TypeError,
            "weight must be float16, float32 or float64 on a GPU, got int32",
        ),
    ],
)
def test_tables_that_kernels_do_not_read(stand_in, make, error, text):
    with pytest.raises(error, match=text):
        fastemb.gather(make(stand_in), [0])


def test_bfloat16_has_no_kernels_on_a_gpu(stand_in):
    for make in (
        lambda: fastemb.Embedding(4, 3, dtype="bfloat16", device="cuda"),
        lambda: fastemb.Embedding(4, 3, dtype="bfloat16").to("cuda"),
    ):
        with pytest.raises(TypeError, match="must be float16, float32 or float64 on a GPU, got bfloat16"):
            make()


def test_what_is_said_without_a_gpu():
    """The same for every way to ask for one; and the host works as ever."""
    missing = "import sys; sys.modules['cupy'] = None\n"
    none = (
        "import sys, types; m = types.ModuleType('cupy'); m.cuda = types.SimpleNamespace(is_available=lambda: False)\n"
    )
    none += "sys.modules['cupy'] = m\n"
    ask = """
import numpy as np, fastemb
class OnGPU:
    __cuda_array_interface__ = {'shape': (1,), 'typestr': '<i8', 'data': (0, False), 'version': 3}
emb = fastemb.Embedding(3, 2)
ask = lambda: fastemb.Embedding(3, 2, device='cuda')
for call in (ask, lambda: emb.to('cuda'), lambda: fastemb.one_hot(OnGPU(), 3)):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, error)
assert emb([1]).shape == (1, 2) and emb.device == 'cpu'
"""
    for before, error, text in (
        (
            missing,
            "ImportError",
            "need CuPy, which is not installed: pip install 'fastemb[cuda13]', or 'fastemb[cuda12]'",
        ),
        (none, "RuntimeError", "need an NVIDIA GPU, and CuPy finds none whose driver fits it: 'fastemb[cuda13]' needs"),
    ):
        lines = run_python(before + ask).splitlines()
        assert len(lines) == 3
        assert all(line.startswith(error) and text in line for line in lines), lines


def test_numba_cuda_is_asked_for_too(monkeypatch, stand_in):
    monkeypatch.setattr(_compat.importlib.util, "find_spec", lambda name: None)
    assert "need numba-cuda, which is not installed: pip install 'fastemb[cuda13]'" in str(_compat.cuda_problem())
