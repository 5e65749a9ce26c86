"""HashEmbedding: ids without bound, in a table of fixed size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import _options
from .._arrays import TensorLike, as_gradient
from .._devices import namespace, unchecked
from .._state import require_entries
from ..bags import embedding_bag_weight_grad
from ..optim import Optimizer
from .composite import Composite
from .embedding import Embedding
from .embedding_bag import EmbeddingBag
from .hashing import GOLDEN, keys_of, mix, ones
from .initialisers import Initialiser
from .table import TableLayer

_MOST = 4
"""Hashes of an id."""


class HashEmbedding(Composite):
    """Ids of any size, or text, as sums of rows of a small table: each id hashes to several of its rows.

    ``y[..., :] = sum over j of w[..., j] * weight[h[j](ids[...]), :]`` with ones for w, or with `weighted`
    ``w[..., :] = importance[g(ids[...]), :]``; h and g are hashes.

    Parameters
    ----------
    num_buckets : int
        N, rows of the table, at least 1.
    embedding_dim : int
        D, width of a row, at least 1.
    num_hashes : int
        k, rows that are summed for an id, 1 to 4.
    weighted : bool
        Whether an id also has k trained factors.
    num_weights : int, optional
        M, rows of factors, at least 1; N by default. With `weighted` alone.
    hash_seed : int
        Chooses the hashes; at least 0. Part of the model, see Notes.
    init : {"uniform_fan", "normal", "zeros"} or callable
        Of the table, see `Embedding`. Factors start as ones.
    optimizer : fastemb.optim.Optimizer, optional
        The rule that `step` applies.
    dtype : dtype_like
        "float32" and "float64" are fast; "float16", and "bfloat16" with ml_dtypes installed, are right.
    device : {"cpu", "cuda"}
        Where the table lies, and the factors; "cuda:1" is the second GPU. Ids of text are hashed on the host.
    seed : int, numpy.random.SeedSequence or numpy.random.Generator, optional
        Makes `init` repeatable. The hashes do not depend on it.

    Raises
    ------
    ImportError
        dtype "bfloat16" without ml_dtypes, device "cuda" without CuPy or numba-cuda.
    RuntimeError
        Device "cuda" without a GPU.
    TypeError
        An option of a wrong kind.
    ValueError
        An option out of range.

    Notes
    -----
    Memory is ``N * D + M * k`` numbers, whatever the ids. Two ids share all their rows with a chance of about
    ``k! / N**k``, and with `weighted` their factors may still tell them apart. A row that one id names twice is added
    twice.

    An id is 64 bits: an integer of any dtype its value modulo ``2**64`` (so -1 is one id in int8 and int64), text the
    BLAKE2b digest of 8 bytes, little-endian, of its UTF-8 (so "é" and its UTF-8 bytes are one id; a NumPy array of
    text drops NULs at the end). With m the finaliser of SplitMix64 and s its numbers from `hash_seed`,
    ``h[j](id) = m(m(id) ^ s[j]) mod N`` for j = 1 to k, ``g(id) = m(m(id) ^ s[0]) mod M``. The same on every machine,
    in every process; `state_dict` holds `num_hashes` and `hash_seed`, without which a table is worthless.

    Moves ``L * (k + 1) * D * itemsize`` bytes for L ids. Keras' ``Hashing`` makes one bucket of an id, with FarmHash64
    or SipHash64; torch has no such layer.

    References
    ----------
    D. Svenstrup, J. M. Hansen, O. Winther, "Hash Embeddings for Efficient Word Representations", 2017,
    https://arxiv.org/abs/1709.03933

    G. L. Steele Jr., D. Lea, C. H. Flood, "Fast Splittable Pseudorandom Number Generators", 2014,
    https://doi.org/10.1145/2660193.2660195

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> words = fastemb.nn.HashEmbedding(1000, 2, init="zeros", optimizer=fastemb.optim.SGD(lr=0.5))
    >>> words.buckets(["cat", "dog"])
    array([[244, 679],
           [853, 712]])
    >>> words.fused_step(["cat", "dog", "cat"], np.ones((3, 2), np.float32))
    >>> words(["cat", "dog", "bird"])
    array([[-2., -2.],
           [-1., -1.],
           [ 0.,  0.]], dtype=float32)
    >>> words(2**62 + 1).shape
    (2,)
    """

    def __init__(
        self,
        num_buckets: SupportsIndex,
        embedding_dim: SupportsIndex,
        *,
        num_hashes: SupportsIndex = 2,
        weighted: bool = False,
        num_weights: SupportsIndex | None = None,
        hash_seed: SupportsIndex = 0,
        init: str | Initialiser = "uniform_fan",
        optimizer: Optimizer | None = None,
        dtype: DTypeLike = "float32",
        device: str = "cpu",
        seed: int | np.random.SeedSequence | np.random.Generator | None = None,
    ) -> None:
        size = _options.size("num_buckets", num_buckets)
        width = _options.size("embedding_dim", embedding_dim)
        self._num_hashes = _options.integer("num_hashes", num_hashes, at_least=1, at_most=_MOST)
        self._hash_seed = _options.integer("hash_seed", hash_seed, at_least=0)
        if num_weights is not None and not weighted:
            msg = f"num_weights is for weighted=True alone, got {num_weights}"
            raise ValueError(msg)
        rows = size if num_weights is None else _options.size("num_weights", num_weights)
        counter = np.arange(1, _MOST + 2, dtype=np.uint64) * GOLDEN + np.uint64(self._hash_seed)
        self._streams = mix(counter)  # SplitMix64's numbers from the seed
        options: dict[str, Any] = {"optimizer": optimizer, "dtype": dtype, "device": device}
        self._table: Embedding | EmbeddingBag
        if self._num_hashes == 1 and not weighted:
            self._table = Embedding(size, width, init=init, seed=seed, **options)
        else:
            self._table = EmbeddingBag(size, width, mode="sum", init=init, seed=seed, **options)
        self._importance: Embedding | None = None
        if weighted:
            self._importance = Embedding(rows, self._num_hashes, init=ones, **options)

    @property
    def weight(self) -> NDArray[Any]:
        """The table, (N, D)."""
        return self._table.weight

    @property
    def importance(self) -> NDArray[Any] | None:
        """The factors, (M, k), or None without `weighted`."""
        return None if self._importance is None else self._importance.weight

    @property
    def num_buckets(self) -> int:
        """N, rows of the table."""
        return self._table.num_embeddings

    @property
    def embedding_dim(self) -> int:
        """D, width of a row."""
        return int(self.weight.shape[1])

    @property
    def num_hashes(self) -> int:
        """How many rows are summed for an id, k."""
        return self._num_hashes

    @property
    def hash_seed(self) -> int:
        """What chose the hashes."""
        return self._hash_seed

    def tables(self) -> dict[str, TableLayer]:
        """The layers that hold the parameters.

        Returns
        -------
        dict of str to layer
            "weight" and, with `weighted`, "importance".
        """
        factors = {} if self._importance is None else {"importance": self._importance}
        return {"weight": self._table, **factors}

    def _hash(self, spread: NDArray[np.uint64], j: int, size: int) -> NDArray[np.int64]:
        return (mix(spread ^ self._streams[j]) % np.uint64(size)).astype(np.int64)

    def _slots(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Rows of the table, (L, k), and of the factors, (L,)."""
        spread = mix(keys.reshape(-1))
        slots: NDArray[np.int64] = namespace(keys).empty((spread.size, self._num_hashes), np.int64)
        for j in range(self._num_hashes):
            slots[:, j] = self._hash(spread, j + 1, self.num_buckets)
        factors = self._importance
        return slots, None if factors is None else self._hash(spread, 0, factors.num_embeddings)

    def buckets(self, ids: Any) -> NDArray[np.int64]:
        """The rows of the table that ids hash to.

        Parameters
        ----------
        ids : array_like of int, str or bytes, any shape
            Of any size; negative too.

        Returns
        -------
        (*ids.shape, k) ndarray of int64
            In ``[0, N)``.

        Raises
        ------
        TypeError
            Ids that are not all integers or all text.
        ValueError
            An integer of more than 64 bits.
        """
        keys = keys_of(ids, self.weight)
        return self._slots(keys)[0].reshape(*keys.shape, self._num_hashes)

    def __call__(self, ids: Any) -> NDArray[Any]:
        """Look ids up.

        Parameters
        ----------
        ids : array_like of int, str or bytes, any shape
            Of any size; negative too.

        Returns
        -------
        (*ids.shape, D) ndarray
            A new array.

        Raises
        ------
        TypeError
            Ids that are not all integers or all text.
        ValueError
            An integer of more than 64 bits.
        """
        keys = keys_of(ids, self.weight)
        slots, places = self._slots(keys)
        with unchecked(slots):
            if isinstance(self._table, Embedding):
                vectors = self._table(slots[:, 0])
            else:
                vectors = self._table(slots, None, self._factors(places))
        return vectors.reshape(*keys.shape, self.embedding_dim)

    def _factors(self, places: NDArray[np.int64] | None) -> NDArray[Any] | None:
        return None if self._importance is None or places is None else self._importance(places)

    def _parts(self, ids: Any, dy: TensorLike) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """What `backward` and `fused_step` of the table take, and of the factors, none of which has changed yet."""
        keys = keys_of(ids, self.weight)
        values = as_gradient(dy, (*keys.shape, self.embedding_dim), self.weight.dtype, "dy", like=self.weight)
        values = values.reshape(-1, self.embedding_dim)
        slots, places = self._slots(keys)
        if isinstance(self._table, Embedding):
            return (slots[:, 0], values), ()
        if places is None:
            return (slots, None, values), ()
        self._table.catch_up(slots)
        gradient = embedding_bag_weight_grad(self.weight, slots, None, values, mode="sum")
        return (slots, None, values, self._factors(places)), (places, gradient)

    def backward(self, ids: Any, dy: TensorLike) -> None:
        """Add the gradient of a lookup's result to the `grad` of the tables.

        Parameters
        ----------
        ids : array_like of int, str or bytes, any shape
            What was looked up. With `weighted` the tables must be those of the lookup, too.
        dy : (*ids.shape, D) array_like
            Gradient of the result; must cast safely to the table's accumulation dtype.

        Raises
        ------
        TypeError
            Ids as of a lookup, a gradient that does not cast safely.
        ValueError
            Ids as of a lookup, a gradient of a wrong shape. After any error nothing is pending that was not before.
        """
        of_table, of_factors = self._parts(ids, dy)
        self._table.backward(*of_table)
        if self._importance is not None:
            self._importance.backward(*of_factors)

    def fused_step(
        self, ids: Any, dy: TensorLike, *, lr: SupportsFloat | None = None, max_grad_norm: SupportsFloat | None = None
    ) -> None:
        """`backward` and `step` in one pass over the rows of each table.

        Parameters
        ----------
        ids : array_like of int, str or bytes, any shape
            What was looked up. With `weighted` the tables must be those of the lookup, too.
        dy : (*ids.shape, D) array_like
            Gradient of the result; must cast safely to the table's accumulation dtype.
        lr : float, optional
            Learning rate of this step, in place of the optimizer's own.
        max_grad_norm : float, optional
            Scale the gradient so that its norm, over both tables, is at most this; then gradients are made first.

        Raises
        ------
        RuntimeError, TypeError, ValueError
            No optimizer, or as `backward`. After any error nothing has changed.
        """
        of_table, of_factors = self._parts(ids, dy)
        if self._checked_step(lr, max_grad_norm) is not None:
            self.backward(ids, dy)
            self.step(lr=lr, max_grad_norm=max_grad_norm)
            return
        self._table.fused_step(*of_table, lr=lr)
        if self._importance is not None:
            self._importance.fused_step(*of_factors, lr=lr)

    def state_dict(self) -> dict[str, Any]:
        """All that training changes, by the name of the table, and what the hashes depend on.

        Returns
        -------
        dict
            ``{"weight": ..., "importance": ..., "num_hashes": int, "hash_seed": int}``, the second entry with
            `weighted`. The arrays are the layer's own: copy them to keep a snapshot.
        """
        return {**super().state_dict(), **self._hashing()}

    def _hashing(self) -> dict[str, int]:
        return {"num_hashes": self._num_hashes, "hash_seed": self._hash_seed}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave, once all of it is known to fit. What is pending is kept.

        Parameters
        ----------
        saved : mapping
            With the names, shapes, dtypes and hashes of this layer.

        Raises
        ------
        TypeError
            Not a mapping, or an entry of a wrong kind.
        ValueError
            Missing or unknown names, another shape or dtype, other hashes. After any error nothing has changed.
        """
        tables, hashing = self.tables(), self._hashing()
        require_entries("state_dict", saved, {*tables, *hashing})
        for name, own in hashing.items():
            if _options.integer(name, saved[name], at_least=0) != own:
                msg = f"{name} must be that of the layer, {own}, got {saved[name]}: ids would hash to other rows"
                raise ValueError(msg)
        super().load_state_dict({name: saved[name] for name in tables})

    def __repr__(self) -> str:
        """Sizes, hashes and dtype."""
        options = [f"{self.num_buckets}, {self.embedding_dim}, num_hashes={self._num_hashes}"]
        if self._importance is not None:
            options.append(f"weighted=True, num_weights={self._importance.num_embeddings}")
        options += [f"hash_seed={self._hash_seed}"] if self._hash_seed else []
        return f"HashEmbedding({', '.join(options)}, dtype={self.weight.dtype})"
