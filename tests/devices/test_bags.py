"""Bags on every device."""

import numpy as np
import pytest

import fastemb

OFFSETS = [0, 3, 3, 10, 39]
MODES = ["sum", "mean", "sqrtn", "max"]


@pytest.fixture
def bags(rng):
    table = rng.standard_normal((9, 6)).astype(np.float32)
    ids = rng.integers(0, 9, 40)
    grad = rng.standard_normal((len(OFFSETS), 6)).astype(np.float32)
    return {"weight": table, "indices": ids, "offsets": np.array(OFFSETS)}, grad


def options(mode, rng, *, weighted):
    weights = rng.integers(-2, 5, 40).astype(np.float32)
    weights[39] = 0  # the last bag's divisor is zero
    return {"mode": mode} | ({"per_sample_weights": weights} if weighted else {})


def put(device, given):
    return {name: device.put(value) if isinstance(value, np.ndarray) else value for name, value in given.items()}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_lookup(device, bags, mode, dtype):
    given = bags[0] | {"weight": bags[0]["weight"].astype(dtype), "mode": mode}
    device.same_bits(fastemb.embedding_bag(**put(device, given)), fastemb.embedding_bag(**given))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [None, 4])
def test_lookup_with_padding_into_an_array(device, bags, mode, padding):
    given = bags[0] | {"mode": mode, "padding_idx": padding}
    out = device.put(np.full((5, 6), np.nan, np.float32))
    assert fastemb.embedding_bag(**put(device, given), out=out) is out
    device.same_bits(out, fastemb.embedding_bag(**given))


@pytest.mark.parametrize("mode", MODES[:3])
@pytest.mark.parametrize("padding", [None, 4])
def test_weighted(device, bags, rng, mode, padding):
    given = bags[0] | options(mode, rng, weighted=True) | {"padding_idx": padding}
    device.same_bits(fastemb.embedding_bag(**put(device, given)), fastemb.embedding_bag(**given))
    given["grad"] = bags[1]
    device.same_rows(fastemb.embedding_bag_grad(**put(device, given)), fastemb.embedding_bag_grad(**given))
    found, expected = (
        fastemb.embedding_bag_weight_grad(**put(device, given)),
        fastemb.embedding_bag_weight_grad(**given),
    )
    found = found.get() if device.on_gpu else found
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)  # sums over columns follow the width of an access


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scale", [False, True])
def test_gradient(device, bags, mode, scale):
    given = bags[0] | {"mode": mode, "grad": bags[1], "padding_idx": 2, "scale_grad_by_freq": scale and mode != "max"}
    device.same_rows(fastemb.embedding_bag_grad(**put(device, given)), fastemb.embedding_bag_grad(**given))


@pytest.mark.parametrize("mode", MODES)
def test_two_dimensional_indices(device, bags, mode):
    given = {"weight": bags[0]["weight"], "indices": bags[0]["indices"].reshape(8, 5).astype(np.uint8), "mode": mode}
    device.same_bits(fastemb.embedding_bag(**put(device, given)), fastemb.embedding_bag(**given))
    given |= {"offsets": None, "grad": np.ones((8, 6), np.int8)}
    device.same_rows(fastemb.embedding_bag_grad(**put(device, given)), fastemb.embedding_bag_grad(**given))


@pytest.mark.parametrize(
    ("offsets", "last", "text"),
    [
        ([], False, "offsets must not be empty with 40 indices"),
        ([1, 3], False, "offsets must begin with 0, got 1 at position 0"),
        ([0, 5, 3], False, "offsets must not decrease, got 3 after 5 at position 2"),
        ([0, 41], False, "offsets must be at most the number of indices, 40, got 41 at position 1"),
        ([0, 39], True, "offsets must end with the number of indices, 40, got 39 at position 1"),
    ],
)
def test_wrong_offsets(device, bags, offsets, last, text):
    given = put(device, bags[0] | {"offsets": np.array(offsets, np.int64)})
    with pytest.raises(ValueError, match=f"^{text}$"):
        fastemb.embedding_bag(**given, include_last_offset=last)


def test_last_offset(device, bags):
    given = bags[0] | {"offsets": np.array([*OFFSETS, 40], np.int32), "include_last_offset": True}
    device.same_bits(fastemb.embedding_bag(**put(device, given)), fastemb.embedding_bag(**bags[0]))


def test_no_bags(device):
    table, none = device.put(np.ones((4, 3), np.float32)), device.put(np.empty(0, np.int64))
    device.same_bits(fastemb.embedding_bag(table, none, none), np.empty((0, 3), np.float32))
    device.same_bits(fastemb.embedding_bag(table, none, [0, 0]), np.zeros((2, 3), np.float32))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bad", [-1, 9])
def test_an_index_out_of_range(device, bags, mode, bad):
    bags[0]["indices"][[12, 30]] = bad
    given = put(device, bags[0] | {"mode": mode})
    out = device.put(np.full((5, 6), np.nan, np.float32))
    with pytest.raises(IndexError, match=r"\(first at position 12\)"):
        fastemb.embedding_bag(**given, out=out)
    assert bool(device.xp.isnan(out).all())
    with pytest.raises(IndexError, match=r"\(first at position 12\)"):
        fastemb.embedding_bag_grad(**given, grad=device.put(bags[1]))
    if mode != "max":
        with pytest.raises(IndexError, match=r"\(first at position 12\)"):
            fastemb.embedding_bag_weight_grad(**given, grad=device.put(bags[1]))
