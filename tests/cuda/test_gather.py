"""Row lookup on the device, run in the emulator."""

import numpy as np
import pytest

from fastemb.kernels import checking, reference
from fastemb.kernels.cuda import check, launch
from fastemb.kernels.cuda.gather import gather, gather_range

from .launched import emulated as emulated

WIDTHS = [1, 2, 3, 4, 8, 31, 32, 33, 64, 100, 128, 257]


def problem(dtype, index_dtype, length, width, num_rows=50, seed=0):
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((num_rows, width)).astype(dtype)
    return np.full((length, width), np.nan, dtype), table, rng.integers(0, num_rows, length).astype(index_dtype)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.usefixtures("emulated")
def test_equals_the_reference(dtype, width):
    out, table, ids = problem(dtype, np.int64, 70, width)
    expected = np.empty_like(out)
    before = table.copy(), ids.copy()
    assert reference.gather(expected, table, ids) == gather(out, table, ids) == -1
    np.testing.assert_array_equal(out, expected)
    assert (table == before[0]).all()
    assert (ids == before[1]).all()


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 31, 129, 1000])
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("blocks", [1, 3, 2048])
@pytest.mark.usefixtures("emulated")
def test_lengths_and_grids(length, index_dtype, blocks, monkeypatch):
    monkeypatch.setattr(launch, "MOST_BLOCKS", blocks)
    monkeypatch.setattr(launch, "THREADS", 64)
    out, table, ids = problem(np.float32, index_dtype, length, 20)
    assert gather(out, table, ids) == -1
    np.testing.assert_array_equal(out, table[ids])


@pytest.mark.parametrize("places", [[0], [69], [5, 40], range(70)])
@pytest.mark.parametrize("bad", [-1, 50, -(2**63), 2**63 - 1])
@pytest.mark.usefixtures("emulated")
def test_a_bad_index_is_found_and_nothing_written(places, bad):
    out, table, ids = problem(np.float32, np.int64, 70, 8)
    ids[list(places)] = bad
    assert gather(out, table, ids) == min(places)
    assert np.isnan(out).all()


@pytest.mark.usefixtures("emulated")
def test_a_part():
    out, table, ids = problem(np.float32, np.int64, 70, 8)
    ids[3] = 99
    assert gather_range(out, table, ids, 10, 20) == -1
    np.testing.assert_array_equal(out[10:20], table[ids[10:20]])
    assert np.isnan(out[:10]).all()
    assert np.isnan(out[20:]).all()
    assert gather_range(out, table, ids, 2, 20) == 3


@pytest.mark.parametrize("offset", [1, 2, 3])
@pytest.mark.usefixtures("emulated")
def test_rows_that_begin_anywhere(offset):
    """The width of an access follows the address: the emulator stops at a misaligned one."""
    memory = np.arange(400, dtype=np.float32)
    table = memory[offset : offset + 240].reshape(30, 8)
    ids = np.arange(29, -1, -1)
    out = np.full((30, 8), np.nan, np.float32)
    assert gather(out, table, ids) == -1
    np.testing.assert_array_equal(out, table[ids])


@pytest.mark.usefixtures("emulated")
def test_an_answer_that_comes_later():
    out, table, ids = problem(np.float32, np.int64, 70, 8)
    with check.mode("later") as answers:
        assert gather(out, table, ids) == -1
        bad = ids.copy()
        bad[7] = 50
        other = np.full_like(out, np.nan)
        assert gather(other, table, bad) == -1
    np.testing.assert_array_equal(out, table[ids])
    assert np.isnan(other).all()  # nothing is written although nobody has asked
    found, num_rows, position = answers.first_bad()
    assert found is bad
    assert (num_rows, position) == (50, 7)
    assert answers.first_bad().indices is bad


@pytest.mark.usefixtures("emulated")
def test_no_check_at_all():
    out, table, ids = problem(np.float32, np.int64, 70, 8)
    with check.mode("off") as answers:
        assert gather(out, table, ids) == -1
    np.testing.assert_array_equal(out, table[ids])
    assert answers.first_bad() is None


@pytest.mark.usefixtures("emulated")
def test_many_answers_do_not_pile_up():
    """What a call leaves behind keeps its indices alive, so the older answers are looked at in between."""
    out, table, ids = problem(np.float32, np.int64, 5, 4)
    with check.mode("later") as answers:
        for k in range(3 * checking.MOST_PENDING):
            given = ids.copy()
            given[2] = 50 if k in (70, 72) else 0
            gather(out, table, given)
            assert len(answers._pending) <= checking.MOST_PENDING
            if k == 70:
                first = given
    assert answers.first_bad()[0] is first


@pytest.mark.usefixtures("emulated")
def test_modes_within_modes():
    out, table, ids = problem(np.float32, np.int64, 5, 4)
    ids[3] = 50
    with check.mode("later") as outer:
        with checking.waiting():
            assert gather(out, table, ids) == 3
        with checking.unchecked(), checking.waiting():
            assert checking.current().when == "off"
    assert outer.first_bad() is None


def test_modes():
    with pytest.raises(ValueError, match="check must be one of"), check.mode("never"):
        pass


@pytest.mark.parametrize(("columns", "n"), [(8, 4), (6, 2), (5, 1), (4, 4), (1, 1)])
def test_width_of_an_access(columns, n):
    table = np.zeros((4, columns), np.float32)
    assert launch.width(columns, table) == n
    assert launch.width(columns, table.astype(np.float64)) == min(n, 2)
    assert launch.lanes(columns, n) == {8: 2, 6: 4, 5: 8, 4: 1, 1: 1}[columns]
