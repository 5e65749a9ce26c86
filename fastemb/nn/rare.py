"""RareTokenEmbedding: a vector from its characters for a token that the table does not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .. import _options
from .._arrays import Indices, TensorLike, as_array, as_gradient, as_indices, check_indices
from .._devices import HOST, namespace, to_device, unchecked
from .._state import require_entries, same_kind
from ..functional import embedding_bag, gather
from ..optim import Optimizer
from .composite import Composite, Dense
from .embedding import Embedding
from .embedding_bag import EmbeddingBag
from .initialisers import make_table
from .spelling import as_text, joined, utf8
from .table import TableLayer

BYTES = 256
WINDOW = 3
"""Width of the convolution."""


class RareTokenEmbedding(Composite):
    """Rows for frequent tokens, and for the unknown id a vector made of the token's bytes.

    ``y[k] = weight[ids[k]]``; where that id is `unk_idx`, with the bytes x of the token and their vectors e,
    ``y[k] = mean over t of sum over j of conv[:, :, j] @ e[x[t + j - 1]] + bias``: a convolution of width 3, zeros
    beyond both ends, then the mean.

    Parameters
    ----------
    num_embeddings : int
        N, rows of the table of tokens, at least 1.
    embedding_dim : int
        D, width of a row, at least 1.
    unk_idx : int
        The id of unknown tokens, in ``[0, N)``. Its own row is never used.
    padding_idx : int, optional
        As for `Embedding`.
    counts : (N,) array_like of int, optional
        How often each token occurs: those that occur less than `min_freq` times are unknown too. On any device.
    min_freq : int
        See `counts`.
    optimizer : fastemb.optim.Optimizer, optional
        The rule that `step` applies to all parameters.
    dtype : dtype_like
        float32 or float64.
    device : {"cpu", "cuda"}
        Where all tables lie; "cuda:1" is the second GPU. Tokens are text, and so on the host.
    seed : int, numpy.random.SeedSequence or numpy.random.Generator, optional
        Makes the initial values repeatable.

    Raises
    ------
    ImportError
        Device "cuda" without CuPy or numba-cuda.
    RuntimeError
        Device "cuda" without a GPU.
    TypeError
        An option of a wrong kind.
    ValueError
        An option out of range.

    Notes
    -----
    The mean of a convolution is a convolution of sums: all bytes, all but the last, all but the first. So a token costs
    three products of D x D, whatever its length, and the bytes are pooled by `EmbeddingBag`. An empty token has the
    vector zeros. Rows of tokens start as ``N(0, 1)``, those of bytes too, the convolution as
    ``U(-sqrt(1/(3*D)), sqrt(1/(3*D)))``, as torch's layers do.

    References
    ----------
    Y. Kim et al., "Character-Aware Neural Language Models", 2015, https://arxiv.org/abs/1508.06615

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> emb = fastemb.nn.RareTokenEmbedding(10, 4, seed=0)
    >>> y = emb([2, 1, 1], tokens=["the", "zyzzyva", "zyzzyva"])
    >>> y.shape, np.array_equal(y[1], y[2])
    ((3, 4), True)
    """

    _carried = ("_known",)

    def __init__(
        self,
        num_embeddings: SupportsIndex,
        embedding_dim: SupportsIndex,
        *,
        unk_idx: SupportsIndex = 1,
        padding_idx: SupportsIndex | None = 0,
        counts: ArrayLike | None = None,
        min_freq: SupportsIndex = 5,
        optimizer: Optimizer | None = None,
        dtype: DTypeLike = "float32",
        device: str = "cpu",
        seed: int | np.random.SeedSequence | np.random.Generator | None = None,
    ) -> None:
        words, characters, kernel, bias = np.random.default_rng(seed).spawn(4)
        options: dict[str, Any] = {"init": "normal", "optimizer": optimizer, "dtype": dtype, "device": device}
        _options.size("embedding_dim", embedding_dim)
        self._words = Embedding(num_embeddings, embedding_dim, padding_idx=padding_idx, seed=words, **options)
        kind = self._words.weight.dtype
        if kind not in (np.float32, np.float64):
            msg = f"dtype must be float32 or float64, got {kind}"
            raise ValueError(msg)
        width = self.embedding_dim
        self.unk_idx = _options.integer("unk_idx", unk_idx, at_least=0, at_most=self.num_embeddings - 1)
        self.min_freq = _options.integer("min_freq", min_freq, at_least=0)
        if self.unk_idx == self._words.padding_idx:
            msg = f"unk_idx and padding_idx must differ, got {self.unk_idx} for both"
            raise ValueError(msg)
        self._known = to_device(self._frequent(counts), self._words.device)
        self._bytes = EmbeddingBag(BYTES, width, mode="sum", seed=characters, **options)
        # 3 * D rows, of which uniform_fan makes U(-sqrt(1/(3*D)), sqrt(1/(3*D))).
        conv = make_table("uniform_fan", kernel, (WINDOW * width, width), kind)
        added = make_table("uniform_fan", bias, (WINDOW * width, 1), kind)[:width].copy()
        self._conv, self._bias = (Dense(to_device(table, self._words.device), optimizer) for table in (conv, added))

    def _frequent(self, counts: ArrayLike | None) -> NDArray[np.bool]:
        known = np.ones(self.num_embeddings, np.bool)
        if counts is not None:
            array = to_device(as_array(counts, "counts"), HOST)
            if array.shape != known.shape or array.dtype.kind not in "iu":
                msg = f"counts must be integers of shape {known.shape}, got {array.dtype} of shape {array.shape}"
                raise ValueError(msg)
            known = array >= self.min_freq
            if self._words.padding_idx is not None:
                known[self._words.padding_idx] = True
        known[self.unk_idx] = False
        return known

    @property
    def num_embeddings(self) -> int:
        """N, rows of the table of tokens."""
        return self._words.num_embeddings

    @property
    def embedding_dim(self) -> int:
        """D, width of a row."""
        return int(self._words.embedding_dim)

    @property
    def weight(self) -> NDArray[Any]:
        """Rows of tokens, (N, D)."""
        return self._words.weight

    @property
    def byte_weight(self) -> NDArray[Any]:
        """Rows of bytes, (256, D)."""
        return self._bytes.weight

    @property
    def conv(self) -> NDArray[Any]:
        """The convolution, (D, D, 3) as torch's ``Conv1d`` has it: a view."""
        width = self.embedding_dim
        return self._conv.weight.reshape(WINDOW, width, width).transpose(2, 1, 0)

    @property
    def bias(self) -> NDArray[Any]:
        """What the convolution adds, (D,): a view."""
        return self._bias.weight[:, 0]

    def tables(self) -> dict[str, TableLayer]:
        """The layers that hold the parameters.

        Returns
        -------
        dict of str to layer
            Tokens, bytes, the convolution as (3 * D, D), and its bias.
        """
        return {"tokens": self._words, "bytes": self._bytes, "conv": self._conv, "bias": self._bias}

    def is_rare(self, ids: TensorLike) -> NDArray[np.bool]:
        """Which ids have no row of their own.

        Parameters
        ----------
        ids : array_like of int, any shape
            In ``[0, N)``.

        Returns
        -------
        ndarray of bool
            True for `unk_idx` and ids that occur less than `min_freq` times.

        Raises
        ------
        IndexError
            An id out of range.
        TypeError
            Ids that are not integers.
        """
        indices = as_indices(ids, like=self.weight)
        check_indices(indices, self.num_embeddings)
        return as_array(~self._known[indices], "rare")

    def __call__(self, ids: TensorLike, tokens: Any = None) -> NDArray[Any]:
        """Look ids up, and make vectors of those that are rare.

        Parameters
        ----------
        ids : array_like of int, any shape
            In ``[0, N)``.
        tokens : array_like of str or bytes, shape of `ids`
            What the ids stand for; only those of rare ids are read. Not needed where there are none.

        Returns
        -------
        (*ids.shape, D) ndarray
            A new array.

        Raises
        ------
        IndexError
            An id out of range.
        TypeError
            Ids that are not integers, tokens that are not text.
        ValueError
            Rare ids without tokens, or tokens of another shape.
        """
        indices = as_indices(ids, like=self.weight)
        rare = self.is_rare(indices)
        spelled = self._spelled(rare, tokens)
        with unchecked(rare):
            out = self._words(indices)
            if spelled:
                out.reshape(-1, self.embedding_dim)[rare.reshape(-1)] = self._vectors(*self._pooled(spelled))
        return out

    def _spelled(self, rare: NDArray[np.bool], tokens: Any) -> list[bytes]:
        """The bytes of the rare tokens."""
        which = to_device(rare, HOST)
        if not which.any():
            return []
        if tokens is None:
            msg = "tokens must be given: some ids are rare"
            raise ValueError(msg)
        array = as_text(tokens)
        if array.shape != rare.shape:
            msg = f"tokens must have the shape of ids, {rare.shape}, got {array.shape}"
            raise ValueError(msg)
        return [utf8(token) for token in array[which].tolist()]

    def _pooled(self, spelled: list[bytes]) -> tuple[Indices, NDArray[np.int64], NDArray[np.int64]]:
        """What `joined` gives, beside the tables."""
        flat, begins, lengths = (to_device(part, self.device) for part in joined(spelled))
        return flat, begins, lengths

    def _sums(self, flat: Indices, begins: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Means over each token's bytes shifted to the right, as they are, and to the left: (M, D) each."""
        table = self.byte_weight
        xp = namespace(table)
        if not flat.size:
            return [xp.zeros((lengths.size, table.shape[1]), table.dtype)] * WINDOW
        self._bytes.catch_up(flat)
        count = xp.maximum(lengths, 1).astype(table.dtype)[:, np.newaxis]
        full = (lengths > 0)[:, np.newaxis]
        everything = embedding_bag(table, flat, begins, mode="sum")
        places = (xp.clip(at, 0, flat.size - 1) for at in (begins + lengths - 1, begins))  # of empty tokens: any
        ends = [xp.where(full, gather(table, flat[at]), 0) for at in places]
        return [(everything - ends[0]) / count, everything / count, (everything - ends[1]) / count]

    def _vectors(self, flat: Indices, begins: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[Any]:
        xp = namespace(lengths)
        pooled = xp.concatenate(self._sums(flat, begins, lengths), axis=1)
        with np.errstate(all="ignore"):
            vectors: NDArray[Any] = xp.where((lengths > 0)[:, np.newaxis], pooled @ self._conv.weight + self.bias, 0)
            return vectors

    def backward(self, ids: TensorLike, dy: TensorLike, tokens: Any = None) -> None:
        """Add the gradient of a lookup's result to what is pending.

        Parameters
        ----------
        ids : array_like of int, any shape
            What was looked up.
        dy : (*ids.shape, D) array_like
            Gradient of the result.
        tokens : array_like of str or bytes, shape of `ids`
            What the lookup was given.

        Raises
        ------
        IndexError
            An id out of range.
        TypeError
            Ids that are not integers, tokens that are not text, a gradient that does not cast safely.
        ValueError
            Shapes that do not fit. After any error nothing is pending that was not before.
        """
        indices = as_indices(ids, like=self.weight)
        rare = self.is_rare(indices)
        spelled = self._spelled(rare, tokens)
        shape = (*indices.shape, self.embedding_dim)
        values = as_gradient(dy, shape, self.weight.dtype, "dy", like=self.weight).reshape(-1, self.embedding_dim)
        rare = rare.reshape(-1)
        self._words.backward(indices.reshape(-1)[~rare], values[~rare])
        if not spelled:
            return
        xp = namespace(rare)
        flat, begins, lengths = self._pooled(spelled)
        full = (lengths > 0)[:, np.newaxis]
        grad = xp.where(full, values[rare], 0).astype(self.weight.dtype)
        pooled = xp.concatenate(self._sums(flat, begins, lengths), axis=1)
        self._conv.backward(pooled.T @ grad)
        self._bias.backward(grad.sum(axis=0)[:, np.newaxis])
        # Of the mean over T bytes: each byte's share, less what the last and the first byte do not give.
        shares = (grad @ self._conv.weight.T / xp.maximum(lengths, 1)[:, np.newaxis]).astype(grad.dtype)
        right, middle, left = xp.split(shares, WINDOW, axis=1)
        self._bytes.backward(flat, begins, right + middle + left)
        some = lengths > 0
        for part, at in ((right, begins + lengths - 1), (left, begins)):
            self._bytes.backward(flat[at[some]][:, np.newaxis], None, -part[some])

    def fused_step(
        self,
        ids: TensorLike,
        dy: TensorLike,
        tokens: Any = None,
        *,
        lr: SupportsFloat | None = None,
        max_grad_norm: SupportsFloat | None = None,
    ) -> None:
        """`backward` and `step`.

        Parameters
        ----------
        ids : array_like of int, any shape
            What was looked up.
        dy : (*ids.shape, D) array_like
            Gradient of the result.
        tokens : array_like of str or bytes, shape of `ids`
            What the lookup was given.
        lr : float, optional
            Learning rate of this step, in place of the optimizer's own.
        max_grad_norm : float, optional
            Scale the gradient so that its norm, over all tables, is at most this.

        Raises
        ------
        IndexError
            An id out of range.
        RuntimeError
            The layer has no optimizer.
        TypeError
            Ids that are not integers, tokens that are not text, a gradient that does not cast safely.
        ValueError
            Shapes that do not fit. After any error nothing has changed.
        """
        self._checked_step(lr, max_grad_norm)
        self.backward(ids, dy, tokens)
        self.step(lr=lr, max_grad_norm=max_grad_norm)

    def state_dict(self) -> dict[str, Any]:
        """All that training changes, by the name of the table, and which ids are rare.

        Returns
        -------
        dict
            ``{"tokens": ..., "bytes": ..., "conv": ..., "bias": ..., "known": (N,) ndarray of bool}``. The arrays are
            the layer's own: copy them to keep a snapshot.
        """
        return {**super().state_dict(), "known": self._known}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave, once all of it is known to fit; also which ids are rare.

        Parameters
        ----------
        saved : mapping
            With the names, shapes and dtypes of this layer.

        Raises
        ------
        TypeError
            Not a mapping, or an entry that is not one or not an array.
        ValueError
            Missing or unknown names, another shape or dtype, an unknown id that has a row. After any error nothing has
            changed.
        """
        require_entries("state_dict", saved, set(self.state_dict()))
        known = same_kind("known", saved["known"], self._known)
        if known[self.unk_idx]:
            msg = f"known must be False for unk_idx, {self.unk_idx}"
            raise ValueError(msg)
        super().load_state_dict({name: saved[name] for name in self.tables()})
        self._known = known.copy()

    def __repr__(self) -> str:
        """Sizes, and how many tokens have a row."""
        sizes = f"{self.num_embeddings}, {self.embedding_dim}"
        return f"RareTokenEmbedding({sizes}, {int(self._known.sum())} frequent, dtype={self.weight.dtype})"
