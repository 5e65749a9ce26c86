"""RelativePositions: a row for each distance."""

from __future__ import annotations

from typing import Any, Self, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from .. import _options
from .._arrays import TensorLike, as_gradient, as_table, read_once
from .._devices import namespace, require_host, unchecked
from .embedding import Embedding


class RelativePositions(Embedding):
    """A trainable row for each distance of a key from a query, far ones clamped.

    ``y[i, j, :] = weight[clip(j - i, -M, M) + M, :]`` with M = `max_distance`.

    Parameters
    ----------
    max_distance : int
        M, at least 0: the table has ``2 * M + 1`` rows.
    embedding_dim : int
        D, at least 1; for `bias` the number of heads.
    **options
        As for `Embedding`.

    Raises
    ------
    TypeError
        An option of a wrong kind.
    ValueError
        An option out of range.

    References
    ----------
    P. Shaw, J. Uszkoreit, A. Vaswani, "Self-Attention with Relative Position Representations", 2018,
    https://arxiv.org/abs/1803.02155

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> heads = fastemb.nn.RelativePositions(1, 2, init=lambda rng, shape, dtype: np.arange(6.0).reshape(3, 2))
    >>> heads(2, 3)[..., 0]  # keys before, at, and after the query
    array([[2., 4., 4.],
           [0., 2., 4.]], dtype=float32)
    >>> heads.bias(2, 3).shape
    (2, 2, 3)
    """

    def __init__(self, max_distance: SupportsIndex, embedding_dim: SupportsIndex, **options: Any) -> None:
        reach = _options.integer("max_distance", max_distance, at_least=0, at_most=2**30 - 1)
        super().__init__(2 * reach + 1, embedding_dim, **options)

    @classmethod
    def _adopt(cls, weight: NDArray[Any], *arguments: Any, **options: Any) -> Self:
        if len(as_table(weight)) % 2 == 0:
            msg = f"weight must have an odd number of rows, 2 * max_distance + 1, got {len(weight)}"
            raise ValueError(msg)
        return super()._adopt(weight, *arguments, **options)

    @property
    def max_distance(self) -> int:
        """M, beyond which all distances are one."""
        return self.num_embeddings // 2

    def rows(self, queries: SupportsIndex, keys: SupportsIndex | None = None) -> NDArray[np.int64]:
        """The row of each pair of places.

        Parameters
        ----------
        queries : int
            Q, how many places look.
        keys : int, optional
            K, how many are looked at; as many by default.

        Returns
        -------
        (Q, K) ndarray of int64
            ``clip(j - i, -M, M) + M``, where the table lies; also what `backward` takes for ids.
        """
        count = _options.integer("queries", queries, at_least=0)
        others = count if keys is None else _options.integer("keys", keys, at_least=0)
        xp = namespace(self.weight)
        distance = xp.arange(others) - xp.arange(count)[:, np.newaxis]
        rows: NDArray[np.int64] = xp.clip(distance, -self.max_distance, self.max_distance) + self.max_distance
        return rows

    def __call__(self, queries: SupportsIndex, keys: SupportsIndex | None = None) -> NDArray[Any]:  # type: ignore[override]
        """Vectors of all pairs of places.

        Parameters
        ----------
        queries : int
            Q, how many places look.
        keys : int, optional
            K, how many are looked at; as many by default.

        Returns
        -------
        (Q, K, D) ndarray
            A new array.
        """
        rows = self.rows(queries, keys)
        with unchecked(rows):
            return super().__call__(rows)

    def bias(self, queries: SupportsIndex, keys: SupportsIndex | None = None) -> NDArray[Any]:
        """The vectors as one number for each head: what is added to the scores of attention.

        Parameters
        ----------
        queries : int
            Q, how many places look.
        keys : int, optional
            K, how many are looked at; as many by default.

        Returns
        -------
        (D, Q, K) ndarray
            A view of a new array.
        """
        return self(queries, keys).transpose(2, 0, 1)

    def bias_backward(self, dy: TensorLike) -> None:
        """Add the gradient of what `bias` returned to `grad`.

        Parameters
        ----------
        dy : (D, Q, K) or (B, D, Q, K) array_like
            The gradient; summed over a batch.

        Raises
        ------
        TypeError
            A gradient that does not cast safely.
        ValueError
            Another number of heads. After any error `grad` is as before.
        """
        require_host(dy, "dy", self.weight, "weight")
        given = read_once(dy, "dy")
        shape: tuple[int, ...] = np.shape(given)
        if len(shape) not in (3, 4):
            msg = f"dy must have shape ({self.embedding_dim}, Q, K) or with a batch before it, got {shape}"
            raise ValueError(msg)
        wanted = (*shape[:-3], self.embedding_dim, *shape[-2:])
        array = as_gradient(given, wanted, self.weight.dtype, "dy", like=self.weight)
        xp, rows = namespace(array), self.rows(shape[-2], shape[-1])
        self.backward(xp.broadcast_to(rows, (*shape[:-3], *rows.shape)), xp.moveaxis(array, -3, -1))

    def __repr__(self) -> str:
        """As a table's, but with the distance for the number of rows."""
        shown = super().__repr__()
        return shown.replace(f"({self.num_embeddings}, ", f"({self.max_distance}, ", 1)
