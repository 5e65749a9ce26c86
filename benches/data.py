"""The three index streams of every benchmark: seeded, so that two runs look up the same rows."""

import collections
import functools
import re
import sysconfig
from pathlib import Path

import numpy as np

EXPONENT = 1.05
"""Of the bounded power law."""

PASSAGE = 64
"""Words in a row in the text stream."""

SKIPPED = {"site-packages", "dist-packages"}
"""Folders in the standard library's that are not of it."""


def uniform(num_rows, length, seed=0):
    """Every row as likely as any other: (length,) int64."""
    return np.random.default_rng(seed).integers(0, num_rows, length)


def zipf(num_rows, length, seed=0):
    """Row of rank x with probability ~ x**-1.05, x in [1, N), ranks permuted over the rows: (length,) int64.

    Drawn by inverting the distribution of the bounded power law: ``x = (u * (N**(1-a) - 1) + 1)**(1/(1-a))``.
    """
    rng = np.random.default_rng(seed)
    power = 1 - EXPONENT
    ranks = (rng.random(length) * (float(num_rows) ** power - 1) + 1) ** (1 / power)
    return rng.permutation(num_rows)[np.minimum(ranks.astype(np.int64) - 1, num_rows - 1)]


def text(num_rows, length, seed=0):
    """Words of the running Python's standard library sources: (length,) int64.

    The ``num_rows - 1`` most frequent words have ids 0, 1, ... by frequency; every other word is the unknown id
    ``num_rows - 1``. Like a batch in training, it is made of passages from seeded places, `PASSAGE` words each.
    """
    ranks = _word_ranks()
    starts = np.random.default_rng(seed).integers(0, ranks.size - PASSAGE, -(-length // PASSAGE))
    words = ranks[starts[:, np.newaxis] + np.arange(PASSAGE)].reshape(-1)[:length]
    return np.minimum(words, num_rows - 1)


@functools.cache
def _word_ranks():
    words = []
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        if SKIPPED.isdisjoint(path.relative_to(library).parts):
            words += re.findall(r"[^\W\d]\w*", path.read_text(encoding="utf-8", errors="replace"))
    by_frequency = sorted(collections.Counter(words).items(), key=lambda item: (-item[1], item[0]))
    rank = {word: r for r, (word, _) in enumerate(by_frequency)}
    return np.fromiter((rank[word] for word in words), np.int64, len(words))


STREAMS = {"text": text, "uniform": uniform, "zipf": zipf}
