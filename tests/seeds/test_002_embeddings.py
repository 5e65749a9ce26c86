"""Seed 002, embeddings of words: lookups, padding, the text classifier, and the three pitfalls."""

import collections
import functools
import io
import re
import sysconfig
import tokenize
from pathlib import Path

import numpy as np
import pytest
from strategies import out_of_range

import fastemb
from fastemb import Embedding, EmbeddingBag
from fastemb.optim import Adam

IDS = np.array([[3, 4, 6, 0], [7, 5, 2, 0]])


def test_the_embedding_lookup():
    vectors = Embedding(num_embeddings=20, embedding_dim=8, init="normal", seed=0)(IDS)
    assert vectors.shape == (2, 4, 8)


def test_padding_is_inert():
    emb = Embedding(20, 8, padding_idx=0, init="normal", optimizer=Adam(lr=0.1), seed=0)
    assert str(emb([0])[0][:4]) == "[0. 0. 0. 0.]"
    for _ in range(5):
        emb.backward(IDS, np.ones((2, 4, 8), np.float32))
        emb.step()
    assert (emb([0]) == 0).all()


def test_share_of_zeros_in_a_one_hot_vector():
    """With a 50,000-word vocabulary 99.998 % of a vector are zeros, and all vectors are equally far apart."""
    vectors = fastemb.one_hot([3, 4, 49_999], 50_000)
    assert vectors.shape == (3, 50_000)
    assert f"{100 * (vectors == 0).mean():.3f}" == "99.998"
    distances = {float(np.linalg.norm(vectors[a] - vectors[b])) for a, b in ((0, 1), (0, 2), (1, 2))}
    assert distances == {float(np.float32(np.sqrt(2)))}


class Pooled:
    """The mean of a layer's vectors over the words of a line, padding left out: what `EmbeddingBag` does at once."""

    def __init__(self, layer):
        self.layer = layer

    def given(self, ids, words):
        if isinstance(self.layer, fastemb.nn.FieldEmbedding):
            return ({"word": ids, "place": np.broadcast_to(np.arange(ids.shape[1]), ids.shape)},), ()
        return (ids,), (words,) if isinstance(self.layer, fastemb.nn.RareTokenEmbedding) else ()

    def __call__(self, ids, words=None):
        first, last = self.given(ids, words)
        mask = (ids != 0)[..., np.newaxis]
        return (self.layer(*first, *last) * mask).sum(axis=1) / mask.sum(axis=1)

    def fused_step(self, ids, dy, words=None):
        first, last = self.given(ids, words)
        mask = (ids != 0)[..., np.newaxis]
        self.layer.fused_step(
            *first, (dy[:, np.newaxis] * (mask / mask.sum(axis=1, keepdims=True))).astype("f4"), *last
        )


class Bag:
    """The same, as `EmbeddingBag` does it."""

    def __init__(self, layer):
        self.layer = layer

    def __call__(self, ids, _):
        return self.layer(ids)

    def fused_step(self, ids, dy, _):
        self.layer.fused_step(ids, None, dy)


class TextClassifier:
    """The document's model: embed, average, linear; here the average leaves padding out."""

    def __init__(self, embed, dim, num_classes, lr=0.02, seed=0):
        self.embed = embed
        self.fc = fastemb.nn.PointEmbedding(dim, num_classes, optimizer=Adam(lr=lr), seed=seed)

    def forward(self, ids, words=None):
        pooled = self.embed(ids, words).astype(np.float32)
        return pooled, self.fc(pooled)

    def train(self, ids, labels, words=None):
        """A step down the cross-entropy; returns it."""
        pooled, logits = self.forward(ids, words)
        logits -= logits.max(axis=1, keepdims=True)
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        loss = -np.log(shares[np.arange(len(ids)), labels]).mean()
        shares[np.arange(len(ids)), labels] -= 1
        dpooled = self.fc.backward(pooled, shares / np.float32(len(ids)))
        self.fc.step()
        self.embed.fused_step(ids, dpooled.astype(np.float32), words)
        return float(loss)


def test_the_classifier_gives_logits():
    model = TextClassifier(Bag(EmbeddingBag(20, 8, padding_idx=0)), dim=8, num_classes=2)
    assert model.forward(np.array([[3, 4, 6, 0]]))[1].shape == (1, 2)


