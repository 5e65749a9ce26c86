"""The kernels that make up for the steps that rows missed."""

import numpy as np
import pytest
from strategies import BACKENDS, THREADS, in_parallel, same_bits, unchanged

from fastemb._missed import Missed, series
from fastemb.kernels import cpu, reference

KERNELS = {
    "adam": ("adam_missed", (0.9, 0.999), (0.9, 0.999, 1e-8)),
    "adam, few steps together": ("adam_missed", (0.9, 0.9), (0.9, 0.9, 1e-3)),
    "adam without momentum": ("adam_missed", (0.0, 0.9), (0.0, 0.9, 1e-3)),
    "momentum": ("momentum_missed", (0.95, 1.0), (0.95,)),
}
kinds = pytest.mark.parametrize("kind", KERNELS)
dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def problem(rng, kind, dtype, rows=60, width=17, steps=400, decay=0.999):
    """Everything that a kernel takes: rows of all ages, one that missed nothing, one that is far behind."""
    _, (fading, slowing), hyper = KERNELS[kind]
    weight = rng.standard_normal((rows, width)).astype(dtype)
    v = np.abs(rng.standard_normal((rows, width))).astype(dtype)
    state = (rng.standard_normal((rows, width)).astype(dtype), v)
    if kind == "momentum":
        state = (state[0], np.ones((rows, 1), dtype))
    last = rng.integers(0, steps + 1, rows)
    last[[3, 4]] = steps, 0
    missed = Missed(rows, weight)
    for _ in range(steps):
        missed.append(rng.uniform(0, 0.01), decay)
    touched = rng.permutation(rows)[: rows - 7]
    touched = np.concatenate(([3, 4], touched[touched > 4]))
    terms = series(fading, np.sqrt(slowing), np.dtype(dtype), 512)
    return weight, state, last, touched, missed.rates, missed.growth, *terms, hyper


@kinds
@dtypes
@pytest.mark.parametrize("count", THREADS)
def test_kernels_are_the_reference(rng, kind, dtype, count):
    weight, state, last, rows, *history = problem(rng, kind, dtype)
    results = []
    for kernels in (reference, cpu):
        table, arrays, at = weight.copy(), tuple(a.copy() for a in state), last.copy()
        with in_parallel(count), unchanged(rows, *history[:-1]):
            assert getattr(kernels, KERNELS[kind][0])(table, arrays, at, rows, *history) == -1
        results.append((table, *arrays))
        assert (at[rows] == 400).all()
        untouched = np.setdiff1d(np.arange(len(weight)), rows)
        assert same_bits(at[untouched], last[untouched])
        for now, before in zip(results[-1], (weight, *state), strict=True):
            assert same_bits(now[untouched], before[untouched])
            assert same_bits(now[3], before[3])  # missed nothing
        assert not np.array_equal(table[rows[5:]], weight[rows[5:]])
    # The reference rounds to float64 at each of 400 steps, which counts for float64.
    near = np.finfo(dtype).eps * (8 if dtype == np.float32 else 100)
    moved = np.abs(results[0][0] - weight).max()
    for ours, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=near, atol=near * moved)


@kinds
@pytest.mark.parametrize("count", THREADS)
def test_same_bits_for_any_number_of_threads(rng, kind, count):
    weight, state, last, rows, *history = problem(rng, kind, np.float32)
    kernel = getattr(cpu, KERNELS[kind][0])
    one, first, at = weight.copy(), tuple(a.copy() for a in state), last.copy()
    with in_parallel(1):
        kernel(one, first, at, rows, *history)
    with in_parallel(count):
        kernel(weight, state, last, rows, *history)
    assert same_bits(weight, one)
    assert all(same_bits(a, b) for a, b in zip(state, first, strict=True))


@kinds
@pytest.mark.parametrize("name", BACKENDS)
def test_part_of_the_rows_and_bad_ones(rng, kind, name):
    weight, state, last, rows, *history = problem(rng, kind, np.float32)
    part = getattr(BACKENDS[name], f"{KERNELS[kind][0]}_range")
    whole, before = weight.copy(), last.copy()
    assert part(whole, tuple(a.copy() for a in state), last, rows, *history, 5, 9) == -1
    changed = np.flatnonzero((whole != weight).any(axis=1))
    assert set(changed) <= set(rows[5:9].tolist())
    assert np.array_equal(np.flatnonzero(last != before), np.sort([r for r in rows[5:9] if before[r] != 400]))
    for bad in (-1, len(weight), 2**40):
        wrong = rows.copy()
        wrong[20] = bad
        with unchanged(weight, *state, last):
            for count in (1, 3):
                with in_parallel(count):
                    whole_kernel = getattr(BACKENDS[name], KERNELS[kind][0])
                    assert whole_kernel(weight, state, last, wrong, *history) == 20
            assert part(weight, state, last, wrong, *history, 20, 21) == 20


@pytest.mark.parametrize("eps", [0.0, 1e-8, 0.3, 1e3])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.9), (0.5, 0.9), (0.99, 0.999), (0.0, 0.9), (0.9, 0.82)])
@dtypes
def test_series_are_as_near_as_they_say(rng, betas, eps, dtype):
    beta1, beta2 = betas
    precision = float(np.finfo(dtype).eps)
    terms, groups, centres = series(beta1, np.sqrt(beta2), np.dtype(dtype), 1 << 14)
    assert np.all(np.diff(groups) > 0)
    root = np.sqrt(10.0 ** rng.uniform(-12, 3, 20)).astype(np.longdouble)
    for missed in (1, 2, 100, 3000):
        steps = np.arange(1, missed + 1, dtype=np.longdouble)[:, np.newaxis]
        steps = steps[beta1 ** steps[:, 0] >= np.finfo(dtype).tiny]  # beyond it the movement is 0
        wanted = (beta1**steps / (root * np.sqrt(beta2) ** steps + eps)).sum(axis=0)
        ours = np.zeros_like(root)
        for c, centre in enumerate(centres):
            of_group = terms[groups[c] : min(groups[c + 1], missed)].sum(axis=0)
            d = 1 / (root * centre + eps)
            ours += d * sum(of_group[p] * (root * centre * d) ** p for p in range(8))
        np.testing.assert_allclose(ours, wanted, rtol=2 * precision + 1e-15)


@pytest.mark.parametrize("betas", [(0.9, 0.8101), (0.5, 0.2501), (0.3, 0.1), (0.95, 0.905), (0.0, 0.0), (0.99, 0.981)])
@dtypes
def test_series_end_where_numbers_do(betas, dtype):
    beta1, beta2 = betas
    terms, groups, centres = series(beta1, np.sqrt(beta2), np.dtype(dtype), 1 << 18)
    assert np.isfinite(terms).all()
    assert (centres >= np.finfo(dtype).tiny).all()
    assert (len(terms) == 0) == (beta1 == 0)
    assert groups[-1] == len(terms) < 1 << 18
