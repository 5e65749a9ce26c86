"""What a file of vectors holds."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Vectors:
    """Words and their vectors: ``weight[i]`` belongs to ``words[i]``.

    Parameters
    ----------
    words : list of str or None
        N distinct words; None for a file without words.
    weight : (N, D) ndarray
        Their vectors.

    Attributes
    ----------
    words : list of str or None
        N distinct words; None for a file without words.
    weight : (N, D) ndarray
        Their vectors, C-contiguous and in native byte order: what ``Embedding.from_pretrained`` takes.

    Examples
    --------
    >>> import numpy as np, fastemb.io
    >>> vectors = fastemb.io.Vectors(["the", "cat"], np.array([[0.5, 0.25], [1.0, -1.0]]))
    >>> vectors
    Vectors(2 rows, width 2, float64)
    >>> vectors.index["cat"]
    1
    """

    words: list[str] | None
    weight: NDArray[Any]

    @functools.cached_property
    def index(self) -> dict[str, int]:
        """The row of each word, made at the first use.

        Returns
        -------
        dict
            From word to row.

        Raises
        ------
        ValueError
            There are no words.
        """
        if self.words is None:
            msg = "these vectors have no words"
            raise ValueError(msg)
        return {word: row for row, word in enumerate(self.words)}

    def __repr__(self) -> str:
        """Size and dtype, not the values."""
        rows, width = self.weight.shape
        words = ", no words" if self.words is None else ""
        return f"Vectors({rows} rows, width {width}, {self.weight.dtype}{words})"
