"""Optimizers against torch's, in float64: sparse ones on the touched rows, dense ones in mode "exact"."""

import numpy as np
import pytest

import fastemb
from fastemb.optim import SGD, Adagrad, Adam, Momentum, RMSprop

torch = pytest.importorskip("torch", reason="torch is not installed; `make test-peers` brings it")
torch.sparse.check_sparse_tensor_invariants.disable()  # or torch warns that nobody has decided

ROWS, WIDTH, STEPS = 40, 5, 200

SPARSE = {
    "SGD": (SGD(lr=0.05), lambda p: torch.optim.SGD(p, lr=0.05)),
    "Adagrad": (Adagrad(lr=0.1), lambda p: torch.optim.Adagrad(p, lr=0.1)),
    "Adagrad decay": (
        Adagrad(lr=0.1, lr_decay=0.05, eps=1e-3, initial_accumulator=0.2),
        lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.05, eps=1e-3, initial_accumulator_value=0.2),
    ),
    "Adam": (Adam(lr=0.02), lambda p: torch.optim.SparseAdam(p, lr=0.02)),
    "Adam options": (
        Adam(lr=0.02, betas=(0.8, 0.9), eps=1e-3),
        lambda p: torch.optim.SparseAdam(p, lr=0.02, betas=(0.8, 0.9), eps=1e-3),
    ),
}

TINY = 1e-30  # torch adds eps to another root, which must not count here
DENSE = {
    "Momentum": (Momentum(lr=0.02, mode="exact"), lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9)),
    "Momentum dampening": (
        Momentum(lr=0.02, momentum=0.8, dampening=0.3, mode="exact"),
        lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.8, dampening=0.3),
    ),
    "Momentum nesterov": (
        Momentum(lr=0.02, nesterov=True, mode="exact"),
        lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9, nesterov=True),
    ),
    "Adam": (Adam(lr=0.02, eps=TINY, mode="exact"), lambda p: torch.optim.Adam(p, lr=0.02, eps=TINY)),
    "AdamW": (
        Adam(lr=0.02, betas=(0.8, 0.9), eps=TINY, weight_decay=0.1, mode="exact"),
        lambda p: torch.optim.AdamW(p, lr=0.02, betas=(0.8, 0.9), eps=TINY, weight_decay=0.1),
    ),
}


def batches(rng, bags=False):
    """Ids that repeat and leave rows out; as bags their offsets too."""
    for _ in range(STEPS):
        ids = rng.zipf(1.3, 30) % ROWS
        yield ids, np.array([0, 3, 3, 20, 29])


def both(rng, make):
    """A table, and torch's optimizer with a parameter of the same numbers."""
    weight = rng.standard_normal((ROWS, WIDTH))
    parameter = torch.nn.Parameter(torch.from_numpy(weight.copy()))
    return weight, parameter, make([parameter])


@pytest.mark.parametrize("name", SPARSE)
def test_step_on_sparse_gradients(rng, name):
    rule, make = SPARSE[name]
    weight, parameter, optimizer = both(rng, make)
    state = rule.init(weight)
    for ids, _ in batches(rng):
        target = rng.standard_normal((ids.size, WIDTH))
        optimizer.zero_grad()
        rows = torch.nn.functional.embedding(torch.from_numpy(ids), parameter, sparse=True)
        ((rows - torch.from_numpy(target)) ** 2).sum().backward()
        optimizer.step()
        rule.step(weight, state, ids, 2 * (fastemb.gather(weight, ids) - target))
    np.testing.assert_allclose(weight, parameter.detach().numpy(), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_step_of_bags_on_sparse_gradients(rng, name, mode):
    rule, make = SPARSE[name]
    weight, parameter, optimizer = both(rng, make)
    state = rule.init(weight)
    for ids, offsets in batches(rng):
        target = rng.standard_normal((offsets.size, WIDTH))
        optimizer.zero_grad()
        pooled = torch.nn.functional.embedding_bag(
            torch.from_numpy(ids), parameter, torch.from_numpy(offsets), mode=mode, sparse=True
        )
        ((pooled - torch.from_numpy(target)) ** 2).sum().backward()
        optimizer.step()
        ours = fastemb.embedding_bag(weight, ids, offsets, mode=mode)
        rule.step_bag(weight, state, ids, offsets, 2 * (ours - target), mode=mode)
    np.testing.assert_allclose(weight, parameter.detach().numpy(), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", DENSE)
def test_exact_mode_is_the_dense_optimizer(rng, name):
    rule, make = DENSE[name]
    weight, parameter, optimizer = both(rng, make)
    layer = fastemb.Embedding.from_pretrained(weight, freeze=False, optimizer=rule)
    for ids, _ in batches(rng):
        target = rng.standard_normal((ids.size, WIDTH))
        optimizer.zero_grad()
        rows = torch.nn.functional.embedding(torch.from_numpy(ids), parameter)
        ((rows - torch.from_numpy(target)) ** 2).sum().backward()
        optimizer.step()
        layer.fused_step(ids, 2 * (layer(ids) - target))
    layer.flush()
    np.testing.assert_allclose(layer.weight, parameter.detach().numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("centered", "momentum"), [(False, 0.0), (False, 0.7), (True, 0.7)])
def test_rmsprop_of_a_table_whose_rows_are_all_touched(rng, centered, momentum):
    rule = RMSprop(lr=0.01, alpha=0.9, eps=1e-3, centered=centered, momentum=momentum)
    options = {"lr": 0.01, "alpha": 0.9, "eps": 1e-3, "centered": centered, "momentum": momentum}
    weight, parameter, optimizer = both(rng, lambda p: torch.optim.RMSprop(p, **options))
    state = rule.init(weight)
    for _ in range(STEPS):
        grad = rng.standard_normal(weight.shape)
        parameter.grad = torch.from_numpy(grad)
        optimizer.step()
        rule.step(weight, state, np.arange(ROWS), grad)
    np.testing.assert_allclose(weight, parameter.detach().numpy(), rtol=1e-10, atol=1e-12)


def test_max_grad_norm_is_that_of_clip_grad_norm(rng):
    weight, parameter, optimizer = both(rng, lambda p: torch.optim.SGD(p, lr=0.1))
    ids, grad = rng.integers(0, 20, 100), rng.standard_normal((100, WIDTH))
    torch.nn.functional.embedding(torch.from_numpy(ids), parameter).backward(torch.from_numpy(grad))
    torch.nn.utils.clip_grad_norm_([parameter], 3.0)
    optimizer.step()
    SGD().step(weight, SGD().init(weight), ids, grad, lr=0.1, max_grad_norm=3.0)
    np.testing.assert_allclose(weight, parameter.detach().numpy(), rtol=1e-6)  # torch adds 1e-6 to the norm
