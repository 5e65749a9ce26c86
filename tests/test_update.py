"""The kernels of the optimizers."""

import numpy as np
import pytest
from strategies import BACKENDS, THREADS, grouped, in_parallel, no_coefficients, same_bits, unchanged

from fastemb.kernels import SUM_BLOCK, cpu, reference

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


def problem(rng, rule, dtype, rows=40, width=17):
    """(weight, state, grad, rows, starts, positions, hyper): hot rows, repeated rows, untouched rows."""
    _, shapes, hyper = RULES[rule]
    indices = np.concatenate([np.full(2 * SUM_BLOCK + 9, 3), rng.integers(0, rows - 5, 500)])
    weight = rng.standard_normal((rows, width)).astype(dtype)
    state = tuple(
        np.abs(rng.standard_normal((rows * r, width if c else 1))).astype(dtype) * rng.integers(0, 2, (rows * r, 1))
        for r, c in shapes
    )
    state = tuple(array.astype(dtype) for array in state)
    grad = rng.standard_normal((indices.size, width)).astype(dtype)
    return weight, state, grad, *grouped(indices, rows), hyper


NONE = {dtype: no_coefficients(dtype) for dtype in ("float32", "float64")}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", THREADS)
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_same_bits_as_the_reference_for_any_number_of_threads(rng, rule, dtype, count, scale, weighted):
    weight, state, grad, rows, starts, positions, hyper = problem(rng, rule, dtype)
    factors = rng.standard_normal(positions.size).astype(dtype) if weighted else NONE[dtype]
    results = []
    for kernels in (reference, cpu):
        table, arrays = weight.copy(), tuple(array.copy() for array in state)
        with in_parallel(count), unchanged(grad, rows, starts, positions, factors):
            assert (
                getattr(kernels, RULES[rule][0])(table, arrays, grad, rows, starts, positions, factors, hyper, scale)
                == -1
            )
        results.append((table, *arrays))
    for ours, wanted in zip(*results, strict=True):
        assert same_bits(ours, wanted)
    untouched = np.setdiff1d(np.arange(len(weight)), rows)
    assert untouched.size
    for after, before in zip(results[1], (weight, *state), strict=True):
        if len(before):
            assert same_bits(after[untouched], before[untouched])
            assert not np.array_equal(after, before)


def backwards(array):
    """An equal array whose columns lie from the last to the first."""
    return np.ascontiguousarray(array[:, ::-1])[:, ::-1]


def behind_a_line(array, nbytes):
    """A copy that begins so many bytes behind a cache line."""
    memory = np.zeros(array.nbytes + 128, np.uint8)
    start = (nbytes - memory.ctypes.data) % 64
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return memory, copy


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [0, 1, 31, 32, 64, 80, 100])
@pytest.mark.parametrize("behind", [(0, 0), (16, 16), (0, 16)])
def test_rows_of_any_width_wherever_they_begin(rng, rule, dtype, width, behind):
    weight, state, grad, *runs, hyper = problem(rng, rule, dtype, rows=400, width=width)
    assert set(np.diff(runs[1])) >= {1, 2, 3}
    arrays = [weight.copy(), *(array.copy() for array in state)]
    getattr(reference, RULES[rule][0])(arrays[0], tuple(arrays[1:]), grad, *runs, NONE[dtype], hyper, False)
    placed = [behind_a_line(array, behind[i > 0]) for i, array in enumerate((weight, *state))]
    copies = [copy for _, copy in placed]
    getattr(cpu, RULES[rule][0])(copies[0], tuple(copies[1:]), grad, *runs, NONE[dtype], hyper, False)
    for (memory, ours), wanted in zip(placed, arrays, strict=True):
        assert same_bits(ours, wanted)
        ours[...] = 0
        assert not memory.any()  # and nothing around it was written


def test_arrays_that_an_option_does_not_need_are_left_alone(rng):
    _, _, grad, *runs, _ = problem(rng, "sgd", "float64")
    weight, v, mean, buf = (np.abs(rng.standard_normal((40, 17))) for _ in range(4))
    results = []
    for kernels in (reference, cpu):
        arrays = [array.copy() for array in (weight, v, mean, buf)]
        hyper = (0.1, 1.0, 0.9, 0.1, 1e-3, 0.0, 0.0)
        kernels.rmsprop(arrays[0], tuple(arrays[1:]), grad, *runs, NONE["float64"], hyper, False)
        results.append(arrays)
    for ours, wanted in zip(*results, strict=True):
        assert same_bits(ours, wanted)
    assert same_bits(results[1][2], mean)
    assert same_bits(results[1][3], buf)


