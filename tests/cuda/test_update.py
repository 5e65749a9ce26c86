"""Optimizer steps on the device, run in the emulator and looked at as machine code."""

import re

import numpy as np
import pytest
from strategies import grouped, same_bits, unchanged

from fastemb.kernels import SUM_BLOCK, accumulator, reference
from fastemb.kernels.cuda import check, launch, update

from .launched import emulated as emulated
from .launched import emulator
from .machine_code import compile_kernel
from .offline import TARGETS

pytestmark = pytest.mark.usefixtures("emulated")

RULES = {
    # name: (rule, shapes of its states as rows and columns per row and column of the table, hyper)
    "sgd": ("sgd", [], (0.1, 1 - 0.1 * 0.01)),
    "momentum": ("momentum", [(1, 1), (1, 0)], (0.1, 1 - 0.1 * 0.01, 0.9, 0.75, 0.0)),
    "nesterov": ("momentum", [(1, 1), (1, 0)], (0.1, 1.0, 0.5, 1.0, 1.0)),
    "adagrad": ("adagrad", [(1, 1)], (0.1, 1 - 0.1 * 0.01, 1e-10)),
    "rowwise_adagrad": ("rowwise_adagrad", [(1, 0)], (0.1, 1 - 0.1 * 0.01, 1e-8)),
    "rmsprop": ("rmsprop", [(1, 1), (0, 1), (0, 1)], (0.1, 1 - 0.1 * 0.01, 0.9, 0.1, 1e-8, 0.0, 0.0)),
    "rmsprop centered": ("rmsprop", [(1, 1), (1, 1), (0, 1)], (0.1, 1.0, 0.9, 0.1, 1e-3, 0.0, 1.0)),
    "rmsprop momentum": ("rmsprop", [(1, 1), (1, 1), (1, 1)], (0.1, 1.0, 0.9, 0.1, 1e-3, 0.8, 1.0)),
    "adam": ("adam", [(1, 1), (1, 1)], (0.02, 1 - 0.1 * 0.01, 0.1, 0.001, 1e-8)),
    "ftrl": ("ftrl", [(1, 1), (1, 1)], (0.1, 0.5, 0.02, 0.03)),
}
LENGTHS = [1, 2, 31, 32, 33, 1000, SUM_BLOCK - 1, SUM_BLOCK, SUM_BLOCK + 1, 3 * SUM_BLOCK + 5]

every_rule = pytest.mark.parametrize("rule", RULES)


def problem(rng, rule, dtype, width, indices, num_rows=40):
    """(weight, state, grad, rows, starts, positions, hyper); some states are 0, as at a first touch."""
    _, shapes, hyper = RULES[rule]
    real = accumulator(np.dtype(dtype))
    weight = rng.standard_normal((num_rows, width)).astype(dtype)
    state = tuple(
        (np.abs(rng.standard_normal((num_rows * r, width if c else 1))) * rng.integers(0, 2, (num_rows * r, 1))).astype(
            real
        )
        for r, c in shapes
    )
    grad = rng.standard_normal((indices.size, width)).astype(dtype)
    return weight, state, grad, *grouped(indices, num_rows), hyper


def some_indices(rng, num_rows=40):
    """One row in two pieces, one looked up now and then, some not at all."""
    indices = np.concatenate([np.full(SUM_BLOCK + 9, 3), rng.integers(0, num_rows - 5, 200)])
    return rng.permutation(indices)


def both(rule, given, factors=None, scale=False, hyper=None):
    """What the reference and the device make of (weight, *state), and that they change nothing else."""
    weight, state, grad, rows, starts, positions, usual = given
    factors = np.empty(0, accumulator(weight.dtype)) if factors is None else factors
    results = []
    for kernels in (reference, update):
        table, arrays = weight.copy(), tuple(array.copy() for array in state)
        step = getattr(kernels, RULES[rule][0])
        with unchanged(grad, rows, starts, positions, factors):
            runs_of_rows = rows, starts, positions, factors, usual if hyper is None else hyper
            assert step(table, arrays, grad, *runs_of_rows, scale) == -1
        results.append((table, *arrays))
    return results


def assert_same(results):
    for wanted, ours in zip(*results, strict=True):
        assert same_bits(ours, wanted)


SETTINGS = [
    *((rule, "float32", 12) for rule in RULES),
    *((rule, "float64", 18) for rule in ("momentum", "rowwise_adagrad", "rmsprop momentum", "adam", "ftrl")),
    *((rule, "float16", 20) for rule in ("rowwise_adagrad", "adam")),
]
"""A kernel takes half a second to make: all that a rule can be for the rules that differ most."""


@pytest.mark.parametrize(("rule", "dtype", "width"), SETTINGS)
def test_same_bits_as_the_reference(rng, rule, dtype, width):
    given = problem(rng, rule, dtype, width, some_indices(rng))
    results = both(rule, given)
    assert_same(results)
    untouched = np.setdiff1d(np.arange(40), given[3])
    assert untouched.size
    for after, before in zip(results[1], (given[0], *given[1]), strict=True):
        if len(before):
            assert same_bits(after[untouched], before[untouched])
            assert not np.array_equal(after, before)


