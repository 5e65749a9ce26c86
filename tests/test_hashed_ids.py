"""What ids hash to: the same rows everywhere, evenly."""

import itertools
import json

import numpy as np
import pytest
from hash_formulas import key, slots, splitmix64
from oracles import Once
from strategies import INTEGERS, LAYOUTS, exactly, laid_out, run_python, unchanged

from fastemb.nn import HashEmbedding
from fastemb.optim import SGD


def test_the_oracle_is_the_published_generator():
    # What splitmix64.c gives for these seeds: https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64
    assert splitmix64(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert splitmix64(0, 1) == [0xE220A8397B1DCDAF]


KNOWN = {
    (0, 0): [629415, 526722, 139956, 989019],
    (1, 0): [867297, 104055, 261327, 374196],
    (-1, 0): [432808, 974767, 338974, 251216],
    (9223372036854775807, 0): [944055, 36540, 438858, 486836],
    (-9223372036854775808, 0): [686357, 746436, 904972, 882746],
    (123456789, 0): [594884, 691273, 609363, 387063],
    (0, 1): [712686, 577924, 248192, 975399],
    (123456789, 9223372036854775807): [223384, 763122, 436856, 454633],
    ("", 0): [359217, 668639, 887596, 198245],
    ("cat", 0): [547234, 411265, 660614, 529899],
    ("Straße 北京", 0): [902553, 733499, 4566, 319793],
    (b"\x00\xff", 5): [570646, 215637, 872536, 59320],
}


@pytest.mark.parametrize(("item", "seed"), KNOWN)
def test_known_answers(item, seed):
    assert slots(item, 1_000_003, 4, seed) == KNOWN[item, seed]
    for count in (1, 2, 3, 4):  # more hashes do not change the first
        layer = HashEmbedding(1_000_003, 1, num_hashes=count, hash_seed=seed, init="zeros")
        assert layer.buckets(item).tolist() == KNOWN[item, seed][:count]


def test_the_same_in_every_process():
    code = """
import json, fastemb
layer = fastemb.nn.HashEmbedding(997, 1, num_hashes=3, hash_seed=11)
print(json.dumps([layer.buckets(x).tolist() for x in ([0, -5, 2**62], ["cat", "dog"], [b"dog"])]))
"""
    first, second = (json.loads(run_python(code, PYTHONHASHSEED=seed)) for seed in ("0", "4321"))
    assert first == second
    assert first == [[slots(x, 997, 3, 11) for x in items] for items in ([0, -5, 2**62], ["cat", "dog"], ["dog"])]


def test_buckets(rng):
    layer = HashEmbedding(50, 3, num_hashes=3, hash_seed=4)
    ids = rng.integers(-(2**63), 2**63 - 1, (4, 5))
    found = layer.buckets(ids)
    assert found.dtype == np.int64
    assert found.shape == (4, 5, 3)
    assert found.tolist() == [[slots(x, 50, 3, 4) for x in row] for row in ids.tolist()]
    assert layer.buckets(7).tolist() == slots(7, 50, 3, 4)
    for empty in ([], [[], []], np.zeros((2, 0), np.int8), *(np.array([], kind) for kind in ("U5", "S5", object))):
        assert layer.buckets(empty).shape == (*np.shape(empty), 3)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_integer_is_one_id_in_every_dtype(dtype, layout):
    layer = HashEmbedding(1 << 20, 1)
    values = [0, 1, 100] + ([-1, -128] if dtype.kind == "i" else [255])
    ids = laid_out(np.array([values, values[::-1]], dtype), layout)
    with unchanged(ids):
        found = layer.buckets(ids)
    assert found.tolist() == [[slots(x, 1 << 20, 2) for x in row] for row in (values, values[::-1])]


def test_integers_of_64_bits():
    layer = HashEmbedding(1 << 20, 1)
    wanted = slots(-1, 1 << 20, 2)
    for ids in (-1, np.int8(-1), np.uint64(2**64 - 1), 2**64 - 1, np.array(-1, ">i2")):
        assert layer.buckets(ids).tolist() == wanted
    assert layer.buckets([2**64 - 1, -1, -(2**63)]).tolist() == [wanted, wanted, slots(2**63, 1 << 20, 2)]
    for bad in (2**64, -(2**63) - 1):
        with pytest.raises(ValueError, match=f"^ids must fit into 64 bits, got {bad}$"):
            layer.buckets([0, bad])


def test_text_of_every_kind():
    layer = HashEmbedding(1 << 20, 1, num_hashes=3)
    words = [["cat", "dog"], ["Straße", "日本"]]
    coded = [[word.encode() for word in row] for row in words]
    wanted = [[slots(word, 1 << 20, 3) for word in row] for row in words]
    strings = np.array(words)
    for ids in (
        words,
        coded,
        tuple(map(tuple, words)),
        [[words[0][0], coded[0][1]], words[1]],
        strings,
        np.asfortranarray(strings),
        strings.astype(">U9"),
        strings.astype(object),
        strings.astype(np.dtypes.StringDType()),
        np.array(coded),
        np.array(coded, object),
        [np.str_(word) for word in words[0]],
        [strings[0], strings[1]],
    ):
        found = layer.buckets(ids).tolist()
        assert found == (wanted if len(np.shape(ids)) == 2 else wanted[0])
    assert layer.buckets("cat").tolist() == layer.buckets(np.array("cat")).tolist() == wanted[0][0]
    assert layer("cat").shape == (1,)
    assert layer.buckets([["a"] * 3] * 2).shape == (2, 3, 3)


def test_bytes_of_a_list_keep_their_nuls():
    layer = HashEmbedding(1 << 20, 1)
    a, b, c = layer.buckets([b"\0", b"\0\0", b""]).tolist()
    assert a != b != c != a
    assert layer.buckets(["a\0", "a"]).tolist() == [slots("a\0", 1 << 20, 2), slots("a", 1 << 20, 2)]
    assert layer.buckets("\ud800").shape == (2,)  # half a surrogate pair is text too


def test_tensors_are_read_once():
    layer = HashEmbedding(97, 2)
    ids = np.array([[1, 2], [-3, 4]])
    assert np.array_equal(layer.buckets(Once(ids)), layer.buckets(ids))
    assert np.array_equal(layer(Once(ids)), layer(ids))


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        (True, "ids must be integers, got bool"),
        ([True, False], "ids must be integers, got bool"),
        ([1, True], "ids must be integers, got a list that holds bool"),
        (np.array([True]), "ids must be integers, got bool"),
        (1.0, "ids must be integers, got float64"),
        ([0.0, 2.0], "ids must be integers, got float64"),
        (np.zeros(2, np.float32), "ids must be integers, got float32"),
        (np.zeros(2, complex), "ids must be integers, got complex128"),
        (np.array([1, 2], object), "ids must be integers, got object"),
        (None, "ids must be integers, got object"),
        (["a", 1], "ids must be all integers or all text, got text and int"),
        (["a", None, 1.0], "ids must be all integers or all text, got text and NoneType, float"),
        (np.array([b"a", 1], object), "ids must be all integers or all text, got text and int"),
        (np.ma.ones(2, int), "ids must be a NumPy array without a mask, got MaskedArray"),
    ],
)
def test_ids_of_another_kind(ids, text):
    layer = HashEmbedding(10, 2, optimizer=SGD())
    dy = np.ones((2, 2), np.float32)
    for call in (layer.buckets, layer, lambda i: layer.backward(i, dy), lambda i: layer.fused_step(i, dy)):
        with unchanged(layer.weight), pytest.raises(TypeError, match=exactly(text)):
            call(ids)


