"""Pooled lookup on the device, run in the emulator."""

import numpy as np
import pytest
from numba import types

from fastemb.kernels import accumulator, reference
from fastemb.kernels.cuda import bag, check, launch
from fastemb.kernels.reference import bag as oracle

from .kernels import F16, F32, F64, I32, I64
from .launched import emulated as emulated
from .launched import emulator
from .machine_code import compile_kernel
from .offline import TARGETS

pytestmark = pytest.mark.usefixtures("emulated")

WIDTHS = [1, 2, 3, 4, 8, 31, 33, 64, 100, 257]
DTYPES = ["float16", "float32", "float64"]
MIXED = [0, 1, 5, 0, 31, 1, 1, 1, 1, 32, 33, 8, 3, 0, 13]
SINGLE = [1, 1, 1, 1, 0, 1, 1, 1, 2, 1, 1, 1, 1, 1]
ROWS = 40
PADDING = 3


class Problem:
    """A table, bags of some lengths, and for a sum the weights and divisors."""

    def __init__(self, dtype, width, lengths, index_dtype=np.int64, weighted=False, divided=False, seed=0):
        rng = np.random.default_rng(seed)
        state = accumulator(np.dtype(dtype))
        self.table = rng.standard_normal((ROWS, width)).astype(dtype)
        self.offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        self.ids = rng.integers(0, ROWS, self.offsets[-1]).astype(index_dtype)
        self.factors = rng.standard_normal(self.ids.size if weighted else 0).astype(state)
        self.divisors = rng.standard_normal(len(lengths) if divided else 0).astype(state)
        self.divisors[2::5] = 0
        self.out = np.full((len(lengths), width), np.nan, dtype)

    def inputs(self):
        return self.table, self.ids, self.offsets, self.factors, self.divisors

    def sums(self, padding=-1):
        """What the device and the reference make of it."""
        return self._both("bag_sum", self.inputs(), padding)

    def largest(self, padding=-1):
        return self._both("bag_max", self.inputs()[:3], padding)

    def _both(self, name, inputs, padding):
        before = [array.copy() for array in inputs]
        out, expected = self.out.copy(), np.full_like(self.out, np.nan)
        assert getattr(reference, name)(expected, *inputs, padding) == -1
        assert getattr(bag, name)(out, *inputs, padding) == -1
        for array, old in zip(inputs, before, strict=True):
            np.testing.assert_array_equal(array, old)
        return out, expected


def same_bits(found, expected):
    """Equal, signs of zeros too; a NaN is a NaN."""
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(expected[expected == 0]))


def infected(problem, seed=1):
    """NaN and inf here and there, all over the row that is padding, and some columns of -inf alone."""
    rng = np.random.default_rng(seed)
    for value in (np.nan, np.inf, -np.inf):
        problem.table[rng.random(problem.table.shape) < 0.03] = value
    problem.table[PADDING] = np.nan
    problem.table[:, ::3] = -np.inf
    return problem


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_equal_the_reference(dtype, width):
    same_bits(*Problem(dtype, width, MIXED, weighted=True, divided=True).sums(PADDING))
    if width in (3, 64):
        same_bits(*Problem(dtype, width, SINGLE, divided=True).sums(PADDING))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_greatest_elements_equal_the_reference(dtype, width):
    same_bits(*Problem(dtype, width, MIXED).largest(PADDING))


@pytest.mark.parametrize(("index_dtype", "padding"), [(np.int32, PADDING), (np.int64, -1)])
@pytest.mark.parametrize("lengths", [MIXED, SINGLE, [3, 2, 4, 0, 7]], ids=["long", "single", "short"])
def test_indices_of_both_widths(lengths, index_dtype, padding):
    problem = Problem(np.float32, 20, lengths, index_dtype)
    same_bits(*problem.sums(padding))
    same_bits(*problem.largest(padding))


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("blocks", [1, 3, 2048])
@pytest.mark.parametrize("lengths", [SINGLE * 9, MIXED * 2], ids=["single", "mixed"])
def test_grids_and_orders(lengths, blocks, seed, monkeypatch):
    monkeypatch.setattr(launch, "MOST_BLOCKS", blocks)
    monkeypatch.setattr(launch, "THREADS", 64)
    monkeypatch.setattr(emulator, "seed", seed)
    for width in (20, 257):
        same_bits(*Problem(np.float32, width, lengths, weighted=lengths[0] == 0).sums())


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_bags_are_cut(dtype):
    lengths = [bag.SUM_BLOCK + k for k in (-1, 0, 1, 33)] + [7, 0, 2 * bag.SUM_BLOCK + 1]
    problem = Problem(dtype, 4, lengths)
    same_bits(*problem.sums())
    same_bits(*problem.largest())


