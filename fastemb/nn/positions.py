"""Positions as vectors: sines, and learned rows."""

from __future__ import annotations

import math
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import _options
from .._arrays import TensorLike, accumulator, as_gradient, read_once
from .._devices import namespace, require_host
from .angles import above_one, angles
from .embedding import Embedding
from .table import table_dtype


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
    position. A table of single precision angles, as is often seen, is off by some hundredths at 1e6. Vectors are made
    where the positions, or tokens, lie; those on a GPU by CuPy.

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
        self.embedding_dim = _options.size("embedding_dim", embedding_dim)
        self.base = above_one(base)
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
        turned = angles(positions, -(-width // 2), width, self.base)
        xp = namespace(turned)
        vectors: NDArray[Any] = xp.empty((*turned.shape[:-1], width), self.dtype)
        vectors[..., 0::2] = xp.sin(turned)
        vectors[..., 1::2] = xp.cos(turned[..., : width // 2])
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
        return _added(array, self(namespace(array).arange(length)), self.scale_by_sqrt_dim)

    def __repr__(self) -> str:
        """Width, and the options that are not defaults."""
        options = [str(self.embedding_dim)]
        options += [f"base={self.base!r}"] if self.base != 10000 else []
        options += ["scale_by_sqrt_dim=True"] if self.scale_by_sqrt_dim else []
        return f"SinusoidalPositions({', '.join(options)}, dtype={self.dtype})"


def _sequence(
    tokens: TensorLike, width: int, dtype: np.dtype[Any], name: str = "tokens", *, like: NDArray[Any] | None = None
) -> tuple[NDArray[Any], int]:
    """The array, on the device of `like`, and T."""
    require_host(tokens, name, like, "weight")
    array = read_once(tokens, name)
    shape = np.shape(array)
    if len(shape) < 2:
        msg = f"{name} must have shape (..., T, {width}), got {shape}"
        raise ValueError(msg)
    return as_gradient(array, (*shape[:-1], width), dtype, name, like=like), int(shape[-2])


def _added(tokens: NDArray[Any], positions: NDArray[Any], scaled: bool) -> NDArray[Any]:
    wide = accumulator(positions.dtype)
    with np.errstate(all="ignore"):
        root = math.sqrt(tokens.shape[-1])
        out = namespace(tokens).multiply(tokens, root, dtype=wide) if scaled else tokens.astype(wide)
        out += positions
    result: NDArray[Any] = out.astype(positions.dtype, copy=False)
    return result


class LearnedPositions(Embedding):
    """A trainable row for each position, ``y[..., :] = weight[positions[...], :]``, to be added to tokens.

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

    References
    ----------
    J. Gehring et al., "Convolutional Sequence to Sequence Learning", 2017, https://arxiv.org/abs/1705.03122

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

    _scaled = False  # of what `from_pretrained` makes

    def __init__(
        self,
        max_length: SupportsIndex,
        embedding_dim: SupportsIndex,
        *,
        scale_by_sqrt_dim: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(_options.size("max_length", max_length), embedding_dim, **options)
        self.scale_by_sqrt_dim = scale_by_sqrt_dim

    @property
    def scale_by_sqrt_dim(self) -> bool:
        """Whether `add` multiplies tokens by ``sqrt(D)`` first; may be set."""
        return self._scaled

    @scale_by_sqrt_dim.setter
    def scale_by_sqrt_dim(self, scaled: bool) -> None:
        self._scaled = bool(scaled)

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
        array, length = _sequence(tokens, self.embedding_dim, self.weight.dtype, like=self.weight)
        return _added(array, self(namespace(array).arange(length)), self.scale_by_sqrt_dim)

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
        array, length = _sequence(dy, self.embedding_dim, self.weight.dtype, "dy", like=self.weight)
        xp = namespace(array)
        self.backward(xp.broadcast_to(xp.arange(length), array.shape[:-1]), array)
