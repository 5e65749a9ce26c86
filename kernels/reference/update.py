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


def _momentum(weight, state, total, hyper):
    """``buf = G`` at the first touch, else ``mu * buf + c * G``; ``W = W * decay - lr * d``.

    ``d = G + mu * buf`` if nesterov else ``buf``. State (buf, touched), (N, D) and (N, 1); hyper (lr, decay, mu, c,
    nesterov) with ``c = 1 - dampening`` and nesterov 0 or 1.
    """
    buf, touched = state
    lr, decay, mu, c, nesterov = hyper
    buf = np.where(touched == 0, total, mu * buf + c * total)
    return weight * decay - lr * (total + mu * buf if nesterov else buf), (buf, np.ones_like(touched))


def _adagrad(weight, state, total, hyper):
    """``S += G**2; W = W * decay - lr_t * (G / (sqrt(S) + eps))``.

    State (S,), (N, D); hyper (lr_t, decay, eps) with ``lr_t = lr / (1 + (t - 1) * lr_decay)``.
    """
    lr_t, decay, eps = hyper
    squares = state[0] + total * total
    return weight * decay - lr_t * (total / (np.sqrt(squares) + eps)), (squares,)


def _sum_of_squares(total):
    """In as many parts as 64 bytes hold numbers, and then the second half of them added to the first, and so on."""
    lanes = 64 // total.itemsize
    padded = np.zeros((len(total), -(-total.shape[1] // lanes), lanes), total.dtype)
    padded.reshape(len(total), padded.shape[1] * lanes)[:, : total.shape[1]] = total
    parts = np.zeros((len(total), lanes), total.dtype)
    for k in range(padded.shape[1]):
        parts += padded[:, k] * padded[:, k]
    while parts.shape[1] > 1:
        half = parts.shape[1] // 2
        parts = parts[:, :half] + parts[:, half:]
    return parts


def _rowwise_adagrad(weight, state, total, hyper):
    """``s += mean(G**2); W = W * decay - lr / (sqrt(s) + eps) * G``.

    State (s,), (N, 1); hyper (lr, decay, eps).
    """
    lr, decay, eps = hyper
    squares = state[0] + _sum_of_squares(total) / total.dtype.type(max(total.shape[1], 1))
    return weight * decay - lr / (np.sqrt(squares) + eps) * total, (squares,)


def _rmsprop(weight, state, total, hyper):
    """``v = a * v + c * G**2; d = G / (sqrt(v) + eps); W = W * decay - lr * d``.

    If centered ``mean = a * mean + c * G`` and ``sqrt(max(v - mean**2, 0))``. With momentum mu above 0
    ``buf = mu * buf + d`` instead of d. State (v, mean, buf), each (N, D) or, where it is not needed, (0, D); hyper
    (lr, decay, a, c, eps, mu, centered) with ``c = 1 - a`` and centered 0 or 1.
    """
    v, mean, buf = state
    lr, decay, a, c, eps, mu, centered = hyper
    v = a * v + c * (total * total)
    below = v
    if centered:
        mean = a * mean + c * total
        below = np.maximum(v - mean * mean, 0)
    d = total / (np.sqrt(below) + eps)
    if mu:
        d = buf = mu * buf + d
    return weight * decay - lr * d, (v, mean, buf)


def _ftrl(weight, state, total, hyper):
    """``n1 = n + G**2; z += G + shrink * W - (sqrt(n1) - sqrt(n)) / lr * W; n = n1``.

    ``W = (clip(z, -l1, l1) - z) / (sqrt(n) / lr + l2)``, 0 where z is within l1. State (z, n), each (N, D); hyper
    (lr, l1, l2, shrink) with ``l2 = 2 * (l2 + beta / (2 * lr))`` and ``shrink = 2 * l2_shrinkage`` of the formula.
    """
    z, n = state
    lr, l1, l2, shrink = hyper
    root = np.sqrt(n + total * total)
    z = z + (total + shrink * weight - (root - np.sqrt(n)) / lr * weight)
    moved = (np.clip(z, -l1, l1) - z) / (root / lr + l2)
    return np.where(np.abs(z) <= l1, 0, moved), (z, n + total * total)


sgd_range, sgd = row_pass(_sgd)
momentum_range, momentum = row_pass(_momentum)
adagrad_range, adagrad = row_pass(_adagrad)
rowwise_adagrad_range, rowwise_adagrad = row_pass(_rowwise_adagrad)
rmsprop_range, rmsprop = row_pass(_rmsprop)
adam_range, adam = row_pass(_adam)
ftrl_range, ftrl = row_pass(_ftrl)
