"""Rotations of pairs of numbers by positions."""

import re

import numpy as np
import pytest
from oracles import Once, exact_row, largest_error, numeric_gradient
from strategies import FLOATS, big_endian, exactly, read_only, same_bits, strided, unaligned, unchanged

from fastemb.nn import SinusoidalPositions, apply_rotary, rotary_angles


@pytest.mark.parametrize("width", [2, 6, 64])
@pytest.mark.parametrize("base", [10000.0, 500])
def test_angles_are_right_to_1e15(width, base):
    places = [0, 1, 355, -7, 1_000_000, 2**31, 2**63 - 1]
    cos, sin = rotary_angles(places, width, base=base, dtype="float64")
    assert cos.shape == sin.shape == (len(places), width // 2)
    for place, c, s in zip(places, cos, sin, strict=True):
        exact = exact_row(place, width, base)
        assert largest_error(s, exact[0::2]) < 1e-15
        assert largest_error(c, exact[1::2]) < 1e-15
    assert cos[0].tolist() == [1.0] * (width // 2)
    assert sin[0].tolist() == [0.0] * (width // 2)


@pytest.mark.parametrize("dtype", [*FLOATS, None], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)])
def test_angles_are_those_of_the_sines(rng, dtype, shape):
    places = np.asarray(rng.integers(-1000, 1000, shape))
    options = {} if dtype is None else {"dtype": dtype}
    with unchanged(places):
        cos, sin = rotary_angles(places, 8, **options)
    vectors = SinusoidalPositions(8, **options)(places)
    assert cos.dtype == (np.float32 if dtype is None else dtype)
    assert same_bits(sin, vectors[..., 0::2])
    assert same_bits(cos, vectors[..., 1::2])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: rotary_angles([0], 0), ValueError, "dim must be >= 2, got 0"),
        (lambda: rotary_angles([0], 5), ValueError, "dim must be even, got 5"),
        (lambda: rotary_angles([0], 4.0), TypeError, "dim must be an integer, got 4.0"),
        (lambda: rotary_angles([0], 2, base=0.5), ValueError, "base must be > 1, got 0.5"),
        (lambda: rotary_angles([1.0], 2), TypeError, "positions must be integers, got float64"),
        (lambda: rotary_angles([-(2**64)], 2), ValueError, "positions must fit into 64 bits"),
    ],
)
def test_options_that_do_not_fit(call, error, text):
    with pytest.raises(error, match=exactly(text)):
        call()


def problem(rng, dtype=np.float64, lead=(2, 3, 7), width=10):
    """(x, cos, sin): batches and heads of 7 positions."""
    cos, sin = rotary_angles(rng.integers(-5000, 5000, lead[-1]), width, dtype=dtype)
    return rng.standard_normal((*lead, width)).astype(dtype), cos, sin


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_has_the_bits_of_the_formula(rng, dtype):
    x, cos, sin = problem(rng, dtype)
    wide = np.float64 if dtype == np.float64 else np.float32
    expected = np.full(x.shape, np.nan, dtype)
    for at in np.ndindex(x.shape[:-1]):
        for i in range(5):
            (a, b), c, s = (
                x[at][2 * i : 2 * i + 2].astype(wide),
                cos[at[-1], i].astype(wide),
                sin[at[-1], i].astype(wide),
            )
            expected[at][2 * i : 2 * i + 2] = a * c - b * s, a * s + b * c
    for given in (x, np.asfortranarray(x), strided(x), read_only(x), unaligned(x)):
        out = np.full(x.shape, np.nan, dtype)
        with unchanged(given, cos, sin):
            assert same_bits(apply_rotary(given, cos, sin), expected)
            assert apply_rotary(given, cos, sin, out=out) is out
        assert same_bits(out, expected)
    assert same_bits(apply_rotary(Once(x) if x.dtype.kind == "f" else x, cos, sin), expected)
    if x.dtype.kind == "f":
        assert same_bits(apply_rotary(big_endian(x), big_endian(cos), sin), expected)


def test_dtypes_that_differ_meet_in_the_widest(rng):
    x, cos, sin = problem(rng)
    for kinds in [("f4", "f8", "f8"), ("f2", "f4", "f4"), ("f2", "f2", "f8"), ("f8", "f4", "f4")]:
        given = [array.astype(kind) for array, kind in zip((x, cos, sin), kinds, strict=True)]
        wide = max(np.dtype(np.float32), *(array.dtype for array in given))
        expected = apply_rotary(*(array.astype(wide) for array in given))
        assert same_bits(apply_rotary(*given), expected.astype(kinds[0]))


def test_lists_are_float64(rng):
    assert same_bits(apply_rotary([1.0, 2.0, 3.0, 4.0], [0.0, 1.0], [1.0, 0.0]), np.array([-2.0, 1.0, 3.0, 4.0]))


