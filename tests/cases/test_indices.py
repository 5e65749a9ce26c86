"""What an index may be, and what is said of a bad one, in every operation that takes indices."""

import tracemalloc

import numpy as np
import pytest
from strategies import exactly, out_of_range, unchanged

import fastemb

WIDTHS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def table(num_rows):
    return np.full((num_rows, 3), 7.0, np.float32)


def ones(ids):
    return np.ones((*np.shape(ids), 3), np.float32)


def backward(weight, ids):
    layer = fastemb.Embedding.from_pretrained(weight, freeze=False)
    layer.backward(ids, ones(ids))
    return layer.grad


def step(rule, weight, ids):
    rule.step(weight, rule.init(weight), ids, ones(ids))


# Each takes a table that must not change when the ids are bad, and ids.
OPERATIONS = {
    "gather": fastemb.gather,
    "gather_out": lambda w, ids: fastemb.gather(w, ids, out=ones(ids)),
    "scatter_add": lambda w, ids: fastemb.scatter_add(w, ids, ones(ids)),
    "embedding_grad": lambda w, ids: fastemb.embedding_grad(ids, ones(ids), len(w)),
    "one_hot": lambda w, ids: fastemb.one_hot(ids, len(w)),
    "renorm_": lambda w, ids: fastemb.renorm_(w, ids, 1.0),
    "sgd": lambda w, ids: step(fastemb.optim.SGD(), w, ids),
    "adam": lambda w, ids: step(fastemb.optim.Adam(), w, ids),
    "layer": lambda w, ids: fastemb.Embedding.from_pretrained(w)(ids),
    "layer_max_norm": lambda w, ids: fastemb.Embedding.from_pretrained(w, max_norm=1.0)(ids),
    "layer_backward": backward,
}
every_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())

BAD = {
    # https://github.com/numpy/numpy/issues/23607: uint64 2**64 - 1 became -1, the last element.
    "uint64_max": (4, np.array([0, 1, 2**64 - 1, 2**64 - 1], np.uint64), (0, 2**64 - 1, 2)),
    # https://github.com/meta-pytorch/torchrec/issues/1830: hashed uint64 ids, here past the table.
    "uint64_hashed": (1000, np.array([999, 2**63, 1000], np.uint64), (999, 2**63, 1)),
    # https://github.com/numba/numba/issues/8652: an unsigned loop variable read before the buffer for a negative index.
    "int64_min": (3, np.array([2, -(2**63)], np.int64), (-(2**63), 2, 1)),
    "int32_min": (3, np.array([2, -(2**31)], np.int32), (-(2**31), 2, 1)),
    # https://github.com/jax-ml/jax/issues/8634 and /7538: the forward pass dropped these, the backward clamped them.
    "segments_2_3_of_2": (2, np.array([2, 3]), (2, 3, 0)),
    # https://github.com/jax-ml/jax/pull/38232: -1 wrapped in one scatter and was dropped in the other.
    "minus_one_tail": (10, np.array([0, 1, 2, 3, 4, -1, -1, -1, -1, -1], np.int32), (-1, 4, 5)),
    # explosion/thinc cpu_kernels.hh at 20eec355: the bound test let N itself through and never looked below zero.
    "one_past_the_end": (4, np.array([[4]]), (4, 4, 0)),
    "one_before_the_start": (4, np.array([[-1]]), (-1, -1, 0)),
    # google/flax nnx Embed at 18f8f311: with one row every id was taken as valid.
    "one_row": (1, np.array([7]), (7, 7, 0)),
    "python_int_beyond_64_bits": (5, [[0, 1], [2**70, -(2**70)]], (-(2**70), 2**70, 2)),
    "python_ints_without_a_common_dtype": (5, [0, 2**63, -1], (-1, 2**63, 1)),
}


@pytest.mark.parametrize(("num_rows", "ids", "found"), BAD.values(), ids=BAD.keys())
@every_operation
def test_bad_values_raise_one_text_and_change_nothing(operation, num_rows, ids, found):
    weight = table(num_rows)
    with unchanged(weight, np.asarray(ids)), pytest.raises(IndexError, match=out_of_range(num_rows, *found)):
        operation(weight, ids)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if not name.startswith("layer")])
