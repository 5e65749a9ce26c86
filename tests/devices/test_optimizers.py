"""Optimizers on every device: the bits of a step are those of the host."""

import numpy as np
import pytest

import fastemb
from fastemb import optim

RULES = [
    optim.SGD(lr=0.1, weight_decay=0.01),
    optim.Momentum(lr=0.1, momentum=0.9, nesterov=True),
    optim.Adagrad(lr=0.1, lr_decay=0.01),
    optim.RowWiseAdagrad(lr=0.1),
    optim.RMSprop(lr=0.1, centered=True, momentum=0.5),
    optim.Adam(lr=0.1, weight_decay=0.01),
    optim.Ftrl(lr=0.1, l1=0.01, l2=0.1),
]
EXACT = [optim.Momentum(lr=0.1, mode="exact"), optim.Adam(lr=0.1, mode="exact")]

every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)


class Trained:
    """A table and the state of a rule, on the host and on a device."""

    def __init__(self, device, rule, rng, dtype="float32"):
        self.device, self.rule, self.rng = device, rule, rng
        self.table = rng.standard_normal((30, 6)).astype(dtype)
        self.weight = device.put(self.table)
        self.state, self.on_device = rule.init(self.table), rule.init(self.weight)

    def step(self, name, *batch, **options):
        """The same step on both."""
        getattr(self.rule, name)(self.table, self.state, *batch, **options)
        given = [self.device.put(part) if isinstance(part, np.ndarray) else part for part in batch]
        options = {k: self.device.put(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
        getattr(self.rule, name)(self.weight, self.on_device, *given, **options)

    def batch(self, size=25, dtype="float32"):
        return self.rng.integers(0, 30, size), self.rng.standard_normal((size, 6)).astype(dtype)

    def check(self):
        self.device.same_bits(self.weight, self.table)
        assert self.state.step == self.on_device.step
        for name, array in self.state.arrays().items():
            self.device.same_bits(getattr(self.on_device, name), array)


@every_rule
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_steps(device, rng, rule, dtype):
    trained = Trained(device, rule, rng, dtype)
    for size in (25, 0, 3):
        trained.step("step", *trained.batch(size, "float32" if size else "float16"), lr=0.05)
    ids, grad = trained.batch()
    trained.step("step", ids.reshape(5, 5), grad.reshape(5, 5, 6), padding_idx=ids[0], scale_grad_by_freq=True)
    trained.check()


@every_rule
def test_update(device, rng, rule):
    trained = Trained(device, rule, rng)
    grad = fastemb.embedding_grad(*trained.batch(), 30)
    rule.update(trained.table, trained.state, grad)
    rule.update(trained.weight, trained.on_device, grad.to(device.name))
    trained.check()


@every_rule
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(device, rng, rule, mode):
    trained = Trained(device, rule, rng)
    ids, offsets = trained.batch()[0], np.array([0, 4, 4, 20])
    grad = rng.standard_normal((4, 6)).astype(np.float32)
    weights = {} if mode == "max" else {"per_sample_weights": rng.integers(1, 4, 25).astype(np.float32)}
    for _ in range(2):
        trained.step("step_bag", ids, offsets, grad, mode=mode, padding_idx=3, **weights)
    trained.check()


@pytest.mark.parametrize("rule", EXACT, ids=lambda rule: type(rule).__name__)
def test_rows_that_missed_steps(device, rng, rule):
    trained = Trained(device, rule, rng)
    for _ in range(6):
        trained.step("step", *trained.batch(4))
    trained.step("catch_up", np.arange(0, 30, 3))
    trained.check()
    trained.step("flush")
    trained.check()


@pytest.mark.parametrize("max_grad_norm", [1e-3, 1e3])
def test_clipping(device, rng, max_grad_norm):
    trained = Trained(device, optim.SGD(lr=0.1), rng)
    trained.step("step", *trained.batch(), max_grad_norm=max_grad_norm)
    found = trained.weight.get() if device.on_gpu else trained.weight
    np.testing.assert_allclose(found, trained.table, rtol=1e-5, atol=1e-9)  # the norm's sum has another order


@every_rule
@pytest.mark.parametrize("bad", [-1, 30])
def test_nothing_is_changed_by_an_index_out_of_range(device, rng, rule, bad):
    trained = Trained(device, rule, rng)
    ids, grad = trained.batch()
    ids[[11, 20]] = bad
    for call in (
        lambda: rule.step(trained.weight, trained.on_device, device.put(ids), device.put(grad)),
        lambda: rule.step_bag(trained.weight, trained.on_device, device.put(ids), [0], device.put(grad[:1])),
        lambda: rule.step(trained.weight, trained.on_device, device.put(ids), device.put(grad), max_grad_norm=1.0),
    ):
        with pytest.raises(IndexError, match=r"\(first at position 11\)"):
            call()
    trained.check()


def test_state_that_is_saved_and_loaded(device, rng):
    """A state goes from any device to any."""
    trained = Trained(device, optim.Adam(lr=0.1, mode="exact"), rng)
    for _ in range(3):
        trained.step("step", *trained.batch(4))
    saved = {name: device.put(x) if isinstance(x, np.ndarray) else x for name, x in trained.state.state_dict().items()}
    other = optim.Adam(lr=0.1, mode="exact").init(trained.table)
    other.load_state_dict(saved)
    for name, array in trained.state.arrays().items():
        np.testing.assert_array_equal(getattr(other, name), array)
    trained.on_device.load_state_dict(trained.state.state_dict())
    trained.step("flush")
    trained.check()
