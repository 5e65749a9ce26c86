"""Tables, indices and gradients of every kind that users have, and what tests do with them."""

import contextlib
import os
import re
import subprocess
import sys

import hypothesis.strategies as st
import ml_dtypes
import numba
import numpy as np

from fastemb.kernels import cpu, reference
from fastemb.kernels.cpu import threads

BACKENDS = {"reference": reference, "cpu": cpu}
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(np.float16), BFLOAT16, np.dtype(np.float32), np.dtype(np.float64)]
INTEGERS = [np.dtype(f"{order}{kind}{size}") for order in "<>" for kind in "iu" for size in (1, 2, 4, 8)]
THREADS = (1, 2, 3, 4, 8)
WIDTHS = [0, 1, 2, 3, 5, 8, 17, 33, 64]


NOTE = " Note that unseen categories encoded as -1 must be mapped to a dedicated index instead."


def exactly(text):
    """A pattern for ``pytest.raises(match=...)`` that is the whole of `text`."""
    return rf"\A{re.escape(text)}\Z"


def out_of_range(num_rows, lo, hi, first):
    """The pattern of the error for indices outside ``[0, num_rows)``."""
    text = f"Embedding indices must be in [0, {num_rows}), but got values in [{lo}, {hi}] (first at position {first})."
    return exactly(text + (NOTE if lo < 0 else ""))


def run_python(code, *, folder=None, timeout=300, **environment):
    """What a process of its own prints when it runs `code`; variables set to None are unset."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore:.*fork:DeprecationWarning", "-c", code],
        env={k: v for k, v in {**os.environ, **environment}.items() if v is not None},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def strided(array):
    """The same values, every other element of each axis of a larger array."""
    large = np.zeros([2 * n for n in array.shape], array.dtype)
    view = large[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


def unaligned(array):
    """The same values at an odd address, C-contiguous."""
    raw = np.zeros(array.nbytes + 1, np.uint8)[1:]
    view = raw.view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def read_only(array):
    """A copy that cannot be written."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def big_endian(array):
    """The same values in the other byte order."""
    return array.astype(array.dtype.newbyteorder(">"))


LAYOUTS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "strided": strided,
    "reversed": lambda a: a[::-1].copy()[::-1],
    "read-only": read_only,
    "unaligned": unaligned,
    "big-endian": big_endian,
}


def laid_out(array, layout):
    """`array` in one of the layouts; 0-d and ml_dtypes arrays keep theirs where it means nothing."""
    if array.ndim == 0 or (layout == "big-endian" and array.dtype.kind == "V"):
        return array
    return LAYOUTS[layout](array)


@st.composite
def lookups(draw, num_rows=st.integers(1, 40)):
    """(table, indices): any float dtype and layout; any integer dtype, shape and layout, all in range."""
    n = draw(num_rows)
    width = draw(st.sampled_from(WIDTHS))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    table = rng.integers(-64, 64, (n, width)).astype(draw(st.sampled_from(FLOATS)))
    shape = draw(st.sampled_from([(), (0,), (1,), (7,), (60,), (3, 5), (2, 0), (2, 3, 4)]))
    dtype = draw(st.sampled_from(INTEGERS))
    indices = rng.integers(0, n, shape).astype(dtype)
    layouts = st.sampled_from(sorted(LAYOUTS))
    return laid_out(table, draw(layouts)), laid_out(np.asarray(indices), draw(layouts))


@contextlib.contextmanager
def in_parallel(count):
    """Make kernels use `count` threads whatever the size of the work."""
    before = numba.get_num_threads()
    numba.set_num_threads(count)
    try:
        with threads.serial_below(1 << 62 if count == 1 else 2):
            yield
    finally:
        numba.set_num_threads(before)


@contextlib.contextmanager
def unchanged(*arrays):
    """Fail if the bytes of an array are not the same afterwards."""
    before = [array.tobytes() for array in arrays]
    yield
    for array, kept in zip(arrays, before, strict=True):
        assert array.tobytes() == kept


def same_bits(a, b):
    """Whether two arrays agree in dtype, shape and every bit, NaN payloads aside."""
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and bool(np.array_equal(np.signbit(a) & (a == a), np.signbit(b) & (b == b)))
        and bool(np.array_equal(a, b, equal_nan=True))
    )


def no_coefficients(dtype):
    """What a kernel takes for gradient rows that are not multiplied by anything."""
    return np.empty(0, dtype)


def grouped(indices, num_rows, padding_idx=-1, kernels=reference, offsets=None):
    """(rows, starts, positions) of a kernel's grouping; with offsets the bags of the positions."""
    rows, places = np.full((2, indices.size), -7, np.int64)
    starts, count = np.full(indices.size + 1, -7, np.int64), np.full(1, -7, np.int64)
    given = rows, starts, places, count, indices
    if offsets is None:
        assert kernels.group(*given, num_rows, padding_idx) == -1
    else:
        assert kernels.group_bags(*given, offsets, num_rows, padding_idx) == -1
    distinct = int(count[0])
    return rows[:distinct], starts[: distinct + 1], places[: starts[distinct]]