def test_where_a_sum_is_cut_is_seen(monkeypatch):
    """With blocks of nine; and the same bags in one piece have other bits, so the tests would notice."""
    problem = Problem(np.float32, 8, MIXED)
    whole, _ = problem.sums()
    for module in (bag, oracle):
        monkeypatch.setattr(module, "SUM_BLOCK", 9)
    cut, expected = problem.sums()
    same_bits(cut, expected)
    assert (cut != whole).any()


@pytest.mark.parametrize("width", [4, 5])
@pytest.mark.parametrize("lengths", [MIXED, SINGLE], ids=["mixed", "single"])
def test_nan_and_inf(lengths, width):
    problem = infected(Problem(np.float32, width, lengths, weighted=lengths is MIXED, divided=True))
    problem.divisors[3:6] = np.inf, np.nan, -1
    found, expected = problem.sums(PADDING)
    same_bits(found, expected)
    assert np.isnan(found).any()
    assert (found[2] == 0).all(), "its divisor is zero"
    found, expected = problem.largest(PADDING)
    same_bits(found, expected)
    assert (found[:, ::3] == np.where(np.asarray(lengths)[:, np.newaxis] > 0, -np.inf, 0)).any()


def test_zeros_of_both_signs():
    problem = Problem(np.float32, 8, [2, 1, 5, 0, 3])
    problem.table *= 0
    found, expected = problem.largest()
    same_bits(found, expected)
    assert np.signbit(found).any()
    same_bits(*problem.sums())
    single = Problem(np.float32, 8, SINGLE)
    single.table *= 0
    same_bits(*single.sums())


def test_nothing_but_padding():
    for lengths in ([3, 2, 9], [1] * 8):
        problem = Problem(np.float32, 8, lengths)
        problem.ids[:] = PADDING
        assert (problem.sums(PADDING)[0] == 0).all()
        assert (problem.largest(PADDING)[0] == 0).all()


@pytest.mark.parametrize("places", [[0], [69], [5, 40]])
@pytest.mark.parametrize("bad", [-1, ROWS, -(2**63), 2**63 - 1])
def test_a_bad_index_is_found_and_nothing_written(places, bad):
    problem = Problem(np.float32, 8, [30, 0, 40])
    problem.ids[places] = bad
    assert bag.bag_sum(problem.out, *problem.inputs(), bad) == min(places)
    assert bag.bag_max(problem.out, *problem.inputs()[:3], -1) == min(places)
    assert np.isnan(problem.out).all()


def test_an_answer_that_comes_later():
    problem = Problem(np.float32, 8, [30, 0, 40])
    good = problem.sums()[1]
    bad = problem.ids.copy()
    bad[33] = ROWS
    with check.mode("later") as answers:
        assert bag.bag_sum(problem.out, problem.table, bad, *problem.inputs()[2:], -1) == -1
        assert np.isnan(problem.out).all()
        assert bag.bag_sum(problem.out, *problem.inputs(), -1) == -1
    same_bits(problem.out, good)
    found, num_rows, position = answers.first_bad()
    assert found.base is bad
    assert (num_rows, position) == (ROWS, 33)


def test_parts():
    problem = Problem(np.float32, 8, MIXED, weighted=True, divided=True)
    sums, largest = problem.sums(PADDING)[1], problem.largest(PADDING)[1]
    problem.ids[1] = 99  # in bag 2, which is not done
    for start, stop in ((3, 9), (0, 2), (4, 4), (10, len(MIXED))):
        outputs = np.full((2, *problem.out.shape), np.nan, np.float32)
        assert bag.bag_sum_range(outputs[0], *problem.inputs(), PADDING, start, stop) == -1
        assert bag.bag_max_range(outputs[1], *problem.inputs()[:3], PADDING, start, stop) == -1
        for out, expected in zip(outputs, (sums, largest), strict=True):
            same_bits(out[start:stop], expected[start:stop])
            assert np.isnan(out[:start]).all()
            assert np.isnan(out[stop:]).all()
    problem.ids[40] = -1
    assert bag.bag_sum_range(problem.out, *problem.inputs(), PADDING, 5, len(MIXED)) == 40
    assert bag.bag_max_range(problem.out, *problem.inputs()[:3], PADDING, 5, len(MIXED)) == 40
    assert np.isnan(problem.out).all()


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_rows_that_begin_anywhere(offset):
    problem = Problem(np.float32, 8, MIXED)
    memory = np.zeros(ROWS * 8 + offset, np.float32)
    memory[offset:] = problem.table.reshape(-1)
    problem.table = memory[offset:].reshape(ROWS, 8)
    same_bits(*problem.sums())