def test_norms_are_kept_and_the_other_way_leads_back(rng):
    x, cos, sin = problem(rng)
    y = apply_rotary(x, cos, sin)
    assert np.abs(y - x).max() > 1
    lengths = [np.hypot(v[..., 0::2], v[..., 1::2]) for v in (x, y)]
    np.testing.assert_allclose(*lengths, rtol=1e-15)
    back = apply_rotary(y, cos, -sin)
    assert (np.abs(back - x) <= 4e-16 * np.repeat(lengths[0], 2, axis=-1)).all()


def test_products_depend_on_the_distance_alone(rng):
    q, k = rng.standard_normal((2, 64))

    def product(p, r):
        turned = [apply_rotary(v, *rotary_angles(at, 64, dtype="float64")) for v, at in ((q, p), (k, r))]
        return turned[0] @ turned[1]

    for distance in (0, 1, -17, 3000):
        products = [product(at + distance, at) for at in (0, 1, 999, 10**6, 10**12, -(10**15))]
        np.testing.assert_allclose(products, products[0], rtol=0, atol=1e-13)
    assert abs(product(0, 0) - q @ k) == 0
    assert abs(product(1, 0) - q @ k) > 1e-3


def test_angles_broadcast(rng):
    x, cos, sin = problem(rng)
    full = [np.ascontiguousarray(np.broadcast_to(a, (2, 3, 7, 5))) for a in (cos, sin)]
    assert same_bits(apply_rotary(x, cos, sin), apply_rotary(x, *full))
    one = cos[0], sin[0, :1]
    assert same_bits(apply_rotary(x, *one), apply_rotary(x, *(np.broadcast_to(a, (2, 3, 7, 5)) for a in one)))
    assert apply_rotary(x[..., :0], cos[:, :0], sin[:, :0]).shape == (2, 3, 7, 0)
    assert apply_rotary(x[:, :0], cos, sin).shape == (2, 0, 7, 10)


def test_gradients_by_differences(rng):
    x, cos, sin = problem(rng, lead=(2, 3), width=4)
    c = rng.standard_normal(x.shape)
    dx = apply_rotary(c * np.cos(apply_rotary(x, cos, sin)), cos, -sin)
    numeric = numeric_gradient(x, lambda: (c * np.sin(apply_rotary(x, cos, sin))).sum())
    np.testing.assert_allclose(dx, numeric, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"x": np.ones(5)}, ValueError, "x must have an even last axis, got shape (5,)"),
        ({"x": np.float64(1)}, ValueError, "x must have an even last axis, got shape ()"),
        ({"x": np.arange(4)}, TypeError, "x must be float, got int64"),
        ({"x": np.ma.ones(4)}, TypeError, "x must be a NumPy array without a mask, got MaskedArray"),
        ({"cos": np.ones(2, int)}, TypeError, "cos must be float, got int64"),
        ({"sin": np.ones(2, complex)}, TypeError, "sin must be float, got complex128"),
        ({"cos": np.ones(4)}, ValueError, "cos must have a shape that broadcasts to (2,), got (4,)"),
        ({"sin": np.ones((3, 2))}, ValueError, "sin must have a shape that broadcasts to (2,), got (3, 2)"),
        ({"out": np.ones(3)}, ValueError, "out must have shape (4,), got (3,)"),
        ({"out": np.ones(4, "f4")}, ValueError, "out must have dtype float64, got float32"),
        ({"out": np.ones(8)[::2]}, ValueError, "out must be C-contiguous and writeable"),
        ({"out": [1.0] * 4}, TypeError, "out must be an array, got list"),
    ],
)
def test_arrays_that_do_not_fit(change, error, text):
    given = {"x": np.ones(4), "cos": np.ones(2), "sin": np.ones(2), "out": np.full(4, np.nan)} | change
    arrays = [a for a in given.values() if isinstance(a, np.ndarray)]
    with unchanged(*arrays), pytest.raises(error, match=exactly(text)):
        apply_rotary(given["x"], given["cos"], given["sin"], out=given["out"])


@pytest.mark.parametrize("name", ["x", "cos", "sin"])
def test_out_must_not_overlap_the_inputs(rng, name):
    memory = rng.standard_normal(12)
    given = {"x": rng.standard_normal(4), "cos": rng.standard_normal(2), "sin": rng.standard_normal(2)}
    given[name] = memory[2 : 2 + given[name].size]
    for out in (memory[2:6], memory[1:5], memory[0:4]):
        text = f"^{re.escape(f'out must not overlap {name} in memory')}$"
        with unchanged(memory), pytest.raises(ValueError, match=text):
            apply_rotary(*given.values(), out=out)
    assert apply_rotary(*given.values(), out=memory[8:12]).base is memory


def test_what_is_not_finite_passes_without_a_warning():
    x = np.array([np.inf, 1.0, np.nan, 0.0, 6e4, 6e4], np.float16)
    got = apply_rotary(x, np.full(3, 0.8), np.full(3, 0.6))
    assert np.isinf(got[:2]).all()
    assert np.isnan(got[2:4]).all()
    assert got[5] == np.inf
