"""The row rules on the device: those of `fastemb.kernels.cpu.update`, number by number, for `n` columns of one row."""

import numpy as np

from ..cpu.jit import EXACT, jit


@jit(fastmath=EXACT, inline=True)
def _sgd(weight, state, row, total, hyper):
    """`fastemb.kernels.cpu.update._sgd` for some columns."""
    lr = weight.dtype.type(hyper[0])
    decay = weight.dtype.type(hyper[1])
    for j in range(total.size):
        weight[row, j] = weight[row, j] * decay - lr * total[j]


@jit(fastmath=EXACT, inline=True)
def _adam(weight, state, row, total, hyper):
    """`fastemb.kernels.cpu.update._adam` for some columns."""
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
    """`fastemb.kernels.cpu.update._momentum` for some columns."""
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
    """`fastemb.kernels.cpu.update._adagrad` for some columns."""
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
def _rmsprop(weight, state, row, total, hyper):
    """`fastemb.kernels.cpu.update._rmsprop` for some columns."""
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
    """`fastemb.kernels.cpu.update._ftrl` for some columns."""
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


@jit(fastmath=EXACT, inline=True)
def _rowwise_adagrad(weight, state, row, total, hyper):
    """`fastemb.kernels.cpu.update._rowwise_adagrad` for some columns; hyper (lr, decay, eps, mean(G**2))."""
    (squares,) = state
    lr = weight.dtype.type(hyper[0])
    decay = weight.dtype.type(hyper[1])
    eps = weight.dtype.type(hyper[2])
    new = squares[row, 0] + weight.dtype.type(hyper[3])
    squares[row, 0] = new
    rate = lr / (np.sqrt(new) + eps)
    for j in range(total.size):
        weight[row, j] = weight[row, j] * decay - rate * total[j]


@jit(fastmath=EXACT, inline=True)
def _segment_sum(values, state, row, total, hyper):
    """`fastemb.kernels.cpu.scatter._segment_sum` for some columns."""
    for j in range(total.size):
        values[row, j] = total[j]