@pytest.mark.parametrize("rule", ["adam", "rowwise_adagrad"])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 8, 16, 31, 33, 64, 100, 257])
@pytest.mark.parametrize("seed", [0, 3])
def test_widths(rng, rule, width, seed, monkeypatch):
    monkeypatch.setattr(emulator, "seed", seed)
    assert_same(both(rule, problem(rng, rule, "float32", width, rng.integers(0, 30, 60))))


@pytest.mark.parametrize("width", [1, 2, 6, 7, 8, 9, 31, 130])
def test_widths_of_a_sum_over_the_row_in_float64(rng, width):
    given = problem(rng, "rowwise_adagrad", "float64", width, rng.integers(0, 30, 60))
    assert_same(both("rowwise_adagrad", given))


@pytest.mark.parametrize(("width", "weighted", "scale"), [(3, False, True), (4, True, False)])
def test_lengths_of_runs(rng, width, weighted, scale):
    indices = rng.permutation(np.repeat(np.arange(len(LENGTHS)), LENGTHS))
    factors = rng.standard_normal(indices.size).astype(np.float32) if weighted else None
    assert_same(both("sgd", problem(rng, "sgd", "float32", width, indices, 10), factors, scale))


@pytest.mark.parametrize(("rule", "dtype"), [("momentum", "float64"), ("rowwise_adagrad", "float16")])
def test_coefficients_and_lengths_with_a_number_for_each_row(rng, rule, dtype):
    indices = some_indices(rng)
    factors = rng.standard_normal(indices.size).astype(accumulator(np.dtype(dtype)))
    assert_same(both(rule, problem(rng, rule, dtype, 6, indices), factors, True))


def test_long_runs_side_by_side(rng):
    """Wherever runs begin and end, each piece has a place of its own."""
    for _ in range(12):
        lengths = rng.choice([0, 1, 5, *range(SUM_BLOCK - 2, SUM_BLOCK + 3), 2 * SUM_BLOCK - 1, 2 * SUM_BLOCK], 14)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        weight, grad = np.ones((14, 4), np.float32), rng.standard_normal((starts[-1], 4)).astype(np.float32)
        given = weight, (), grad, np.arange(14), starts, rng.permutation(starts[-1]), RULES["sgd"][2]
        assert_same(both("sgd", given))


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("threads", [32, 64])
@pytest.mark.parametrize("seed", [0, 4])
@pytest.mark.parametrize("rule", ["momentum", "rowwise_adagrad"])
def test_grids_and_orders(rng, rule, blocks, threads, seed, monkeypatch):
    monkeypatch.setattr(launch, "MOST_BLOCKS", blocks)
    monkeypatch.setattr(launch, "THREADS", threads)
    monkeypatch.setattr(emulator, "seed", seed)
    assert_same(both(rule, problem(rng, rule, "float32", 12, some_indices(rng))))
    assert_same(both(rule, problem(rng, rule, "float32", 260, rng.integers(0, 30, 60))))


@every_rule
def test_hyper_parameters_that_are_zero(rng, rule):
    hyper = RULES[rule][2]
    zeros = [tuple(0.0 if k == z else h for k, h in enumerate(hyper)) for z in range(len(hyper))]
    for some in [*zeros, (0.0,) * len(hyper)]:
        assert_same(both(rule, problem(rng, rule, "float32", 12, rng.integers(0, 30, 50)), hyper=some))


@every_rule
def test_a_nan_row_stays_the_only_one(rng, rule):
    given = problem(rng, rule, "float32", 12, some_indices(rng))
    grad, rows, starts, positions = given[2:6]
    grad[positions[starts[5]]] = np.nan
    grad[positions[starts[7]], 0] = np.inf
    results = both(rule, given)
    assert_same(results)
    assert np.isnan(results[1][0][rows[5]]).all()
    assert not np.isnan(np.delete(results[1][0], rows[[5, 7]], axis=0)).any()


def test_runs_without_positions_are_runs():
    starts = np.array([0, 0, 2, 2, 3, 3, 3])
    weight, state = np.ones((6, 2), np.float32), (np.ones((6, 2), np.float32), np.ones((6, 2), np.float32))
    grad = np.ones((3, 2), np.float32)
    results = both("adam", (weight, state, grad, np.arange(6), starts, np.arange(3), RULES["adam"][2]))
    assert_same(results)
    assert (results[1][1][[0, 2, 4, 5]] < 1).all()


@every_rule
def test_no_rows_at_all(rng, rule):
    weight, state, *_, hyper = problem(rng, rule, "float32", 4, np.arange(3))
    none, grad, no_factors = np.empty(0, np.int64), np.empty((0, 4), np.float32), np.empty(0, np.float32)
    with unchanged(weight, *state):
        step = getattr(update, RULES[rule][0])
        assert step(weight, state, grad, none, np.zeros(1, np.int64), none, no_factors, hyper, False) == -1


