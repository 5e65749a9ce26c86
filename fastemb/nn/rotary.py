"""Rotary embeddings: pairs of numbers turned by angles of their positions."""

from __future__ import annotations

from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import _options
from .._arrays import TensorLike, accumulator, as_array, as_out, beside, require_disjoint
from .._devices import namespace, require_host
from .angles import above_one, angles
from .table import table_dtype


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
        As exact as `SinusoidalPositions`; where the positions lie.

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
    turned = angles(positions, width // 2, width, above_one(base))
    xp = namespace(turned)
    return xp.cos(turned).astype(kind), xp.sin(turned).astype(kind)


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
        From `rotary_angles`, where `x` lies; broadcast against the pairs. With ``-sin`` it turns back, which is also
        the gradient.
    out : ndarray, optional
        Where to write: shape and dtype of `x`, C-contiguous, not overlapping the inputs.

    Returns
    -------
    ndarray
        Of the shape and dtype of `x`, in native byte order; `out` if that was given.

    Raises
    ------
    TypeError
        Arrays that are not float, or on several devices.
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
    given = {"x": as_array(x, "x")}
    for name, array in (("cos", cos), ("sin", sin)):
        require_host(array, name, given["x"], "x")
        given[name] = beside(as_array(array, name), array, name, given["x"], "x")
    for name, array in given.items():
        if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
            msg = f"{name} must be float, got {array.dtype}"
            raise TypeError(msg)
    vectors = given["x"]
    xp = namespace(vectors)
    if vectors.ndim == 0 or vectors.shape[-1] % 2:
        msg = f"x must have an even last axis, got shape {vectors.shape}"
        raise ValueError(msg)
    pairs = (*vectors.shape[:-1], vectors.shape[-1] // 2)
    for name in ("cos", "sin"):
        try:
            given[name] = xp.broadcast_to(given[name], pairs)
        except ValueError:
            msg = f"{name} must have a shape that broadcasts to {pairs}, got {given[name].shape}"
            raise ValueError(msg) from None
    dtype = vectors.dtype.newbyteorder("=")
    result = xp.empty(vectors.shape, dtype) if out is None else as_out(out, vectors.shape, dtype, vectors)
    require_disjoint({"out": result}, given)
    wide = np.result_type(*(accumulator(array.dtype) for array in given.values()))
    c, s = given["cos"], given["sin"]
    even, odd = vectors[..., 0::2].astype(wide, copy=False), vectors[..., 1::2].astype(wide, copy=False)
    with np.errstate(all="ignore"):
        result[..., 0::2] = even * c - odd * s
        result[..., 1::2] = even * s + odd * c
    return result if out is None else out
