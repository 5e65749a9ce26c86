"""Scatter-add: lengths, widths, duplicates, dtypes, layouts."""

import numpy as np
import pytest
from strategies import BFLOAT16, exactly, unchanged

import fastemb
from fastemb._arrays import BLOCK
from fastemb.kernels import SUM_BLOCK
from fastemb.kernels.cpu.radix import INSERTION_BELOW, NARROW_BELOW
from fastemb.kernels.cpu.threads import SERIAL_BELOW

WIDTHS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
# Around NumPy's buffer of 8192 and around every size at which this library changes its way of working.
EDGES = (8192, INSERTION_BELOW, SUM_BLOCK, NARROW_BELOW, BLOCK, SERIAL_BELOW // 8, SERIAL_BELOW // 2)
LENGTHS = sorted({16385} | {edge + d for edge in EDGES for d in (-1, 0, 1)})


def added(target, ids, updates):
    """The oracle, exact for integer values."""
    wanted = target.copy()
    np.add.at(wanted, np.asarray(ids, np.int64), updates)
    return wanted


def dtype_named(name):
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("length", LENGTHS)
def test_no_length_or_width_loses_an_update(length, width):
    """https://github.com/numpy/numpy/issues/23457: cast ids restarted the updates at each 8192nd: 25, not 115."""
    updates = np.zeros((length, 1))
    updates[[0, 1, -1], 0] = 10, 5, 100
    hot, spread = np.zeros(length, width), (np.arange(length) % 13).astype(width)
    with unchanged(updates, hot):
        assert np.array_equal(fastemb.scatter_add(np.zeros((1, 1)), hot, updates), [[115]])
    updates = np.arange(length)[:, np.newaxis] % 1001.0
    with unchanged(updates, spread):
        target = fastemb.scatter_add(np.ones((13, 1)), spread, updates)
    assert np.array_equal(target, added(np.ones((13, 1)), spread, updates))


def streams():
    rng = np.random.default_rng(0)
    return {
        # https://github.com/numba/numba/issues/3681, /7133, /9829: += from parallel iterations lost updates.
        "two_slots": (2, 64, np.arange(20_000) % 2),
        "few_slots": (20, 64, np.tile([9, 11, 12, 15, 19], 4000)),
        # https://github.com/numpy/numpy/issues/5922, /11156, /23176: row scatter with duplicates.
        "uniform": (1000, 64, rng.integers(0, 1000, 100_000)),
        # https://github.com/pytorch/pytorch/issues/24912, https://github.com/rusty1s/pytorch_scatter/issues/123:
        # nearly all ids are one.
        "hot_row": (6000, 16, np.where(rng.random(100_000) < 0.95, 4321, rng.integers(0, 6000, 100_000))),
        # https://github.com/google/flax/pull/3590: a table of one row.
        "one_row": (1, 64, np.zeros(50_000, np.int64)),
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@pytest.mark.parametrize(("num_rows", "width", "ids"), streams().values(), ids=streams().keys())
def test_duplicates_all_count(num_rows, width, ids, index_type, dtype):
    rng = np.random.default_rng(1)
    updates = rng.integers(-8, 9, (len(ids), width)).astype(dtype)
    target, ids = rng.integers(-8, 9, (num_rows, width)).astype(dtype), ids.astype(index_type)
    wanted = added(target, ids, updates)
    with unchanged(updates, ids):
        assert fastemb.scatter_add(target, ids, updates) is target
    assert np.array_equal(target, wanted)


@pytest.mark.parametrize("num_rows", [10, 20_000])
def test_copy_then_add_keeps_both(num_rows):
    """https://github.com/numba/numba/issues/5942: after a slice assignment in a parallel loop, += was dropped."""
    rows = np.arange(num_rows)
    weight = np.repeat(rows[:, np.newaxis].astype(np.float32), 16, axis=1)
    copy = fastemb.gather(weight, rows)
    update = np.zeros((num_rows, 16), np.float32)
    update[:, 0] = 1
    fastemb.scatter_add(copy, rows, update)
    assert np.array_equal(copy[:, 0], rows + 1)
    assert np.array_equal(copy[:, 1:], weight[:, 1:])


HALF_SUMS = ["int8", "uint8", "int16", "uint16", "float16", "bfloat16", "float32"]  # these sums are float32
ACCEPTED = dict.fromkeys(["float16", "bfloat16", "float32"], HALF_SUMS)
ACCEPTED["float64"] = [*HALF_SUMS, "int32", "uint32", "int64", "uint64", "float64"]


@pytest.mark.parametrize("update_type", [*ACCEPTED["float64"], "bool", "complex64"])
@pytest.mark.parametrize("target_type", ACCEPTED)
def test_dtype_matrix(target_type, update_type):
    """CuPy's scatter_add at 6b6d9563: the documented dtypes were not the ones in the code."""
    target = np.ones((6, 1), dtype_named(target_type))
    updates, ids = np.array([[1], [0], [1]]).astype(dtype_named(update_type)), np.array([1, 0, 1])
    if update_type in ACCEPTED[target_type]:
        with unchanged(updates, ids):
            fastemb.scatter_add(target, ids, updates)
        assert target.astype(float).ravel().tolist() == [1, 3, 1, 1, 1, 1]
        return
    wanted = "float64" if target_type == "float64" else "float32"
    text = f"updates must be real numbers that cast safely to {wanted}, got {update_type}"
    hint = f"; convert it yourself: updates.astype(np.{wanted})" if update_type == "float64" else ""
    with unchanged(target, updates, ids), pytest.raises(TypeError, match=exactly(text + hint)):
        fastemb.scatter_add(target, ids, updates)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_width_sums_do_not_saturate(name):
    """https://github.com/apache/mxnet/issues/17703: 100000 halves of 0.01 over 8 rows stopped at 32, not 126."""
    half = dtype_named(name)
    target, updates = np.ones((8, 1), half), np.full((100_000, 1), 0.01, half)
    ids = np.random.default_rng(0).permutation(np.arange(100_000) % 8)
    fastemb.scatter_add(target, ids, updates)
    wanted = np.array(1 + 12_500 * float(updates[0, 0])).astype(half)  # the float32 sums are exact: rounded once
    assert 125 <= float(wanted) <= 126
    assert np.array_equal(target, np.full((8, 1), wanted))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_overflow_flows_through(dtype):
    """https://github.com/pytorch/pytorch/pull/36786: duplicates that are finite apart overflow when stored."""
    target, most = np.zeros((5, 1), dtype), np.finfo(dtype).max
    fastemb.scatter_add(target, [3, 1, 3], np.full((3, 1), most, dtype))
    assert target.ravel().tolist() == [0, most, 0, np.inf, 0]


def test_unaligned_updates_and_ids():
    """https://github.com/numpy/numpy/issues/13317: add.at on a field of a packed record aborted the interpreter."""
    records = np.zeros(10, np.dtype([("flag", "i1"), ("row", "i4"), ("grad", "f4", (3,))]))
    records["row"] = np.arange(10) % 4
    records["grad"] = np.arange(30).reshape(10, 3)
    assert not records["row"].flags.aligned
    assert not records["grad"].flags.aligned
    with unchanged(records):
        target = fastemb.scatter_add(np.zeros((4, 3), np.float32), records["row"], records["grad"])
    wanted = added(np.zeros((4, 3), np.float32), records["row"].copy(), records["grad"].copy())
    assert np.array_equal(target, wanted)


def unwriteable():
    frozen = np.ones((4, 3), np.float32)
    frozen.flags.writeable = False
    return {
        # https://github.com/numba/numba/issues/1229: compiled code wrote into read-only arrays.
        "read_only": (frozen, "target is read-only and this operation writes into it"),
        # https://github.com/numba/numba/issues/2243: big-endian arrays.
        "big_endian": (
            np.ones((4, 3), ">f4"),
            "target must be in native byte order to be written in place, got '>f4'",
        ),
        "fortran": (
            np.ones((4, 3), np.float32, order="F"),
            "target must have C-contiguous rows to be written in place, got strides (4, 16)",
        ),
    }


@pytest.mark.parametrize(("target", "message"), unwriteable().values(), ids=unwriteable().keys())
def test_targets_that_cannot_be_written(target, message):
    with unchanged(target), pytest.raises(ValueError, match=exactly(message)):
        fastemb.scatter_add(target, [0], np.ones((1, 3), np.float32))


def test_updates_over_the_target():
    """NumPy item_selection.c at 1f90bbb5 guards put against aliases; a kernel must refuse them."""
    target = np.arange(8, dtype=np.float32).reshape(4, 2)
    with unchanged(target), pytest.raises(ValueError, match=exactly("target must not overlap updates in memory")):
        fastemb.scatter_add(target, [0, 1], target[1:3])