@pytest.mark.parametrize(
    ("rule", "apart", "layout", "of_grad"),
    [
        ("momentum", slice(None), backwards, np.ascontiguousarray),
        ("momentum", slice(0, 1), np.asfortranarray, np.ascontiguousarray),
        ("momentum", slice(1, None), backwards, np.asfortranarray),
        ("rmsprop momentum", slice(None), backwards, np.ascontiguousarray),
        ("rowwise_adagrad", slice(None), backwards, np.ascontiguousarray),
    ],
    ids=["all", "table", "state", "all, rmsprop", "all, rowwise_adagrad"],
)
def test_columns_apart(rng, rule, apart, layout, of_grad):
    """In the order of columns, or from the last to the first."""
    weight, state, grad, *runs, hyper = problem(rng, rule, "float64", width=20)
    results = []
    for kernels, lay in ((reference, np.ascontiguousarray), (cpu, layout)):
        arrays = [array.copy() for array in (weight, *state)]
        arrays[apart] = [lay(array) for array in arrays[apart]]
        with in_parallel(1):
            getattr(kernels, RULES[rule][0])(
                arrays[0], tuple(arrays[1:]), of_grad(grad), *runs, NONE["float64"], hyper, False
            )
        results.append(arrays)
    for ours, wanted in zip(*results, strict=True):
        assert same_bits(ours, wanted)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_gradient_rows_that_several_rows_need(rng, weighted, scale, count):
    """As those of bags are: positions name few rows of the gradient, again and again; one of them is NaN."""
    grad = rng.standard_normal((5, 64)).astype("float32")
    grad[3, 7] = np.nan
    indices = np.concatenate([np.arange(90), np.arange(0, 90, 2), np.full(40, 7)])
    rows, starts, positions = grouped(indices, 100)
    factors = rng.standard_normal(positions.size).astype("float32") if weighted else NONE["float32"]
    results = []
    for kernels in (reference, cpu):
        weight, squares = np.ones((100, 64), "float32"), np.zeros((100, 1), "float32")
        hyper = RULES["rowwise_adagrad"][2]
        with in_parallel(count):
            kernels.rowwise_adagrad(weight, (squares,), grad, rows, starts, positions % 5, factors, hyper, scale)
        results.append(np.hstack([weight, squares]))
    assert same_bits(*results)
    assert np.isnan(results[0]).any()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", BACKENDS)
def test_range_form_does_its_runs_alone(rng, rule, name):
    weight, state, grad, rows, starts, positions, hyper = problem(rng, rule, "float64")
    whole, part = ((weight.copy(), tuple(array.copy() for array in state)) for _ in range(2))
    kernels = BACKENDS[name]
    getattr(kernels, RULES[rule][0])(*whole, grad, rows, starts, positions, NONE["float64"], hyper, False)
    run = getattr(kernels, f"{RULES[rule][0]}_range")
    assert run(*part, grad, rows, starts, positions, NONE["float64"], hyper, False, 2, 9) == -1
    others = np.setdiff1d(np.arange(len(weight)), rows[2:9])
    for after, all_done, before in zip((part[0], *part[1]), (whole[0], *whole[1]), (weight, *state), strict=True):
        if len(before):
            assert same_bits(after[rows[2:9]], all_done[rows[2:9]])
            assert same_bits(after[others], before[others])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("count", [1, 3])
def test_a_bad_row_changes_nothing(rng, rule, name, count):
    weight, state, grad, rows, starts, positions, hyper = problem(rng, rule, "float64")
    rows[4:] += 100
    with in_parallel(count), unchanged(weight, *state):
        run = getattr(BACKENDS[name], RULES[rule][0])
        assert run(weight, state, grad, rows, starts, positions, NONE["float64"], hyper, False) == 4


@pytest.mark.parametrize("rule", RULES)
def test_a_nan_row_stays_the_only_one(rng, rule):
    weight, state, grad, rows, starts, positions, hyper = problem(rng, rule, "float32")
    grad[positions[starts[5]]] = np.nan
    getattr(cpu, RULES[rule][0])(weight, state, grad, rows, starts, positions, NONE["float32"], hyper, False)
    for array in (weight, *state):
        if len(array) and not (rule in ("momentum", "nesterov") and array.shape[1] == 1):  # whether a row was touched
            assert np.isnan(array[rows[5]]).all()
            assert not np.isnan(np.delete(array, rows[5], axis=0)).any()


@pytest.mark.parametrize("count", [1, 3])
def test_runs_without_positions_are_runs(rng, count):
    starts = np.array([0, 0, 2, 2, 3, 3, 3])
    results = []
    for kernels in (reference, cpu):
        weight, m, v = (np.ones((6, 2)) for _ in range(3))
        with in_parallel(count):
            runs = np.arange(6), starts, np.arange(3), NONE["float64"]
            kernels.adam(weight, (m, v), np.ones((3, 2)), *runs, RULES["adam"][2], False)
        results.append(np.stack([weight, m, v]))
    assert same_bits(*results)
    assert (results[0][1, [0, 2, 4, 5]] < 1).all()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", BACKENDS)
def test_no_rows_at_all(rng, rule, name):
    weight, state, *_, hyper = problem(rng, rule, "float32")
    none, grad = np.empty(0, np.int64), np.empty((0, weight.shape[1]), np.float32)
    with unchanged(weight, *state):
        run = getattr(BACKENDS[name], RULES[rule][0])
        assert run(weight, state, grad, none, np.zeros(1, np.int64), none, NONE["float32"], hyper, False) == -1
