"""Optimizer steps on the touched rows alone; forms and arguments as in `fastemb.kernels.cpu.update`."""

import numpy as np

from .runs import row_pass


def _sgd(weight, state, total, hyper):
    """``W = W * decay - lr * G``; state (), hyper (lr, decay)."""
    lr, decay = hyper
    return weight * decay - lr * total, state


def _adam(weight, state, total, hyper):
    """``m += c1 * (G - m); v += c2 * (G**2 - v); W = W * decay - lr_t * (m / (sqrt(v) + eps))``.

    State (m, v), each (N, D); hyper (lr_t, decay, c1, c2, eps) with ``c = 1 - beta`` and
    ``lr_t = lr * sqrt(1 - beta2**t) / (1 - beta1**t)``.
    """
    m, v = state
    lr_t, decay, c1, c2, eps = hyper
    m = m + c1 * (total - m)
    v = v + c2 * (total * total - v)
    return weight * decay - lr_t * (m / (np.sqrt(v) + eps)), (m, v)


sgd_range, sgd = row_pass(_sgd)
adam_range, adam = row_pass(_adam)
