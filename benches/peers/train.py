"""Some batches of the skip-gram: a whole training step, against torch's sparse optimizers and gensim's C code."""

import functools

import numpy as np

from ..train import race, skipgram
from .comparison import Comparison, has

BATCHES = 4


def _steps(model, made):
    for batch in made:
        model.step(batch)


def _same_tables(ours, theirs, made):
    """A check that new models, after two batches, have one table and one loss, as near as single precision is.

    Both rules divide a gradient by its own size, so a number whose gradient is a rounding error may go either way.
    """

    def check():
        models = ours(), theirs()
        for model in models:
            _steps(model, made[:2])
        for mine, other in zip((models[0].inner, models[0].outer), (models[1].inner, models[1].outer), strict=True):
            assert np.isclose(mine, other, rtol=1e-3, atol=1e-6).mean() > 1 - 1e-4
        losses = [race.held_out(model, made[-1]) for model in models]
        np.testing.assert_allclose(*losses, rtol=1e-5)

    return check


def _learns(model, made):
    """A check that a pass over the text lowers the loss."""

    def check():
        before = race.held_out(model, made[0])
        model.train(model.words(made))
        assert race.held_out(model, made[0]) < before

    return check


def train_steps(quick):
    """The same batches for fastemb and torch, the same text for gensim."""
    made = list(skipgram.batches(race.VOCABULARY, BATCHES))
    words = sum(batch.words for batch in made)
    for rule, name in race.RULES[:1] if quick else race.RULES[:2]:
        case = f"skip-gram, {words:,} words, {type(rule).__name__}"
        ours = functools.partial(skipgram.Fastemb, rule, race.VOCABULARY)
        model = ours()
        if has("torch"):
            theirs = functools.partial(skipgram.Torch, name, rule.lr, race.VOCABULARY)
            steps, others = functools.partial(_steps, model, made), functools.partial(_steps, theirs(), made)
            yield Comparison(case, f"torch {name}", steps, others, None, _same_tables(ours, theirs, made))
        if has("gensim"):
            peer = skipgram.Gensim(made, race.VOCABULARY, 2)
            steps, others = functools.partial(_steps, model, made), functools.partial(peer.train, peer.words(made))
            yield Comparison(case, peer.name, steps, others, None, _learns(peer, made))
