"""Functions of the stand-in for CuPy give what NumPy's give, and refuse what CuPy's refuse."""

import inspect
import operator

import numpy as np
import pytest

from . import standin

xp = standin.cupy


@pytest.fixture
def host(rng):
    return rng.standard_normal((4, 6)).astype(np.float32)


@pytest.fixture
def x(host):
    return xp.asarray(host)


# The values are NumPy's

SORTED = np.array([0, 2, 2, 5])
CALLS = {
    "all": lambda p, a, i: p.all(a > 0, axis=0),
    "allclose": lambda p, a, i: p.allclose(a, a + 1e-9, rtol=1e-3),
    "amax": lambda p, a, i: p.amax(a, axis=1, keepdims=True),
    "amin": lambda p, a, i: p.amin(a),
    "any": lambda p, a, i: p.any(a > 2),
    "append": lambda p, a, i: p.append(i, 3),
    "arange": lambda p, a, i: p.arange(2, 9, 3, dtype=np.int32),
    "argmax": lambda p, a, i: p.argmax(a, axis=1),
    "argmin": lambda p, a, i: p.argmin(a),
    "argpartition": lambda p, a, i: p.argpartition(a, 2),
    "argsort": lambda p, a, i: p.argsort(a, axis=0, kind="stable"),
    "argwhere": lambda p, a, i: p.argwhere(a > 0),
    "around": lambda p, a, i: p.around(a, 1),
    "array_equal": lambda p, a, i: p.array_equal(a, a),
    "array_split": lambda p, a, i: p.array_split(a, 3),
    "ascontiguousarray": lambda p, a, i: p.ascontiguousarray(a.T),
    "asfortranarray": lambda p, a, i: p.asfortranarray(a),
    "atleast_1d": lambda p, a, i: p.atleast_1d(a[0, 0]),
    "atleast_2d": lambda p, a, i: p.atleast_2d(i),
    "bincount": lambda p, a, i: p.bincount(i, minlength=9),
    "broadcast_to": lambda p, a, i: p.broadcast_to(i, (2, 4)),
    "clip": lambda p, a, i: p.clip(a, -1, 0.5),
    "concatenate": lambda p, a, i: p.concatenate([i, i[:2]]),
    "count_nonzero": lambda p, a, i: p.count_nonzero(i, axis=0),
    "cumprod": lambda p, a, i: p.cumprod(i),
    "cumsum": lambda p, a, i: p.cumsum(a, axis=1),
    "diagonal": lambda p, a, i: p.diagonal(a, 1),
    "diff": lambda p, a, i: p.diff(i, prepend=0),
    "dot": lambda p, a, i: p.dot(a, a.T),
    "einsum": lambda p, a, i: p.einsum("ij,kj->ik", a, a),
    "empty_like": lambda p, a, i: p.empty_like(a).shape,
    "expand_dims": lambda p, a, i: p.expand_dims(a, 1),
    "eye": lambda p, a, i: p.eye(3, 4, 1, np.float32),
    "flatnonzero": lambda p, a, i: p.flatnonzero(a > 0),
    "flip": lambda p, a, i: p.flip(a, 0),
    "full": lambda p, a, i: p.full((2, 3), 7),
    "full_like": lambda p, a, i: p.full_like(a, 7, shape=(2,)),
    "hstack": lambda p, a, i: p.hstack((a, a)),
    "identity": lambda p, a, i: p.identity(3),
    "isclose": lambda p, a, i: p.isclose(a, 0, atol=0.5),
    "linalg.norm": lambda p, a, i: p.linalg.norm(a, axis=1),
    "matmul": lambda p, a, i: p.matmul(a, a.T),
    "max": lambda p, a, i: p.max(a),
    "mean": lambda p, a, i: p.mean(a, axis=0),
    "min": lambda p, a, i: p.min(a, axis=0),
    "moveaxis": lambda p, a, i: p.moveaxis(a, 0, 1),
    "nonzero": lambda p, a, i: p.nonzero(a > 0),
    "ones": lambda p, a, i: p.ones(3, np.int8),
    "ones_like": lambda p, a, i: p.ones_like(i),
    "outer": lambda p, a, i: p.outer(i, i),
    "prod": lambda p, a, i: p.prod(a),
    "ravel": lambda p, a, i: p.ravel(a.T),
    "repeat": lambda p, a, i: p.repeat(a, [2, 0, 1, 3], axis=0),
    "reshape": lambda p, a, i: p.reshape(a, (3, -1)),
    "roll": lambda p, a, i: p.roll(a, 2, axis=1),
    "round": lambda p, a, i: p.round(a, 2),
    "searchsorted": lambda p, a, i: p.searchsorted(i, i, side="right"),
    "sort": lambda p, a, i: p.sort(a, axis=0),
    "split": lambda p, a, i: p.split(a, [1, 3]),
    "squeeze": lambda p, a, i: p.squeeze(a[:1]),
    "stack": lambda p, a, i: p.stack([a, a], axis=1),
    "std": lambda p, a, i: p.std(a, axis=0, ddof=1),
    "sum": lambda p, a, i: p.sum(i),
    "swapaxes": lambda p, a, i: p.swapaxes(a, 0, 1),
    "take": lambda p, a, i: p.take(a, i, axis=1),
    "take_along_axis": lambda p, a, i: p.take_along_axis(a, i[:, None], axis=1),
    "tensordot": lambda p, a, i: p.tensordot(a, a, 2),
    "tile": lambda p, a, i: p.tile(i, (2, 2)),
    "transpose": lambda p, a, i: p.transpose(a),
    "tril": lambda p, a, i: p.tril(a),
    "triu": lambda p, a, i: p.triu(a, 1),
    "unique": lambda p, a, i: p.unique(i, return_index=True, return_inverse=True, return_counts=True),
    "unravel_index": lambda p, a, i: p.unravel_index(i, (3, 4)),
    "var": lambda p, a, i: p.var(a),
    "vstack": lambda p, a, i: p.vstack((a, a)),
    "where": lambda p, a, i: p.where(a > 0, a, 0.0),
    "where a number": lambda p, a, i: p.where(i > 2, 1, i),
    "where numbers": lambda p, a, i: p.where(a > 0, 1.0, True),
    "zeros": lambda p, a, i: p.zeros((2, 0)),
    "zeros_like": lambda p, a, i: p.zeros_like(a),
    "a[i]": lambda p, a, i: a[:, i],
    "a[i, i]": lambda p, a, i: a[i[:3] % 4, i[:3]],
    "a[mask]": lambda p, a, i: a[a > 0],
    "a[mask, 1:]": lambda p, a, i: a[a[:, 0] > 0, 1:],
    "a.T": lambda p, a, i: a.T,
    "flatten": lambda p, a, i: a.flatten(),
    "a @ a": lambda p, a, i: a @ a.T,
    "operators": lambda p, a, i: 1 - (2 * a - i[0]) / 3**a + (a > 1) + (-a if a.size else +a),
    "whole numbers": lambda p, a, i: (((i << 2) // 3 % 5) | 1) & ~i ^ (7 >> i),
}


OTHERS = {
    *("array", "asanyarray", "asarray", "asnumpy", "can_cast", "copyto", "empty", "fill_diagonal", "from_dlpack"),
    *("get_array_module", "iscomplexobj", "may_share_memory", "ndim", "promote_types", "result_type", "shape"),
    *("shares_memory", "size"),
}
"""What the other tests call."""


def same(found, expected):
    if isinstance(found, (tuple, list)):
        for mine, theirs in zip(found, expected, strict=True):
            same(mine, theirs)
    elif isinstance(found, xp.ndarray):
        assert found.dtype == np.asarray(expected).dtype
        np.testing.assert_array_equal(found.get(), expected)
    else:
        assert type(found) is int
        assert found == expected


@pytest.mark.parametrize("name", CALLS)
def test_values(name, host, x):
    call, ids = CALLS[name], xp.asarray(SORTED)
    same(call(xp, x, ids), call(np, host, SORTED))
    np.testing.assert_array_equal(x.get(), host)
    np.testing.assert_array_equal(ids.get(), SORTED)


def test_all_functions_are_called():
    functions = {
        name for name, value in vars(xp).items() if inspect.isfunction(value) and value is not getattr(np, name, 0)
    }
    assert functions - set(CALLS) == OTHERS


# What is refused


REFUSED = {
    "a + host": lambda x, host: x + host,
    "host + a": lambda x, host: host + x,
    "a < host": lambda x, host: x < host,
    "host == a": lambda x, host: host == x,
    "a += host": lambda x, host: operator.iadd(x, host),
    "host += a": lambda x, host: operator.iadd(host, x),
    "a @ host": lambda x, host: x @ host.T,
    "a + list": lambda x, host: x + [1.0] * 6,
    "np.add": lambda x, host: np.add(x, host),
    "add": lambda x, host: xp.add(x, host),
    "add to host": lambda x, host: xp.add(x, x, out=host),
    "np.add to host": lambda x, host: np.add(x, x, out=host),
    "sqrt(host)": lambda x, host: xp.sqrt(host),
    "sqrt(list)": lambda x, host: xp.sqrt([1.0, 2.0]),
    "where=": lambda x, host: xp.add(x, x, where=x > 0),
    "sum(host)": lambda x, host: xp.sum(host),
    "sum(list)": lambda x, host: xp.sum([1, 2]),
    "sum to host": lambda x, host: x.sum(axis=0, out=host[0]),
    "where": lambda x, host: xp.where(x > 0, x, host),
    "concatenate": lambda x, host: xp.concatenate([x, host]),
    "concatenate lists": lambda x, host: xp.concatenate([[1], [2]]),
    "np.concatenate": lambda x, host: np.concatenate([host, x]),
    "ascontiguousarray": lambda x, host: xp.ascontiguousarray(host),
    "empty_like": lambda x, host: xp.empty_like(host),
    "repeat": lambda x, host: xp.repeat(x, np.ones(4, np.int64), axis=0),
    "np.asarray": lambda x, host: np.asarray(x),
    "np.array of them": lambda x, host: np.array([x, x]),
    "array of both": lambda x, host: xp.array([x[0, 0], 1.0]),
    "host[...] = a": lambda x, host: operator.setitem(host, ..., x),
    "frombuffer": lambda x, host: memoryview(x),
    "index": lambda x, host: range(xp.asarray(3)),
    "slice": lambda x, host: x[: xp.asarray(3)],
    "len": lambda x, host: len(x[0, 0]),
    "iter": lambda x, host: iter(x[0, 0]),
    "hash": lambda x, host: hash(x),
    "astype(casting=)": lambda x, host: x.astype(np.int32, casting="safe"),
    "argmax(dtype=)": lambda x, host: xp.argmax(x, dtype=np.int32),
    "whole += float": lambda x, host: operator.iadd(xp.arange(6), x[0]),
    "set another dtype": lambda x, host: x.set(host.astype(np.float64)),
    "get to another dtype": lambda x, host: x.get(out=host.astype(np.float64)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_type_errors(name, host, x):
    before = host.copy()
    with pytest.raises(TypeError):
        REFUSED[name](x, host)
    np.testing.assert_array_equal(x.get(), before)
    np.testing.assert_array_equal(host, before)


WRONG = {
    "x[:] = host": (lambda x, host: operator.setitem(x, slice(None), host), ValueError, "non-scalar numpy.ndarray"),
    "x[0] = list": (lambda x, host: operator.setitem(x, 0, [1.0] * 6), ValueError, "non-scalar numpy.ndarray"),
    "full": (lambda x, host: xp.full((4, 6), host), ValueError, "non-scalar numpy.ndarray"),
    "fill": (lambda x, host: x.fill(x), ValueError, "non-scalar cupy.ndarray"),
    "out": (lambda x, host: xp.add(x, 1, out=xp.empty((2, 4, 6), np.float32)), ValueError, "Out shape"),
    "bool": (lambda x, host: bool(x), ValueError, "ambiguous"),
    "item": (lambda x, host: x.item(), ValueError, "size 1"),
    "empty": (lambda x, host: x[:0].max(), ValueError, "zero-size"),
    "kind": (lambda x, host: xp.argsort(x, kind="quicksort"), ValueError, "'stable'"),
    "repeat": (lambda x, host: x.repeat(xp.ones(4, np.int64), axis=0), ValueError, "`repeats`"),
    "strided sort": (lambda x, host: x[:, ::2].sort(), NotImplementedError, "non-contiguous"),
    "searchsorted": (lambda x, host: xp.searchsorted(x[0], [1.0]), NotImplementedError, "scalars or ndarrays"),
    "maximum.reduce": (lambda x, host: xp.maximum.reduce(x), NotImplementedError, "reduce"),
    "multiply.at": (lambda x, host: xp.multiply.at(x, 0, 1), NotImplementedError, "at"),
    "float index": (lambda x, host: x[xp.zeros(2)], IndexError, "integer or boolean"),
    "take": (lambda x, host: x.take(xp.zeros(2)), TypeError, "integers"),
    "index": (lambda x, host: x[4], IndexError, "out of bounds"),
    "int8": (lambda x, host: xp.ones(2, np.int8) + 300, OverflowError, "out of bounds"),
    "2**64": (lambda x, host: xp.arange(3) < 2**64, OverflowError, "out of bounds"),
    "nonzero": (lambda x, host: x[0, 0].nonzero(), ValueError, "0d"),
    "bincount": (lambda x, host: xp.bincount(xp.asarray([-1])), ValueError, "negative"),
    "flags": (lambda x, host: x.flags["WRITEABLE"], KeyError, "not defined"),
    "strings": (lambda x, host: xp.asarray(["a"]), ValueError, "Unsupported dtype"),
    "objects": (lambda x, host: xp.asarray([None]), ValueError, "Unsupported dtype"),
    "huge": (lambda x, host: xp.asarray([2**70]), ValueError, "Unsupported dtype object"),
    "long double": (lambda x, host: xp.zeros(2, np.longdouble), ValueError, "Unsupported dtype"),
    "dates": (lambda x, host: xp.zeros(2, "M8[s]"), ValueError, "Unsupported dtype"),
    "big-endian": (lambda x, host: x.astype(">f4"), ValueError, "big-endian"),
    "set": (lambda x, host: x.set(host[:2]), ValueError, "Shape mismatch"),
    "device": (lambda x, host: xp.cuda.Device(2).use(), RuntimeError, "invalid device"),
}


@pytest.mark.parametrize("name", WRONG)
def test_other_errors(name, host, x):
    call, error, text = WRONG[name]
    with pytest.raises(error, match=text):
        call(x, host)
    np.testing.assert_array_equal(x.get(), host)
    assert xp.cuda.runtime.getDevice() == 0
