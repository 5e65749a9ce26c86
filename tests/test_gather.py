"""Row lookup."""

import sys

import numpy as np
import pytest
from hypothesis import given
from strategies import BACKENDS, THREADS, in_parallel, lookups, read_only, same_bits, strided, unaligned, unchanged

import fastemb
from fastemb._arrays import BLOCK
from fastemb.kernels import cpu
from fastemb.lookup import gather_columns

MODULE = sys.modules[cpu.gather.__module__]
STREAM_ABOVE = MODULE.STREAM_ABOVE


@given(lookups())
def test_equals_rows_of_the_table(arrays):
    table, indices = arrays
    with unchanged(table, indices):
        rows = fastemb.gather(table, indices)
    assert rows.dtype == table.dtype.newbyteorder("=")
    assert rows.flags.c_contiguous
    assert rows.flags.owndata
    assert rows.shape == (*indices.shape, table.shape[1])
    assert np.array_equal(rows, np.ascontiguousarray(table)[indices.astype(np.int64)])


@given(lookups())
def test_fills_all_of_out_and_returns_it(arrays):
    table, indices = arrays
    out = np.full((*indices.shape, table.shape[1]), np.nan, table.dtype.newbyteorder("="))
    assert fastemb.gather(table, indices, out=out) is out
    assert np.array_equal(out, np.ascontiguousarray(table)[indices.astype(np.int64)])


def test_equals_the_one_hot_product(rng):
    table = rng.standard_normal((50, 7))
    indices = rng.integers(0, 50, (4, 6))
    assert np.array_equal(fastemb.gather(table, indices), fastemb.one_hot(indices, 50, np.float64) @ table)