def test_a_table_without_rows(name):
    """google/flax nnx Embed at 18f8f311, one row fewer: nothing can be looked up, so nothing may be skipped."""
    weight = table(0)
    OPERATIONS[name](weight, [])
    with pytest.raises(IndexError, match=out_of_range(0, 0, 0, 0)):
        OPERATIONS[name](weight, [0])


WRONG_KIND = {
    # https://github.com/numpy/numpy/issues/22881: booleans were used as positions 0 and 1.
    "bool": (np.array([True, False, True]), "bool"),
    "bool_one_hot": (
        np.array([[False, True]]),
        "bool: this looks like a one-hot array; pass the integer ids, for example indices.argmax(axis=-1)",
    ),
    "list_with_bool": ([1, True], "a list that holds bool"),
    # Mitchell-Mirano/sorix nn/layers.py at da8ff9b9: ids were cast to int first, so 1.9 became 1.
    "float": (np.array([0.0, 1.9]), "float64"),
    "float_list": ([0.0, 1.9], "float64"),
    "complex": (np.array([1j]), "complex128"),
    "string": (np.array(["1"]), "<U1"),
    "object": (np.array([1], object), "object"),
    "object_empty": (np.array([], object), "object"),
    "object_with_float": (np.array([2**70, 1.5], object), "object"),
}


@pytest.mark.parametrize(("ids", "got"), WRONG_KIND.values(), ids=WRONG_KIND.keys())
@every_operation
def test_wrong_kinds_are_refused(operation, ids, got):
    weight = table(5)
    with unchanged(weight), pytest.raises(TypeError, match=exactly(f"indices must be integers, got {got}")):
        operation(weight, ids)


@pytest.mark.parametrize("width", WIDTHS)
@every_operation
def test_every_integer_width_means_the_same(operation, width):
    """https://github.com/numpy/numpy/issues/25607: int64 ids refused where the pointer is 32-bit.

    https://github.com/meta-pytorch/torchrec/issues/1830: uint64 ids in range not handled.
    """
    expected, weight, ids = table(100), table(100), np.array([[99, 0], [3, 99]], width)
    wanted = operation(expected, ids.astype(np.int64))
    with unchanged(ids):
        result = operation(weight, ids)
    assert np.array_equal(weight, expected)
    if isinstance(wanted, fastemb.RowGrad):
        result, wanted = result.to_dense(), wanted.to_dense()
    assert result is wanted is None or np.array_equal(result, wanted)


@pytest.mark.parametrize("width", ["uint8", "int16", "uint32", "uint64"])
def test_narrow_ids_are_not_copied_to_int64(width):
    """https://github.com/pytorch/pytorch/issues/103580: byte ids had to be widened by hand, 8 times the memory."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 256 if width != "int16" else 128, (32, 4096)).astype(width)
    weight = rng.random((256, 2), np.float32)
    out = np.full((32, 4096, 2), np.nan, np.float32)
    fastemb.gather(weight, ids[:1])  # compiles
    tracemalloc.start()
    try:
        fastemb.gather(weight, ids, out=out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.array_equal(out, weight[ids])
    assert peak < ids.size * 8 // 2


@pytest.mark.parametrize("base", [0, 2**53])
def test_uint64_ids_are_not_compared_as_floats(base):
    """https://github.com/numba/numba/issues/2194 and pull/6779: uint64 with int64 became float64, blind above 2**53."""
    num_rows = base + 1
    weight = np.broadcast_to(np.float32(5.0), (num_rows, 1))
    good, bad = np.array([base], np.uint64), np.array([base, base + 1], np.uint64)
    assert np.array_equal(fastemb.gather(weight, good), [[5.0]])
    grad = fastemb.embedding_grad(good, np.ones((1, 1), np.float32), num_rows)
    assert (grad.rows.tolist(), grad.shape) == ([base], (num_rows, 1))
    error = out_of_range(num_rows, base, base + 1, 1)
    with pytest.raises(IndexError, match=error):
        fastemb.gather(weight, bad)
    with pytest.raises(IndexError, match=error):
        fastemb.embedding_grad(bad, np.ones((2, 1), np.float32), num_rows)
