"""Optimizer steps on the touched rows alone: gradients summed over duplicates and applied in one pass.

A rule states what happens to one row; `row_pass` makes the two kernels of it, and their documentation.
"""

import numpy as np

from .jit import EXACT, jit
from .runs import row_pass


@jit(fastmath=EXACT)
def _sgd(weight, state, row, total, hyper):
    """``W = W * decay - lr * G``; state (), hyper (lr, decay)."""
    lr = weight.dtype.type(hyper[0])
    decay = weight.dtype.type(hyper[1])
    for j in range(total.size):
        weight[row, j] = weight[row, j] * decay - lr * total[j]


@jit(fastmath=EXACT)
def _adam(weight, state, row, total, hyper):
    """``m += c1 * (G - m); v += c2 * (G**2 - v); W = W * decay - lr_t * (m / (sqrt(v) + eps))``.

    State (m, v), each (N, D); hyper (lr_t, decay, c1, c2, eps) with ``c = 1 - beta`` and
    ``lr_t = lr * sqrt(1 - beta2**t) / (1 - beta1**t)``.
    """
    m, v = state
    lr_t = weight.dtype.type(hyper[0])
    decay = weight.dtype.type(hyper[1])
    c1 = weight.dtype.type(hyper[2])
    c2 = weight.dtype.type(hyper[3])
    eps = weight.dtype.type(hyper[4])
    for j in range(total.size):
        g = total[j]
        m_new = m[row, j] + c1 * (g - m[row, j])
        v_new = v[row, j] + c2 * (g * g - v[row, j])
        m[row, j] = m_new
        v[row, j] = v_new
        weight[row, j] = weight[row, j] * decay - lr_t * (m_new / (np.sqrt(v_new) + eps))


sgd_range, sgd = row_pass(_sgd)
adam_range, adam = row_pass(_adam)
