"""Follow the regularised leader."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, SupportsFloat

from .. import _options
from .._state import FtrlState, State
from .base import Optimizer


@dataclasses.dataclass(frozen=True)
class Ftrl(Optimizer):
    """Follow the regularised leader, on the touched rows.

    ``g = G[r] + 2 * l2_shrinkage * W[r]``, ``n1 = n[r] + G[r]**2``,
    ``z[r] += g - (sqrt(n1) - sqrt(n[r])) / lr * W[r]``, ``n[r] = n1``,
    ``W[r] = (clip(z[r], -l1, l1) - z[r]) / (sqrt(n[r]) / lr + 2 * (l2 + beta / (2 * lr)))``.

    Parameters
    ----------
    lr : float
        Learning rate, above 0.
    l1 : float
        Weight of the sum of absolute values, at least 0: numbers whose z stays within it are 0.
    l2 : float
        Weight of the sum of squares, at least 0.
    l2_shrinkage : float
        The same as part of the gradient that feeds z, at least 0.
    beta : float
        Added to sqrt(n), at least 0.
    initial_accumulator : float
        What n begins with, at least 0.

    Raises
    ------
    TypeError
        A hyper-parameter of a wrong kind.
    ValueError
        A hyper-parameter out of range.

    Notes
    -----
    State: `FtrlState`, z and n of the table's shape. The rule of Keras 3 with ``learning_rate_power=-0.5``; a weight
    whose z is within l1 is 0 also where the denominator is. There is no weight decay. A weight is computed anew from z
    and n at each step, in proportion to the lr of that step: a falling `lr` pulls weights towards 0. Moves
    ``(L + 6 * U) * D * itemsize`` bytes.

    References
    ----------
    H. B. McMahan et al., "Ad Click Prediction: a View from the Trenches", KDD 2013,
    https://doi.org/10.1145/2487575.2488200

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> table = np.zeros((2, 1), np.float32)
    >>> opt = fastemb.optim.Ftrl(lr=0.5, l1=1.0, initial_accumulator=0.0)
    >>> opt.step(table, opt.init(table), [0, 1], np.array([[0.5], [2.0]], np.float32))
    >>> table[:, 0]  # z is 0.5, within l1, and 2
    array([ 0.  , -0.25], dtype=float32)
    """

    lr: float = 1e-2
    l1: float = 0.0
    l2: float = 0.0
    l2_shrinkage: float = 0.0
    beta: float = 0.0
    initial_accumulator: float = 0.1

    _kernel: ClassVar[str] = "ftrl"
    _state: ClassVar[type[State]] = FtrlState

    def __post_init__(self) -> None:
        """Check that lr, which divides, is above 0."""
        super().__post_init__()
        self.check_rate(self.lr)

    def check_rate(self, lr: SupportsFloat) -> float:
        """A learning rate above 0.

        Parameters
        ----------
        lr : float
            What a step is to be given.

        Returns
        -------
        float
            The same number.

        Raises
        ------
        TypeError
            Not a number.
        ValueError
            Not above 0.
        """
        return _options.real("lr", lr, above=0.0)

    def _layout(self, num_rows: int, width: int) -> dict[str, tuple[tuple[int, ...], float]]:
        return {"z": ((num_rows, width), 0.0), "n": ((num_rows, width), self.initial_accumulator)}

    def _hyper(self, lr: float, t: int) -> tuple[float, ...]:
        return lr, self.l1, 2.0 * (self.l2 + self.beta / (2.0 * lr)), 2.0 * self.l2_shrinkage
