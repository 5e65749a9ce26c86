"""From pairs of times to verdicts. Only arithmetic: nothing is run here.

A *ratio* is head's seconds over base's, in two processes one next to the other. All benches have a first set of
pairs; those whose median ratio is above `REPORTED` are suspects and are measured again, by themselves, in rounds of
fresh pairs. **Only fresh pairs decide**: the first ones have chosen the suspect, so they are biased. A verdict needs
the size (the median) and the sign test (how many pairs are above 1).

What that is worth, on simulated machines of which every seventh process is up to 2.5 times as slow for no reason of
its own (a test in `tests/benches/test_gate.py` is the same, shorter): in none of 1,000 gates of 16 benches with
identical code one says "regression", and of 500 slowdowns by 1.5 it finds 498; by 1.2, 488. Where every third process
is so disturbed, 4 gates of 1,000 are wrong and 482 of 500 slowdowns by 1.5 are found. Seven fresh pairs at a
level of 0.01, three times at most, would be wrong in 3 gates of 1,000 on the first machine already.
"""

import dataclasses
import math
import statistics

PAIRS = 9
"""First pairs of every bench, at least: with fewer no sign test is significant at `LEVEL`."""

REPORTED = 1.05
FAILING = 1.15

LEVEL = 0.003
"""Of the sign test, at each look: five looks at chance alone find something in less than 0.01 of all cases."""

ROUND = 9
"""Fresh pairs at a time: the fewest that can be significant, if all are above 1."""

ROUNDS = 5
"""Rounds after which a suspect is not measured any more: a noisy machine takes more than one."""

FASTER, SAME, SLOWER, REGRESSION = "faster", "same", "slower", "regression"
UNCLEAR, NOT_IN_BASE, FAILED = "unclear", "not in base", "failed"

MEANING = {
    REGRESSION: f"slower by more than {FAILING} times: fails",
    SLOWER: f"slower by {REPORTED} to {FAILING} times: reported",
    FASTER: f"faster by more than {REPORTED} times",
    SAME: "no difference that counts",
    UNCLEAR: f"above {FAILING} times, and the signs say chance: could not be measured here",
    NOT_IN_BASE: "cannot run on the base",
    FAILED: "raises on the head",
}


def sign_test(above, count):
    """Probability that so many of `count` ratios, or more, are above 1 if either side is as likely."""
    return sum(math.comb(count, k) for k in range(above, count + 1)) / 2**count


@dataclasses.dataclass
class Pairs:
    """Seconds of one bench: the first pairs and the fresh ones, each a list of (base, head)."""

    first: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    fresh: list[tuple[float, float]] = dataclasses.field(default_factory=list)

    @property
    def deciding(self):
        """The fresh pairs, or the first where there are none."""
        return self.fresh or self.first

    @property
    def ratios(self):
        """Head's seconds over base's, of the pairs that decide."""
        return [head / base for base, head in self.deciding]

    @property
    def ratio(self):
        """Their median."""
        return statistics.median(self.ratios)

    @property
    def slower(self):
        """One-sided p-value of the sign test that head is slower."""
        return sign_test(sum(r > 1 for r in self.ratios), len(self.ratios))

    @property
    def faster(self):
        """The same that head is faster."""
        return sign_test(sum(r < 1 for r in self.ratios), len(self.ratios))

    def open(self):
        """Whether the bench is a suspect that fresh pairs have not decided about."""
        rounds = len(self.fresh) // ROUND
        return self.ratio > REPORTED and rounds < ROUNDS and (not self.fresh or self.slower >= LEVEL)

    def verdict(self):
        """What the pairs say."""
        if self.ratio <= REPORTED:
            return FASTER if self.ratio < 1 / REPORTED and self.faster < LEVEL else SAME
        if not self.fresh or self.slower >= LEVEL:
            return UNCLEAR if self.ratio > FAILING else SAME
        return REGRESSION if self.ratio > FAILING else SLOWER


def exit_code(verdicts):
    """0 no regression, 1 a regression, 2 something could not be measured, or nothing was."""
    if REGRESSION in verdicts:
        return 1
    compared = set(verdicts) - {NOT_IN_BASE}
    return 0 if compared and not compared & {FAILED, UNCLEAR} else 2
