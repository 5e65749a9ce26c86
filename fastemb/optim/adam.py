"""Adam and RMSprop: rules with running means of squares."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

from .. import _options
from .._missed import Replay
from .._state import AdamState, RMSpropState, State
from .base import Optimizer
from .rule import MODES


@dataclasses.dataclass(frozen=True)
class Adam(Optimizer):
    """Adam on the touched rows, with global bias correction.

    ``W[r] *= 1 - lr*weight_decay``, then ``m[r] += (1-b1) * (G[r] - m[r])``, ``v[r] += (1-b2) * (G[r]**2 - v[r])``,
    ``W[r] -= lr * sqrt(1-b2**t) / (1-b1**t) * m[r] / (sqrt(v[r]) + eps)`` with ``b1, b2 = betas``.

    Parameters
    ----------
    lr : float
        Learning rate, at least 0.
    betas : (float, float)
        Decay of the running means, each in ``[0, 1)``.
    eps : float
        Added to the root of the uncorrected v, at least 0.
    weight_decay : float
        Decoupled decay of the touched rows, at least 0; in mode "exact" of all rows.
    mode : {"lazy", "exact"}
        What becomes of rows that are not touched: they stay, or move on as with dense gradients.

    Raises
    ------
    TypeError
        A hyper-parameter of a wrong kind.
    ValueError
        A hyper-parameter out of range; in mode "exact" also betas with ``b1**2 >= b2``, for which a row that is not
        touched moves ever faster, and a step with ``lr * weight_decay >= 1``.

    Notes
    -----
    State: `AdamState`, m and v of the table's shape, zeros. In mode "lazy" a row that is not touched keeps W, m and v:
    equal to ``torch.optim.SparseAdam``, which has no weight decay. ``torch.optim.Adam`` adds eps after the bias
    correction of v instead; Keras 3 adds it where we do. The decay is that of ``torch.optim.AdamW``. Moves
    ``(L + 6 * U) * D * itemsize`` bytes.

    Mode "exact" gives what dense Adam would, whose momentum moves every row at every step. The steps that a row missed
    are made up for when it is next updated or given to `catch_up`; `flush` does so for all rows. They are summed as a
    power series, so a row costs one pass, not one for each step, and one int64; each step costs 16 bytes until the next
    `flush`. Half-width tables are made up for step by step. What the series and the last of many steps leave out is, at
    a constant rate, less than ``2 * finfo(dtype).eps`` of what the row would move without decay, and W is rounded once,
    where dense Adam rounds it at every step.

    References
    ----------
    D. P. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", 2014, https://arxiv.org/abs/1412.6980

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> table = np.zeros((3, 2), np.float32)
    >>> opt = fastemb.optim.Adam(lr=0.1)
    >>> state = opt.init(table)
    >>> opt.step(table, state, [1], np.ones((1, 2), np.float32))
    >>> table.round(3), state.step
    (array([[ 0. ,  0. ],
           [-0.1, -0.1],
           [ 0. ,  0. ]], dtype=float32), 1)
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    mode: str = "lazy"

    _kernel: ClassVar[str] = "adam"
    _state: ClassVar[type[State]] = AdamState

    def __post_init__(self) -> None:
        """Check the betas too."""
        super().__post_init__()
        if not isinstance(self.betas, (tuple, list)) or len(self.betas) != 2:
            msg = f"betas must be two numbers, got {self.betas!r}"
            raise ValueError(msg)
        betas = tuple(_options.real(f"betas[{i}]", beta, below=1.0) for i, beta in enumerate(self.betas))
        object.__setattr__(self, "betas", betas)
        _options.choice("mode", self.mode, MODES)
        if self.mode == "exact" and betas[0] > 0 and betas[0] ** 2 >= betas[1]:
            msg = f"betas must have betas[0]**2 < betas[1] in mode 'exact', got {betas}"
            raise ValueError(msg)

    def _layout(self, num_rows: int, width: int) -> dict[str, tuple[tuple[int, ...], float]]:
        return {"m": ((num_rows, width), 0.0), "v": ((num_rows, width), 0.0)}

    def _hyper(self, lr: float, t: int) -> tuple[float, ...]:
        beta1, beta2 = self.betas
        rate = lr * math.sqrt(1.0 - beta2**t) / (1.0 - beta1**t)
        return rate, 1.0 - lr * self.weight_decay, 1.0 - beta1, 1.0 - beta2, self.eps

    def _replay(self) -> Replay | None:
        if self.mode == "lazy":
            return None
        beta1, beta2 = self.betas
        return Replay("adam_missed", beta1, math.sqrt(beta2), (beta1, beta2, self.eps))


@dataclasses.dataclass(frozen=True)
class RMSprop(Optimizer):
    """RMSprop on the touched rows.

    ``W[r] *= 1 - lr*weight_decay``, then ``v[r] = alpha * v[r] + (1 - alpha) * G[r]**2``; with `centered`
    ``mean[r] = alpha * mean[r] + (1 - alpha) * G[r]`` and ``avg = sqrt(max(v[r] - mean[r]**2, 0)) + eps``, else
    ``avg = sqrt(v[r]) + eps``; ``W[r] -= lr * G[r] / avg``, or with momentum
    ``buf[r] = momentum * buf[r] + G[r] / avg`` and ``W[r] -= lr * buf[r]``.

    Parameters
    ----------
    lr : float
        Learning rate, at least 0.
    alpha : float
        Decay of the running means, in ``[0, 1)``.
    eps : float
        Added to the root, at least 0.
    momentum : float
        Decay of the buffer, in ``[0, 1)``; 0 for none.
    centered : bool
        Subtract the square of the running mean: an estimate of the variance.
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
    State: `RMSpropState`; arrays that the options do not need have no rows. Lazy: rows that are not touched keep W and
    state. torch's ``RMSprop`` is the same rule for dense gradients, but for the ``max``, and refuses sparse ones;
    Keras 3 adds eps inside of the root. Moves ``(L + 4 * U) * D * itemsize`` bytes, more with `centered` and momentum.

    References
    ----------
    A. Graves, "Generating Sequences With Recurrent Neural Networks", 2013, https://arxiv.org/abs/1308.0850

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> table = np.zeros((2, 1), np.float32)
    >>> opt = fastemb.optim.RMSprop(lr=0.1, alpha=0.75)
    >>> opt.step(table, opt.init(table), [1], np.ones((1, 1), np.float32))
    >>> table[:, 0]
    array([ 0. , -0.2], dtype=float32)
    """

    lr: float = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    centered: bool = False
    weight_decay: float = 0.0

    _kernel: ClassVar[str] = "rmsprop"
    _state: ClassVar[type[State]] = RMSpropState

    def __post_init__(self) -> None:
        """Check the upper limits too."""
        super().__post_init__()
        _options.real("alpha", self.alpha, below=1.0)
        _options.real("momentum", self.momentum, below=1.0)
        object.__setattr__(self, "centered", bool(self.centered))

    def _layout(self, num_rows: int, width: int) -> dict[str, tuple[tuple[int, ...], float]]:
        return {
            "v": ((num_rows, width), 0.0),
            "mean": ((num_rows if self.centered else 0, width), 0.0),
            "buf": ((num_rows if self.momentum else 0, width), 0.0),
        }

    def _hyper(self, lr: float, t: int) -> tuple[float, ...]:
        decay = 1.0 - lr * self.weight_decay
        return lr, decay, self.alpha, 1.0 - self.alpha, self.eps, self.momentum, float(self.centered)
