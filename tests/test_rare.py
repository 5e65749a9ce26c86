"""Vectors of rare tokens from their bytes, against a convolution written out."""

import functools

import numpy as np
import pytest
from strategies import out_of_range, unchanged

import fastemb
from fastemb.nn import RareTokenEmbedding
from fastemb.optim import Adam


def by_hand(layer, token):
    """The convolution over each place, zeros beyond both ends, and then the mean: in float64."""
    width = layer.embedding_dim
    text = token.encode() if isinstance(token, str) else token
    if not text:
        return np.zeros(width)
    e = np.zeros((len(text) + 2, width))
    e[1:-1] = layer.byte_weight[list(text)]
    conv = layer.conv.astype(np.float64)
    return np.mean([sum(conv[:, :, j] @ e[t + j] for j in range(3)) + layer.bias for t in range(len(text))], axis=0)


TOKENS = ["a", "ab", "zyzzyva", "größe", "日本", b"\x00\xff\x00", "", "aaaaaaaaaaaaaaaa"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rare_tokens_are_convolved(dtype):
    layer = RareTokenEmbedding(20, 6, dtype=dtype, seed=1)
    ids = [1] * len(TOKENS) + [5, 0]
    y = layer(ids, [*TOKENS, "read from the table", "padding"])
    assert (y.shape, y.dtype) == ((len(TOKENS) + 2, 6), np.dtype(dtype))
    for row, token in zip(y, TOKENS, strict=False):
        np.testing.assert_allclose(row, by_hand(layer, token), rtol=1e-5 if dtype == "float32" else 1e-13, atol=1e-6)
    assert np.array_equal(y[-2], layer.weight[5])
    assert (y[-1] == 0).all()


def test_of_any_shape():
    layer = RareTokenEmbedding(20, 6, seed=1)
    words = np.array([["a", "bc"], ["d", "e"]])
    y = layer([[3, 1], [1, 4]], words)
    assert np.array_equal(y[0, 1], layer([1], ["bc"])[0])
    assert np.array_equal(y[1, 0], layer(1, "d"))
    assert np.array_equal(y[0, 0], layer.weight[3])
    assert layer([], None).shape == (0, 6)
    assert layer([[3, 4]]).shape == (1, 2, 6)  # nothing rare, no tokens needed
    assert np.array_equal(layer([1, 1], [b"bc", "bc"])[0], y[0, 1])
    assert layer([1, 1], ["", ""]).tolist() == [[0] * 6] * 2


def test_tokens_that_are_seldom_are_unknown():
    counts = np.array([0, 9, 5, 4, 100, 0])
    layer = RareTokenEmbedding(6, 3, counts=counts, min_freq=5, seed=0)
    assert layer.is_rare([0, 1, 2, 3, 4, 5]).tolist() == [False, True, False, True, False, True]
    assert np.array_equal(layer([3], ["x"]), layer([1], ["x"]))
    assert not layer.is_rare([4]).any()
    assert repr(layer) == "RareTokenEmbedding(6, 3, 3 frequent, dtype=float32)"


@pytest.mark.parametrize("tokens", [["ab", "x", "日本", "zz"], ["a", "", "bcd", "a"]])
def test_gradients_are_those_of_finite_differences(rng, tokens):
    layer = make(dtype="float64", seed=2)
    ids, weights = np.array([1, 1, 3, 1]), rng.standard_normal((4, 4))
    with unchanged(ids, weights):
        layer.backward(ids, weights, tokens)
    for name, table in layer.tables().items():
        grad = table.grad.to_dense()
        for place in np.ndindex(table.weight.shape):
            if name == "bytes" and place[0] not in {*b"abcdxz", *"日本".encode()}:
                assert grad[place] == 0
                continue
            kept, losses = table.weight[place], []
            for step in (1e-5, -1e-5):
                table.weight[place] = kept + step
                losses.append((layer(ids, tokens) * weights).sum())
            table.weight[place] = kept
            np.testing.assert_allclose(grad[place], (losses[0] - losses[1]) / 2e-5, rtol=1e-6, atol=1e-8)


def test_the_unknown_row_and_padding_do_not_train(rng):
    layer = make(optimizer=Adam(lr=0.1), seed=2)
    before = [array.copy() for array in (layer.weight, layer.byte_weight, layer.conv, layer.bias)]
    layer.fused_step([1, 0, 3], rng.standard_normal((3, 4), dtype=np.float32), ["ab", "pad", "three"])
    now = (layer.weight, layer.byte_weight, layer.conv, layer.bias)
    changed = [
        np.flatnonzero((a != b).reshape(len(a), -1).any(axis=1)).tolist() for a, b in zip(now, before, strict=True)
    ]
    assert changed == [[3], [97, 98], [0, 1, 2, 3], [0, 1, 2, 3]]


def test_learns_to_tell_words_by_their_letters():
    """Unknown words with an x to 1, others to 0: only the bytes can tell."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdxyz"), 5)) for _ in range(200)]
    labels = np.array([[1.0 if "x" in word else 0.0] for word in words], np.float32)
    layer = RareTokenEmbedding(2, 8, padding_idx=None, optimizer=Adam(lr=0.02), seed=0)
    losses = []
    for _ in range(150):
        y = layer(np.ones(200, int), words)
        difference = y[:, :1] - labels
        losses.append(float((difference**2).mean()))
        dy = np.zeros_like(y)
        dy[:, :1] = 2 * difference / len(words)
        layer.fused_step(np.ones(200, int), dy, words)
    assert losses[-1] < 0.1 < 0.2 < losses[0]


def test_state_is_saved_and_loaded():
    one, two = (make(optimizer=Adam(), seed=seed) for seed in (1, 2))
    one.fused_step([1, 2], np.ones((2, 4), np.float32), ["ab", "c"])
    two.load_state_dict(one.state_dict())
    assert np.array_equal(two([1, 2, 1], ["q", "", "ab"]), one([1, 2, 1], ["q", "", "ab"]))
    assert set(one.state_dict()) == {"tokens", "bytes", "conv", "bias", "known"}
    broken = {**one.state_dict(), "bias": {**one.state_dict()["bias"], "weight": np.ones((3, 1), np.float32)}}
    with unchanged(two.weight), pytest.raises(ValueError, match="weight must have shape"):
        two.load_state_dict(broken)
    assert len(one.parameters()) == 4


GRAD = np.ones((1, 4), np.float32)
make = functools.partial(RareTokenEmbedding, 8, 4)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda e: e([1]), ValueError, "tokens must be given: some ids are rare"),
        (lambda e: e([1, 2], ["a"]), ValueError, r"tokens must have the shape of ids, \(2,\), got \(1,\)"),
        (lambda e: e([1], [3]), TypeError, "tokens must be str or bytes, got int"),
        (lambda e: e([8], ["a"]), IndexError, out_of_range(8, 8, 8, 0)),
        (
            lambda e: e.backward([1], GRAD[:, :3], ["a"]),
            ValueError,
            r"dy must have shape \(1, 4\), got \(1, 3\)",
        ),
        (lambda e: e.fused_step([2], GRAD), RuntimeError, "no optimizer"),
        (lambda e: make(unk_idx=8), ValueError, "unk_idx must be <= 7, got 8"),
        (
            lambda e: make(unk_idx=0),
            ValueError,
            "unk_idx and padding_idx must differ, got 0 for both",
        ),
        (lambda e: make(counts=[1, 2]), ValueError, r"counts must be integers of shape \(8,\)"),
        (lambda e: make(min_freq=-1), ValueError, "min_freq must be >= 0, got -1"),
        (
            lambda e: make(dtype="float16"),
            ValueError,
            "dtype must be float32 or float64, got float16",
        ),
    ],
)
def test_errors(call, error, text):
    layer = make(seed=0)
    with unchanged(layer.weight, layer.byte_weight), pytest.raises(error, match=text):
        call(layer)
    assert all(table.grad is None for table in layer.tables().values())


def test_seeds_repeat_it():
    a, b, c = (make(seed=seed) for seed in (5, 5, 6))
    assert all(np.array_equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not any(np.array_equal(x, y) for x, y in zip(a.parameters(), c.parameters(), strict=True))
    assert np.abs(a.conv).max() <= np.sqrt(1 / 12)
    assert fastemb.nn.RareTokenEmbedding is RareTokenEmbedding


def test_which_ids_are_rare_is_saved():
    one = make(counts=[0, 0, 9, 1, 9, 9, 9, 9], seed=0)
    two = make(seed=1)
    two.load_state_dict(one.state_dict())
    assert two.is_rare([1, 2, 3]).tolist() == [True, False, True]
    with pytest.raises(ValueError, match="known must be False for unk_idx, 2"):
        make(unk_idx=2).load_state_dict(one.state_dict())


@pytest.mark.parametrize("flush", [False, True])
def test_bytes_are_read_up_to_date(flush):
    """With an optimizer in mode exact every byte's row moves on; a lookup sees it without a flush."""
    layer = make(optimizer=Adam(lr=0.1, mode="exact"), seed=0)
    for token in ("ab", "cd", "cd", "ab"):
        if flush:
            layer.flush()
        layer([1], [token])
        layer.fused_step([1], GRAD, [token])
    layer.flush()
    other = make(optimizer=Adam(lr=0.1, mode="exact"), seed=0)
    for token in ("ab", "cd", "cd", "ab"):
        other.flush()
        other.fused_step([1], GRAD, [token])
    other.flush()
    for mine, wanted in zip(layer.parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)


def test_a_step_that_one_table_refuses_changes_none():
    layer = make(optimizer=Adam(), seed=0)
    layer.byte_weight.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        layer.fused_step([2, 1], np.ones((2, 4), np.float32), ["two", "one"])
    assert all(table.grad is None and table.state.step == 0 for table in layer.tables().values())


def test_odd_tokens():
    layer = make(seed=0)
    assert np.isfinite(layer([1], ["\ud800"])).all()
    with pytest.raises(ValueError, match="tokens must have one length in each axis"):
        layer([[1, 1], [1, 1]], [["a", "b"], ["c"]])
