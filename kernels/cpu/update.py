"""Optimizer steps on the touched rows alone: gradients summed over duplicates and applied in one pass.

A rule states what happens to one row; `row_pass` makes the two kernels of it, and their documentation.
"""

import numpy as np

from . import arithmetic, simd
from .change import a_number_of_a_term, one_term, sum_part, sum_part_between
from .jit import EXACT, jit
from .runs import row_pass


@jit(fastmath=EXACT, inline=True)
def _sgd(weight, state, total, numbers):
    """``W = W * decay - lr * G``; state (), hyper (lr, decay)."""
    lr, decay = numbers
    return weight * decay - lr * total, state


@jit(fastmath=EXACT, inline=True)
def _adam(weight, state, total, numbers):
    """``m += c1 * (G - m); v += c2 * (G**2 - v); W = W * decay - lr_t * (m / (sqrt(v) + eps))``.

    State (m, v), each (N, D); hyper (lr_t, decay, c1, c2, eps) with ``c = 1 - beta`` and
    ``lr_t = lr * sqrt(1 - beta2**t) / (1 - beta1**t)``.
    """
    m, v = state
    lr_t, decay, c1, c2, eps = numbers
    m_new = m + c1 * (total - m)
    v_new = v + c2 * (total * total - v)
    return weight * decay - lr_t * (m_new / (arithmetic.sqrt(v_new) + eps)), (m_new, v_new)


@jit(fastmath=EXACT, inline=True)
def _momentum(weight, state, total, numbers):
    """``buf = G`` at the first touch, else ``mu * buf + c * G``; ``W = W * decay - lr * d``.

    ``d = G + mu * buf`` if nesterov else ``buf``. State (buf, touched), (N, D) and (N, 1); hyper (lr, decay, mu, c,
    nesterov) with ``c = 1 - dampening`` and nesterov 0 or 1.
    """
    lr, decay, mu, c, nesterov, touched = numbers
    buf = total if touched == 0 else mu * state[0] + c * total
    return weight * decay - lr * (total + mu * buf if nesterov != 0 else buf), (buf,)


@jit(fastmath=EXACT, inline=True)
def _touch(places, run, total, row_bytes, numbers):
    place, zero = places[2], numbers[0]
    touched = simd.number(place, zero)
    simd.store_number(place, simd.as_number(1, zero))
    return places[:2], run, (*numbers, touched)


@jit(fastmath=EXACT, inline=True)
def _adagrad(weight, state, total, numbers):
    """``S += G**2; W = W * decay - lr_t * (G / (sqrt(S) + eps))``.

    State (S,), (N, D); hyper (lr_t, decay, eps) with ``lr_t = lr / (1 + (t - 1) * lr_decay)``.
    """
    lr_t, decay, eps = numbers
    squares = state[0] + total * total
    return weight * decay - lr_t * (total / (arithmetic.sqrt(squares) + eps)), (squares,)


@jit(fastmath=EXACT, inline=True)
def _rowwise_adagrad(weight, state, total, numbers):
    """``s += mean(G**2); W = W * decay - lr / (sqrt(s) + eps) * G``.

    State (s,), (N, 1); hyper (lr, decay, eps).
    """
    rate, decay = numbers
    return weight * decay - rate * total, state


