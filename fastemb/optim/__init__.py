"""Optimizers that update the touched rows of a table alone: a rule, its state, and a fused step.

Every rule works on gradients G summed over duplicate indices first, leaves other rows and their state as they are (the
"lazy" rule of sparse optimizers), and counts steps globally: t is 1 at the first call. Arithmetic is in the table's
dtype, float32 for half-width tables. The bits do not depend on the number of threads.
"""

from .._state import (
    AdagradState,
    AdamState,
    FtrlState,
    MomentumState,
    RMSpropState,
    RowWiseAdagradState,
    State,
)
from .adagrad import Adagrad, RowWiseAdagrad
from .adam import Adam, RMSprop
from .base import Optimizer
from .ftrl import Ftrl
from .sgd import SGD, Momentum

__all__ = [
    "SGD",
    "Adagrad",
    "AdagradState",
    "Adam",
    "AdamState",
    "Ftrl",
    "FtrlState",
    "Momentum",
    "MomentumState",
    "Optimizer",
    "RMSprop",
    "RMSpropState",
    "RowWiseAdagrad",
    "RowWiseAdagradState",
    "State",
]
