"""Scatter-add and sums of runs on the device, run in the emulator and looked at as machine code."""

import numpy as np
import pytest
from numba import types
from strategies import grouped, same_bits, unchanged

from fastemb.kernels import SUM_BLOCK, reference
from fastemb.kernels.cuda import check, launch, scatter

from .launched import emulated as emulated
from .launched import emulator
from .machine_code import compile_kernel
from .offline import TARGETS

pytestmark = pytest.mark.usefixtures("emulated")

WIDTHS = [1, 2, 3, 4, 8, 31, 33, 64, 100, 257]
F32, I64 = types.float32[::1], types.int64[::1]


def problem(rng, dtype, width, indices, num_rows=50):
    target = rng.standard_normal((num_rows, width)).astype(dtype)
    return target, indices, rng.standard_normal((indices.size, width)).astype(dtype)


def assert_adds_as_the_reference(target, indices, updates):
    ours, wanted = target.copy(), target.copy()
    with unchanged(indices, updates):
        assert scatter.scatter_add(ours, indices, updates) == -1
    assert reference.scatter_add(wanted, indices, updates) == -1
    assert same_bits(ours, wanted)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
def test_adds_as_the_reference(rng, width, index_dtype):
    assert_adds_as_the_reference(*problem(rng, np.float32, width, rng.integers(0, 45, 90).astype(index_dtype)))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("width", [9, 12])
def test_other_dtypes(rng, dtype, width):
    target, indices, updates = problem(rng, dtype, width, rng.integers(0, 20, 300))
    assert_adds_as_the_reference(target, indices, updates)
    if dtype == np.float64:
        assert_adds_as_the_reference(target, indices, updates.astype(np.float32))


LENGTHS = [1, 2, 3, 4, 5, 31, 32, 33, 1000, SUM_BLOCK - 1, SUM_BLOCK]


@pytest.mark.parametrize("width", [3, 4])
def test_lengths_of_runs(rng, width):
    indices = rng.permutation(np.repeat(np.arange(len(LENGTHS)), LENGTHS))
    assert_adds_as_the_reference(*problem(rng, np.float32, width, indices, len(LENGTHS)))


