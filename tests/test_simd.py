"""The SIMD layer, function by function."""

import ctypes
import mmap
import sys

import numba
import numpy as np
import pytest

from fastemb.kernels.cpu import arithmetic, each, simd

DTYPES = [np.float32, np.float64]


def lanes(dtype, nbytes=simd.LINE):
    return nbytes // np.dtype(dtype).itemsize


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vector", ["line", "wide", "widest"])
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_fill_load_store(rng, dtype, vector, offset):
    make = getattr(simd, vector)

    @numba.njit
    def copy(target, source, offset):
        like = make(source.dtype.type(7))
        step = np.uintp(offset * source.itemsize)
        simd.store(simd.address(target) + step, simd.load(simd.address(source) + step, like))
        return 0

    @numba.njit
    def constant(target):
        simd.store(simd.address(target), make(target.dtype.type(7)))

    n = lanes(dtype, getattr(simd, vector.upper()))
    source = rng.standard_normal(n + 8).astype(dtype)
    target = np.full(n + 8, np.nan, dtype)
    copy(target, source, offset)
    assert np.array_equal(target[offset : offset + n], source[offset : offset + n])
    assert np.isnan(np.delete(target, np.s_[offset : offset + n])).all()
    constant(target)
    assert (target[:n] == 7).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_first_lanes(rng, dtype):
    @numba.njit
    def copy(target, source, load, store):
        some = simd.load_first(simd.address(source), simd.line(source.dtype.type(0)), load)
        simd.store_first(simd.address(target), some, store)

    n = lanes(dtype)
    source = rng.standard_normal(n).astype(dtype)
    for load in range(n + 1):
        for store in range(n + 1):
            target = np.full(n + 1, 9, dtype)
            copy(target, source, load, store)
            expected = np.full(n + 1, 9, dtype)
            expected[:store] = np.where(np.arange(n) < load, source, 0)[:store]
            assert np.array_equal(target, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_lanes_after(rng, dtype):
    @numba.njit
    def join(target, first, second, count):
        under = simd.load_first(simd.address(first), simd.line(first.dtype.type(0)), count)
        simd.store(simd.address(target), simd.load_after(simd.address(second), under, count))

    n = lanes(dtype)
    first, second = rng.standard_normal((2, n)).astype(dtype)
    for count in range(n + 1):
        target = np.full(n, np.nan, dtype)
        join(target, first, second, count)
        assert np.array_equal(target, np.concatenate((first[:count], second[: n - count])))


@pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by mprotect here")
def test_the_first_lanes_touch_nothing_beyond():
    # The last elements before a page that may be neither read nor written.
    page = mmap.PAGESIZE
    whole = np.frombuffer(mmap.mmap(-1, 2 * page), np.float32)
    second = whole.__array_interface__["data"][0] + page
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(second), ctypes.c_size_t(page), 0) == 0
    end = whole[: page // 4]

    @numba.njit
    def double(array, count):
        at = simd.address(array) + np.uintp((array.size - count) * array.itemsize)
        some = simd.load_first(at, simd.line(array.dtype.type(0)), count)
        simd.store_first(at, arithmetic.add(some, some), count)

    end[-5:] = np.arange(5)
    double(end, 5)
    assert end[-5:].tolist() == [0, 2, 4, 6, 8]

    @numba.njit
    def after(target, array, count):
        # count lanes lie in the page before, which may be read; the others begin a page that ends with them
        lanes_left = np.uintp((16 - count) * array.itemsize)
        at = simd.address(array) + np.uintp(array.size * array.itemsize) - lanes_left
        simd.store(simd.address(target), simd.load_after(at, simd.line(array.dtype.type(7)), count))

    target = np.full(16, np.nan, np.float32)
    after(target, end, 11)
    assert target.tolist() == [7] * 11 + [0, 2, 4, 6, 8]


@pytest.mark.skipif(sys.platform == "win32", reason="memory is protected by mprotect here")
def test_the_lanes_after_touch_nothing_before():
    # The first elements after a page that may be neither read nor written.
    page = mmap.PAGESIZE
    whole = np.frombuffer(mmap.mmap(-1, 2 * page), np.float32)
    first = whole.__array_interface__["data"][0]
    begin = whole[page // 4 :]
    begin[:5] = np.arange(5)
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(first), ctypes.c_size_t(page), 0) == 0

    @numba.njit
    def after(target, array, count):
        simd.store(simd.address(target), simd.load_after(simd.address(array), simd.line(array.dtype.type(7)), count))

    target = np.full(16, np.nan, np.float32)
    after(target, begin, 11)
    assert target.tolist() == [7] * 11 + [0, 1, 2, 3, 4]


@pytest.mark.parametrize("dtype", DTYPES)
def test_arithmetic(rng, dtype):
    @numba.njit
    def lanewise(out, a, b, c):
        like = simd.line(a.dtype.type(0))
        x, y, z = simd.load(simd.address(a), like), simd.load(simd.address(b), like), simd.load(simd.address(c), like)
        row = np.uintp(simd.LINE)
        at = simd.address(out)
        simd.store(at, arithmetic.add(x, y))
        simd.store(at + row, arithmetic.sub(x, y))
        simd.store(at + np.uintp(2) * row, arithmetic.mul(x, y))
        simd.store(at + np.uintp(3) * row, arithmetic.div(x, y))
        simd.store(at + np.uintp(4) * row, arithmetic.fma(x, y, z))
        simd.store(at + np.uintp(5) * row, arithmetic.sqrt(arithmetic.mul(x, x)))
        return arithmetic.sum_lanes(x)

    n = lanes(dtype)
    a, b, c = rng.standard_normal((3, n)).astype(dtype)
    out = np.full((6, n), np.nan, dtype)
    total = lanewise(out, a, b, c)
    for row, expected in zip(out, (a + b, a - b, a * b, a / b, None, np.sqrt(a * a)), strict=True):
        assert expected is None or np.array_equal(row, expected)
    exact = a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)
    assert np.array_equal(out[4], exact.astype(dtype))
    halves = a
    while halves.size > 1:
        halves = halves[: halves.size // 2] + halves[halves.size // 2 :]
    assert total == halves[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_larger_keeps_the_first_of_equals_and_any_nan(dtype):
    @numba.njit
    def larger(out, a, b):
        like = simd.line(a.dtype.type(0))
        x, y = simd.load(simd.address(a), like), simd.load(simd.address(b), like)
        simd.store(simd.address(out), arithmetic.larger(x, y))

    first, second = np.meshgrid([-np.inf, -1.0, -0.0, 0.0, 2.0, np.inf, np.nan], [-np.inf, -0.0, 0.0, 2.0, np.nan])
    n = lanes(dtype)
    a, b = (np.resize(x.ravel(), (-(-x.size // n), n)).astype(dtype) for x in (first, second))
    out = np.full_like(a, 7)
    for i in range(len(a)):
        larger(out[i], a[i], b[i])
    expected = np.where((b > a) | (np.isnan(b) & ~np.isnan(a)), b, a)
    assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_in_every_lane(rng, dtype):
    @numba.njit
    def spread(target, source, k):
        like = simd.wide(source.dtype.type(0))
        simd.prefetch_vector(simd.address(source), like)
        simd.prefetch_vector(np.uintp(8), like)  # any address will do
        x = simd.number(simd.address(source) + np.uintp(k * source.itemsize), source[0])
        simd.store(simd.address(target), simd.fill(x, like))

    source = rng.standard_normal(5).astype(dtype)
    target = np.full(lanes(dtype, simd.WIDE), np.nan, dtype)
    spread(target, source, 3)
    assert (target == source[3]).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vector", ["line", "wide"])
def test_streaming(rng, dtype, vector):
    make = getattr(simd, vector)

    @numba.njit
    def copy(target, source):
        like = make(source.dtype.type(0))
        simd.prefetch(simd.address(source))
        simd.prefetch(np.uintp(0))  # any address will do
        simd.stream(simd.address(target), simd.load(simd.address(source), like))
        simd.fence()

    n = lanes(dtype, simd.WIDE)
    raw = np.zeros(2 * simd.WIDE, np.uint8)
    start = -raw.ctypes.data % simd.LINE
    target = raw[start : start + simd.WIDE].view(dtype)
    source = rng.standard_normal(n).astype(dtype)
    copy(target, source)
    written = lanes(dtype, simd.WIDE if vector == "wide" else simd.LINE)
    assert np.array_equal(target[:written], source[:written])
    assert not target[written:].any()


def test_other_numbers_are_refused():
    @numba.njit
    def of_integers():
        simd.line(np.int64(1))

    with pytest.raises(numba.TypingError, match="a vector holds float32 or float64, not int64"):
        of_integers()


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_lanes_between(rng, dtype):
    @numba.njit
    def copy(target, source, first, last):
        some = simd.load_between(simd.address(source), simd.line(source.dtype.type(0)), first, last)
        simd.store(simd.address(target), some)

    n = lanes(dtype)
    source = rng.standard_normal(n).astype(dtype)
    for first in range(n + 1):
        for last in range(first, n + 1):
            target = np.full(n, np.nan, dtype)
            copy(target, source, first, last)
            inside = (np.arange(n) >= first) & (np.arange(n) < last)
            assert np.array_equal(target, np.where(inside, source, 0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_several_arrays_at_once(rng, dtype):
    """Rows of arrays of different widths and orders; one without rows has another address in its place."""

    @numba.njit
    def places(arrays, row, spare):
        return each.addresses(each.begins(arrays, simd.address(spare)), each.strides(arrays), np.uintp(row))

    @numba.njit
    def double(arrays, row, spare, at, first, last):
        like = simd.line(spare.dtype.type(0))
        found = each.addresses(each.begins(arrays, simd.address(spare)), each.strides(arrays), np.uintp(row))
        each.prefetch(found, np.uintp(at), like)
        if last > first:
            a, b = each.load_between(found, np.uintp(at), like, first, last)
            each.store_between(found, np.uintp(at), (a + a, b + b), first, last)
        else:
            a, b = each.load(found, np.uintp(at), like)
            each.store(found, np.uintp(at), (a + a, b + b))

    n, size = lanes(dtype), np.dtype(dtype).itemsize
    a, b = rng.standard_normal((4, 3 * n)).astype(dtype), np.asfortranarray(rng.standard_normal((4, 1)).astype(dtype))
    none, spare = np.empty((0, 3 * n), dtype), rng.standard_normal(3 * n).astype(dtype)
    assert places((a, b, none), 2, spare) == (a[2].ctypes.data, b[2:].ctypes.data, spare.ctypes.data)
    for first, last in ((0, 0), (0, n), (2, 3), (1, n - 1)):
        expected = a.copy(), spare.copy()
        inside = slice(n, 2 * n) if last == first else slice(n + first, n + last)
        expected[0][2, inside] *= 2
        expected[1][inside] *= 2
        double((a, none), 2, spare, n * size, first, last)
        assert np.array_equal(a, expected[0])
        assert np.array_equal(spare, expected[1])


def test_addresses_of_rows_and_as_many_as_others():
    @numba.njit
    def found(copies, arrays):
        rows = each.rows_of(copies, arrays)
        return rows, each.as_many(rows, arrays[:1])

    copies, a = np.zeros((5, 3)), np.zeros((2, 3))
    rows, one = found(copies, (a, a, a))
    assert rows == tuple(copies[k].ctypes.data for k in range(3))
    assert one == rows[:1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers(dtype):
    @numba.njit
    def numbers(array):
        like = array[0]
        simd.store_number(simd.address(array), simd.as_number(3, like))
        return each.as_numbers((1, 2.5, True), like), simd.as_number(7, like), simd.lanes(simd.wide(like))

    array = np.zeros(2, dtype)
    assert numbers(array) == ((1, 2.5, 1), 7, lanes(dtype, simd.WIDE))
    assert array.tolist() == [3, 0]


def test_integers_are_an_array_in_place():
    @numba.njit
    def read(array):
        seen = simd.integers(simd.address(array), array.size, array.strides[0])
        return seen.size, seen.sum(), seen[seen.size - 1]

    array = np.arange(20)
    assert read(array) == (20, 190, 19)
    assert read(array[::3]) == (7, 63, 18)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vector", ["line", "wide", "widest"])
def test_operators(rng, dtype, vector):
    make = getattr(simd, vector)

    @numba.njit
    def formula(out, a, b, c):
        like = make(a.dtype.type(0))
        x, y = simd.load(simd.address(a), like), simd.load(simd.address(b), like)
        simd.store(simd.address(out), (x + y) * c - c / (x - c) + (c + y) / x)

    n = lanes(dtype, getattr(simd, vector.upper()))
    a, b = rng.standard_normal((2, n)).astype(dtype)
    c = dtype(1.5)
    out = np.full(n, np.nan, dtype)
    formula(out, a, b, c)
    assert np.array_equal(out, (a + b) * c - c / (a - c) + (c + b) / a)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lanes_chosen_by_comparison(dtype):
    @numba.njit
    def choose(out, a, b):
        like = simd.line(a.dtype.type(0))
        x, y = simd.load(simd.address(a), like), simd.load(simd.address(b), like)
        yes, no = like + a.dtype.type(1), like
        simd.store(simd.address(out), arithmetic.where_greater(x, y, yes, no))
        simd.store(simd.address(out) + np.uintp(simd.LINE), arithmetic.where_numbers(x, y, yes, no))

    first, second = np.meshgrid([-np.inf, -0.0, 0.0, 2.0, np.nan], [-np.inf, 0.0, 2.0, np.nan])
    n = lanes(dtype)
    a, b = (np.resize(x.ravel(), (-(-x.size // n), n)).astype(dtype) for x in (first, second))
    for x, y in zip(a, b, strict=True):
        out = np.full((2, n), np.nan, dtype)
        choose(out, x, y)
        assert np.array_equal(out, np.stack([x > y, ~np.isnan(x) & ~np.isnan(y)]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_lines_of_a_wider_vector_are_added_one_after_the_other(rng, dtype):
    @numba.njit
    def total(out, line, wide):
        zero = out.dtype.type(0)
        begin = simd.load(simd.address(line), simd.line(zero))
        simd.store(simd.address(out), arithmetic.add_lines(begin, simd.load(simd.address(wide), simd.wide(zero))))

    n = lanes(dtype)
    line, wide = rng.standard_normal(n).astype(dtype), rng.standard_normal((4, n)).astype(dtype)
    out = np.full(n, np.nan, dtype)
    total(out, line, wide)
    assert np.array_equal(out, (((line + wide[0]) + wide[1]) + wide[2]) + wide[3])
