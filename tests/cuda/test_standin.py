"""The stand-in for CuPy has the names, parameters and dtypes of the real package, and NumPy's values."""

import inspect
import itertools
import re
from types import ModuleType

import cupy as real
import numpy as np
import pytest

from . import standin
from .standin import array, ufuncs

cupy = standin.cupy
HIDDEN = set(dir(object)) | {"__dict__", "__module__", "__weakref__"}
"""Names of every class."""

CLASSES = {
    "ndarray": (standin.ndarray, real.ndarray),
    "ufunc": (cupy.ufunc, real.ufunc),
    "flags": (array.Flags, type(real._core.flags.Flags(True, True, True))),
    "data": (array.MemoryPointer, real.cuda.MemoryPointer),
    "Device": (cupy.cuda.Device, real.cuda.Device),
    "Stream": (cupy.cuda.Stream, real.cuda.Stream),
}
MODULES = {"cupy": real, "cupy.cuda": real.cuda, "cupy.cuda.runtime": real.cuda.runtime, "cupy.linalg": real.linalg}


def offered(owner):
    """Names that a class or a module offers to those who use it."""
    return {name for name in vars(owner) if re.fullmatch(r"[^_]\w*|__\w+__", name)} - HIDDEN - set(vars(ModuleType("")))


def parameters(function):
    """The parameters of a function of CuPy, None where it does not say."""
    try:
        found = inspect.signature(function).parameters.values()
    except ValueError:
        said = re.match(r"[\w.]+\((.*?)\)( ->.*)?$", function.__doc__ or "", re.MULTILINE)
        if not said:
            return None
        text = re.sub(r"(?<![\w*])\w+ (?=\w+(,|=|$))", "", said[1])  # types that Cython writes
        found = inspect.signature(eval(f"lambda {text}: None")).parameters.values()
    return list(found)


def require_subset(function, original, skipped=0):
    """What can be passed to the function can be passed to the original, and has the same default."""
    theirs = parameters(original)
    assert theirs is not None
    theirs = theirs[skipped:]
    names = [parameter.name for parameter in theirs]
    for place, mine in enumerate(list(inspect.signature(function).parameters.values())[skipped:]):
        if mine.kind in (mine.VAR_POSITIONAL, mine.VAR_KEYWORD):
            assert theirs[place].kind == mine.kind
            continue
        assert mine.name in names, f"{mine.name} is no parameter of CuPy's"
        other = theirs[names.index(mine.name)]
        if mine.kind is not mine.KEYWORD_ONLY:
            assert names.index(mine.name) == place, f"{mine.name} stands elsewhere"
            assert other.kind is not other.KEYWORD_ONLY
        assert mine.default == other.default


@pytest.mark.parametrize("name", MODULES)
def test_a_module_offers_nothing_else(name):
    missing = {each for each in offered(standin.MODULES[name]) if not hasattr(MODULES[name], each)}
    assert not missing


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_offers_nothing_else(name):
    mine, theirs = CLASSES[name]
    assert not offered(mine) - set(dir(theirs))


def test_what_arrays_of_cupy_lack():
    lacking = {"__index__", "__array_interface__", "__contains__", "__imatmul__", "ctypes", "itemset"}
    assert not lacking & set(dir(standin.ndarray))
    assert not lacking & set(dir(real.ndarray))
    assert not {"writeable", "aligned"} & set(dir(array.Flags))


def functions():
    for name, module in MODULES.items():
        for each in sorted(offered(standin.MODULES[name])):
            function = getattr(standin.MODULES[name], each)
            if inspect.isfunction(function) and each != "matmul":  # of which CuPy says (x1, x2, /, out=None, **kwargs)
                yield pytest.param(function, getattr(module, each), id=f"{name}.{each}")


@pytest.mark.parametrize(("function", "original"), list(functions()))
def test_parameters_of_a_function(function, original):
    require_subset(function, original)


METHODS = [name for name in sorted(offered(standin.ndarray)) if inspect.isfunction(vars(standin.ndarray)[name])]


@pytest.mark.parametrize("name", [name for name in METHODS if name[0] != "_" or "dlpack" in name])
def test_parameters_of_a_method(name):
    require_subset(getattr(standin.ndarray, name), getattr(real.ndarray, name), skipped=1)


# Dtypes of results

CHARS = "?bBhHiIlLefd"


def routine(ufunc, dtypes, weaks):
    """Dtypes of the results, as CuPy itself decides, or None."""
    try:
        op = ufunc._ops._guess_routine_from_in_types(dtypes, weaks)
    except TypeError:
        return None
    return None if op is None or op.error_func else list(op.out_types)


def dtypes_of(name, *inputs):
    try:
        results = getattr(cupy, name)(*inputs)
    except TypeError:
        return None
    return [result.dtype for result in (results if isinstance(results, tuple) else (results,))]


STRICTER = {("gcd", "??"), ("lcm", "??"), ("positive", "?"), ("sign", "?")}
"""What CuPy does with bool and NumPy does not."""


@pytest.mark.parametrize("name", ufuncs.UFUNCS)
def test_dtypes_of_a_ufunc(name):
    mine, theirs = getattr(cupy, name), getattr(real, name)
    assert (mine.nin, mine.nout) == (theirs.nin, theirs.nout)
    for chars in itertools.product(CHARS, repeat=mine.nin):
        found = dtypes_of(name, *(cupy.ones(2, char) for char in chars))
        if (name, "".join(chars)) in STRICTER:
            assert found is None
        else:
            assert found == routine(theirs, tuple(map(np.dtype, chars)), (False,) * mine.nin), chars


@pytest.mark.parametrize("name", [name for name, ufunc in ufuncs.UFUNCS.items() if ufunc.nin == 2])
@pytest.mark.parametrize("number", [True, 1, 1.0, np.float32(1), np.int64(1)], ids=repr)
def test_dtypes_with_a_number(name, number):
    """Python's numbers have no dtype of their own, unless their kind is above that of the array."""
    for char in CHARS:
        dtype, kind = np.dtype(char), type(number)
        weak = kind in (int, float) and (dtype.kind == "f" or (dtype.kind in "iu" and kind is int))
        expected = routine(getattr(real, name), (dtype, np.dtype(kind)), (False, kind if weak else False))
        if (name, char, kind) not in {("gcd", "?", bool), ("lcm", "?", bool)}:
            assert dtypes_of(name, cupy.ones(2, char), number) == expected, char


@pytest.mark.parametrize("char", CHARS)
def test_dtypes_of_sums(char):
    from cupy._core import _routines_math as math

    ones = cupy.ones(3, char)
    assert [ones.sum().dtype] == routine(math.sum_auto_dtype, (np.dtype(char),), None)
    assert [ones.prod().dtype] == routine(math.prod_auto_dtype, (np.dtype(char),), None)
