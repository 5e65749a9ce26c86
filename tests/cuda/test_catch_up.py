"""Missed steps on the device, run in the emulator: the CPU's bits, and so as near to the reference."""

import numpy as np
import pytest
from strategies import same_bits, unchanged
from test_catch_up import KERNELS, problem

from fastemb.kernels import cpu, reference
from fastemb.kernels.cuda import catch_up, launch

from . import launched
from .launched import emulated as emulated

WIDTHS = [1, 2, 3, 4, 8, 31, 33, 64, 257]

pytestmark = pytest.mark.usefixtures("emulated")
kinds = pytest.mark.parametrize("kind", KERNELS)
dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def run(kernels, kind, weight, state, last, rows, *history, part=None):
    """(returned, (weight, *state, last)) of a kernel that was given copies."""
    name, limits = KERNELS[kind][0], part or ()
    written = weight.copy(), *(a.copy() for a in state), last.copy()
    kernel = getattr(kernels, f"{name}_range" if part else name)
    with unchanged(rows, *history[:-1]):
        return kernel(written[0], tuple(written[1:-1]), written[-1], rows, *history, *limits), written


def same(first, second):
    return all(same_bits(a, b) for a, b in zip(first, second, strict=True))


@kinds
@dtypes
@pytest.mark.parametrize("width", WIDTHS)
def test_same_bits_as_on_the_cpu(rng, kind, dtype, width):
    given = problem(rng, kind, dtype, rows=30, width=width, steps=150)
    bad, ours = run(catch_up, kind, *given)
    assert bad == -1
    assert same(ours, run(cpu, kind, *given)[1])
    assert not np.array_equal(ours[0], given[0])
    assert (ours[-1][given[3]] == 150).all()
    # As near to the reference as the CPU is.
    near = np.finfo(dtype).eps * (8 if dtype == np.float32 else 100)
    wanted = run(reference, kind, *given)[1]
    moved = np.abs(wanted[0] - given[0]).max()
    for one, other in zip(ours, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=near, atol=near * moved)
    untouched = np.setdiff1d(np.arange(30), given[3])
    for now, before in zip(ours, (given[0], *given[1], given[2]), strict=True):
        assert same_bits(now[untouched], before[untouched])
        assert same_bits(now[3], before[3])  # missed nothing


@pytest.mark.parametrize("kind", ["adam", "momentum"])
@pytest.mark.parametrize("width", [3, 33, 100])
def test_same_bits_for_any_grid_and_order_of_threads(rng, kind, width, monkeypatch):
    given = problem(rng, kind, np.float32, width=width, steps=50)
    expected = run(cpu, kind, *given)[1]
    for seed, (threads, blocks) in enumerate([(32, 1), (64, 3), (96, 2)]):
        monkeypatch.setattr(launch, "THREADS", threads)
        monkeypatch.setattr(launch, "MOST_BLOCKS", blocks)
        monkeypatch.setattr(launched.emulator, "seed", seed)
        weight, state, last, rows, *history = given
        assert same(run(catch_up, kind, weight, state, last, rows.astype(np.int32), *history)[1], expected)


@kinds
def test_rows_that_missed_more_steps_than_powers_are_products_for(rng, kind):
    """From 65,537 steps on a power is one of the device: here, of the CPU."""
    given = problem(rng, kind, np.float32, rows=12, width=4, steps=5)
    weight, state, last, rows, _, _, *series, hyper = given
    last[rows[2]], last[rows[3]] = 5, 4
    steps = 1 << 16
    rates, growth = np.full(steps + 6, 1e-3), np.ones(steps + 6)
    given = weight, state, last, rows, rates, growth, *series, hyper
    assert same(run(catch_up, kind, *given)[1], run(cpu, kind, *given)[1])


@pytest.mark.parametrize("kind", ["adam", "momentum"])
def test_tables_of_half_width(rng, kind):
    weight, state, *rest = problem(rng, kind, np.float32, width=24, steps=40)
    half = weight.astype(np.float16)
    _, (ours, *arrays, _) = run(catch_up, kind, half, state, *rest)
    _, (wanted, *others, _) = run(cpu, kind, half.astype(np.float32), state, *rest)
    assert same_bits(ours, wanted.astype(np.float16))
    assert same(arrays, others)


@pytest.mark.parametrize("offset", [1, 2, 3])
@pytest.mark.parametrize("kind", ["adam", "momentum"])
def test_tables_that_begin_anywhere(rng, kind, offset):
    """The width of an access follows the addresses of table and state: the emulator stops at a misaligned one."""
    weight, (first, second), last, *rest = problem(rng, kind, np.float32, width=8, steps=20)
    expected = run(cpu, kind, weight, (first, second), last, *rest)[1]
    memory = np.full(first.size + 2 * offset, np.nan, np.float32)
    moved = memory[offset:-offset].reshape(first.shape)
    moved[...] = first
    assert getattr(catch_up, KERNELS[kind][0])(weight, (moved, second), last, *rest) == -1
    assert same((weight, moved, second, last), expected)
    assert np.isnan(memory[[*range(offset), *range(-offset, 0)]]).all()


def test_numbers_that_do_not_move_and_nan(rng):
    weight, (m, v), *rest = problem(rng, "adam", np.float32, width=6, steps=20)
    m[:, 0], v[:, 0], m[:, 1], v[:, 2], weight[:, 3] = 0, 0, np.nan, np.inf, np.inf
    given = weight, (m, v), *rest
    assert same(run(catch_up, "adam", *given)[1], run(cpu, "adam", *given)[1])


@kinds
def test_part_of_the_rows_and_bad_ones(rng, kind):
    weight, state, last, rows, *history = problem(rng, kind, np.float32)
    bad, (*_, after) = run(catch_up, kind, weight, state, last, rows, *history, part=(5, 9))
    assert bad == -1
    assert np.array_equal(np.flatnonzero(after != last), np.sort([r for r in rows[5:9] if last[r] != 400]))
    for wrong in (-1, len(weight), 2**40):
        broken = rows.copy()
        broken[[20, 30]] = wrong
        bad, written = run(catch_up, kind, weight, state, last, broken, *history)
        assert bad == 20
        assert same(written, (weight, *state, last))
        assert run(catch_up, kind, weight, state, last, broken, *history, part=(20, 21))[0] == 20
        assert run(catch_up, kind, weight, state, last, broken, *history, part=(21, 31))[0] == 30


@kinds
def test_nothing_to_do(rng, kind):
    given = problem(rng, kind, np.float32, width=0, steps=10)
    assert same(run(catch_up, kind, *given)[1], run(reference, kind, *given)[1])
    weight, state, last, rows, *history = problem(rng, kind, np.float32)
    bad, written = run(catch_up, kind, weight, state, last, rows[:0], *history)
    assert bad == -1
    assert same(written, (weight, *state, last))