@pytest.mark.parametrize("bits", [0x7FC00001, 0xFFC12345, 0x80000000, 0x00000001, 0xFF800000])
def test_copies_bits(bits):
    table = np.full((3, 5), bits, np.uint32).view(np.float32)
    assert fastemb.gather(table, [2, 0]).tobytes() == table[[2, 0]].tobytes()


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, ">i8", np.uint64, np.int32])
@pytest.mark.parametrize("length", [BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_widens_block_by_block(rng, dtype, length):
    table = rng.standard_normal((100, 3), dtype=np.float32)
    indices = rng.integers(0, 100, length).astype(dtype)
    assert np.array_equal(fastemb.gather(table, indices), table[indices.astype(int)])
    assert np.array_equal(fastemb.gather(table, indices[::-3]), table[indices[::-3].astype(int)])


def test_unaligned_out(rng):
    table = rng.standard_normal((9, 4), dtype=np.float32)
    out = unaligned(np.full((2, 4), np.nan, np.float32))
    assert np.array_equal(fastemb.gather(table, [8, 1], out=out), table[[8, 1]])


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("offset", [0, 4, 16, 60])
@pytest.mark.parametrize("width", [16, 33, 64, 150, 601])
def test_large_outputs_at_any_address(rng, count, offset, width):
    length = STREAM_ABOVE // (4 * width) + 100
    table = rng.standard_normal((5000, width), dtype=np.float32)
    indices = rng.integers(0, 5000, length)
    raw = np.full(4 * (length * width) + 256, 0x5A, np.uint8)
    start = -raw.ctypes.data % 64 + 64 + offset
    out = raw[start : start + 4 * length * width].view(np.float32).reshape(length, width)
    with in_parallel(count):
        fastemb.gather(table, indices, out=out)
    assert np.array_equal(out, table[indices])
    assert (raw[:start] == 0x5A).all()
    assert (raw[start + out.nbytes :] == 0x5A).all()


@pytest.mark.parametrize(
    ("out", "text"),
    [
        (np.empty((2, 4), np.float32), r"out must have shape \(2, 3\), got \(2, 4\)"),
        (np.empty((1, 2, 3), np.float32), r"out must have shape \(2, 3\), got \(1, 2, 3\)"),
        (np.empty((2, 3)), "out must have dtype float32, got float64"),
        (np.empty((2, 3), ">f4"), "out must have dtype float32, got >f4"),
        (np.empty((3, 2), np.float32).T, "out must be C-contiguous and writeable"),
        (strided(np.empty((2, 3), np.float32)), "out must be C-contiguous and writeable"),
        (read_only(np.empty((2, 3), np.float32)), "out must be C-contiguous and writeable"),
    ],
)
def test_unfit_out(out, text):
    with unchanged(out), pytest.raises(ValueError, match=text):
        fastemb.gather(np.ones((5, 3), np.float32), [0, 1], out=out)


def test_out_of_another_kind():
    with pytest.raises(TypeError, match="out must be an array, got list"):
        fastemb.gather(np.ones((5, 3), np.float32), [0], out=[[0.0, 0.0, 0.0]])


def test_out_must_not_overlap_the_inputs():
    memory = np.arange(24, dtype=np.float64).reshape(4, 6)
    with unchanged(memory), pytest.raises(ValueError, match="out must not overlap weight in memory"):
        fastemb.gather(memory, [0, 1], out=memory[1:3])
    indices = np.zeros(4, np.int64)
    with unchanged(indices), pytest.raises(ValueError, match="out must not overlap indices in memory"):
        fastemb.gather(np.ones((3, 1)), indices, out=indices.view(np.float64).reshape(4, 1))


def test_out_may_lie_between_the_rows_of_the_table():
    memory = np.arange(8, dtype=np.float64)
    table, out = memory.reshape(4, 2)[::2], memory.reshape(4, 2)[1:2]
    assert fastemb.gather(table, [1], out=out).tolist() == [[4.0, 5.0]]


@pytest.mark.parametrize("indices", [[0, 5], [-1, 0], np.array([0, 5], np.uint8), np.array([0, -1], ">i2")])
def test_a_bad_index_leaves_out_alone(indices):
    out = np.full((2, 3), 7.0)
    with unchanged(out), pytest.raises(IndexError):
        fastemb.gather(np.ones((5, 3)), indices, out=out)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_range_form_does_its_part_alone(rng, name, dtype):
    kernels = BACKENDS[name]
    table = rng.standard_normal((20, 5), dtype=np.float32)
    indices = rng.integers(0, 20, 30).astype(dtype)
    indices[3] = 99  # outside the part
    out = np.full((30, 5), np.nan, np.float32)
    assert kernels.gather_range(out, table, indices, 10, 25) == -1
    assert np.array_equal(out[10:25], table[indices[10:25]])
    assert np.isnan(out[:10]).all()
    assert np.isnan(out[25:]).all()
    assert kernels.gather_range(out, table, indices, 7, 7) == -1


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("bad", [-1, 20, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("count", THREADS)
def test_the_first_bad_position_is_returned_and_nothing_written(rng, name, bad, count):
    kernels = BACKENDS[name]
    table = rng.standard_normal((20, 5))
    indices = rng.integers(0, 20, 3000).astype(np.int32)
    indices[[1717, 2900]] = bad
    out = np.full((3000, 5), np.nan)
    with in_parallel(count):
        assert kernels.gather(out, table, indices) == 1717
    assert np.isnan(out).all()
    assert kernels.gather_range(out, table, indices, 1718, 3000) == 2900
    assert kernels.gather_range(out, table, indices, 0, 1717) == -1


@pytest.mark.parametrize("count", THREADS)
def test_same_bits_for_any_number_of_threads(rng, count):
    table = rng.standard_normal((1000, 33), dtype=np.float32)
    indices = rng.integers(0, 1000, 4001)
    out = np.full((4001, 33), np.nan, np.float32)
    with in_parallel(count), unchanged(table, indices):
        fastemb.gather(table, indices, out=out)
    assert same_bits(out, table[indices])


def between(shape, gap, dtype, before=3):
    """(bytes that are all 0x5A, an array in them with `gap` numbers between its rows, where its own bytes lie)."""
    length, width = shape
    item = np.dtype(dtype).itemsize
    raw = np.full((before + length * (width + gap)) * item, 0x5A, np.uint8)
    whole = raw.view(dtype)[before:].reshape(length, width + gap)
    own = np.zeros(raw.size, bool)
    own[before * item :].reshape(length, (width + gap) * item)[:, : width * item] = True
    return raw, whole[:, :width], own


def random_bits(rng, shape, dtype):
    """Finite numbers with all bits in use."""
    return rng.uniform(-1, 1, shape).astype(dtype)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [0, 1, 3, 16, 33, 64, 200])
@pytest.mark.parametrize("nbytes", [5000, MODULE.PREFETCH_ABOVE + 5000])
def test_rows_of_out_may_lie_apart(rng, name, dtype, width, nbytes):
    kernels, rows = BACKENDS[name], 1 + nbytes // (max(width, 1) * np.dtype(dtype).itemsize)
    table = random_bits(rng, (rows, width), dtype)
    columns = random_bits(rng, (rows, 2 * width), dtype)[:, ::2]
    for count in THREADS:
        for length, gap in [(1500, 1), (1501, 16), (1, 7), (0, 2)]:
            indices = rng.integers(0, rows, length).astype([np.int32, np.int64][count % 2])
            for weight in (table, table[::-1], columns):
                raw, out, own = between((length, width), gap, dtype)
                with in_parallel(count), unchanged(weight, indices):
                    assert kernels.gather(out, weight, indices) == -1
                assert same_bits(out, weight[indices])
                assert (raw[~own] == 0x5A).all()


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("width", [1, 16, 33, 200])
def test_range_form_does_its_part_of_rows_that_lie_apart(rng, name, width):
    table, indices = random_bits(rng, (90, width), np.float32), rng.integers(0, 90, 30)
    raw, out, own = between((30, width), 5, np.float32)
    assert BACKENDS[name].gather_range(out, table, indices, 10, 25) == -1
    assert same_bits(out[10:25].copy(), table[indices[10:25]])
    own.reshape(-1)[: (3 + 10 * (width + 5)) * 4] = False
    own.reshape(-1)[(3 + 25 * (width + 5)) * 4 :] = False
    assert (raw[~own] == 0x5A).all()


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("count", THREADS)
def test_a_bad_index_leaves_rows_that_lie_apart_alone(rng, name, count):
    indices = rng.integers(0, 20, 3000)
    indices[[1717, 2900]] = 20, -1
    raw, out, _ = between((3000, 5), 3, np.float64)
    with in_parallel(count):
        assert BACKENDS[name].gather(out, np.ones((20, 5)), indices) == 1717
    assert (raw == 0x5A).all()


@pytest.mark.parametrize("width", [16, 33, 64])
def test_large_outputs_whose_rows_lie_apart_are_not_streamed(rng, width):
    length = STREAM_ABOVE // (4 * width) + 100
    table, indices = random_bits(rng, (6000, width), np.float32), rng.integers(0, 6000, length)
    expected = table[indices]
    assert expected.nbytes > STREAM_ABOVE
    whole = np.empty((length, width + 16), np.float32)  # rows that begin at whole lines where the width does
    for count in THREADS:
        whole.fill(7)
        with in_parallel(count):
            assert cpu.gather(whole[:, 16:], table, indices) == -1
        assert np.array_equal(whole[:, 16:], expected)
        assert (whole[:, :16] == 7).all()


@given(lookups())
def test_columns_of_out_are_filled_and_no_others(arrays):
    table, indices = arrays
    width = table.shape[1]
    out = np.full((indices.size, width + 5), 7, table.dtype.newbyteorder("="))
    with unchanged(table, indices):
        gather_columns(out, slice(2, 2 + width), table, indices)
    expected = np.ascontiguousarray(table)[indices.astype(np.int64)].reshape(indices.size, width)
    assert same_bits(out[:, 2 : 2 + width].copy(), expected.astype(out.dtype))
    assert (out[:, :2] == 7).all()
    assert (out[:, 2 + width :] == 7).all()


@pytest.mark.parametrize("dtype", [np.int32, ">i8", np.uint8])
def test_columns_are_left_alone_by_a_bad_index(rng, dtype):
    indices = np.arange(2 * BLOCK + 9).astype(dtype) % 20
    indices[-1] = 20
    out = np.full((indices.size, 9), 7.0)
    with unchanged(out), pytest.raises(IndexError):
        gather_columns(out, slice(2, 5), np.ones((20, 3)), indices)
