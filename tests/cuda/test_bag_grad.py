"""What the training of pooled lookups needs, on the device: run in the emulator."""

import numpy as np
import pytest
from numba import types

from fastemb.kernels import accumulator, reference
from fastemb.kernels.cuda import bag_grad, check, launch

from .kernels import F16, F32, F64, I32, I64
from .launched import emulated as emulated
from .launched import emulator
from .machine_code import compile_kernel
from .offline import TARGETS

pytestmark = pytest.mark.usefixtures("emulated")

WIDTHS = [1, 2, 3, 4, 8, 31, 33, 64, 100, 257]
LENGTHS = [0, 1, 5, 0, 31, 1, 1, 2, 1, 32, 33, 8, 3, 0, 13]
ROWS = 40
PADDING = 3


def problem(dtype, width, lengths=LENGTHS, index_dtype=np.int64, whole=False):
    """(table, indices, offsets, gradient)."""
    rng = np.random.default_rng(width)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    ids = rng.integers(0, ROWS, offsets[-1]).astype(index_dtype)
    table, grad = rng.standard_normal((ROWS, width)), rng.standard_normal((len(lengths), width))
    if whole:
        table, grad = np.trunc(3 * table), np.trunc(3 * grad)
    return table.astype(dtype), ids, offsets, grad.astype(dtype)


def winners_of(module, table, ids, offsets, padding=-1):
    winners = np.full((offsets.size - 1, table.shape[1]), -77, np.int64)
    assert module.bag_winners(winners, table, ids, offsets, padding) == -1
    return winners


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_winners_equal_the_reference(dtype, width):
    table, ids, offsets, _ = problem(dtype, width, whole=True)  # so that there are equal elements
    found = winners_of(bag_grad, table, ids, offsets, PADDING)
    np.testing.assert_array_equal(found, winners_of(reference, table, ids, offsets, PADDING))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_gradient_of_greatest_elements(dtype, width):
    table, ids, offsets, grad = problem(dtype, width)
    winners = winners_of(reference, table, ids, offsets, PADDING)
    places = np.full(ids.size, -(2**60))
    _, places[winners[winners >= 0]] = np.unique(ids[winners[winners >= 0]], return_inverse=True)
    values = np.full((places.max() + 2, width), np.nan, accumulator(np.dtype(dtype)))  # the last has no winners
    expected = values.copy()
    assert bag_grad.bag_max_grad(values, grad, winners, places) == -1
    assert reference.bag_max_grad(expected, grad, winners, places) == -1
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_dots(dtype, width):
    for whole in (True, False):
        table, ids, offsets, grad = problem(dtype, width, whole=whole)
        dots = np.full(ids.size, np.nan, accumulator(table.dtype))
        expected = dots.copy()
        assert bag_grad.bag_dots(dots, table, ids, offsets, grad, PADDING) == -1
        assert reference.bag_dots(expected, table, ids, offsets, grad, PADDING) == -1
        terms = np.abs(grad).astype(np.float64)[np.repeat(np.arange(len(LENGTHS)), LENGTHS)] * np.abs(table[ids])
        tolerance = 0 if whole else 1e-6 * terms.sum(axis=1)
        assert (np.abs(dots - expected) <= tolerance).all()


def test_winners_among_nan_and_inf():
    for width in (4, 5):
        table, ids, offsets, _ = problem(np.float32, width)
        rng = np.random.default_rng(0)
        for value in (np.nan, np.inf, -np.inf):
            table[rng.random(table.shape) < 0.1] = value
        table[PADDING], table[:, ::3] = np.nan, -np.inf
        found = winners_of(bag_grad, table, ids, offsets, PADDING)
        np.testing.assert_array_equal(found, winners_of(reference, table, ids, offsets, PADDING))


