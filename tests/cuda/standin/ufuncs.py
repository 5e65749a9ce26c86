"""Ufuncs and operators: stricter than NumPy's in what they take, the same in what they compute."""

import numpy as np

from . import devices
from .array import from_device, held, ndarray
from .counts import counts
from .indexing import _key

NAMES = """
    abs absolute add arccos arccosh arcsin arcsinh arctan arctan2 arctanh bitwise_and bitwise_or bitwise_xor cbrt ceil
    conj conjugate copysign cos cosh deg2rad degrees divide divmod equal exp exp2 expm1 fabs float_power floor
    floor_divide fmax fmin fmod frexp gcd greater greater_equal heaviside hypot invert isfinite isinf isnan lcm ldexp
    left_shift less less_equal log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or logical_xor
    maximum minimum mod modf multiply negative nextafter not_equal positive power rad2deg radians reciprocal remainder
    right_shift rint sign signbit sin sinh sqrt square subtract tan tanh true_divide trunc
"""

AT = {
    "add": "ilqILQefd",
    "subtract": "iI",
    "maximum": "ilqILQfd",
    "minimum": "ilqILQfd",
    "bitwise_and": "ilqILQ",
    "bitwise_or": "ilqILQ",
    "bitwise_xor": "ilqILQ",
}
"""Ufuncs that have `at`, and for which dtypes."""

COMPARISONS = {"equal", "greater", "greater_equal", "less", "less_equal", "not_equal"}
SCALARS = (bool, int, float, complex)


class ufunc:
    """A ufunc of NumPy as one of CuPy: no lists, no arrays of the host, no output of another shape."""

    def __init__(self, name):
        self.__name__, self._ufunc = name, getattr(np, name)
        self.nin, self.nout, self.nargs = self._ufunc.nin, self._ufunc.nout, self._ufunc.nargs

    def __repr__(self):
        return f"<ufunc {self.__name__!r}>"

    def _input(self, value):
        given = from_device(value)
        if given is not None:
            devices.require_current(given)
            return given._host
        if type(value) not in SCALARS and not isinstance(value, np.generic):
            msg = f"Unsupported type {type(value)}"
            raise TypeError(msg)
        if type(value) is int and not -(2**63) <= value < 2**64:
            msg = f"Python integer {value} out of bounds for any dtype"
            raise OverflowError(msg)
        return value

    def __call__(self, *args, out=None, dtype=None, casting="same_kind", **kwargs):
        if kwargs:
            msg = f"Wrong arguments {kwargs}"
            raise TypeError(msg)
        if not self.nin <= len(args) <= self.nargs:
            msg = f"Wrong number of arguments for {self.__name__!r}: {len(args)}"
            raise TypeError(msg)
        outputs = list(args[self.nin :])
        if out is not None:
            if outputs:
                msg = "Cannot specify 'out' as both a positional and keyword argument"
                raise ValueError(msg)
            outputs = list(out) if isinstance(out, tuple) else [out]
        outputs += [None] * (self.nout - len(outputs))
        inputs = [self._input(value) for value in args[: self.nin]]
        for output in outputs:
            self._check_output(output, np.broadcast_shapes(*(np.shape(value) for value in inputs)))
        counts.operations += 1
        memory = tuple(None if output is None else output._host for output in outputs)
        with np.errstate(all="ignore"):
            made = self._ufunc(*inputs, out=memory, dtype=dtype, casting=casting, order="C")
        made = made if self.nout > 1 else (made,)
        results = tuple(
            held(np.asarray(result)) if output is None else output for result, output in zip(made, outputs, strict=True)
        )
        return results if self.nout > 1 else results[0]

    def _check_output(self, output, shape):
        if output is None:
            return
        if not isinstance(output, ndarray):
            msg = "Output arguments type must be cupy.ndarray"
            raise TypeError(msg)
        devices.require_current(output)
        if output.shape != shape:
            msg = "Out shape is mismatched"
            raise ValueError(msg)

    def at(self, a, indices, b=None):
        if self.__name__ not in AT:
            msg = f"`{self.__name__}.at` is not supported yet"
            raise NotImplementedError(msg)
        key, scattered = _key(a, indices)
        if scattered and a.dtype.char not in AT[self.__name__]:
            msg = f"cupy.{self.__name__}.at does not support {a.dtype}"
            raise TypeError(msg)
        devices.require_current(a)
        counts.operations += 1
        with np.errstate(all="ignore"):
            self._ufunc.at(a._host, key, self._input(b) if np.isscalar(b) else _source(a, b))

    def outer(self, A, B, **kwargs):
        return self(A.reshape(A.shape + (1,) * B.ndim), B.reshape((1,) * A.ndim + B.shape), **kwargs)

    def reduce(self, array, axis=0, dtype=None, out=None, keepdims=False):
        if self.__name__ not in {"add", "multiply"}:
            msg = f"`{self.__name__}.reduce` is not supported yet"
            raise NotImplementedError(msg)
        return (array.sum if self.__name__ == "add" else array.prod)(axis, dtype, out, keepdims)

    def accumulate(self, array, axis=0, dtype=None, out=None):
        if self.__name__ not in {"add", "multiply"}:
            msg = f"`{self.__name__}.accumulate` is not supported yet"
            raise NotImplementedError(msg)
        return (array.cumsum if self.__name__ == "add" else array.cumprod)(axis, dtype, out)


