"""Tables beyond 2**31 elements: reads and in-place writes at the far end, in sparse files."""

import sys

import numpy as np
import pytest

import fastemb
from fastemb.optim import SGD, Adam, AdamState

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs sparse files")

SHAPES = {
    # https://github.com/microsoft/onnxruntime/pull/28108: 32-bit offsets, wrong from row 239,674 on.
    "262144x8960": (262_144, 8960),
    # https://github.com/pytorch/pytorch/issues/188467: numel in the width of the ids; the last row got nothing.
    "32770x65536": (2**15 + 2, 2**16),
    # https://github.com/alibaba/TorchEasyRec/pull/472, https://github.com/NVIDIA-Merlin/HugeCTR/issues/382:
    # row * columns in 32 bits, beyond 67 million rows of 32.
    "67108880x32": (2**26 + 16, 32),
    # https://github.com/benfred/implicit/pull/599: 25 million users of 128.
    "25000000x128": (25_000_000, 128),
}
# https://github.com/meta-pytorch/torchrec/pull/1590: buffer sizes; row numbers that 32 bits do not hold.
LONG = {"4294967312x1": (2**32 + 16, 1)}

everywhere = pytest.mark.parametrize(
    ("shape", "index_type"),
    [
        *[pytest.param(s, i, id=f"{name}-{i}") for name, s in SHAPES.items() for i in ("int32", "int64")],
        *[pytest.param(s, i, id=f"{name}-{i}") for name, s in LONG.items() for i in ("int64", "uint64")],
    ],
)


@pytest.fixture
def sparse(tmp_path):
    """Makes float32 tables of zeros in files of a few blocks, and removes them."""
    paths = []

    def make(shape):
        paths.append(tmp_path / f"{len(paths)}.bin")
        return np.memmap(paths[-1], np.float32, "w+", shape=shape)

    yield make
    for path in paths:
        path.unlink()


def far_rows(shape):
    """The first row that begins at or beyond 2**31 elements, the last one, and where 32 bits would lead instead."""
    num_rows, width = shape
    first = -(-(2**31) // width)
    assert first < num_rows
    wrapped = {((r * width) % wrap) // width for r in (first, num_rows - 1) for wrap in (2**31, 2**32)}
    return [first, num_rows - 1], sorted({0, 1, *wrapped, first - 1} - {first, num_rows - 1})


def values(rows, width):
    return (np.arange(len(rows), dtype=np.float32)[:, np.newaxis] + 1) * (np.arange(width, dtype=np.float32) % 7 + 1)


@everywhere
def test_gather(shape, index_type, sparse):
    weight = sparse(shape)
    far, near = far_rows(shape)
    rows = near + far
    weight[rows] = values(rows, shape[1])
    ids = np.array([*rows, far[-1]], index_type)
    out = np.full((len(ids), shape[1]), np.nan, np.float32)
    fastemb.gather(weight, ids, out=out)
    assert np.array_equal(out[:-1], values(rows, shape[1]))
    assert np.array_equal(out[-1], out[-2])
    if index_type != "int32":
        text = rf"\AEmbedding indices must be in \[0, {shape[0]}\), but got values in \[0, {shape[0]}\] "
        with pytest.raises(IndexError, match=text + r"\(first at position 1\)\.\Z"):
            fastemb.gather(weight, np.array([0, shape[0]], index_type))


@everywhere
def test_scatter_add_and_sgd(shape, index_type, sparse):
    weight = sparse(shape)
    far, near = far_rows(shape)
    ids, updates = np.array([far[1], far[0], far[1]], index_type), values(range(3), shape[1])
    assert fastemb.scatter_add(weight, ids, updates) is weight
    wanted = np.stack([updates[1], updates[0] + updates[2]])
    assert np.array_equal(weight[far], wanted)
    rule = SGD(lr=2.0)
    rule.step(weight, rule.init(weight), ids, updates)
    assert np.array_equal(weight[far], -wanted)
    assert not weight[near].any()


@everywhere
def test_gradient(shape, index_type):
    far, _ = far_rows(shape)
    ids, grad = np.array([far[1], far[0], far[1]], index_type), values(range(3), shape[1])
    result = fastemb.embedding_grad(ids, grad, shape[0])
    assert (result.rows.tolist(), result.shape) == (far, shape)
    assert np.array_equal(result.values, [grad[1], grad[0] + grad[2]])


@everywhere
def test_adam(shape, index_type, sparse):
    rule, weight = Adam(lr=0.5, betas=(0.5, 0.75), eps=0.0), sparse(shape)
    state = AdamState(m=sparse(shape), v=sparse(shape))
    far, near = far_rows(shape)
    rule.step(weight, state, np.array([far[1], far[0], far[1]], index_type), np.ones((3, shape[1]), np.float32))
    for array, wanted in ((weight, [-0.5, -0.5]), (state.m, [0.5, 1.0]), (state.v, [0.25, 1.0])):
        assert np.array_equal(array[far], np.repeat(np.array(wanted)[:, np.newaxis], shape[1], axis=1))
        assert not array[near].any()


@everywhere
def test_renorm(shape, index_type, sparse):
    weight = sparse(shape)
    far, near = far_rows(shape)
    weight[far + near] = 4.0
    fastemb.renorm_(weight, np.array(far, index_type), 1.0, np.inf)
    assert np.array_equal(weight[far], np.full((2, shape[1]), 4 * np.float32(1 / (4 + 1e-7))))
    assert np.array_equal(weight[near], np.full((len(near), shape[1]), 4.0))


@pytest.mark.parametrize("index_type", ["int32", "int64"])
def test_gather_of_a_broadcast_row(index_type):
    """https://github.com/pytorch/pytorch/issues/188467: a table of stride zero is cheap, and is huge by its shape."""
    weight = np.broadcast_to(np.arange(2**16, dtype=np.float32), (2**15 + 1, 2**16))
    out = fastemb.gather(weight, np.array([0, 2**15], index_type))
    assert np.array_equal(out, weight[:2])
