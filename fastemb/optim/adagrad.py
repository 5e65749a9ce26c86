"""Adagrad: with an accumulator for each number, and with one for each row."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from .._state import AdagradState, RowWiseAdagradState, State
from .base import Optimizer


@dataclasses.dataclass(frozen=True)
class Adagrad(Optimizer):
    """Adagrad on the touched rows.

    ``W[r] *= 1 - lr*weight_decay``, then ``S[r] += G[r]**2``,
    ``W[r] -= lr / (1 + (t - 1) * lr_decay) * G[r] / (sqrt(S[r]) + eps)``.

    Parameters
    ----------
    lr : float
        Learning rate, at least 0.
    lr_decay : float
        How the rate falls with the steps, at least 0; the decay of weights keeps the plain `lr`.
    eps : float
        Added to the root, at least 0.
    initial_accumulator : float
        What S begins with, at least 0.
    weight_decay : float
        Decoupled decay of the touched rows, at least 0.

    Raises
    ------
    TypeError
        A hyper-parameter of a wrong kind.
    ValueError
        A hyper-parameter out of range.

    Notes
    -----
    State: `AdagradState`, S of the table's shape. Equal to ``torch.optim.Adagrad`` on sparse gradients, which has no
    weight decay there; Keras 3 adds eps inside of the root; FBGEMM's eps is 1e-8. Moves ``(L + 4 * U) * D * itemsize``
    bytes.

    References
    ----------
    J. Duchi, E. Hazan, Y. Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization", 2011,
    https://jmlr.org/papers/v12/duchi11a.html

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> table = np.zeros((2, 1), np.float32)
    >>> opt = fastemb.optim.Adagrad(lr=0.5, initial_accumulator=3.0)
    >>> opt.step(table, opt.init(table), [1], np.ones((1, 1), np.float32))
    >>> table[:, 0]
    array([ 0.  , -0.25], dtype=float32)
    """

    lr: float = 1e-2
    lr_decay: float = 0.0
    eps: float = 1e-10
    initial_accumulator: float = 0.0
    weight_decay: float = 0.0

    _kernel: ClassVar[str] = "adagrad"
    _state: ClassVar[type[State]] = AdagradState

    def _layout(self, num_rows: int, width: int) -> dict[str, tuple[tuple[int, ...], float]]:
        return {"S": ((num_rows, width), self.initial_accumulator)}

    def _hyper(self, lr: float, t: int) -> tuple[float, ...]:
        return lr / (1.0 + (t - 1) * self.lr_decay), 1.0 - lr * self.weight_decay, self.eps


@dataclasses.dataclass(frozen=True)
class RowWiseAdagrad(Optimizer):
    """Adagrad with one accumulator a row, on the touched rows.

    ``W[r] *= 1 - lr*weight_decay``, then ``s[r] += mean(G[r]**2)`` over the columns,
    ``W[r] -= lr / (sqrt(s[r]) + eps) * G[r]``.

    Parameters
    ----------
    lr : float
        Learning rate, at least 0.
    eps : float
        Added to the root, at least 0.
    initial_accumulator : float
        What s begins with, at least 0.
    weight_decay : float
        Decoupled decay of the touched rows, at least 0.

    Raises
    ------
    TypeError
        A hyper-parameter of a wrong kind.
    ValueError
        A hyper-parameter out of range.

    Notes
    -----
    State: `RowWiseAdagradState`, one number a row: D times less than Adagrad's. The rule of FBGEMM and TorchRec. The
    squares are summed in as many parts as a vector of 64 bytes has lanes, then the parts by halves, on every CPU. Moves
    ``(L + 2 * U) * D * itemsize`` bytes.

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> table = np.zeros((2, 2), np.float32)
    >>> opt = fastemb.optim.RowWiseAdagrad(lr=1.0)
    >>> opt.step(table, opt.init(table), [1], np.array([[1.0, 7.0]], np.float32))
    >>> table[1]  # 25 is the mean of the squares
    array([-0.2, -1.4], dtype=float32)
    """

    lr: float = 1e-2
    eps: float = 1e-8
    initial_accumulator: float = 0.0
    weight_decay: float = 0.0

    _kernel: ClassVar[str] = "rowwise_adagrad"
    _state: ClassVar[type[State]] = RowWiseAdagradState

    def _layout(self, num_rows: int, width: int) -> dict[str, tuple[tuple[int, ...], float]]:
        return {"s": ((num_rows,), self.initial_accumulator)}

    def _hyper(self, lr: float, t: int) -> tuple[float, ...]:
        return lr, 1.0 - lr * self.weight_decay, self.eps