# How ids spread


IDS = {
    "counted": np.arange(100_000),
    "multiples of the buckets": np.arange(100_000) * 256,
    "multiples of a power": np.arange(100_000) << 40,
    "negative": -np.arange(1, 100_001),
    "text": np.array([f"word{i}" for i in range(100_000)]),
}


def excess(counts):
    """Chi-square less its mean, in standard deviations."""
    mean, freedom = counts.sum() / counts.size, counts.size - 1
    return (((counts - mean) ** 2).sum() / mean - freedom) / (2 * freedom) ** 0.5


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
def test_buckets_are_uniform(ids):
    for size in (256, 1000):
        found = HashEmbedding(size, 1, num_hashes=4).buckets(ids)
        for j in range(4):
            assert abs(excess(np.bincount(found[:, j], minlength=size))) < 5


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
def test_hashes_are_independent(ids):
    layers = [HashEmbedding(16, 1, num_hashes=4, weighted=True, hash_seed=seed) for seed in (0, 1, 2)]
    columns = [column for layer in layers for column in layer.buckets(ids).T]
    columns += [layer._slots(np.array([key(i) for i in ids.tolist()], np.uint64))[1] for layer in layers]
    for a, b in itertools.combinations(columns, 2):
        assert abs(excess(np.bincount(a * 16 + b, minlength=256))) < 5


def test_the_check_of_spread_can_fail():
    assert excess(np.bincount(np.arange(1000) * 2 % 256, minlength=256)) > 5
