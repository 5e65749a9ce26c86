"""The rules of the optimizers as dense float64 formulas, and the settings that they are tested with."""

import math

import numpy as np

from fastemb.optim import SGD, Adagrad, Adam, Ftrl, Momentum, RMSprop, RowWiseAdagrad


def dense_sgd(opt, weight, state, grad, touched, t):
    weight[touched] *= 1 - opt.lr * opt.weight_decay
    weight[touched] -= opt.lr * grad[touched]


def dense_adam(opt, weight, state, grad, touched, t):
    """`torch.optim.SparseAdam`'s formula, rows of no gradient left alone."""
    beta1, beta2 = opt.betas
    m, v = state.setdefault("m", np.zeros_like(weight)), state.setdefault("v", np.zeros_like(weight))
    weight[touched] *= 1 - opt.lr * opt.weight_decay
    m[touched] += (1 - beta1) * (grad[touched] - m[touched])
    v[touched] += (1 - beta2) * (grad[touched] ** 2 - v[touched])
    scale = opt.lr * math.sqrt(1 - beta2**t) / (1 - beta1**t)
    weight[touched] -= scale * m[touched] / (np.sqrt(v[touched]) + opt.eps)


def dense_momentum(opt, weight, state, grad, touched, t):
    buf = state.setdefault("buf", {})
    weight[touched] *= 1 - opt.lr * opt.weight_decay
    for r in touched:
        buf[r] = opt.momentum * buf[r] + (1 - opt.dampening) * grad[r] if r in buf else grad[r].copy()
        weight[r] -= opt.lr * (grad[r] + opt.momentum * buf[r] if opt.nesterov else buf[r])


def dense_adagrad(opt, weight, state, grad, touched, t):
    """`torch.optim.Adagrad`'s formula."""
    total = state.setdefault("S", np.full_like(weight, opt.initial_accumulator))
    weight[touched] *= 1 - opt.lr * opt.weight_decay
    total[touched] += grad[touched] ** 2
    weight[touched] -= opt.lr / (1 + (t - 1) * opt.lr_decay) * grad[touched] / (np.sqrt(total[touched]) + opt.eps)


def dense_rowwise_adagrad(opt, weight, state, grad, touched, t):
    """FBGEMM's formula."""
    total = state.setdefault("s", np.full(len(weight), opt.initial_accumulator))
    weight[touched] *= 1 - opt.lr * opt.weight_decay
    total[touched] += (grad[touched] ** 2).mean(axis=1)
    weight[touched] -= opt.lr * grad[touched] / (np.sqrt(total[touched]) + opt.eps)[:, np.newaxis]


def dense_rmsprop(opt, weight, state, grad, touched, t):
    """`torch.optim.RMSprop`'s formula."""
    v, mean, buf = (state.setdefault(name, np.zeros_like(weight)) for name in ("v", "mean", "buf"))
    g = grad[touched]
    weight[touched] *= 1 - opt.lr * opt.weight_decay
    v[touched] = opt.alpha * v[touched] + (1 - opt.alpha) * g**2
    mean[touched] = opt.alpha * mean[touched] + (1 - opt.alpha) * g
    below = v[touched] - mean[touched] ** 2 if opt.centered else v[touched]
    buf[touched] = opt.momentum * buf[touched] + g / (np.sqrt(np.maximum(below, 0)) + opt.eps)
    weight[touched] -= opt.lr * buf[touched]


def dense_ftrl(opt, weight, state, grad, touched, t):
    """Keras 3's formula, ``learning_rate_power=-0.5``."""
    z, n = state.setdefault("z", np.zeros_like(weight)), state.setdefault("n", weight * 0 + opt.initial_accumulator)
    g, w = grad[touched], weight[touched]
    new = n[touched] + g**2
    z[touched] += g + 2 * opt.l2_shrinkage * w - (np.sqrt(new) - np.sqrt(n[touched])) / opt.lr * w
    n[touched] = new
    clipped = np.clip(z[touched], -opt.l1, opt.l1)
    weight[touched] = (clipped - z[touched]) / (np.sqrt(new) / opt.lr + 2 * (opt.l2 + opt.beta / (2 * opt.lr)))


def every_row(formula):
    """A formula for a dense gradient: rows without any are changed too."""

    def dense(opt, weight, state, grad, touched, t):
        formula(opt, weight, state, grad, np.arange(len(weight)), t)

    return dense


RULES = {
    "SGD": (SGD(lr=0.05), dense_sgd),
    "SGD decay": (SGD(lr=0.05, weight_decay=0.1), dense_sgd),
    "Momentum": (Momentum(lr=0.02), dense_momentum),
    "Momentum dampening": (Momentum(lr=0.02, momentum=0.8, dampening=0.3, weight_decay=0.1), dense_momentum),
    "Momentum nesterov": (Momentum(lr=0.02, nesterov=True), dense_momentum),
    "Adagrad": (Adagrad(lr=0.1), dense_adagrad),
    "Adagrad decay": (
        Adagrad(lr=0.1, lr_decay=0.05, eps=1e-3, initial_accumulator=0.2, weight_decay=0.1),
        dense_adagrad,
    ),
    "RowWiseAdagrad": (RowWiseAdagrad(lr=0.1), dense_rowwise_adagrad),
    "RowWiseAdagrad decay": (
        RowWiseAdagrad(lr=0.1, eps=1e-3, initial_accumulator=0.2, weight_decay=0.1),
        dense_rowwise_adagrad,
    ),
    "RMSprop": (RMSprop(lr=0.01), dense_rmsprop),
    "RMSprop centered": (RMSprop(lr=0.01, alpha=0.9, eps=1e-2, centered=True, weight_decay=0.1), dense_rmsprop),
    "RMSprop momentum": (RMSprop(lr=0.01, alpha=0.9, momentum=0.7), dense_rmsprop),
    "Adam": (Adam(lr=0.02), dense_adam),
    "Adam decay": (Adam(lr=0.02, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1), dense_adam),
    "Adam exact": (Adam(lr=0.02, mode="exact"), every_row(dense_adam)),
    "Adam exact decay": (
        Adam(lr=0.02, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1, mode="exact"),
        every_row(dense_adam),
    ),
    "Momentum exact": (Momentum(lr=0.02, mode="exact"), every_row(dense_momentum)),
    "Momentum exact dampening": (
        Momentum(lr=0.02, momentum=0.8, dampening=0.3, weight_decay=0.1, mode="exact"),
        every_row(dense_momentum),
    ),
    "Momentum exact nesterov": (Momentum(lr=0.02, nesterov=True, mode="exact"), every_row(dense_momentum)),
    "Ftrl": (Ftrl(lr=0.1), dense_ftrl),
    "Ftrl regularised": (Ftrl(lr=0.1, l1=0.3, l2=0.1, l2_shrinkage=0.05, beta=0.2), dense_ftrl),
}