def _source(a, b):
    given = from_device(b)
    if given is None:
        return np.asarray(b, a.dtype)
    devices.require_current(given)
    return given._host.astype(a.dtype, copy=False)


UFUNCS = {name: ufunc(name) for name in NAMES.split()}

BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "lshift": "left_shift",
    "rshift": "right_shift",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
}
COMPARED = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
UNARY = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}


def _other_decides(other):
    """Whether the object on the right of an operator is to be asked."""
    ufunc = getattr(other, "__array_ufunc__", np)
    return ufunc is None or (ufunc is np and getattr(other, "__array_priority__", 0) > ndarray.__array_priority__)


def _operator(name, *, swapped=False):
    """What is not an array goes through NumPy, which asks both sides and comes back to `array_ufunc`."""

    def apply(self, other):
        if _other_decides(other):
            return NotImplemented
        if name in COMPARISONS and isinstance(other, np.ndarray) and not other.ndim:
            other = other.item()
        if name in {"equal", "not_equal"} and (other is None or type(other).__eq__ is object.__eq__):
            return held(np.full(self.shape, name == "not_equal"))
        function = UFUNCS[name] if isinstance(other, ndarray) else getattr(np, name)
        return function(other, self) if swapped else function(self, other)

    return apply


def _in_place(name):
    return lambda self, other: UFUNCS[name](self, other, self)


def _unary(name):
    return lambda self: UFUNCS[name](self)


def array_ufunc(self, ufunc, method, *inputs, out=(None,), **kwargs):
    """What NumPy's ufuncs do where one of their arguments is an array of CuPy: they call CuPy's."""
    function = UFUNCS.get(ufunc.__name__)
    if function is None or not all(
        type(value) in SCALARS or isinstance(value, (np.generic, np.ndarray)) or from_device(value) is not None
        for value in inputs
    ):
        return NotImplemented
    if len(out) != 1:
        msg = "The 'out' parameter must have exactly one array value"
        raise ValueError(msg)
    if out[0] is not None:
        kwargs["out"] = out[0]
    return (function if method == "__call__" else getattr(function, method))(*inputs, **kwargs)


ndarray.__array_ufunc__ = array_ufunc
for operator, name in BINARY.items():
    setattr(ndarray, f"__{operator}__", _operator(name))
    setattr(ndarray, f"__r{operator}__", _operator(name, swapped=True))
    setattr(ndarray, f"__i{operator}__", _in_place(name))
for operator, name in COMPARED.items():
    setattr(ndarray, f"__{operator}__", _operator(name))
for operator, name in UNARY.items():
    setattr(ndarray, f"__{operator}__", _unary(name))
ndarray.__hash__ = None
