"""What a file of vectors holds."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
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

    Raises
    ------
    ValueError
        Words that are not distinct, or not as many as rows.

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

    def __post_init__(self) -> None:
        """Check that each row has a word of its own."""
        if self.words is not None and not len(self.words) == len(set(self.words)) == len(self.weight):
            msg = f"words must be distinct, one for each of {len(self.weight)} rows, got {len(self.words)}"
            raise ValueError(msg)

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

    def with_reserved(self, words: Sequence[str]) -> Vectors:
        """The same after rows of zeros for words of your own, as for padding: ids of the others move up.

        Parameters
        ----------
        words : sequence of str
            The first rows' words, such as ``["<pad>", "<unk>"]``.

        Returns
        -------
        Vectors
            With a new table.

        Raises
        ------
        TypeError
            Words that are not a sequence of str.
        ValueError
            There are no words, or one is there already or twice.

        Examples
        --------
        >>> import numpy as np, fastemb
        >>> vectors = fastemb.io.Vectors(["the", "cat"], np.array([[0.5, 0.25], [1.0, -1.0]])).with_reserved(["<pad>"])
        >>> vectors.words
        ['<pad>', 'the', 'cat']
        >>> fastemb.Embedding.from_pretrained(vectors.weight, padding_idx=0)([0, 1])
        array([[0.  , 0.  ],
               [0.5 , 0.25]])
        """
        if (
            not isinstance(words, Sequence)
            or isinstance(words, (str, bytes))
            or not all(isinstance(word, str) for word in words)
        ):
            msg = f"words must be a sequence of str, got {words!r}"
            raise TypeError(msg)
        everything = [*words, *self.index]
        for word in words:
            if everything.count(word) > 1:
                msg = f"words must be new and distinct, got {word!r} twice"
                raise ValueError(msg)
        zeros = np.zeros((len(words), self.weight.shape[1]), self.weight.dtype)
        return Vectors(everything, np.concatenate((zeros, self.weight)))

    def __repr__(self) -> str:
        """Size and dtype, not the values."""
        rows, width = self.weight.shape
        words = ", no words" if self.words is None else ""
        return f"Vectors({rows} rows, width {width}, {self.weight.dtype}{words})"
