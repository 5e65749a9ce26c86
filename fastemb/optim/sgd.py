"""Gradient descent, and with momentum."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from .. import _options
from .._missed import Replay
from .._state import MomentumState, State
from .base import Optimizer
from .rule import MODES


@dataclasses.dataclass(frozen=True)
class SGD(Optimizer):
    """Gradient descent on the touched rows.

    ``W[r] *= 1 - lr*weight_decay``, then ``W[r] -= lr * G[r]``.

    Parameters
    ----------
    lr : float
        Learning rate, at least 0.
    weight_decay : float
        Decoupled decay of the touched rows, at least 0.

    Raises
    ------
    ValueError
        A hyper-parameter out of range.

    Notes
    -----
    No state but the step count. torch's ``SGD`` adds ``weight_decay * W`` to the gradient instead, which is the same
    rule for dense gradients, and refuses it for sparse ones. Moves ``(L + 2 * U) * D * itemsize`` bytes.

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> table = np.ones((3, 2), np.float32)
    >>> opt = fastemb.optim.SGD(lr=0.5)
    >>> opt.step(table, opt.init(table), [2, 2], np.ones((2, 2), np.float32))
    >>> table
    array([[1., 1.],
           [1., 1.],
           [0., 0.]], dtype=float32)
    """

    lr: float = 1e-2
    weight_decay: float = 0.0

    _kernel: ClassVar[str] = "sgd"

    def _hyper(self, lr: float, t: int) -> tuple[float, ...]:
        return lr, 1.0 - lr * self.weight_decay


@dataclasses.dataclass(frozen=True)
class Momentum(Optimizer):
    """Gradient descent with momentum on the touched rows.

    ``W[r] *= 1 - lr*weight_decay``, then at the first touch of a row ``buf[r] = G[r]``, at later ones
    ``buf[r] = momentum * buf[r] + (1 - dampening) * G[r]``; ``W[r] -= lr * d`` with ``d = buf[r]``, or with `nesterov`
    ``d = G[r] + momentum * buf[r]``.

    Parameters
    ----------
    lr : float
        Learning rate, at least 0.
    momentum : float
        Decay of the buffer, in ``[0, 1)``.
    dampening : float
        What later gradients lose, in ``[0, 1]``; 0 with `nesterov`.
    nesterov : bool
        Look ahead by one step.
    weight_decay : float
        Decoupled decay of the touched rows, at least 0; in mode "exact" of all rows.
    mode : {"lazy", "exact"}
        What becomes of rows that are not touched: they stay, or move on as with dense gradients.

    Raises
    ------
    TypeError
        A hyper-parameter of a wrong kind.
    ValueError
        A hyper-parameter out of range; in mode "exact" also a step with ``lr * weight_decay >= 1``.

    Notes
    -----
    State: `MomentumState`, ``buf`` of the table's shape and one number a row that says whether it was touched. Moves
    ``(L + 4 * U) * D * itemsize`` bytes.

    In mode "lazy" a row that is not touched does not move on. Mode "exact" is torch's ``SGD(momentum=...)`` for dense
    gradients, but for its weight decay, which goes through ``buf``: every step moves every row, and the first one,
    touched or not, sets ``buf``. torch densifies sparse gradients for it. The missed steps of a row are made up for, in
    closed form, when it is next updated or given to `catch_up`; `flush` does so for all rows. What is left out after
    many steps is, at a constant rate, less than ``2 * finfo(dtype).eps`` of what the row would move without decay;
    weights are rounded once, where a dense optimizer rounds them at every step. Costs one pass over a row that missed
    steps, one int64 a row, and 16 bytes a step until the next `flush`; half-width tables are made up for step by step.

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> table = np.zeros((3, 1), np.float32)
    >>> opt = fastemb.optim.Momentum(lr=1.0, momentum=0.5)
    >>> state = opt.init(table)
    >>> for _ in range(2):
    ...     opt.step(table, state, [1], np.ones((1, 1), np.float32))
    >>> table[:, 0]  # -1, then -(0.5 + 1)
    array([ 0. , -2.5,  0. ], dtype=float32)
    """

    lr: float = 1e-2
    momentum: float = 0.9
    dampening: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    mode: str = "lazy"

    _kernel: ClassVar[str] = "momentum"
    _state: ClassVar[type[State]] = MomentumState

    def __post_init__(self) -> None:
        """Check the upper limits too."""
        super().__post_init__()
        _options.real("momentum", self.momentum, below=1.0)
        if self.dampening > 1.0:
            msg = f"dampening must be <= 1, got {self.dampening:g}"
            raise ValueError(msg)
        object.__setattr__(self, "nesterov", bool(self.nesterov))
        if self.nesterov and self.dampening != 0.0:
            msg = f"dampening must be 0 with nesterov, got {self.dampening:g}"
            raise ValueError(msg)
        _options.choice("mode", self.mode, MODES)

    def _layout(self, num_rows: int, width: int) -> dict[str, tuple[tuple[int, ...], float]]:
        # A dense optimizer touches every row at its first step.
        return {"buf": ((num_rows, width), 0.0), "touched": ((num_rows,), float(self.mode == "exact"))}

    def _hyper(self, lr: float, t: int) -> tuple[float, ...]:
        decay = 1.0 - lr * self.weight_decay
        kept = 1.0 if self.mode == "exact" and t == 1 else 1.0 - self.dampening
        return lr, decay, self.momentum, kept, float(self.nesterov)

    def _replay(self) -> Replay | None:
        if self.mode == "lazy":
            return None
        ahead = self.momentum if self.nesterov else 1.0
        return Replay("momentum_missed", self.momentum, 1.0, (self.momentum,), ahead)
