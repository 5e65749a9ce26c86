"""The statistics of the regression gate: from pairs of times to verdicts."""

import numpy as np
import pytest

from benches.regression import gate, pairs


@pytest.mark.parametrize(("above", "count", "p"), [(9, 9, 2**-9), (8, 9, 10 / 512), (0, 5, 1.0), (1, 1, 0.5)])
def test_sign_test(above, count, p):
    assert gate.sign_test(above, count) == pytest.approx(p)


def of_ratios(first, fresh=()):
    return gate.Pairs([(2.0, 2 * r) for r in first], [(2.0, 2 * r) for r in fresh])


@pytest.mark.parametrize(
    ("first", "fresh", "verdict", "more"),
    [
        ([1.0] * 9, [], gate.SAME, False),
        ([1.04] * 9, [], gate.SAME, False),
        ([0.9] * 9, [], gate.FASTER, False),
        ([0.9] * 8 + [1.1], [], gate.SAME, False),
        ([1.5] * 9, [], gate.UNCLEAR, True),  # first pairs never convict
        ([1.5] * 9, [1.5] * 9, gate.REGRESSION, False),
        ([1.5] * 9, [1.0] * 9, gate.SAME, False),
        ([1.5] * 9, [1.1] * 9, gate.SLOWER, False),
        ([1.5] * 9, [1.5] * 8 + [0.9], gate.UNCLEAR, True),
        ([1.5] * 9, [1.5] * 17 + [0.9], gate.REGRESSION, False),
        ([1.5] * 9, [1.5, 0.9, 1.5] * 15, gate.UNCLEAR, False),
        ([1.5] * 9, [1.1, 0.9, 1.1] * 15, gate.SAME, False),
    ],
)
def test_verdicts(first, fresh, verdict, more):
    found = of_ratios(first, fresh)
    assert found.verdict() == verdict
    assert found.open() == more
    if fresh:
        assert found.ratio == pytest.approx(np.median(fresh))


def test_fewer_pairs_could_not_be_significant():
    assert gate.sign_test(gate.PAIRS, gate.PAIRS) < gate.LEVEL <= gate.sign_test(gate.PAIRS - 1, gate.PAIRS - 1)
    assert gate.ROUND >= gate.PAIRS


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([gate.SAME, gate.FASTER, gate.SLOWER, gate.NOT_IN_BASE], 0),
        ([gate.SAME, gate.REGRESSION], 1),
        ([gate.REGRESSION, gate.FAILED], 1),
        ([gate.SAME, gate.FAILED], 2),
        ([gate.SAME, gate.UNCLEAR], 2),
        ([gate.NOT_IN_BASE], 2),
        ([], 2),
    ],
)
def test_exit_codes(verdicts, code):
    assert gate.exit_code(verdicts) == code


def simulated(rng, factor, disturbed=1 / 7):
    """A machine on which a process may be slow for no reason; the first bench of the head is `factor` times as slow."""

    def process(names, factor):
        slow = 1 + 1.5 * rng.random() if rng.random() < disturbed else 1.0
        return [slow * np.exp(rng.normal(0, 0.04)) * (factor if name == 0 else 1.0) for name in names]

    def measure(names, count):
        both = [zip(process(names, 1.0), process(names, factor), strict=True) for _ in range(count)]
        return dict(zip(names, map(list, zip(*both, strict=True)), strict=True))

    return measure


def test_identical_code_does_not_fail():
    rng = np.random.default_rng(0)
    for _ in range(150):
        found = pairs.screen_and_confirm(simulated(rng, 1.0), range(16), gate.PAIRS)
        assert gate.exit_code([of_this.verdict() for of_this in found.values()]) == 0


def test_slowdowns_are_found():
    rng = np.random.default_rng(1)
    found = [
        pairs.screen_and_confirm(simulated(rng, 1.5), range(4), gate.PAIRS)[0].verdict() == gate.REGRESSION
        for _ in range(200)
    ]
    assert sum(found) >= 196