@pytest.mark.parametrize("lengths", [[1025, 7, 2049], [1, 1, 0, 2]])
def test_winners_of_bags_of_all_lengths(lengths):
    table, ids, offsets, _ = problem(np.float32, 4, lengths, np.int32)
    found = winners_of(bag_grad, table, ids, offsets)
    np.testing.assert_array_equal(found, winners_of(reference, table, ids, offsets))


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("blocks", [1, 3, 2048])
def test_grids_and_orders(blocks, seed, monkeypatch):
    monkeypatch.setattr(launch, "MOST_BLOCKS", blocks)
    monkeypatch.setattr(launch, "THREADS", 64)
    monkeypatch.setattr(emulator, "seed", seed)
    for width, index_dtype in ((20, np.int32), (257, np.int64)):
        table, ids, offsets, grad = problem(np.float32, width, LENGTHS * 2, index_dtype, whole=True)
        winners = winners_of(bag_grad, table, ids, offsets)
        np.testing.assert_array_equal(winners, winners_of(reference, table, ids, offsets))
        outputs = []
        for module in (bag_grad, reference):
            values, dots = np.full((ROWS, width), np.nan, np.float32), np.full(ids.size, np.nan, np.float32)
            assert module.bag_max_grad(values, grad, winners, ids.astype(np.int64)) == -1
            assert module.bag_dots(dots, table, ids, offsets, grad, -1) == -1
            outputs.append((values, dots))
        for found, expected in zip(*outputs, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_gradients_are_added_in_the_order_of_the_bags():
    """Of one place, over many bags: another order has other bits."""
    grad = np.random.default_rng(0).standard_normal((300, 3)).astype(np.float32)
    winners = np.arange(900).reshape(300, 3)
    values, expected, backwards = np.full((3, 1, 3), np.nan, np.float32)
    places = np.zeros(900, np.int64)
    assert bag_grad.bag_max_grad(values, grad, winners, places) == -1
    reference.bag_max_grad(expected, grad, winners, places)
    reference.bag_max_grad(backwards, grad[::-1], winners, places)
    np.testing.assert_array_equal(values, expected)
    assert (expected != backwards).any()


def test_gradient_of_greatest_elements_in_some_columns():
    table, ids, offsets, grad = problem(np.float32, 12)
    winners = winners_of(reference, table, ids, offsets)
    values = np.full((ROWS, 12), np.nan)
    expected = values.copy()
    for start, stop in ((3, 8), (8, 8), (11, 12)):
        rest = grad, winners, ids, start, stop
        assert bag_grad.bag_max_grad_range(values, *rest) == reference.bag_max_grad_range(expected, *rest) == -1
        np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize(("bags", "places", "rows"), [(0, 5, 3), (2, 0, 3), (2, 5, 0)])
def test_gradient_of_nothing(bags, places, rows):
    values, winners = np.full((rows, 4), np.nan, np.float32), np.full((bags, 4), -1)
    assert bag_grad.bag_max_grad(values, winners.astype(np.float32), winners, np.zeros(places, np.int64)) == -1
    assert (values == 0).all()


def test_dots_with_nan_and_a_narrower_gradient():
    table, ids, offsets, grad = problem(np.float64, 8, whole=True)
    grad, table[PADDING], table[5] = grad.astype(np.float32), np.nan, np.inf
    found, expected = np.full((2, ids.size), np.nan)
    assert bag_grad.bag_dots(found, table, ids, offsets, grad, PADDING) == -1
    assert reference.bag_dots(expected, table, ids, offsets, grad, PADDING) == -1
    np.testing.assert_array_equal(found, expected)
    assert (found[ids == PADDING] == 0).all()


@pytest.mark.parametrize("offset", [1, 2])
def test_rows_that_begin_anywhere(offset):
    table, ids, offsets, grad = problem(np.float32, 8, whole=True)
    memory = np.zeros(table.size + offset, np.float32)
    memory[offset:] = table.reshape(-1)
    moved = memory[offset:].reshape(table.shape)
    np.testing.assert_array_equal(winners_of(bag_grad, moved, ids, offsets), winners_of(reference, table, ids, offsets))
    found, expected = np.full((2, ids.size), np.nan, np.float32)
    bag_grad.bag_dots(found, moved, ids, offsets, grad, -1)
    reference.bag_dots(expected, table, ids, offsets, grad, -1)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("places", [[0], [99], [5, 40]])
def test_a_bad_index_is_found_and_nothing_written(places):
    table, ids, offsets, grad = problem(np.float32, 8)
    ids[places] = ROWS
    winners, dots = np.full(grad.shape, -77), np.full(ids.size, np.nan, np.float32)
    assert bag_grad.bag_winners(winners, table, ids, offsets, -1) == min(places)
    assert bag_grad.bag_dots(dots, table, ids, offsets, grad, -1) == min(places)
    with check.mode("later") as answers:
        assert bag_grad.bag_winners(winners, table, ids, offsets, -1) == -1
        assert bag_grad.bag_dots(dots, table, ids, offsets, grad, -1) == -1
    assert answers.first_bad()[1] == ROWS
    assert (winners == -77).all()
    assert np.isnan(dots).all()


def test_parts():
    table, ids, offsets, grad = problem(np.float32, 8, whole=True)
    ids[1] = 99  # in bag 2, which is not done
    for start, stop in ((4, 9), (0, 2), (7, 7)):
        results = []
        for module in (bag_grad, reference):
            winners, dots = np.full(grad.shape, -77), np.full(ids.size, np.nan, np.float32)
            assert module.bag_winners_range(winners, table, ids, offsets, 2, start, stop) == -1
            assert module.bag_dots_range(dots, table, ids, offsets, grad, 2, start, stop) == -1
            results.append((winners, dots))
        for found, expected in zip(*results, strict=True):
            np.testing.assert_array_equal(found, expected)
    ids[40] = -1
    assert bag_grad.bag_winners_range(winners, table, ids, offsets, 2, 3, len(LENGTHS)) == 40
    assert bag_grad.bag_dots_range(dots, table, ids, offsets, grad, 2, 3, len(LENGTHS)) == 40


def test_numbers():
    offsets = np.concatenate(([0], np.cumsum(LENGTHS)))
    positions = np.random.default_rng(0).permutation(offsets[-1])
    for start, stop in ((0, positions.size), (5, 50), (3, 3)):
        found, expected = np.full((2, positions.size), -77)
        rest = positions, offsets, start, stop
        assert bag_grad.bag_numbers_range(found, *rest) == reference.bag_numbers_range(expected, *rest) == -1
        np.testing.assert_array_equal(found, expected)
    reference.bag_numbers(expected, positions, offsets)
    for bad in (offsets[-1], -1):
        wrong = positions.copy()
        wrong[[7, 9]] = bad
        assert bag_grad.bag_numbers(found, wrong, offsets) == 7
        assert (found == -77).all()
    assert bag_grad.bag_numbers(found[:0], positions[:0], offsets[:1]) == -1
    assert bag_grad.bag_numbers(positions, positions, offsets) == -1  # in place
    np.testing.assert_array_equal(positions, expected)


def _winners_code(table, rows):
    return bag_grad.make_winners(2, rows), (I64, table, I64, I64, I64, types.uint64, types.int64, table.dtype)


def _dots_code(table, n, rows):
    state = F64 if table is F64 else F32
    arrays = state, table, I32, I64, table, I64
    return bag_grad.make_dots(n, rows), (*arrays, types.uint32, types.int64, state.dtype)


def _max_grad_code():
    columns = types.uint64, types.uint64, types.uint64
    return bag_grad.make_max_grad(bag_grad.PLACES_AT_ONCE), (F32, F32, I64, I64, I64, I64, *columns, types.float32)


MACHINE_CODE = {  # kernel and types, bits of a load of rows, how many there are at least, registers
    "winners": (_winners_code(F32, 8), 64, 15, 64),
    "winners, double": (_winners_code(F64, 4), 128, 7, 64),
    "dots": (_dots_code(F32, 4, 4), 128, 5, 80),
    "dots, half": (_dots_code(F16, 8, 2), 128, 3, 80),
    "gradient": (_max_grad_code(), 32, 5, 64),
    "numbers": ((bag_grad.find_bags, (I64, I64, I64, I64)), 64, 0, 32),
}


@pytest.mark.parametrize("capability", TARGETS, ids=lambda cc: "sm_{}{}".format(*cc))
@pytest.mark.parametrize(("kernel", "bits", "rows", "registers"), MACHINE_CODE.values(), ids=MACHINE_CODE)
def test_machine_code(kernel, bits, rows, registers, capability):
    code = compile_kernel(*kernel, capability=capability, launch_bounds=launch.THREADS)
    of_rows = [text for text in code.loads() if ".NA." in text]
    assert len(of_rows) == len([text for text in code.loads(bits) if ".NA." in text]) >= rows
    assert (code.local, code.spills, code.stack, code.fused, code.matching(r"ATOM|REDG?\.")) == ([], 0, 0, [], [])
    assert code.registers <= registers, "64: four blocks of 256 threads on a multiprocessor; 80: three"
    assert {name for name in code.calls if name.startswith("__cuda")} <= {"__cuda_sm70_shflsync_bfly_p"}
