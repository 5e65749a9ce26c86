"""Skip-gram with negative sampling on running text: batches, the model in fastemb, torch and gensim, and its loss."""

from typing import NamedTuple

import numpy as np
import scipy.special

import fastemb

from .. import data

WIDTH = 100
WINDOW = 5
NEGATIVES = 5
POWER = 0.75
"""Of the frequencies that negatives are drawn by, as in word2vec."""


class Batch(NamedTuple):
    """Pairs of neighbours: the centre's id (P,), and those of a neighbour and of negatives, (P, 1 + NEGATIVES)."""

    centres: np.ndarray
    others: np.ndarray
    passages: np.ndarray

    @property
    def words(self):
        """How many words of text the pairs are made of."""
        return self.passages.size


def batches(num_rows, count, words=4096, seed=0):
    """Batches of pairs from passages of running text: neighbours at most 1 to `WINDOW` words apart, drawn evenly."""
    rng = np.random.default_rng(seed)
    text = data.text(num_rows, count * words, seed).reshape(count, -1, data.PASSAGE)
    weights = np.bincount(text.reshape(-1), minlength=num_rows) ** POWER
    cumulated = np.cumsum(weights) / weights.sum()
    for passages in text:
        pairs = list(_pairs(passages, rng))
        centres, neighbours = (np.concatenate(part) for part in zip(*pairs, strict=True))
        order = rng.permutation(centres.size)
        negatives = np.searchsorted(cumulated, rng.random((centres.size, NEGATIVES)))
        others = np.concatenate((neighbours[order, np.newaxis], np.minimum(negatives, num_rows - 1)), axis=1)
        yield Batch(centres[order], others, passages)


def _pairs(passages, rng):
    windows = rng.integers(1, WINDOW + 1, passages.shape)
    for distance in range(1, WINDOW + 1):
        left, right = passages[:, :-distance], passages[:, distance:]
        for centre, neighbour, window in ((left, right, windows[:, :-distance]), (right, left, windows[:, distance:])):
            near = window >= distance
            yield centre[near], neighbour[near]


def tables(num_rows, seed=1):
    """Vectors of words as centres, and as neighbours: word2vec's start."""
    inner = (np.random.default_rng(seed).random((num_rows, WIDTH), dtype=np.float32) - np.float32(0.5)) / WIDTH
    return inner, np.zeros((num_rows, WIDTH), np.float32)


def loss(inner, outer, batch):
    """Mean over pairs of ``-log s(u . h) - sum over negatives of log s(-u . h)``, s the logistic function."""
    scores = np.einsum("pd,pkd->pk", inner[batch.centres], outer[batch.others])
    scores[:, 0] *= -1
    return float(np.logaddexp(0, scores, dtype=np.float64).sum() / len(scores))


class Fastemb:
    """The model on pooled lookups: neither the rows of the neighbours nor their gradients are ever an array."""

    def __init__(self, rule, num_rows):
        self.name, self.rule = f"fastemb {type(rule).__name__}", rule
        self.inner, self.outer = tables(num_rows)
        self.inner_state, self.outer_state = rule.init(self.inner), rule.init(self.outer)

    def step(self, batch):
        """A step of the optimizer on the sum of a batch's losses."""
        centre = fastemb.gather(self.inner, batch.centres)
        scores = fastemb.embedding_bag_weight_grad(self.outer, batch.others, None, centre, mode="sum")
        errors = scipy.special.expit(scores, out=scores)
        errors[:, 0] -= 1
        grad = fastemb.embedding_bag(self.outer, batch.others, mode="sum", per_sample_weights=errors)
        self.rule.step_bag(self.outer, self.outer_state, batch.others, None, centre, per_sample_weights=errors)
        self.rule.step(self.inner, self.inner_state, batch.centres, grad)


class Torch:
    """The model as it is written with torch: two layers with sparse gradients."""

    def __init__(self, name, rate, num_rows):
        import torch

        self.name = f"torch {name}"
        self.inner, self.outer = tables(num_rows)  # shared with the layers
        self.layers = [
            torch.nn.Embedding(num_rows, WIDTH, sparse=True, _weight=torch.from_numpy(table))
            for table in (self.inner, self.outer)
        ]
        parameters = [parameter for layer in self.layers for parameter in layer.parameters()]
        self.optimizer = getattr(torch.optim, name)(parameters, lr=rate)

    def step(self, batch):
        """A step of the optimizer on the sum of a batch's losses."""
        import torch

        inner, outer = self.layers
        self.optimizer.zero_grad()
        centre = inner(torch.from_numpy(batch.centres)).unsqueeze(2)
        scores = torch.bmm(outer(torch.from_numpy(batch.others)), centre).squeeze(2)
        labels = torch.zeros_like(scores)
        labels[:, 0] = 1
        torch.nn.functional.binary_cross_entropy_with_logits(scores, labels, reduction="sum").backward()
        self.optimizer.step()


class Gensim:
    """word2vec in C, from the words themselves: it draws its own pairs and takes a step of SGD for each."""

    name = "gensim word2vec (SGD)"
    RATE = 0.025

    def __init__(self, made, num_rows, threads):
        import gensim.models

        self.threads = threads
        self.model = gensim.models.Word2Vec(
            vector_size=WIDTH, window=WINDOW, negative=NEGATIVES, ns_exponent=POWER, sg=1, min_count=1, sample=0,
            alpha=self.RATE, min_alpha=self.RATE, workers=threads, seed=1,
        )  # fmt: skip
        self.model.build_vocab(self.words(made))
        self.inner, self.outer = tables(num_rows)
        places = self.model.wv.key_to_index
        self.ids = np.array([int(word) for word in places])
        self.places = np.array(list(places.values()))

    @staticmethod
    def words(made):
        """The passages of batches as lists of strings, which is what it takes."""
        return [[str(word) for word in passage] for batch in made for passage in batch.passages]

    def train(self, sentences):
        """Train on passages once."""
        self.model.train(sentences, total_examples=len(sentences), epochs=1, start_alpha=self.RATE, end_alpha=self.RATE)

    def fetch(self):
        """Bring `inner` and `outer` up to date."""
        self.inner[self.ids] = self.model.wv.vectors[self.places]
        self.outer[self.ids] = self.model.syn1neg[self.places]