def test_range_form_does_its_runs_alone(rng):
    given = problem(rng, "rowwise_adagrad", "float32", 12, some_indices(rng))
    whole = both("rowwise_adagrad", given)[1]
    weight, state, grad, rows, starts, positions, hyper = given
    no_factors = np.empty(0, np.float32)
    part = grad, rows, starts, positions, no_factors, hyper, False
    before = weight.copy(), state[0].copy()
    assert update.rowwise_adagrad_range(weight, state, *part, 2, 9) == -1
    others = np.setdiff1d(np.arange(40), rows[2:9])
    for after, all_done, old in zip((weight, *state), whole, before, strict=True):
        assert same_bits(after[rows[2:9]], all_done[rows[2:9]])
        assert same_bits(after[others], old[others])
    rows[5] = 99
    assert update.rowwise_adagrad_range(weight, state, *part, 2, 9) == 5
    assert update.rowwise_adagrad_range(weight, state, *part, 6, 9) == -1


@every_rule
@pytest.mark.parametrize("when", ["now", "later"])
def test_a_bad_row_changes_nothing(rng, rule, when):
    weight, state, grad, rows, starts, positions, hyper = problem(rng, rule, "float32", 12, some_indices(rng))
    rows[4:] += 100
    with unchanged(weight, *state), check.mode(when) as answers:
        step = getattr(update, RULES[rule][0])
        found = step(weight, state, grad, rows, starts, positions, np.empty(0, np.float32), hyper, False)
    assert found == (4 if when == "now" else -1)
    if when == "later":
        assert answers.first_bad()[1] == 40


@pytest.mark.parametrize("offset", [1, 2])
@pytest.mark.parametrize("which", ["weight", "state", "grad"])
def test_rows_that_begin_anywhere(rng, offset, which):
    """The width of an access follows the addresses of all arrays: the emulator stops at a misaligned one."""

    def moved(array):
        memory = np.empty(array.size + offset, array.dtype)
        memory[offset:] = array.ravel()
        return memory[offset:].reshape(array.shape)

    weight, state, grad, *runs, hyper = problem(rng, "adam", "float32", 12, rng.integers(0, 30, 50))
    last = *runs, np.empty(0, np.float32), hyper, False
    expected = weight.copy(), tuple(array.copy() for array in state)
    reference.adam(*expected, grad, *last)
    place = {"weight": weight, "state": state[0], "grad": grad}
    place[which] = moved(place[which])
    ours = place["weight"], (place["state"], state[1])
    assert update.adam(*ours, place["grad"], *last) == -1
    assert_same([(expected[0], *expected[1]), (ours[0], *ours[1])])


def test_gradients_narrower_than_the_table(rng):
    weight, state, grad, *rest = problem(rng, "adagrad", "float64", 12, rng.integers(0, 30, 50))
    assert_same(both("adagrad", (weight, state, grad.astype(np.float32), *rest)))


# As machine code

MOST_REGISTERS = 128
"""Two blocks then fit on a multiprocessor, which has 65,536 registers: one works while the other waits."""


def signature_and_kernel(monkeypatch, rng, rule, dtype, width):
    """The row pass that a driver starts, and the types of its arguments."""
    started = []

    def compiler(kernel, signature):
        started.append((kernel, signature))
        return lambda *launched: None

    monkeypatch.setattr(launch, "compiler", compiler)
    weight, state, grad, *rows, hyper = problem(rng, rule, dtype, width, rng.integers(0, 30, 50))
    with check.mode("off"):
        step = getattr(update, RULES[rule][0])
        step(weight, state, grad, *rows, np.empty(0, accumulator(weight.dtype)), hyper, False)
    ((kernel, signature),) = started
    assert kernel.__name__ == "row_pass"
    return kernel, signature


def assert_clean(code):
    assert (code.local, code.spills, code.stack) == ([], 0, 0)
    assert code.fused == []
    assert code.registers <= MOST_REGISTERS
    assert not re.findall(r"\b(?:div|rem)\.[us]\d+", code.ptx)
    assert not [name for name in code.calls if re.search(r"(div|rem)_[us]64", name)]


@pytest.mark.parametrize("capability", TARGETS, ids=lambda cc: "sm_{}{}".format(*cc))
@pytest.mark.parametrize("rule", [name for name in RULES if name not in ("nesterov", "rmsprop", "rmsprop centered")])
def test_machine_code(monkeypatch, rng, rule, capability):
    kernel, signature = signature_and_kernel(monkeypatch, rng, rule, "float32", 12)
    code = compile_kernel(kernel, signature, capability=capability)
    assert_clean(code)
    rows = sum(r * c for r, c in RULES[rule][1])
    numbers = sum(r for r, c in RULES[rule][1] if not c)
    assert len(code.stores(128)) == 1 + rows
    assert len(code.stores()) == 1 + rows + numbers
    assert len(code.loads(128)) >= 1 + rows + 4, "four gradient rows at once"
