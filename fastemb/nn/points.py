"""PointEmbedding: points in space as vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import _options
from .._arrays import TensorLike, accumulator, as_table
from .._devices import HOST, checked, empty, namespace, require_cuda_dtype, require_one_device, to_device
from .._state import in_columns, require_entries
from ..optim import Optimizer
from .composite import Composite, Dense
from .fourier import FourierFeatures, as_rows, expanded, pulled_back
from .initialisers import Initialiser, make_table
from .table import TableLayer, table_dtype


class _Parameters(Dense):
    """A matrix that may be frozen."""

    def __init__(self, weight: NDArray[Any], optimizer: Optimizer | None, *, frozen: bool = False) -> None:
        super().__init__(weight, None)
        self._frozen = frozen
        self.optimizer = optimizer

    def backward(self, *batch: Any) -> None:
        if not self._frozen:
            super().backward(*batch)


def _linear(fan: int) -> Initialiser:
    bound = math.sqrt(1 / fan)
    return lambda rng, shape, _dtype: rng.uniform(-bound, bound, shape)


class PointEmbedding(Composite):
    """A trained linear map of points to vectors: ``y[..., :] = weight @ f(points[..., :]) + bias``.

    Parameters
    ----------
    in_features : int
        F, coordinates of a point, at least 1.
    embedding_dim : int
        D, width of a vector, at least 1.
    bias : bool
        Whether there is one.
    features : FourierFeatures, optional
        f, of the same `in_features` and dtype; without it the coordinates as they are.
    init : {"uniform_fan", "normal", "zeros"} or callable
        Of the weight, (D, W) with W the numbers that f gives. "uniform_fan" is ``U(-sqrt(1/W), sqrt(1/W))``, of the
        bias too, which else starts as zeros; the others are those of `Embedding`.
    optimizer : fastemb.optim.Optimizer, optional
        The rule that `step` applies.
    dtype : dtype_like
        A float dtype.
    device : {"cpu", "cuda"}
        Where weight and bias lie; "cuda:1" is the second GPU. Features follow the points.
    seed : int, numpy.random.SeedSequence or numpy.random.Generator, optional
        Makes `init` repeatable.

    Raises
    ------
    ImportError
        dtype "bfloat16" without ml_dtypes, device "cuda" without CuPy or numba-cuda.
    RuntimeError
        Device "cuda" without a GPU.
    TypeError
        An option of a wrong kind.
    ValueError
        An option out of range, features of another width or dtype.

    Notes
    -----
    Computed in the accumulation dtype, float32 for half-width ones, and rounded once. Products are those of NumPy's
    BLAS, or CuPy's. torch's ``nn.Linear`` is the same, and starts the same, without features.

    A linear map gives nearby points nearby vectors, so that a sharp change between two close points is slow to learn:
    pass `FourierFeatures`.

    References
    ----------
    C. R. Qi et al., "PointNet: Deep Learning on Point Sets for 3D Classification and Segmentation", 2016,
    https://arxiv.org/abs/1612.00593

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> waves = fastemb.nn.FourierFeatures(3, 6)
    >>> points = fastemb.nn.PointEmbedding(3, 64, features=waves, optimizer=fastemb.optim.Adam())
    >>> cloud = np.zeros((5, 100, 3), np.float32)
    >>> points(cloud).shape
    (5, 100, 64)
    >>> points.backward(cloud, np.ones((5, 100, 64), np.float32)).shape
    (5, 100, 3)
    >>> points.step()
    """

    def __init__(
        self,
        in_features: SupportsIndex,
        embedding_dim: SupportsIndex,
        *,
        bias: bool = True,
        features: FourierFeatures | None = None,
        init: str | Initialiser = "uniform_fan",
        optimizer: Optimizer | None = None,
        dtype: DTypeLike = "float32",
        device: str = "cpu",
        seed: int | np.random.SeedSequence | np.random.Generator | None = None,
    ) -> None:
        width = _options.size("in_features", in_features)
        rows = _options.size("embedding_dim", embedding_dim)
        kind, where = table_dtype(dtype), checked(device)
        if where != HOST:
            require_cuda_dtype(kind, "dtype")
        if features is not None:
            _check_features(features, kind)
            if features.in_features != width:
                msg = f"features must have in_features {width}, got {features.in_features}"
                raise ValueError(msg)
            width = features.out_features
        rng = np.random.default_rng(seed)
        start: str | Initialiser = "zeros"
        if isinstance(init, str) and init == "uniform_fan":
            start = init = _linear(width)
        self._features = features
        self._weight = _Parameters(to_device(make_table(init, rng, (rows, width), kind), where), optimizer)
        self._bias = None
        if bias:
            self._bias = _Parameters(to_device(make_table(start, rng, (rows, 1), kind), where), optimizer)

    @classmethod
    def from_pretrained(
        cls,
        weight: NDArray[Any],
        bias: NDArray[Any] | None = None,
        *,
        freeze: bool = True,
        features: FourierFeatures | None = None,
        optimizer: Optimizer | None = None,
        dtype: DTypeLike | None = None,
    ) -> Self:
        """Make a layer around existing parameters.

        Parameters
        ----------
        weight : (D, W) ndarray
            D and W at least 1; W is `in_features`, or with `features` the numbers that they give.
        bias : (D,) ndarray, optional
            Where `weight` lies; without it there is none.
        freeze : bool
            True: the layer shares arrays that have the wanted dtype, `step` does nothing, and `backward` gives the
            gradient of the points alone. False: the layer trains copies.
        features : FourierFeatures, optional
            As for the class.
        optimizer : fastemb.optim.Optimizer, optional
            As for the class.
        dtype : dtype_like, optional
            That of `weight` by default, in native byte order where it has to be converted.

        Returns
        -------
        PointEmbedding
            The layer.

        Raises
        ------
        TypeError
            `weight` or `bias` is not a float array, or an option is of a wrong kind.
        ValueError
            Shapes that do not fit, features of another width or dtype.

        Examples
        --------
        >>> import numpy as np, fastemb
        >>> w, b = np.array([[0.5, -0.25], [1.0, 2.0], [0.0, 1.0]]), np.array([0.0, 1.0, -1.0])
        >>> fastemb.nn.PointEmbedding.from_pretrained(w, b)([1.0, 2.0])
        array([0., 6., 1.])
        """
        table = as_table(weight)
        rows, width = table.shape
        _options.size("embedding_dim", rows)
        _options.size("in_features", width)
        kind = table.dtype if dtype is None else table_dtype(dtype)
        if features is not None:
            _check_features(features, kind)
            if features.out_features != width:
                msg = f"weight must have the width of the features, {features.out_features}, got {width}"
                raise ValueError(msg)
        column = None
        if bias is not None:
            if np.shape(bias) != (rows,):
                msg = f"bias must have shape ({rows},), got {np.shape(bias)}"
                raise ValueError(msg)
            column = as_table(in_columns(bias), "bias")
            require_one_device({"weight": table, "bias": column})

        def own(array: NDArray[Any]) -> _Parameters:
            if not freeze or array.dtype != kind:
                with np.errstate(all="ignore"):
                    array = array.astype(kind.newbyteorder("="), order="C")
            return _Parameters(array, optimizer, frozen=bool(freeze))

        self = cls.__new__(cls)
        self._features = features
        self._weight = own(table)
        self._bias = None if column is None else own(column)
        return self

    @property
    def weight(self) -> NDArray[Any]:
        """The matrix, (D, W)."""
        return self._weight.weight

    @property
    def bias(self) -> NDArray[Any] | None:
        """The bias, (D,), a view of its (D, 1) table; or None."""
        return None if self._bias is None else self._bias.weight[:, 0]

    @property
    def features(self) -> FourierFeatures | None:
        """What points are expanded by first."""
        return self._features

    @property
    def in_features(self) -> int:
        """F, coordinates of a point."""
        return int(self.weight.shape[1]) if self._features is None else self._features.in_features

    @property
    def embedding_dim(self) -> int:
        """D, width of a vector."""
        return int(self.weight.shape[0])

    def tables(self) -> dict[str, TableLayer]:
        """The layers that hold the parameters.

        Returns
        -------
        dict of str to layer
            "weight" and, with a bias, "bias".
        """
        found: dict[str, TableLayer] = {"weight": self._weight}
        return found if self._bias is None else {**found, "bias": self._bias}

    def _inputs(self, rows: NDArray[Any]) -> NDArray[Any]:
        return rows if self._features is None else expanded(self._features, rows)

    def _matrix(self) -> NDArray[Any]:
        return self.weight.astype(accumulator(self.weight.dtype), copy=False)

    def __call__(self, points: TensorLike) -> NDArray[Any]:
        """Vectors of points.

        Parameters
        ----------
        points : (..., F) array_like
            Any real dtype that casts safely to the accumulation dtype.

        Returns
        -------
        (..., D) ndarray
            A new array.

        Raises
        ------
        TypeError
            Points that do not cast safely.
        ValueError
            Another number of coordinates.
        """
        dtype = self.weight.dtype.newbyteorder("=")
        rows, shape = as_rows(points, self.in_features, dtype, "points", like=self.weight)
        vectors = empty((len(rows), self.embedding_dim), rows.dtype, rows)
        with np.errstate(all="ignore"):
            namespace(rows).matmul(self._inputs(rows), self._matrix().T, out=vectors)
            if self._bias is not None:
                vectors += self._bias.weight.T
            return vectors.astype(dtype, copy=False).reshape(*shape, self.embedding_dim)

    def backward(self, points: TensorLike, dy: TensorLike) -> NDArray[Any]:
        """Add to the `grad` of the tables, and give the gradient of the points.

        Parameters
        ----------
        points : (..., F) array_like
            What was embedded.
        dy : (..., D) array_like
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
            Shapes that do not fit. After any error nothing is pending that was not before.
        """
        dtype = self.weight.dtype
        rows, shape = as_rows(points, self.in_features, dtype, "points", like=self.weight)
        grad, _ = as_rows(dy, self.embedding_dim, dtype, "dy", shape, like=self.weight)
        with np.errstate(all="ignore"):
            inputs = self._inputs(rows)
            result: NDArray[Any] = grad @ self._matrix()
            if self._features is not None:
                result = pulled_back(self._features, inputs, result)
            self._weight.backward(grad.T @ inputs)
            if self._bias is not None:
                # Column sums go row by row: over many points float32 would lose what products keep.
                total = grad.sum(axis=0, dtype=np.float64, keepdims=True)
                self._bias.backward(total.T.astype(grad.dtype))
        return result.reshape(*shape, self.in_features)

    def state_dict(self) -> dict[str, Any]:
        """All that training changes, by the name of the table, and what the features drew.

        Returns
        -------
        dict
            ``{"weight": ..., "bias": ..., "features": ...}``, the latter two if there are any. The arrays are the
            layer's own: copy them to keep a snapshot.
        """
        saved = super().state_dict()
        return saved if self._features is None else {**saved, "features": self._features.state_dict()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave, once all of it is known to fit. What is pending is kept.

        Parameters
        ----------
        saved : mapping
            With the names, shapes and dtypes of this layer. Features are written into `features` itself.

        Raises
        ------
        TypeError
            Not a mapping, or an entry that is not one or not an array.
        ValueError
            Missing or unknown names, another shape or dtype. After any error nothing has changed.
        """
        tables = self.tables()
        features = self._features
        require_entries("state_dict", saved, {*tables} | (set() if features is None else {"features"}))
        load = None if features is None else features.loader(saved["features"])
        super().load_state_dict({name: saved[name] for name in tables})
        if load is not None:
            load()

    def __repr__(self) -> str:
        """Sizes, dtype and the options that are not defaults."""
        options = [f"{self.in_features}, {self.embedding_dim}"]
        options += [] if self._bias is not None else ["bias=False"]
        options += [] if self._features is None else [f"features={self._features!r}"]
        return f"PointEmbedding({', '.join(options)}, dtype={self.weight.dtype})"


def _check_features(features: FourierFeatures, dtype: np.dtype[Any]) -> None:
    if not isinstance(features, FourierFeatures):
        msg = f"features must be a FourierFeatures, got {type(features).__name__}"
        raise TypeError(msg)
    if features.dtype != dtype.newbyteorder("="):
        msg = f"features must have the dtype of the layer, {dtype}, got {features.dtype}"
        raise ValueError(msg)
