"""Grouping of duplicate indices."""

import hypothesis.strategies as st
import numba
import numpy as np
import pytest
from hypothesis import given
from strategies import BACKENDS, THREADS, grouped, in_parallel, unchanged

from fastemb.kernels import cpu, reference
from fastemb.kernels.cpu.group import _begins
from fastemb.kernels.cpu.radix import INSERTION_BELOW, NARROW_BELOW


def expected_groups(indices, padding_idx=-1):
    """By a dictionary: the definition itself."""
    runs = {}
    for k, row in enumerate(indices.tolist()):
        if row != padding_idx:
            runs.setdefault(row, []).append(k)
    rows = sorted(runs)
    return rows, np.cumsum([0] + [len(runs[r]) for r in rows]).tolist(), [k for r in rows for k in runs[r]]


@pytest.mark.parametrize("name", BACKENDS)
@given(
    num_rows=st.integers(1, 300),
    length=st.integers(0, 200),
    dtype=st.sampled_from([np.int32, np.int64]),
    padding=st.integers(-1, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_is_the_definition(name, num_rows, length, dtype, padding, seed):
    indices = np.random.default_rng(seed).integers(0, num_rows, length).astype(dtype)
    with unchanged(indices):
        rows, starts, positions = grouped(indices, num_rows, padding, BACKENDS[name])
    assert (rows.tolist(), starts.tolist(), positions.tolist()) == expected_groups(indices, padding)


@pytest.mark.parametrize("count", THREADS)
@pytest.mark.parametrize("length", [1, INSERTION_BELOW, INSERTION_BELOW + 1, NARROW_BELOW - 1, NARROW_BELOW, 30_011])
@pytest.mark.parametrize("num_rows", [1, 2, 255, 256, 257, 2**11, 2**22 + 1, 2**31 - 1])
def test_every_size_and_number_of_threads_gives_the_same(rng, count, length, num_rows):
    indices = rng.integers(0, num_rows, length).astype(np.int32)
    indices[rng.integers(0, length, length // 3)] = num_rows - 1
    with in_parallel(count):
        result = grouped(indices, num_rows, num_rows // 2, cpu)
    for ours, wanted in zip(result, grouped(indices, num_rows, num_rows // 2, reference), strict=True):
        assert np.array_equal(ours, wanted)


def some_offsets(rng, bags, length):
    """Of bags with any number of positions, many of them empty, the first and the last too, and the end."""
    return np.sort(np.concatenate(([0, 0], rng.integers(0, length + 1, bags - 3), [length, length])))


def bags_of(positions, offsets):
    """One after the other: the definition itself."""
    return [sum(int(k >= end) for end in offsets[1:]) for k in positions]


@pytest.mark.parametrize("name", BACKENDS)
@given(
    num_rows=st.integers(1, 300),
    length=st.integers(0, 200),
    bags=st.integers(3, 500),
    dtype=st.sampled_from([np.int32, np.int64]),
    padding=st.integers(-1, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_bags_are_the_definition(name, num_rows, length, bags, dtype, padding, seed):
    rng = np.random.default_rng(seed)
    indices, offsets = rng.integers(0, num_rows, length).astype(dtype), some_offsets(rng, bags, length)
    with unchanged(indices, offsets):
        rows, starts, numbers = grouped(indices, num_rows, padding, BACKENDS[name], offsets)
    wanted_rows, wanted_starts, positions = expected_groups(indices, padding)
    assert (rows.tolist(), starts.tolist()) == (wanted_rows, wanted_starts)
    assert numbers.tolist() == bags_of(positions, offsets)


@pytest.mark.parametrize("count", THREADS)
@pytest.mark.parametrize("length", [1, INSERTION_BELOW, INSERTION_BELOW + 1, NARROW_BELOW - 1, NARROW_BELOW, 30_011])
@pytest.mark.parametrize("num_rows", [1, 257, 2**22 + 1, 2**31 - 1])
@pytest.mark.parametrize("bags", [3, 700, 100_000])
def test_bags_of_every_size_and_number_of_threads(rng, count, length, num_rows, bags):
    dtype = np.int32 if bags == 700 else np.int64
    indices, offsets = rng.integers(0, num_rows, length).astype(dtype), some_offsets(rng, bags, length)
    indices[rng.integers(0, length, length // 3)] = num_rows - 1
    with in_parallel(count):
        result = grouped(indices, num_rows, num_rows // 2, cpu, offsets)
    for ours, wanted in zip(result, grouped(indices, num_rows, num_rows // 2, reference, offsets), strict=True):
        assert np.array_equal(ours, wanted)


@pytest.mark.parametrize("num_rows", [2**31 + 7, 2**53 + 1, 2**62, 2**63 - 1])
@pytest.mark.parametrize("padding", [-1, 2**31])
@pytest.mark.parametrize("count", [1, 3])
def test_tables_of_more_rows_than_fit_into_a_word_with_the_positions(rng, num_rows, padding, count):
    indices = rng.integers(0, num_rows, 500)
    indices[::3] = indices[7]
    indices[[5, 50]] = 2**31, num_rows - 1
    with in_parallel(count):
        rows, starts, positions = grouped(indices, num_rows, padding, cpu)
    assert (rows.tolist(), starts.tolist(), positions.tolist()) == expected_groups(indices, padding)
    offsets = some_offsets(rng, 300, 500)
    with in_parallel(count):
        again = grouped(indices, num_rows, padding, cpu, offsets)
    assert [array.tolist() for array in again] == [rows.tolist(), starts.tolist(), bags_of(positions, offsets)]


@pytest.mark.parametrize("count", THREADS)
@pytest.mark.parametrize("of", ["one row", "one row but for two", "padding", "two rows", "half padding"])
def test_runs_that_threads_cannot_divide(rng, count, of):
    size = 10_007
    indices = np.full(size, 5)
    if of == "one row but for two":
        indices[[3, 77]] = 0, 9
    elif of == "two rows":
        indices[rng.integers(0, size, 4000)] = 7
    elif of == "half padding":
        indices[: size // 2] = rng.integers(0, 10, size // 2)
    padding = 5 if "padding" in of else 2
    with in_parallel(count):
        rows, starts, positions = grouped(indices, 10, padding, cpu)
    assert (rows.tolist(), starts.tolist(), positions.tolist()) == expected_groups(indices, padding)


def owned(indices, parts, num_rows=1000, padding=-1):
    """How many positions each thread gets."""
    begins = _begins(indices, num_rows, padding, 20, parts) >> np.uint64(20)
    return np.bincount(np.searchsorted(begins.astype(np.int64), indices, side="right"), minlength=parts).tolist()


@pytest.mark.parametrize("parts", [2, 5])
@pytest.mark.parametrize("columns", [1, 26, 32, 512])
def test_threads_get_about_as_many_positions_each(rng, parts, columns):
    fields = np.arange(columns) * (1000 // columns) + rng.integers(0, max(1000 // columns, 1), (4096, columns))
    fields[:, 0] = 101  # in each row of a batch, as a token that begins all texts
    if columns == 1:
        fields = rng.integers(0, 1000, 100_000)
    share = fields.size / parts
    assert max(owned(fields.reshape(-1), parts)) < 1.25 * share + (fields == 101).sum()


def test_a_frequent_row_leaves_the_others_to_other_threads(rng):
    indices = rng.integers(0, 1000, 100_000)
    for row in (0, 500, 999):
        indices[:60_000] = row
        rest = np.count_nonzero(indices != row)
        assert min(owned(rng.permutation(indices), 2)) > rest / 3


def test_range_form_takes_unsigned_bounds():
    @numba.njit
    def call(rows, starts, positions, count, indices):
        return cpu.group_range(rows, starts, positions, count, indices, 10, -1, np.uint64(1), np.uint64(4))

    rows, positions, starts, count = np.full(3, -7), np.full(3, -7), np.full(4, -7), np.full(1, -7)
    assert call(rows, starts, positions, count, np.array([9, 4, 2, 4])) == -1
    assert (rows[:2].tolist(), starts[:3].tolist(), positions.tolist()) == ([2, 4], [0, 1, 3], [2, 1, 3])


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("count", [1, 3])
def test_a_bad_index_writes_nothing(name, count):
    indices = np.arange(1000)
    indices[[400, 600]] = -1, 1000
    outputs = [np.full(1001, -7) for _ in range(3)] + [np.full(1, -7)]
    with in_parallel(count), unchanged(*outputs):
        assert BACKENDS[name].group(*outputs, indices, 1000, -1) == 400
        assert BACKENDS[name].group_range(*outputs, indices, 1000, -1, 500, 1000) == 600
        offsets = np.array([0, 10, 1000])
        assert BACKENDS[name].group_bags(*outputs, indices, offsets, 1000, -1) == 400
        assert BACKENDS[name].group_bags_range(*outputs, indices, offsets, 1000, -1, 500, 1000) == 600


@pytest.mark.parametrize("name", BACKENDS)
def test_range_form_groups_its_part_with_positions_of_the_whole(name):
    indices = np.array([9, 4, 2, 4, 2, 2, 9])
    rows, positions, starts, count = np.full(4, -7), np.full(4, -7), np.full(5, -7), np.full(1, -7)
    assert BACKENDS[name].group_range(rows, starts, positions, count, indices, 10, -1, 2, 6) == -1
    assert (rows[:2].tolist(), count.tolist()) == ([2, 4], [2])
    assert (starts[:3].tolist(), positions.tolist()) == ([0, 3, 4], [2, 4, 5, 3])
    offsets, numbers = np.array([0, 0, 3, 4, 5, 7]), positions
    assert BACKENDS[name].group_bags_range(rows, starts, numbers, count, indices, offsets, 10, -1, 2, 6) == -1
    assert (rows[:2].tolist(), starts[:3].tolist(), numbers.tolist()) == ([2, 4], [0, 3, 4], [1, 3, 4, 2])


@pytest.mark.parametrize("name", BACKENDS)
def test_nothing_to_group(name):
    for indices in (np.empty(0, np.int64), np.full(60, 3)):
        rows, starts, positions = grouped(indices, 4, 3, BACKENDS[name])
        assert (rows.size, starts.tolist(), positions.size) == (0, [0], 0)
        offsets = np.array([0, 0, indices.size])
        rows, starts, numbers = grouped(indices, 4, 3, BACKENDS[name], offsets)
        assert (rows.size, starts.tolist(), numbers.size) == (0, [0], 0)
