"""The race: which models run it, how each trains, and how far they have come."""

import time

import numpy as np

from fastemb import optim

from ..peers import comparison
from . import skipgram

VOCABULARY = 50_000
TURN = 8
"""Batches that one trains before it is the next one's turn."""

RULES = [
    (optim.Adam(lr=5e-3), "SparseAdam"),
    (optim.Adagrad(lr=0.05), "Adagrad"),
    (optim.RowWiseAdagrad(lr=0.05), None),
    (optim.Adam(lr=5e-3, mode="exact"), None),
]


class _Exact(skipgram.Fastemb):
    """Rows catch up before they are read."""

    def __init__(self, rule, num_rows):
        super().__init__(rule, num_rows)
        self.name += " exact"

    def step(self, batch):
        self.rule.catch_up(self.inner, self.inner_state, batch.centres)
        self.rule.catch_up(self.outer, self.outer_state, batch.others)
        super().step(batch)

    def flush(self):
        """Bring all rows up to date, before the tables are read."""
        self.rule.flush(self.inner, self.inner_state)
        self.rule.flush(self.outer, self.outer_state)


def models(made, threads):
    """One of each that is installed."""
    for rule, name in RULES:
        exact = getattr(rule, "mode", "lazy") == "exact"
        yield (_Exact if exact else skipgram.Fastemb)(rule, VOCABULARY)
        if name and comparison.has("torch"):
            yield skipgram.Torch(name, rule.lr, VOCABULARY)
    if comparison.has("gensim"):
        yield skipgram.Gensim(made, VOCABULARY, threads)


def trained(model, part):
    """Seconds that a model takes to train on some batches."""
    if isinstance(model, skipgram.Gensim):
        sentences = model.words(part)
        start = time.perf_counter()
        model.train(sentences)
        return time.perf_counter() - start
    start = time.perf_counter()
    for batch in part:
        model.step(batch)
    if isinstance(model, _Exact):
        model.flush()
    return time.perf_counter() - start


def held_out(model, batch):
    """A model's loss on a batch that none has trained on."""
    if isinstance(model, skipgram.Gensim):
        model.fetch()
    return skipgram.loss(model.inner, model.outer, batch)


def run(contestants, made, test, advance):
    """Train all on the batches, in turn; for each its seconds and its losses after every turn."""
    seconds = {model.name: [0.0] for model in contestants}
    losses = {model.name: [held_out(model, test)] for model in contestants}
    for turn, start in enumerate(range(0, len(made), TURN)):
        part = made[start : start + TURN]
        for k in np.roll(np.arange(len(contestants)), turn):
            model = contestants[k]
            advance(model.name)
            seconds[model.name].append(trained(model, part))
            losses[model.name].append(held_out(model, test))
    return seconds, losses


def records_of(seconds, losses, made):
    """A record for each contestant."""
    words = sum(batch.words for batch in made)
    fastest = next(iter(seconds))
    records = []
    for name, taken in seconds.items():
        ratio = np.median(np.array(taken[1:]) / np.array(seconds[fastest][1:]))
        records.append(
            {
                "model": name,
                "words_per_s": words / sum(taken),
                "times_first": float(ratio),
                "loss": losses[name],
                "seconds": np.cumsum(taken).tolist(),
            }
        )
    return records
