"""Lookup: out of range, layouts, aliasing."""

import tracemalloc

import numpy as np
import pytest
from strategies import exactly, out_of_range, unchanged

import fastemb


def column(*values):
    return np.array(values, np.float32)[:, np.newaxis]


def numbered(rows, width, dtype=np.float32, order="C"):
    return np.arange(rows * width).reshape(rows, width).astype(dtype, order=order)


@pytest.mark.parametrize(
    ("weight", "ids", "found"),
    [
        # https://github.com/cupy/cupy/issues/705, https://github.com/chainer/chainer/issues/4648:
        # indices were reduced modulo N, in the caller's own array.
        (column(*range(5)), np.arange(7), (0, 6, 5)),
        (numbered(8, 6), np.array([[[10, 0, 0]]]), (0, 10, 0)),
        # https://github.com/jax-ml/jax/issues/14193 and /9839: NaN for floats, INT_MIN for integers, once clamped.
        (column(*range(5)), np.array([10], np.int32), (10, 10, 0)),
        # https://github.com/numpy/numpy/issues/10696: mode="clip" gave row 0 for -1.
        (column(5, 6), np.array([-1]), (-1, -1, 0)),
        # https://github.com/NVIDIA/garak/issues/199: position N of a positional table, found on a CPU rerun.
        (numbered(1024, 4), np.array([0, 1023, 1024]), (0, 1024, 2)),
        # google/flax nnx Embed at 18f8f311: one row was broadcast to any id.
        (column(3), np.array([7]), (7, 7, 0)),
    ],
)
@pytest.mark.parametrize("given", [False, True], ids=["allocated", "out"])
def test_out_of_range_raises_and_writes_nothing(weight, ids, found, given):
    out = np.full((*ids.shape, weight.shape[1]), np.nan, np.float32)
    with unchanged(weight, ids, out), pytest.raises(IndexError, match=out_of_range(len(weight), *found)):
        fastemb.gather(weight, ids, out=out if given else None)
    good = np.minimum(np.abs(ids), len(weight) - 1)  # the next call works
    assert np.array_equal(fastemb.gather(weight, good), weight[good])


LAYOUTS = {
    "fortran": lambda w: np.asfortranarray(w),
    "every_other_row": lambda w: np.repeat(w, 2, axis=0)[::2],
    "every_other_column": lambda w: np.repeat(w, 2, axis=1)[:, ::2],
    "reversed": lambda w: w[::-1, ::-1].copy()[::-1, ::-1],
    "unaligned": lambda w: np.frombuffer(b"-" + w.tobytes(), w.dtype, offset=1).reshape(w.shape),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_any_layout_gives_the_same_rows(layout, dtype):
    """https://github.com/numpy/numpy/issues/13827: take first copied a whole table that was not C-contiguous."""
    plain = numbered(50, 9, dtype)
    weight, ids = layout(plain), np.array([[49, 0], [7, 49]])
    with unchanged(weight, ids):
        assert np.array_equal(fastemb.gather(weight, ids), plain[ids])


@pytest.mark.parametrize("big_endian", [False, True])
def test_cost_follows_the_rows_not_the_table(big_endian):
    """https://github.com/numpy/numpy/issues/13827: 200 rows of a Fortran-ordered table cost a copy of it."""
    weight = np.zeros((70_000, 784), ">f8" if big_endian else "f8", order="F")
    weight[:200] = numbered(200, 784)
    ids = np.arange(200)
    fastemb.gather(weight, ids)  # compiles
    tracemalloc.start()
    try:
        out = fastemb.gather(weight, ids)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.array_equal(out, numbered(200, 784))
    assert peak < 3 * out.nbytes < weight.nbytes // 50


def test_read_only_memmap(tmp_path):
    """https://github.com/numba/numba/issues/1229 and /4511: read-only arrays were written into, later refused."""
    plain = numbered(20, 3)
    np.save(tmp_path / "table.npy", plain)
    np.save(tmp_path / "ids.npy", np.array([19, 0, 19]))
    weight = np.load(tmp_path / "table.npy", mmap_mode="r")
    ids = np.load(tmp_path / "ids.npy", mmap_mode="r")
    assert not weight.flags.writeable
    assert not ids.flags.writeable
    with unchanged(weight, ids):
        out = fastemb.gather(weight, ids)
    assert type(out) is np.ndarray
    assert out.flags.writeable
    assert np.array_equal(out, plain[ids])


@pytest.mark.parametrize("table_order", "<>")
@pytest.mark.parametrize("index_type", [">i8", "<i8", ">i4", ">u2"])
def test_byte_order(table_order, index_type):
    """https://github.com/numba/numba/issues/2243 and /1943: big-endian arrays failed deep inside the compiler."""
    weight, ids = numbered(4, 3, f"{table_order}f4"), np.array([3, 0, 3]).astype(index_type)
    with unchanged(weight, ids):
        out = fastemb.gather(weight, ids)
    assert out.dtype == np.dtype("=f4")
    assert np.array_equal(out, numbered(4, 3)[[3, 0, 3]])


def test_unaligned_ids():
    """https://github.com/numpy/numpy/issues/13317: a field of a packed record aborted the interpreter."""
    records = np.zeros(10, np.dtype([("a", "i4"), ("b", "i4"), ("c", "i1")]))
    records["b"] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
    ids = records["b"]
    assert not ids.flags.aligned
    with unchanged(records):
        assert np.array_equal(fastemb.gather(numbered(10, 2), ids), numbered(10, 2)[ids.copy()])


@pytest.mark.parametrize(
    ("out", "message"),
    [
        # numpy 2.5 release notes (gh-30615): castability of out was tested the wrong way round, so lossy ones passed.
        (np.full((2, 2), -1, np.float32), "out must have dtype float64, got float32"),
        (np.full((2, 2), -1, np.int64), "out must have dtype float64, got int64"),
        (np.full((2, 2), -1, ">f8"), "out must have dtype float64, got >f8"),
        (np.full((2, 3), -1.0), "out must have shape (2, 2), got (2, 3)"),
        (np.full((2, 2), -1.0, order="F"), "out must be C-contiguous and writeable"),
        (np.broadcast_to(-1.0, (2, 2)), "out must be C-contiguous and writeable"),
    ],
)
def test_unfit_out(out, message):
    weight = numbered(4, 2, np.float64)
    with unchanged(weight, out), pytest.raises(ValueError, match=exactly(message)):
        fastemb.gather(weight, [0, 1], out=out)


@pytest.mark.parametrize("first_row", [0, 1, 2])
def test_out_over_the_table(first_row):
    """NumPy item_selection.c at 1f90bbb5 copies when out overlaps the table; a kernel would read changed rows."""
    weight = numbered(4, 2)
    with unchanged(weight), pytest.raises(ValueError, match=exactly("out must not overlap weight in memory")):
        fastemb.gather(weight, [0, 1], out=weight[first_row : first_row + 2])


def test_out_over_the_ids():
    """The same, for the other input."""
    memory = np.zeros(2)
    ids = memory.view(np.int64)
    with unchanged(memory), pytest.raises(ValueError, match=exactly("out must not overlap indices in memory")):
        fastemb.gather(np.ones((3, 1)), ids, out=memory[:, np.newaxis])


def test_out_beside_the_table():
    """Rows of one array that do not overlap are no alias."""
    memory = numbered(6, 2)
    out = fastemb.gather(memory[:4], [3, 0], out=memory[4:])
    assert np.shares_memory(out, memory)
    assert np.array_equal(memory, [[0, 1], [2, 3], [4, 5], [6, 7], [6, 7], [0, 1]])