def comments_and_code():
    """Lines of the standard library's sources, of which the text stream is made: (words, 1 if they are a comment)."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:100]:
        source = path.read_text(encoding="utf-8", errors="replace")
        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
        except (tokenize.TokenError, SyntaxError):
            continue
        lines = {}
        for token in tokens:
            if token.type == tokenize.COMMENT:
                yield re.findall(r"\w+", token.string)[:16], 1
            elif token.type in (tokenize.NAME, tokenize.NUMBER):
                lines.setdefault(token.start[0], []).append(token.string)
        for words in lines.values():
            yield words[:16], 0


@functools.cache
def task():
    """(ids, words, labels, vocabulary): as many lines of comments as of code; 0 is padding, 1 the unknown word."""
    lines = [(words, label) for words, label in comments_and_code() if len(words) >= 3]
    rng = np.random.default_rng(0)
    comments, code = ([line for line in lines if line[1] == label] for label in (1, 0))
    code = [code[k] for k in rng.permutation(len(code))[: len(comments)]]
    lines = [(comments + code)[k] for k in rng.permutation(2 * len(code))]
    counts = collections.Counter(word for words, _ in lines[: len(lines) * 4 // 5] for word in words)
    index = {word: k for k, word in enumerate(sorted(w for w, n in counts.items() if n > 1), start=2)}
    ids, texts = np.zeros((len(lines), 16), np.int64), np.full((len(lines), 16), "", object)
    for k, (words, _) in enumerate(lines):
        ids[k, : len(words)] = [index.get(word, 1) for word in words]
        texts[k, : len(words)] = words
    return ids, texts, np.array([label for _, label in lines]), len(index) + 2


RULE = Adam(lr=0.02)
LAYERS = {
    "EmbeddingBag": lambda n: Bag(EmbeddingBag(n, 16, padding_idx=0, optimizer=RULE, seed=0)),
    "Embedding": lambda n: Pooled(Embedding(n, 16, padding_idx=0, optimizer=RULE, seed=0)),
    "exact": lambda n: Pooled(Embedding(n, 16, optimizer=Adam(lr=0.02, mode="exact"), seed=0)),
    "HashEmbedding": lambda n: Pooled(fastemb.nn.HashEmbedding(n // 4, 16, weighted=True, optimizer=RULE, seed=0)),
    "PrunedEmbedding": lambda n: Pooled(fastemb.nn.PrunedEmbedding(n, 16, optimizer=RULE, seed=0)),
    "RareTokenEmbedding": lambda n: Pooled(fastemb.nn.RareTokenEmbedding(n, 16, optimizer=RULE, seed=0)),
    "FieldEmbedding": lambda n: Pooled(
        fastemb.nn.FieldEmbedding({"word": (n, 12), "place": (16, 4)}, optimizer=RULE, seed=0)
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_classifier_of_comments_and_code(name):
    """The document's classifier on a real task, from the running Python's own sources: above 90 % on lines not seen."""
    ids, texts, labels, size = task()
    assert len(ids) > 2000
    split = len(ids) * 4 // 5
    model, losses = TextClassifier(LAYERS[name](size), dim=16, num_classes=2), []
    for _ in range(3):
        for start in range(0, split, 64):
            batch = slice(start, min(start + 64, split))
            losses.append(model.train(ids[batch], labels[batch], texts[batch]))
        if name == "PrunedEmbedding":
            model.embed.layer.prune(ratio=0.2)
    right = model.forward(ids[split:], texts[split:])[1].argmax(axis=1) == labels[split:]
    assert right.mean() > 0.9
    assert np.mean(losses[-10:]) < 0.3 < np.mean(losses[:3])


def test_pitfall_one_hot_instead_of_ids():
    emb = Embedding(20, 8)
    with pytest.raises(TypeError, match="pass the integer ids"):
        emb(fastemb.one_hot([3, 4], 20))
    with pytest.raises(TypeError, match="must be integers"):
        emb(np.array([3.0, 4.0]))


def test_pitfall_vocabulary_larger_than_the_table():
    with pytest.raises(IndexError, match=out_of_range(20, 3, 20, 1)):
        Embedding(20, 8)([3, 20])


def test_pitfall_padding_that_leaks():
    """Without padding_idx the mean depends on how much padding there is; with it, it does not."""
    short, long = np.array([[3, 4]]), np.array([[3, 4, 0, 0, 0, 0]])
    leaking = EmbeddingBag(20, 8, init="normal", seed=0)
    inert = EmbeddingBag(20, 8, init="normal", padding_idx=0, seed=0)
    assert not np.allclose(leaking(short), leaking(long))
    assert np.array_equal(inert(short), inert(long))
    inert.backward(long, None, np.ones((1, 8), np.float32))
    assert inert.grad.rows.tolist() == [3, 4]


def test_pretrained_vectors(tmp_path):
    """Initialised with vectors from a file, frozen or trained on."""
    words, table = ["cat", "dog", "democracy"], np.array([[1.0, 0.5], [0.75, 0.5], [-1.0, 0.25]], np.float32)
    fastemb.io.save_vectors(tmp_path / "vectors.txt", table, words, format="glove")
    vectors = fastemb.io.load_vectors(tmp_path / "vectors.txt", format="glove")
    assert list(vectors.words) == words
    frozen = Embedding.from_pretrained(vectors.weight)
    assert np.array_equal(frozen([1, 0]), table[[1, 0]])
    cat, dog, democracy = frozen([0, 1, 2])
    assert fastemb.nn.cosine_similarity(cat, dog) > fastemb.nn.cosine_similarity(cat, democracy)
    trained = Embedding.from_pretrained(vectors.weight, freeze=False, optimizer=Adam(lr=0.1))
    trained.fused_step([0], np.ones((1, 2), np.float32))
    assert (trained.weight[0] < table[0]).all()
    assert np.array_equal(vectors.weight, table)
