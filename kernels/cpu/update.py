"""Optimizer steps on the touched rows alone: gradients summed over duplicates and applied in one pass.

A rule states what happens to one row; `row_pass` makes the two kernels of it, and their documentation.
"""

import numpy as np

from . import simd
from .jit import EXACT, jit
from .runs import no_state, row_pass


@jit(fastmath=EXACT, inline=True)
def _sgd(weight, state, row, total, hyper):
    """``W = W * decay - lr * G``; state (), hyper (lr, decay)."""
    lr = weight.dtype.type(hyper[0])
    decay = weight.dtype.type(hyper[1])
    for j in range(total.size):
        weight[row, j] = weight[row, j] * decay - lr * total[j]


@jit(fastmath=EXACT, inline=True)
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


@jit(fastmath=EXACT, inline=True)
def _momentum(weight, state, row, total, hyper):
    """``buf = G`` at the first touch, else ``mu * buf + c * G``; ``W = W * decay - lr * d``.

    ``d = G + mu * buf`` if nesterov else ``buf``. State (buf, touched), (N, D) and (N, 1); hyper (lr, decay, mu, c,
    nesterov) with ``c = 1 - dampening`` and nesterov 0 or 1.
    """
    buf, touched = state
    lr = weight.dtype.type(hyper[0])
    decay = weight.dtype.type(hyper[1])
    mu = weight.dtype.type(hyper[2])
    c = weight.dtype.type(hyper[3])
    nesterov = hyper[4] != 0
    first = touched[row, 0] == 0
    touched[row, 0] = 1
    for j in range(total.size):
        g = total[j]
        new = g if first else mu * buf[row, j] + c * g
        buf[row, j] = new
        weight[row, j] = weight[row, j] * decay - lr * (g + mu * new if nesterov else new)


@jit(fastmath=EXACT, inline=True)
def _adagrad(weight, state, row, total, hyper):
    """``S += G**2; W = W * decay - lr_t * (G / (sqrt(S) + eps))``.

    State (S,), (N, D); hyper (lr_t, decay, eps) with ``lr_t = lr / (1 + (t - 1) * lr_decay)``.
    """
    (squares,) = state
    lr_t = weight.dtype.type(hyper[0])
    decay = weight.dtype.type(hyper[1])
    eps = weight.dtype.type(hyper[2])
    for j in range(total.size):
        g = total[j]
        new = squares[row, j] + g * g
        squares[row, j] = new
        weight[row, j] = weight[row, j] * decay - lr_t * (g / (np.sqrt(new) + eps))


@jit(fastmath=EXACT, inline=True)
def _sum_of_squares(start, nbytes, zero):
    """Of the numbers at an address: in as many parts as a line has lanes, then the parts by halves, on every CPU."""
    parts = simd.line(zero)
    at = np.uintp(0)
    while at + np.uintp(simd.LINE) <= nbytes:
        g = simd.load(start + at, parts)
        parts = simd.add(parts, simd.mul(g, g))
        at += np.uintp(simd.LINE)
    if at < nbytes:
        g = simd.load_first(start + at, parts, np.int64((nbytes - at) // simd.item_size(zero)))
        parts = simd.add(parts, simd.mul(g, g))
    return simd.sum_lanes(parts)


@jit(fastmath=EXACT, inline=True)
def _rowwise_adagrad(weight, state, row, total, hyper):
    """``s += mean(G**2); W = W * decay - lr / (sqrt(s) + eps) * G``.

    State (s,), (N, 1); hyper (lr, decay, eps).
    """
    (squares,) = state
    lr = weight.dtype.type(hyper[0])
    decay = weight.dtype.type(hyper[1])
    eps = weight.dtype.type(hyper[2])
    zero = weight.dtype.type(0)
    # As numbers: to pass the array on costs two atomic counts of references, which is as much as the sum itself.
    total_of_squares = _sum_of_squares(simd.address(total), np.uintp(total.size * total.itemsize), zero)
    new = squares[row, 0] + total_of_squares / weight.dtype.type(max(total.size, 1))
    squares[row, 0] = new
    rate = lr / (np.sqrt(new) + eps)
    for j in range(total.size):
        weight[row, j] = weight[row, j] * decay - rate * total[j]


@jit(fastmath=EXACT, inline=True)
def _rmsprop(weight, state, row, total, hyper):
    """``v = a * v + c * G**2; d = G / (sqrt(v) + eps); W = W * decay - lr * d``.

    If centered ``mean = a * mean + c * G`` and ``sqrt(max(v - mean**2, 0))``. With momentum mu above 0
    ``buf = mu * buf + d`` instead of d. State (v, mean, buf), each (N, D) or, where it is not needed, (0, D); hyper
    (lr, decay, a, c, eps, mu, centered) with ``c = 1 - a`` and centered 0 or 1.
    """
    v, mean, buf = state
    lr = weight.dtype.type(hyper[0])
    decay = weight.dtype.type(hyper[1])
    a = weight.dtype.type(hyper[2])
    c = weight.dtype.type(hyper[3])
    eps = weight.dtype.type(hyper[4])
    mu = weight.dtype.type(hyper[5])
    centered = hyper[6] != 0
    for j in range(total.size):
        g = total[j]
        v_new = a * v[row, j] + c * (g * g)
        v[row, j] = v_new
        if centered:
            mean_new = a * mean[row, j] + c * g
            mean[row, j] = mean_new
            v_new -= mean_new * mean_new
            if v_new < 0:
                v_new = weight.dtype.type(0)
        d = g / (np.sqrt(v_new) + eps)
        if mu != 0:
            d = mu * buf[row, j] + d
            buf[row, j] = d
        weight[row, j] = weight[row, j] * decay - lr * d


@jit(fastmath=EXACT, inline=True)
def _ftrl(weight, state, row, total, hyper):
    """``n1 = n + G**2; z += G + shrink * W - (sqrt(n1) - sqrt(n)) / lr * W; n = n1``.

    ``W = (clip(z, -l1, l1) - z) / (sqrt(n) / lr + l2)``, 0 where z is within l1. State (z, n), each (N, D); hyper
    (lr, l1, l2, shrink) with ``l2 = 2 * (l2 + beta / (2 * lr))`` and ``shrink = 2 * l2_shrinkage`` of the formula.
    """
    z, n = state
    lr = weight.dtype.type(hyper[0])
    l1 = weight.dtype.type(hyper[1])
    l2 = weight.dtype.type(hyper[2])
    shrink = weight.dtype.type(hyper[3])
    zero = weight.dtype.type(0)
    for j in range(total.size):
        g, w = total[j], weight[row, j]
        n_new = n[row, j] + g * g
        root = np.sqrt(n_new)
        z_new = z[row, j] + (g + shrink * w - (root - np.sqrt(n[row, j])) / lr * w)
        n[row, j] = n_new
        z[row, j] = z_new
        if z_new > l1:
            weight[row, j] = (l1 - z_new) / (root / lr + l2)
        elif z_new < -l1:
            weight[row, j] = (-l1 - z_new) / (root / lr + l2)
        else:
            weight[row, j] = z_new if np.isnan(z_new) else zero


sgd_range, sgd = row_pass(_sgd, no_state)
momentum_range, momentum = row_pass(_momentum)
adagrad_range, adagrad = row_pass(_adagrad)
rowwise_adagrad_range, rowwise_adagrad = row_pass(_rowwise_adagrad)
rmsprop_range, rmsprop = row_pass(_rmsprop)
adam_range, adam = row_pass(_adam)
ftrl_range, ftrl = row_pass(_ftrl)