@pytest.mark.parametrize("length", [SUM_BLOCK + 1, 2 * SUM_BLOCK, 9 * SUM_BLOCK + 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_longer_run_is_added_in_pieces(rng, length, dtype):
    """That each are summed from 0 is all that differs from the reference."""
    indices = np.concatenate([np.full(length, 2), rng.integers(3, 9, 200)])
    target, indices, updates = problem(rng, dtype, 4, rng.permutation(indices))
    places, expected = np.flatnonzero(indices == 2), target.copy()
    total = target[2].astype(np.float32)
    for begin in range(0, length, SUM_BLOCK):
        part = np.zeros(4, np.float32)
        for k in places[begin : begin + SUM_BLOCK]:
            part += updates[k].astype(np.float32)
        total += part
    reference.scatter_add(expected, indices[indices != 2], updates[indices != 2])
    expected[2] = total
    scatter.scatter_add(target, indices, updates)
    assert same_bits(target, expected)


def test_exact_sums_have_no_order(rng):
    target = np.zeros((9, 4), np.float32)
    indices = rng.choice(9, 9000, p=[0.5, 0.3, *[0.2 / 7] * 7])
    updates = rng.integers(-8, 8, (9000, 4)).astype(np.float32)
    assert_adds_as_the_reference(target, indices, updates)


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("seed", [0, 4])
def test_grids_and_orders(rng, blocks, seed, monkeypatch):
    monkeypatch.setattr(launch, "MOST_BLOCKS", blocks)
    monkeypatch.setattr(launch, "THREADS", 64)
    monkeypatch.setattr(emulator, "seed", seed)
    assert_adds_as_the_reference(*problem(rng, np.float32, 12, rng.integers(0, 45, 400)))
    assert_adds_as_the_reference(*problem(rng, np.float32, 260, rng.integers(0, 45, 60)))


@pytest.mark.parametrize("add", [scatter.scatter_add, scatter.scatter_add_unordered])
def test_nan_infinity_and_the_sign_of_zero(add):
    target = np.full((5, 3), -0.0, np.float32)
    target[3] = np.inf
    updates = np.full((4, 3), -0.0, np.float32)
    updates[1], updates[2] = np.nan, -np.inf
    indices = np.array([0, 1, 3, 0])
    expected = target.copy()
    reference.scatter_add(expected, indices, updates)
    add(target, indices, updates)
    assert same_bits(target, expected)


@pytest.mark.parametrize("add", [scatter.scatter_add, scatter.scatter_add_unordered])
@pytest.mark.parametrize(("length", "width"), [(0, 4), (5, 0), (0, 0)])
def test_nothing_to_add(add, length, width):
    target = np.ones((6, width), np.float32)
    assert add(target, np.arange(length), np.ones((length, width), np.float32)) == -1
    assert (target == 1).all()
    assert add(target, np.arange(length) + 2, np.ones((length, width), np.float32)) == (4 if length else -1)


@pytest.mark.parametrize("add", [scatter.scatter_add, scatter.scatter_add_unordered])
@pytest.mark.parametrize("when", ["now", "later"])
@pytest.mark.parametrize("bad", [-1, 50, 2**32, -(2**63), 2**63 - 1])
def test_a_bad_index_is_found_and_nothing_changed(rng, add, when, bad):
    target, indices, updates = problem(rng, np.float32, 4, rng.integers(0, 50, 90))
    indices[[70, 20]] = bad
    with unchanged(target), check.mode(when) as answers:
        assert add(target, indices, updates) == (20 if when == "now" else -1)
    if when == "later":
        assert answers.first_bad()[:2] == (indices, 50)


def test_range_form(rng):
    target, indices, updates = problem(rng, np.float32, 4, rng.integers(0, 50, 90))
    indices[4] = 50
    ours, wanted = target.copy(), target.copy()
    part = indices, updates, 7, 60
    assert scatter.scatter_add_range(ours, *part) == reference.scatter_add_range(wanted, *part) == -1
    assert same_bits(ours, wanted)
    assert scatter.scatter_add_range(ours, indices, updates, 2, 60) == 4
    assert same_bits(ours, wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("width", [1, 6, 8, 257])
def test_unordered_sums(rng, dtype, capability, width, monkeypatch):
    """Integers, whose sums have no order."""
    monkeypatch.setattr(launch, "capability", lambda array: capability)
    target, updates = (rng.integers(-64, 64, (rows, width)).astype(dtype) for rows in (50, 90))
    indices = rng.integers(0, 45, 90)
    wanted = target.copy()
    reference.scatter_add(wanted, indices, updates)
    with unchanged(indices, updates):
        assert scatter.scatter_add_unordered(target, indices, updates) == -1
    assert same_bits(target, wanted)


@pytest.mark.parametrize(
    ("dtype", "capability", "at_once"), [(np.float32, 80, 1), (np.float32, 90, 4), (np.float64, 90, 1)]
)
def test_what_is_added_by_one_instruction(dtype, capability, at_once, monkeypatch):
    made = []
    monkeypatch.setattr(launch, "capability", lambda array: capability)
    monkeypatch.setattr(launch, "run", lambda *given: None)
    monkeypatch.setattr(scatter, "make_scatter_unordered", lambda *given: made.append(given))
    scatter.scatter_add_unordered(np.ones((5, 8), dtype), np.arange(5), np.ones((5, 8), dtype))
    assert made == [(16 // np.dtype(dtype).itemsize, at_once)]


@pytest.mark.parametrize("offset", [1, 2])
@pytest.mark.parametrize("add", [scatter.scatter_add, scatter.scatter_add_unordered])
def test_rows_that_begin_anywhere(rng, offset, add):
    _, indices, updates = problem(rng, np.float32, 8, rng.permutation(30))
    target = np.ones(500, np.float32)[offset : offset + 400].reshape(50, 8)
    wanted = target.copy()
    reference.scatter_add(wanted, indices, updates)
    add(target, indices, updates)
    assert same_bits(target, wanted)


@pytest.mark.parametrize(
    ("dtype", "weighted", "scale", "width"),
    [
        (np.float32, False, False, 3),
        (np.float32, True, True, 8),
        (np.float32, False, True, 2),
        (np.float64, True, False, 3),
        (np.float16, False, True, 8),
        (np.float16, True, True, 3),
    ],
)
def test_sums_of_runs(rng, dtype, weighted, scale, width):
    indices = rng.permutation(np.concatenate([np.full(2 * SUM_BLOCK + 3, 4), rng.integers(0, 9, 100)]))
    updates = rng.standard_normal((indices.size, width)).astype(dtype)
    runs = grouped(indices, 9)
    real = np.float64 if dtype == np.float64 else np.float32
    factors = rng.standard_normal(indices.size if weighted else 0).astype(real)
    ours, wanted = (np.full((9, width), np.nan, dtype) for _ in range(2))
    with unchanged(updates, *runs, factors):
        assert scatter.segment_sum(ours, updates, *runs, factors, scale) == -1
    reference.segment_sum(wanted, updates, *runs, factors, scale)
    assert same_bits(ours, wanted)
    assert not np.isnan(ours).any()


def test_sums_of_some_runs():
    starts, positions, factors = np.array([0, 0, 2, 3]), np.array([2, 0, 1]), np.empty(0, np.float32)
    updates = np.arange(12, dtype=np.float32).reshape(3, 4)
    values = np.full((5, 4), np.nan, np.float32)
    given = updates, np.array([1, 3, 4]), starts, positions, factors, False
    assert scatter.segment_sum_range(values, *given, 0, 2) == -1
    np.testing.assert_array_equal(values[[1, 3]], [np.zeros(4), updates[2] + updates[0]])
    assert np.isnan(values[[0, 2, 4]]).all()
    given[1][1] = 5
    assert scatter.segment_sum_range(values, *given, 1, 3) == 1
    assert scatter.segment_sum_range(values, *given, 2, 3) == -1
    np.testing.assert_array_equal(values[4], updates[1])


@pytest.mark.parametrize("capability", TARGETS, ids=lambda cc: "sm_{}{}".format(*cc))
def test_machine_code_of_unordered_sums(capability):
    at_once = 4 if capability >= (9, 0) else 1
    kernel = scatter.make_scatter_unordered(4, at_once)
    code = compile_kernel(kernel, (F32, I64, F32, I64, types.uint64), capability=capability)
    assert (code.local, code.spills, code.stack, code.calls) == ([], 0, 0, set())
    assert code.reductions(at_once)
    assert len(code.reductions()) == 4 // at_once * len(code.loads(128))
    assert not code.matching("ATOM"), "nothing waits for what was there"
    assert code.registers <= 40


@pytest.mark.parametrize("capability", TARGETS, ids=lambda cc: "sm_{}{}".format(*cc))
@pytest.mark.parametrize("add", ["scatter_add", "segment_sum", "pieces"])
def test_machine_code_of_ordered_sums(rng, capability, add, monkeypatch):
    started = []

    def compiler(kernel, signature):
        started.append((kernel, signature))
        return lambda *launched: None

    monkeypatch.setattr(launch, "compiler", compiler)
    target, indices, updates = problem(rng, np.float32, 8, rng.integers(0, 45, SUM_BLOCK + 1))
    with check.mode("off"):
        if add == "segment_sum":
            scatter.segment_sum(target, updates, *grouped(indices, 50), np.empty(0, np.float32), False)
        else:
            scatter.scatter_add(target, indices, updates)
    wanted = "sum_pieces" if add == "pieces" else "row_pass"
    ((kernel, signature),) = [pair for pair in started if pair[0].__name__ == wanted]
    code = compile_kernel(kernel, signature, capability=capability)
    assert (code.local, code.spills, code.stack, code.fused) == ([], 0, 0, [])
    assert not [name for name in code.calls if "__cuda" in name], "the others are how sm_80 leaves a loop"
    assert len(code.stores()) == len(code.stores(128)) == 1
    assert len(code.loads(128)) >= 4
    assert code.registers <= 64, "four blocks on a multiprocessor"