@jit(fastmath=EXACT, inline=True)
def _sum_of_squares(run, total, row_bytes, zero):
    """Of a run's sum, which is written to the address `total` if it has several terms.

    In as many parts as a line has lanes, then the parts by halves, on every CPU.
    """
    several = run[3] > run[2]
    wide, line = simd.wide(zero), simd.line(zero)
    parts, at = line, np.uintp(0)
    while at + np.uintp(simd.WIDE) <= row_bytes:
        g = sum_part(run, at, wide)
        parts = arithmetic.add_lines(parts, g * g)
        if several:
            simd.store(total + at, g)
        at += np.uintp(simd.WIDE)
    while at < row_bytes:
        count = min(np.int64((row_bytes - at) // simd.item_size(zero)), simd.lanes(line))
        g = sum_part_between(run, at, line, 0, count)
        parts = parts + g * g
        if several:
            simd.store_first(total + at, g, count)
        at += np.uintp(simd.LINE)
    return arithmetic.sum_lanes(parts)


@jit(fastmath=EXACT, inline=True)
def _rate_of_row(places, run, total, row_bytes, numbers):
    lr, decay, eps = numbers
    zero = simd.as_number(0, lr)
    memory = run[11]
    mean = zero - simd.as_number(1, lr)
    if memory != 0:
        mean = simd.number(memory, lr)
    if not mean >= 0:
        width = simd.as_number(max(row_bytes // simd.item_size(lr), np.uintp(1)), lr)
        mean = _sum_of_squares(run, total, row_bytes, zero) / width
        if memory != 0:
            simd.store_number(memory, mean)
    if run[3] > run[2]:
        run = one_term(total, simd.as_number(1, lr))
    state = simd.number(places[1], lr) + mean
    simd.store_number(places[1], state)
    return places[:1], run, (lr / (np.sqrt(state) + eps), decay)


@jit(fastmath=EXACT, inline=True)
def _rmsprop(weight, state, total, numbers):
    """``v = a * v + c * G**2; d = G / (sqrt(v) + eps); W = W * decay - lr * d``.

    If centered ``mean = a * mean + c * G`` and ``sqrt(max(v - mean**2, 0))``. With momentum mu above 0
    ``buf = mu * buf + d`` instead of d. State (v, mean, buf), each (N, D) or, where it is not needed, (0, D); hyper
    (lr, decay, a, c, eps, mu, centered) with ``c = 1 - a`` and centered 0 or 1.
    """
    v, mean, buf = state
    lr, decay, a, c, eps, mu, centered = numbers
    v_new = a * v + c * (total * total)
    variance = v_new
    if centered != 0:
        mean = a * mean + c * total
        variance = v_new - mean * mean
        zero = simd.fill(simd.as_number(0, lr), v)
        variance = arithmetic.where_greater(zero, variance, zero, variance)
    d = total / (arithmetic.sqrt(variance) + eps)
    if mu != 0:
        d = buf = mu * buf + d
    return weight * decay - lr * d, (v_new, mean, buf)


@jit(fastmath=EXACT, inline=True)
def _ftrl(weight, state, total, numbers):
    """``n1 = n + G**2; z += G + shrink * W - (sqrt(n1) - sqrt(n)) / lr * W; n = n1``.

    ``W = (clip(z, -l1, l1) - z) / (sqrt(n) / lr + l2)``, 0 where z is within l1. State (z, n), each (N, D); hyper
    (lr, l1, l2, shrink) with ``l2 = 2 * (l2 + beta / (2 * lr))`` and ``shrink = 2 * l2_shrinkage`` of the formula.
    """
    z, n = state
    lr, l1, l2, shrink = numbers
    zero, above = simd.fill(simd.as_number(0, lr), z), simd.fill(l1, z)
    below = simd.fill(-l1, z)
    n_new = n + total * total
    root = arithmetic.sqrt(n_new)
    z_new = z + (total + shrink * weight - (root - arithmetic.sqrt(n)) / lr * weight)
    divisor = root / lr + l2
    moved = arithmetic.where_greater(
        z_new, above, (above - z_new) / divisor, arithmetic.where_numbers(z_new, z_new, zero, z_new)
    )
    return arithmetic.where_greater(below, z_new, (below - z_new) / divisor, moved), (z_new, n_new)


sgd_range, sgd = row_pass(_sgd)
momentum_range, momentum = row_pass(_momentum, _touch)
adagrad_range, adagrad = row_pass(_adagrad)
rowwise_adagrad_range, rowwise_adagrad = row_pass(_rowwise_adagrad, _rate_of_row, a_number_of_a_term)
rmsprop_range, rmsprop = row_pass(_rmsprop)
adam_range, adam = row_pass(_adam)
ftrl_range, ftrl = row_pass(_ftrl)
