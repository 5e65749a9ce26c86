"""Grouping on the device, run in the emulator."""

import numpy as np
import pytest
from strategies import unchanged

from fastemb.kernels import reference
from fastemb.kernels.cuda import check, launch
from fastemb.kernels.cuda.group import group, group_bags, group_bags_range, group_range

from .launched import emulated as emulated
from .launched import emulator

pytestmark = pytest.mark.usefixtures("emulated")

UNWRITTEN = -7


def outputs(size):
    return [np.full(n, UNWRITTEN) for n in (size, size + 1, size, 1)]


def assert_groups_as_the_reference(indices, num_rows, padding_idx=-1):
    ours, wanted = outputs(indices.size), outputs(indices.size)
    with unchanged(indices):
        assert group(*ours, indices, num_rows, padding_idx) == -1
    assert reference.group(*wanted, indices, num_rows, padding_idx) == -1
    for got, expected in zip(ours, wanted, strict=True):
        np.testing.assert_array_equal(got, expected)  # what is not defined has not been written by either


@pytest.mark.parametrize("size", [0, 1, 2, 31, 32, 33, 255, 256, 257, 3000])
@pytest.mark.parametrize("num_rows", [1, 7, 5000])
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
def test_equals_the_reference(rng, size, num_rows, index_dtype):
    assert_groups_as_the_reference(rng.integers(0, num_rows, size).astype(index_dtype), num_rows)


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("seed", [0, 5])
def test_grids_and_orders(rng, blocks, seed, monkeypatch):
    monkeypatch.setattr(launch, "MOST_BLOCKS", blocks)
    monkeypatch.setattr(launch, "THREADS", 64)
    monkeypatch.setattr(emulator, "seed", seed)
    assert_groups_as_the_reference(rng.integers(0, 90, 1000), 90, 4)


@pytest.mark.parametrize("padding_idx", [0, 3, 9, 10, -1])
def test_padding_is_left_out(rng, padding_idx):
    assert_groups_as_the_reference(rng.integers(0, 10, 200), 10, padding_idx)
    assert_groups_as_the_reference(np.full(40, 3), 10, padding_idx)


@pytest.mark.parametrize("num_rows", [2**31 - 2, 2**31 - 1, 2**31, 2**31 + 1, 2**62])
@pytest.mark.parametrize("padding_idx", [-1, 2**31 - 3])
def test_tables_of_so_many_rows_that_keys_grow(rng, num_rows, padding_idx):
    assert_groups_as_the_reference(num_rows - rng.integers(1, 30, 300), num_rows, padding_idx)


@pytest.mark.parametrize("size", [10, 0])
def test_a_part(rng, size):
    indices = rng.integers(0, 5, 60)
    indices[[2, 50]] = 5
    ours, wanted = outputs(size), outputs(size)
    part = indices, 5, 1, 20, 20 + size
    assert group_range(*ours, *part) == reference.group_range(*wanted, *part) == -1
    for got, expected in zip(ours, wanted, strict=True):
        np.testing.assert_array_equal(got, expected)
    assert group_range(*outputs(40), indices, 5, 1, 15, 55) == 50


@pytest.mark.parametrize("padding_idx", [-1, 3])
@pytest.mark.parametrize("size", [0, 1, 300])
def test_bags(rng, size, padding_idx):
    indices, offsets = rng.integers(0, 20, size), np.sort(np.append(rng.integers(0, size + 1, 40), [0, size]))
    for call, kernel, options in (
        (group_bags, reference.group_bags, ()),
        (group_bags_range, reference.group_bags_range, (size // 3, size // 2)),
    ):
        ours, wanted = outputs(size), outputs(size)
        with unchanged(indices, offsets):
            assert call(*ours, indices, offsets, 20, padding_idx, *options) == -1
        assert kernel(*wanted, indices, offsets, 20, padding_idx, *options) == -1
        count = int(wanted[3][0])
        kept = int(wanted[1][count])
        for got, expected, defined in zip(ours, wanted, (count, count + 1, kept, 1), strict=True):
            np.testing.assert_array_equal(got[:defined], expected[:defined])


@pytest.mark.parametrize("bad", [-1, 50, 2**32, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("when", ["now", "later"])
def test_a_bad_index_is_found_and_nothing_written(rng, bad, when):
    indices = rng.integers(0, 50, 100)
    indices[[70, 30]] = bad
    given = outputs(100)
    with check.mode(when) as answers:
        assert group(*given, indices, 50, 3) == (30 if when == "now" else -1)
        assert group_bags(*given, indices, np.array([0, 100]), 50, 3) == (30 if when == "now" else -1)
    assert all((array == UNWRITTEN).all() for array in given)
    if when == "later":
        assert answers.first_bad()[:2] == (indices, 50)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(
    ("offsets", "right"),
    [
        ([0], True),
        ([0, 3, 3, 9], True),
        ([], False),
        ([1, 3], False),
        ([0, 4, 3], False),
        ([0, 10], False),
        ([-1], False),
    ],
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_offsets_are_closed(offsets, right, dtype):
    given = np.array(offsets, dtype)
    bounds = np.full(len(offsets) + 1, UNWRITTEN)
    assert check.close_offsets(bounds, given, 9) == right
    assert bounds.tolist() == [*offsets, 9]
    assert given.tolist() == offsets


@pytest.mark.usefixtures("emulated")
def test_no_offsets_for_no_indices():
    assert check.close_offsets(np.full(1, UNWRITTEN), np.empty(0, np.int64), 0)


@pytest.mark.usefixtures("emulated")
def test_many_offsets():
    offsets = np.arange(0, 3000, 2)
    bounds = np.empty(1501, np.int64)
    assert check.close_offsets(bounds, offsets, 3000)
    np.testing.assert_array_equal(bounds, np.arange(0, 3002, 2))
    offsets[1200] += 3
    assert not check.close_offsets(bounds, offsets, 3000)
