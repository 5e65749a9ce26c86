"""FourierFeatures: coordinates as waves, which make fine detail easy to learn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import _options
from .._arrays import TensorLike, accumulator, as_gradient, read_once
from .._devices import device_of, empty, namespace, require_host, to_device
from .._state import require_entries, same_kind
from .initialisers import make_table
from .savable import Savable
from .table import table_dtype

_KINDS = ("log", "gaussian")


def as_rows(
    given: TensorLike,
    width: int,
    dtype: np.dtype[Any],
    name: str,
    lead: tuple[int, ...] | None = None,
    *,
    like: NDArray[Any] | None = None,
    like_name: str = "weight",
) -> tuple[NDArray[Any], tuple[int, ...]]:
    """An array (..., width) as rows in the accumulation dtype, (L, width), and the axes before the last, or `lead`.

    It lies on the device of `like`.
    """
    require_host(given, name, like, like_name)
    array = read_once(given, name)
    before: tuple[int, ...] = np.shape(array)[:-1] if lead is None else lead
    array = as_gradient(array, (*before, width), dtype, name, like=like, like_name=like_name)
    with np.errstate(all="ignore"):
        if isinstance(array, np.ndarray):
            rows = np.require(array, accumulator(dtype), ["C", "A"])
        else:
            rows = namespace(array).ascontiguousarray(array, accumulator(dtype))
    return rows.reshape(-1, width), before


def _waves(turns: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """``sin(2*pi*turns)`` and ``cos(2*pi*turns)``, exact at quarters of a turn, and as good at many turns as at one."""
    xp = namespace(turns)
    angle = turns - xp.rint(turns)  # exact, as what is done to it next
    quarters = xp.rint(4 * angle)
    angle -= quarters / 4
    angle *= angle.dtype.type(2 * math.pi)
    low, high = xp.sin(angle), xp.cos(angle)
    odd = xp.abs(quarters) == 1
    half = xp.abs(quarters) == 2
    sine, cosine = xp.where(odd, high, low), xp.where(odd, low, high)
    xp.copyto(sine, 0 - sine, where=(quarters == -1) | half)
    xp.copyto(cosine, 0 - cosine, where=(quarters == 1) | half)
    return sine, cosine


class FourierFeatures(Savable):
    """Coordinates as sines and cosines of several frequencies, without trained parameters.

    ``y[..., :] = [sin(2*pi * B @ p), cos(2*pi * B @ p)]`` for a point ``p = points[..., :]``, with `include_input`
    p itself before them.

    Parameters
    ----------
    in_features : int
        F, coordinates of a point, at least 1.
    num_frequencies : int
        K, at least 1.
    kind : {"log", "gaussian"}
        "log": K octaves of each coordinate, ``sin(2**k * pi * x)`` for k from 0; B is (F*K, F), the K rows of the first
        coordinate first. "gaussian": K directions drawn from ``N(0, scale**2)``; B is (K, F).
    scale : float, optional
        Of "gaussian" alone, above 0; 1 by default. Cycles per unit: the larger, the finer the detail.
    include_input : bool
        Whether the coordinates themselves come first.
    dtype : dtype_like
        Of the result: a float dtype.
    seed : int, numpy.random.SeedSequence or numpy.random.Generator, optional
        Makes "gaussian" repeatable.

    Raises
    ------
    ImportError
        dtype "bfloat16" without ml_dtypes.
    TypeError
        An option of a wrong kind.
    ValueError
        An option out of range.

    Notes
    -----
    Computed in the accumulation dtype, float32 for half-width ones, and rounded once. Whole turns are taken off before
    the sine: at the frequencies of "log", which are powers of two, each value is right to the last bits however high
    the frequency. Products are those of NumPy's BLAS. Writes ``L * out_features * itemsize`` bytes for L points.

    Features are made where the points lie; those of points on a GPU by CuPy.

    References
    ----------
    B. Mildenhall et al., "NeRF: Representing Scenes as Neural Radiance Fields for View Synthesis", 2020,
    https://arxiv.org/abs/2003.08934

    M. Tancik et al., "Fourier Features Let Networks Learn High Frequency Functions in Low Dimensional Domains", 2020,
    https://arxiv.org/abs/2006.10739

    Examples
    --------
    >>> import fastemb
    >>> waves = fastemb.nn.FourierFeatures(1, 2)
    >>> waves([[0.0], [0.25], [0.5]])  # two sines, two cosines
    array([[ 0.        ,  0.        ,  1.        ,  1.        ],
           [ 0.70710677,  1.        ,  0.70710677,  0.        ],
           [ 1.        ,  0.        ,  0.        , -1.        ]],
          dtype=float32)
    """

    def __init__(
        self,
        in_features: SupportsIndex,
        num_frequencies: SupportsIndex,
        *,
        kind: str = "log",
        scale: SupportsFloat | None = None,
        include_input: bool = False,
        dtype: DTypeLike = "float32",
        seed: int | np.random.SeedSequence | np.random.Generator | None = None,
    ) -> None:
        width = _options.size("in_features", in_features)
        count = _options.size("num_frequencies", num_frequencies)
        _options.choice("kind", kind, _KINDS)
        self._kind, self._include_input, self._dtype = kind, bool(include_input), table_dtype(dtype)
        wanted = accumulator(self._dtype)
        self._scale: float | None = None
        if kind == "gaussian":
            self._scale = 1.0 if scale is None else _options.real("scale", scale, above=0.0)
            drawn = make_table("normal", seed, (count, width), wanted)
            table = drawn * wanted.type(self._scale)
        else:
            if scale is not None:
                msg = f"scale is for kind 'gaussian' alone, got {scale}"
                raise ValueError(msg)
            most = int(np.finfo(wanted).maxexp) + 1
            if count > most:
                msg = f"num_frequencies must be <= {most} for dtype {self._dtype}, got {count}"
                raise ValueError(msg)
            octaves = np.ldexp(wanted.type(0.5), np.arange(count))
            table = np.kron(np.eye(width, dtype=wanted), octaves[:, np.newaxis])
        self._own(table)

    def _own(self, frequencies: NDArray[Any]) -> None:
        frequencies.flags.writeable = False
        self._frequencies = frequencies

    @property
    def frequencies(self) -> NDArray[Any]:
        """B, a row of cycles per unit for each wave; read-only, in the accumulation dtype, on the host."""
        return self._frequencies

    @property
    def in_features(self) -> int:
        """F, coordinates of a point."""
        return int(self._frequencies.shape[1])

    @property
    def out_features(self) -> int:
        """Width of the result: twice the rows of B, and F more with `include_input`."""
        return self._include_input * self.in_features + 2 * len(self._frequencies)

    @property
    def include_input(self) -> bool:
        """Whether the coordinates themselves come first."""
        return self._include_input

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the result."""
        return self._dtype

    def __call__(self, points: TensorLike) -> NDArray[Any]:
        """Features of points.

        Parameters
        ----------
        points : (..., F) array_like
            Any real dtype that casts safely to the accumulation dtype.

        Returns
        -------
        (..., out_features) ndarray
            A new array.

        Raises
        ------
        TypeError
            Points that do not cast safely.
        ValueError
            Another number of coordinates.
        """
        rows, shape = as_rows(points, self.in_features, self._dtype, "points")
        with np.errstate(all="ignore"):
            features = expanded(self, rows).astype(self._dtype, copy=False)
        return features.reshape(*shape, self.out_features)

    def backward(self, points: TensorLike, dy: TensorLike) -> NDArray[Any]:
        """Gradient of the points, given that of their features.

        Parameters
        ----------
        points : (..., F) array_like
            What was expanded.
        dy : (..., out_features) array_like
            Gradient of the result; must cast safely to the accumulation dtype.

        Returns
        -------
        (..., F) ndarray
            In the accumulation dtype.

        Raises
        ------
        TypeError
            Points or a gradient that do not cast safely.
        ValueError
            Shapes that do not fit.
        """
        rows, shape = as_rows(points, self.in_features, self._dtype, "points")
        grad, _ = as_rows(dy, self.out_features, self._dtype, "dy", shape, like=rows, like_name="points")
        with np.errstate(all="ignore"):
            result = pulled_back(self, expanded(self, rows), grad)
        return result.reshape(*shape, self.in_features)

    def state_dict(self) -> dict[str, Any]:
        """What "gaussian" drew: without it whatever was trained on the features is worthless.

        Returns
        -------
        dict
            ``{"frequencies": B}``, the layer's own array, on the host.
        """
        return {"frequencies": self._frequencies}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave, once it is known to fit.

        Parameters
        ----------
        saved : mapping
            With the shape and dtype of this layer's frequencies, and for "log" their values.

        Raises
        ------
        TypeError
            Not a mapping, or an entry that is not an array.
        ValueError
            Missing or unknown names, another shape or dtype. After any error nothing has changed.
        """
        self.loader(saved)()

    def loader(self, saved: Mapping[str, Any]) -> Callable[[], None]:
        """Check what `load_state_dict` is given, and return what takes it over.

        Parameters
        ----------
        saved : mapping
            With the shape and dtype of this layer's frequencies, and for "log" their values.

        Returns
        -------
        callable
            Without parameters; nothing has changed before it is called.
        """
        require_entries("state_dict", saved, {"frequencies"})
        table = same_kind("frequencies", saved["frequencies"], self._frequencies)
        if self._kind == "log" and not np.array_equal(table, self._frequencies):
            msg = "frequencies must be the octaves of kind 'log'"
            raise ValueError(msg)
        return lambda: self._own(table.copy())

    def __repr__(self) -> str:
        """Sizes, and the options that are not defaults."""
        count = len(self._frequencies) // (self.in_features if self._kind == "log" else 1)
        options = [f"{self.in_features}, {count}, kind={self._kind!r}"]
        options += [] if self._scale is None else [f"scale={self._scale:g}"]
        options += ["include_input=True"] if self._include_input else []
        return f"FourierFeatures({', '.join(options)}, dtype={self._dtype})"


def _parts(features: FourierFeatures, array: NDArray[Any]) -> list[NDArray[Any]]:
    """Views of the columns of the input, of the sines and of the cosines."""
    first = features.in_features * features.include_input
    parts: list[NDArray[Any]] = namespace(array).split(array, [first, first + len(features.frequencies)], axis=1)
    return parts


def _frequencies(features: FourierFeatures, like: NDArray[Any]) -> NDArray[Any]:
    """B where the points lie: it is small, and no device has to keep it."""
    return to_device(features.frequencies, device_of(like))


def expanded(features: FourierFeatures, rows: NDArray[Any]) -> NDArray[Any]:
    """Features of points (L, F) in the accumulation dtype: (L, out_features), not rounded yet."""
    out = empty((len(rows), features.out_features), rows.dtype, rows)
    direct, sine, cosine = _parts(features, out)
    direct[...] = rows[:, : direct.shape[1]]
    sine[...], cosine[...] = _waves(rows @ _frequencies(features, rows).T)
    return out


def pulled_back(features: FourierFeatures, values: NDArray[Any], grad: NDArray[Any]) -> NDArray[Any]:
    """The gradient of points, (L, F), given what `expanded` made of them and the gradient of that."""
    _, sine, cosine = _parts(features, values)
    direct, of_sine, of_cosine = _parts(features, grad)
    of_turns = of_sine * cosine - of_cosine * sine
    of_turns *= of_turns.dtype.type(2 * math.pi)
    result: NDArray[Any] = of_turns @ _frequencies(features, of_turns)
    if features.include_input:
        result += direct
    return result
