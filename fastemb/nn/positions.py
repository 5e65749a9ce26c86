"""Positions as vectors: sines, learned rows, distances, and the angles of rotary embeddings."""

from __future__ import annotations

import decimal
import functools
import math
from typing import Any, Self, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import _options
from .._arrays import TensorLike, accumulator, as_array, as_gradient, as_indices, as_out, as_table, require_disjoint
from .embedding import Embedding
from .table import table_dtype

_PI = decimal.Decimal("3.1415926535897932384626433832795028841971693993751")
_TURN = 1 << 64
"""Parts of a turn that are counted in whole numbers: 64 bits, which forget whole turns by themselves."""


@functools.lru_cache(maxsize=64)
def _turns(count: int, width: int, base: float) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    """``base**(-2*i/D) / (2*pi)`` for i below `count`: in units of ``2**-64``, and what is left of each."""
    with decimal.localcontext(prec=50):
        step = -2 * decimal.Decimal(base).ln() / width
        scale = decimal.Decimal(_TURN) / (2 * _PI)
        exact = [scale * (step * i).exp() for i in range(count)]
        whole = [int(x) for x in exact]
        rest = [float(x - w) for x, w in zip(exact, whole, strict=True)]
    return np.array(whole, np.uint64), np.array(rest) / _TURN


def _angles(positions: TensorLike, count: int, width: int, base: float) -> NDArray[np.float64]:
    """``positions * base**(-2*i/D)`` for i below `count`, less whole turns: (*positions.shape, count).

    From minus half a turn to half of one. Whole numbers count the turns, so that the error is that of a few roundings
    of such an angle, however large the position.
    """
    whole, rest = _turns(count, width, base)
    places = as_indices(positions, "positions")[..., np.newaxis]
    if places.dtype.kind not in "iu":  # Python's integers
        msg = "positions must fit into 64 bits"
        raise ValueError(msg)
    fine = (places.astype(np.uint64) * whole).view(np.int64)  # negative positions wrap to the same turn
    turns = fine / _TURN + places * rest
    return 2 * math.pi * turns


def _base(base: SupportsFloat) -> float:
    return _options.real("base", base, above=1.0)