@pytest.mark.parametrize(("rows", "width", "lengths"), [(ROWS, 4, []), (ROWS, 0, [2, 1]), (0, 4, [0, 0])])
def test_nothing_to_do(rows, width, lengths):
    problem = Problem(np.float32, width, lengths)
    problem.table = problem.table[:rows]
    same_bits(*problem.sums())
    same_bits(*problem.largest())
    empty = np.empty(0, np.float32)
    assert bag.bag_divisors(empty, problem.ids, problem.offsets[:1], empty, -1, False) == -1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("squared", [False, True])
def test_divisors(dtype, weighted, squared):
    problem = Problem(dtype, 1, MIXED, weighted=weighted)
    problem.factors = np.round(64 * problem.factors) / 64  # sums of which no order rounds
    for start, stop in ((0, len(MIXED)), (3, 9)):
        found, expected = np.full((2, len(MIXED)), np.nan, dtype)
        rest = problem.ids, problem.offsets, problem.factors, PADDING, squared, start, stop
        assert bag.bag_divisors_range(found, *rest) == reference.bag_divisors_range(expected, *rest) == -1
        np.testing.assert_array_equal(found, expected)


def test_divisors_are_summed_in_order():
    factors = np.array([1e300, 1.0, -1e300, 1.0])
    divisors = np.full(1, np.nan)
    assert bag.bag_divisors(divisors, np.arange(4), np.array([0, 4]), factors, -1, False) == -1
    assert divisors[0] == 1


def test_heuristics():
    assert [bag.rows_at_once(positions, 10, True) for positions in (0, 79, 80)] == [4, 4, 8]
    assert bag.rows_at_once(80, 10, False) == 4
    assert [bag.bags_at_once(positions, 10, False) for positions in (0, 19, 20)] == [4, 4, 1]
    assert bag.bags_at_once(0, 10, True) == 1
    assert [bag.threads_of_bag(columns, 4) for columns in (4, 20, 128, 129, 256, 5000)] == [1, 8, 32, 64, 64, 256]


SUM, SCALED = (bag.add_row, bag.add_rn, bag.divided), (bag.add_scaled_row, bag.add_rn, bag.divided)
SKIPPING = bag.skip_padding(bag.add_row), bag.add_rn, bag.divided
LARGEST = bag.larger_row, bag.larger, bag.zeros_for_nothing
MACHINE_CODE = {
    "sum": (SUM, F32, I64, 8, 1),
    "double": (SUM, F64, I64, 8, 1),
    "single": (SUM, F32, I32, 4, 4),
    "half": (SUM, F16, I64, 4, 1),
    "scaled": (SCALED, F32, I64, 4, 1),
    "padded": (SKIPPING, F32, I64, 4, 1),
    "largest": (LARGEST, F32, I64, 8, 1),
}


@pytest.mark.parametrize("capability", TARGETS, ids=lambda cc: "sm_{}{}".format(*cc))
@pytest.mark.parametrize(("pieces", "table", "indices", "rows", "bags"), MACHINE_CODE.values(), ids=MACHINE_CODE)
def test_machine_code(pieces, table, indices, rows, bags, capability):
    n, state = 128 // table.dtype.bitwidth, F64 if table is F64 else F32
    arrays = table, table, indices, I64, state, state, I64
    kernel = bag.make_pool(*pieces, n, rows, bags, bag.SUM_BLOCK, pieces is SCALED)
    numbers = types.uint32, types.int64, state.dtype, state.dtype
    code = compile_kernel(kernel, (*arrays, *numbers), capability=capability, launch_bounds=launch.THREADS)
    of_rows = [text for text in code.loads() if ".CONSTANT" in text]
    assert len(of_rows) == 2 * rows - 1 + (bags if bags > 1 else 0), "eight, four, two, one, and of single bags"
    assert {text.split(" ")[0] for text in of_rows} == {"LDG.E.NA.128.CONSTANT"}
    assert len(code.stores()) == len(code.stores(128)) == (1 + bags if bags > 1 else 1)
    assert (code.local, code.spills, code.stack, code.fused, code.matching(r"ATOM|REDG?\.")) == ([], 0, 0, [], [])
    assert code.registers <= 64, "four blocks of 256 threads on a multiprocessor: half of what fits there"
    division = {"__cuda_sm3x_div_rn_noftz_f32_slowpath", "__cuda_sm20_div_rn_f64_full"}
    assert {name for name in code.calls if name.startswith("__cuda")} <= division, "of floats alone"
    assert in_flight(code) == rows


def in_flight(code):
    """The most rows that are asked for before one is used."""
    most = asked = 0
    for text in code.instructions:
        asked += ".NA." in text
        if text.startswith(("FADD", "DADD", "FMUL", "DMUL", "FSETP", "DSETP")):
            most, asked = max(most, asked), 0
    return most