class SinusoidalPositions:
    """Positions as sines and cosines of falling frequencies, without parameters.

    ``P[p, 2*i] = sin(p * w[i])``, ``P[p, 2*i + 1] = cos(p * w[i])`` with ``w[i] = base**(-2*i/D)``. An odd D has
    ``ceil(D/2)`` sines and ``floor(D/2)`` cosines.

    Parameters
    ----------
    embedding_dim : int
        D, at least 1.
    base : float
        Above 1.
    scale_by_sqrt_dim : bool
        Whether `add` multiplies tokens by ``sqrt(D)`` first, as the Transformer does.
    dtype : dtype_like
        Of the vectors: a float dtype.

    Raises
    ------
    TypeError
        An option of a wrong kind.
    ValueError
        An option out of range.

    Notes
    -----
    Computed in float64 from exact fractions of a turn, then rounded to the dtype: in float64 right to 1e-15 for every
    position. A table of single precision angles, as is often seen, is off by some hundredths at 1e6.

    References
    ----------
    A. Vaswani et al., "Attention Is All You Need", 2017, https://arxiv.org/abs/1706.03762

    Examples
    --------
    >>> import fastemb
    >>> fastemb.nn.SinusoidalPositions(4, dtype="float64")([0, 1]).round(4)
    array([[0.    , 1.    , 0.    , 1.    ],
           [0.8415, 0.5403, 0.01  , 1.    ]])
    """

    def __init__(
        self,
        embedding_dim: SupportsIndex,
        *,
        base: SupportsFloat = 10000.0,
        scale_by_sqrt_dim: bool = False,
        dtype: DTypeLike = "float32",
    ) -> None:
        self.embedding_dim = _options.integer("embedding_dim", embedding_dim, at_least=1)
        self.base = _base(base)
        self.scale_by_sqrt_dim = bool(scale_by_sqrt_dim)
        self.dtype = table_dtype(dtype)

    def __call__(self, positions: TensorLike) -> NDArray[Any]:
        """Vectors of positions.

        Parameters
        ----------
        positions : array_like of int, any shape
            May be negative.

        Returns
        -------
        (*positions.shape, D) ndarray
            A new array.

        Raises
        ------
        TypeError
            Positions that are not integers.
        ValueError
            Positions beyond 64 bits.
        """
        width = self.embedding_dim
        angles = _angles(positions, -(-width // 2), width, self.base)
        vectors = np.empty((*angles.shape[:-1], width), self.dtype)
        vectors[..., 0::2] = np.sin(angles)
        vectors[..., 1::2] = np.cos(angles[..., : width // 2])
        return vectors

    def add(self, tokens: TensorLike) -> NDArray[Any]:
        """Vectors of tokens and of their places added: ``tokens[..., t, :] + P[t, :]``.

        Parameters
        ----------
        tokens : (..., T, D) array_like
            With `scale_by_sqrt_dim` multiplied by ``sqrt(D)`` first.

        Returns
        -------
        (..., T, D) ndarray
            A new array of the layer's dtype.

        Raises
        ------
        TypeError
            Tokens that do not cast safely to the accumulation dtype.
        ValueError
            Another width.

        Notes
        -----
        The gradient of `tokens` is that of the result, times ``sqrt(D)`` if they are scaled.
        """
        array, length = _sequence(tokens, self.embedding_dim, self.dtype)
        return _added(array, self(np.arange(length)), self.scale_by_sqrt_dim)

    def __repr__(self) -> str:
        """Width, and the options that are not defaults."""
        options = [str(self.embedding_dim)]
        options += [f"base={self.base!r}"] if self.base != 10000 else []
        options += ["scale_by_sqrt_dim=True"] if self.scale_by_sqrt_dim else []
        return f"SinusoidalPositions({', '.join(options)}, dtype={self.dtype})"


def _once(value: TensorLike, name: str) -> Any:
    """A tensor as an array, as it may be handed over only once; lists as they are, whose numbers have no dtype."""
    return value if isinstance(value, (list, tuple)) else as_array(value, name)


def _sequence(tokens: TensorLike, width: int, dtype: np.dtype[Any], name: str = "tokens") -> tuple[NDArray[Any], int]:
    array = _once(tokens, name)
    shape = np.shape(array)
    if len(shape) < 2:
        msg = f"{name} must have shape (..., T, {width}), got {shape}"
        raise ValueError(msg)
    return as_gradient(array, (*shape[:-1], width), dtype, name), int(shape[-2])


def _added(tokens: NDArray[Any], positions: NDArray[Any], scaled: bool) -> NDArray[Any]:
    wide = accumulator(positions.dtype)
    with np.errstate(all="ignore"):
        out = np.multiply(tokens, math.sqrt(tokens.shape[-1]), dtype=wide) if scaled else tokens.astype(wide)
        out += positions
    result: NDArray[Any] = out.astype(positions.dtype, copy=False)
    return result


class LearnedPositions(Embedding):
    """A trainable row for each position: an `Embedding` of positions, with sums over tokens.

    Parameters
    ----------
    max_length : int
        Positions are in ``[0, max_length)``; at least 1.
    embedding_dim : int
        D, at least 1.
    scale_by_sqrt_dim : bool
        Whether `add` multiplies tokens by ``sqrt(D)`` first.
    **options
        As for `Embedding`.

    Raises
    ------
    TypeError
        An option of a wrong kind.
    ValueError
        An option out of range.

    Notes
    -----
    A position beyond the last is the IndexError of a lookup.

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> places = fastemb.nn.LearnedPositions(32, 2, init="zeros", optimizer=fastemb.optim.SGD(lr=1.0))
    >>> tokens = np.ones((5, 3, 2), np.float32)
    >>> places.add(tokens).shape
    (5, 3, 2)
    >>> places.add_backward(np.ones((5, 3, 2), np.float32))
    >>> places.step()
    >>> places([0, 3])
    array([[-5., -5.],
           [ 0.,  0.]], dtype=float32)
    """

    scale_by_sqrt_dim = False

    def __init__(
        self,
        max_length: SupportsIndex,
        embedding_dim: SupportsIndex,
        *,
        scale_by_sqrt_dim: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(_options.integer("max_length", max_length, at_least=1), embedding_dim, **options)
        self.scale_by_sqrt_dim = bool(scale_by_sqrt_dim)

    def add(self, tokens: TensorLike) -> NDArray[Any]:
        """Vectors of tokens and of their places added: ``tokens[..., t, :] + weight[t, :]``.

        Parameters
        ----------
        tokens : (..., T, D) array_like
            With `scale_by_sqrt_dim` multiplied by ``sqrt(D)`` first.

        Returns
        -------
        (..., T, D) ndarray
            A new array of the table's dtype.

        Raises
        ------
        IndexError
            T beyond the last position.
        TypeError
            Tokens that do not cast safely to the accumulation dtype.
        ValueError
            Another width.
        """
        array, length = _sequence(tokens, self.embedding_dim, self.weight.dtype)
        return _added(array, self(np.arange(length)), self.scale_by_sqrt_dim)

    def add_backward(self, dy: TensorLike) -> None:
        """Add the gradient of what `add` returned, summed over sequences, to `grad`.

        Parameters
        ----------
        dy : (..., T, D) array_like
            The gradient; that of `tokens` is the same, times ``sqrt(D)`` if they are scaled.

        Raises
        ------
        IndexError
            T beyond the last position.
        TypeError
            A gradient that does not cast safely.
        ValueError
            Another width. After any error `grad` is as before.
        """
        array, length = _sequence(dy, self.embedding_dim, self.weight.dtype, "dy")
        self.backward(np.broadcast_to(np.arange(length), array.shape[:-1]), array)


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
        reach = _options.integer("max_distance", max_distance, at_least=0)
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
            ``clip(j - i, -M, M) + M``; also what `backward` takes for ids.
        """
        count = _options.integer("queries", queries, at_least=0)
        others = count if keys is None else _options.integer("keys", keys, at_least=0)
        distance = np.arange(others) - np.arange(count)[:, np.newaxis]
        rows: NDArray[np.int64] = np.clip(distance, -self.max_distance, self.max_distance) + self.max_distance
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
        return super().__call__(self.rows(queries, keys))

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
        return np.moveaxis(self(queries, keys), -1, 0)

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
        given = _once(dy, "dy")
        shape: tuple[int, ...] = np.shape(given)
        if len(shape) not in (3, 4):
            msg = f"dy must have shape ({self.embedding_dim}, Q, K) or with a batch before it, got {shape}"
            raise ValueError(msg)
        array = as_gradient(given, (*shape[:-3], self.embedding_dim, *shape[-2:]), self.weight.dtype, "dy")
        rows = self.rows(shape[-2], shape[-1])
        self.backward(np.broadcast_to(rows, (*shape[:-3], *rows.shape)), np.moveaxis(array, -3, -1))

    def __repr__(self) -> str:
        """As a table's, but with the distance for the number of rows."""
        shown = super().__repr__()
        return shown.replace(f"({self.num_embeddings}, ", f"({self.max_distance}, ", 1)


def rotary_angles(
    positions: TensorLike, dim: SupportsIndex, *, base: SupportsFloat = 10000.0, dtype: DTypeLike = "float32"
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Cosines and sines of the angles by which rotary embeddings turn pairs of numbers.

    ``angle[p, i] = p * base**(-2*i/dim)`` for i below ``dim/2``.

    Parameters
    ----------
    positions : array_like of int, any shape
        May be negative.
    dim : int
        Width of what is turned, even, at least 2.
    base : float
        Above 1.
    dtype : dtype_like
        Of the result.

    Returns
    -------
    cos, sin : (*positions.shape, dim/2) ndarray
        As exact as `SinusoidalPositions`.

    Raises
    ------
    TypeError
        Positions that are not integers.
    ValueError
        An odd `dim`, an option out of range, positions beyond 64 bits.

    References
    ----------
    J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021,
    https://arxiv.org/abs/2104.09864

    Examples
    --------
    >>> import fastemb
    >>> cos, sin = fastemb.nn.rotary_angles([0, 1], 4, dtype="float64")
    >>> sin.round(4)
    array([[0.    , 0.    ],
           [0.8415, 0.01  ]])
    """
    width = _options.integer("dim", dim, at_least=2)
    if width % 2:
        msg = f"dim must be even, got {width}"
        raise ValueError(msg)
    kind = table_dtype(dtype)
    angles = _angles(positions, width // 2, width, _base(base))
    return np.cos(angles).astype(kind), np.sin(angles).astype(kind)


def apply_rotary(
    x: NDArray[Any], cos: NDArray[Any], sin: NDArray[Any], *, out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Turn neighbouring pairs of numbers by angles.

    ``y[2*i] = x[2*i] * cos[i] - x[2*i + 1] * sin[i]``, ``y[2*i + 1] = x[2*i] * sin[i] + x[2*i + 1] * cos[i]``.

    Parameters
    ----------
    x : (..., D) array_like of float
        D even.
    cos, sin : (..., D/2) array_like of float
        From `rotary_angles`; broadcast against the pairs. With ``-sin`` it turns back, which is also the gradient.
    out : ndarray, optional
        Where to write: shape and dtype of `x`, C-contiguous, not overlapping the inputs.

    Returns
    -------
    ndarray
        Of the shape and dtype of `x`, in native byte order; `out` if that was given.

    Raises
    ------
    TypeError
        Arrays that are not float.
    ValueError
        Shapes that do not fit, or an unfit `out`. After any error nothing has been written.

    Notes
    -----
    Computed in the widest of the three dtypes, float32 at least, and rounded to that of `x`.

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> cos, sin = fastemb.nn.rotary_angles([0, 1], 2, dtype="float64")
    >>> fastemb.nn.apply_rotary(np.array([[1.0, 0.0], [1.0, 0.0]]), cos, sin).round(4)
    array([[1.    , 0.    ],
           [0.5403, 0.8415]])
    """
    given = {"x": as_array(x, "x"), "cos": as_array(cos, "cos"), "sin": as_array(sin, "sin")}
    for name, array in given.items():
        if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
            msg = f"{name} must be float, got {array.dtype}"
            raise TypeError(msg)
    vectors = given["x"]
    if vectors.ndim == 0 or vectors.shape[-1] % 2:
        msg = f"x must have an even last axis, got shape {vectors.shape}"
        raise ValueError(msg)
    pairs = (*vectors.shape[:-1], vectors.shape[-1] // 2)
    for name in ("cos", "sin"):
        try:
            given[name] = np.broadcast_to(given[name], pairs)
        except ValueError:
            msg = f"{name} must have a shape that broadcasts to {pairs}, got {given[name].shape}"
            raise ValueError(msg) from None
    dtype = vectors.dtype.newbyteorder("=")
    result = np.empty(vectors.shape, dtype) if out is None else as_out(out, vectors.shape, dtype)
    require_disjoint({"out": result}, given)
    wide = np.result_type(*(accumulator(array.dtype) for array in given.values()))
    c, s = given["cos"], given["sin"]
    even, odd = vectors[..., 0::2].astype(wide, copy=False), vectors[..., 1::2].astype(wide, copy=False)
    with np.errstate(all="ignore"):
        result[..., 0::2] = even * c - odd * s
        result[..., 1::2] = even * s + odd * c
    return result if out is None else out
