"""RowOptimizer and fuse: fastemb's rules on torch's tables."""

import copy
import io

import numpy as np
import pytest

import fastemb
from fastemb import optim

torch = pytest.importorskip("torch", reason="torch is not installed; `make test-peers` brings it")

from fastemb.interop import torch as ours  # noqa: E402

torch.sparse.check_sparse_tensor_invariants.disable()  # or torch warns that nobody has decided

ROWS, WIDTH = 30, 4
RULES = [
    optim.SGD(lr=0.1, weight_decay=0.1),
    optim.Momentum(lr=0.1),
    optim.Adagrad(lr=0.1),
    optim.RowWiseAdagrad(lr=0.1),
    optim.RMSprop(lr=0.1, momentum=0.5, centered=True),
    optim.Adam(lr=0.1, betas=(0.8, 0.9)),
    optim.Ftrl(lr=0.1, l1=0.01),
]
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)


def batches(count=5):
    rng = np.random.default_rng(0)
    for _ in range(count):
        yield rng.zipf(1.3, (6, 5)) % ROWS, rng.standard_normal((6, WIDTH)).astype(np.float32)


def weight():
    return np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(np.float32)


def layer(kind, **options):
    return getattr(ours, kind).from_pretrained(torch.from_numpy(weight()), freeze=False, padding_idx=1, **options)


def loss_of(made, ids, dy):
    out = made(torch.from_numpy(ids))
    out = out.sum(1) if out.dim() == 3 else out
    return (out * torch.from_numpy(dy)).sum()


def expected(rule, given):
    """The table after steps of the rule alone."""
    table = weight()
    state = rule.init(table)
    for ids, dy in given:
        rule.step_bag(table, state, ids, None, dy, mode="sum", padding_idx=1)
    return table, state


KINDS = [("Embedding", {}), ("EmbeddingBag", {"mode": "sum"})]
each_kind = pytest.mark.parametrize(("kind", "options"), KINDS, ids=["Embedding", "EmbeddingBag"])


def train(made, optimizer, given):
    for ids, dy in given:
        optimizer.zero_grad()
        loss_of(made, ids, dy).backward()
        optimizer.step()


@each_rule
@each_kind
@pytest.mark.parametrize("fused", [False, True])
def test_steps_of_the_rule(rule, kind, options, fused):
    made = layer(kind, sparse=True, **options)
    optimizer = ours.fuse(made, rule) if fused else ours.RowOptimizer(made.parameters(), rule)
    version = made.weight._version
    train(made, optimizer, batches())
    assert made.weight._version > version
    assert made.weight.grad is None if fused else made.weight.grad.is_sparse
    table, state = expected(rule, batches())
    np.testing.assert_allclose(made.weight.detach().numpy(), table, rtol=1e-5, atol=1e-6)
    kept = optimizer.state[made.weight]
    assert kept["step"] == 5
    for name, array in state.arrays().items():
        np.testing.assert_allclose(kept[name].numpy(), array, rtol=1e-4, atol=1e-5)


def test_against_an_optimizer_of_torch():
    mine, theirs = layer("EmbeddingBag", sparse=True), layer("EmbeddingBag", sparse=True)
    train(mine, ours.RowOptimizer(mine.parameters(), optim.Adam(lr=0.1)), batches())
    train(theirs, torch.optim.SparseAdam(theirs.parameters(), lr=0.1), batches())
    torch.testing.assert_close(mine.weight, theirs.weight)


@each_rule
@pytest.mark.parametrize("fused", [False, True])
def test_a_state_dict_continues(rule, fused):
    def start():
        made = layer("Embedding", sparse=True)
        return made, ours.fuse(made, rule) if fused else ours.RowOptimizer(made.parameters(), rule)

    given = list(batches(6))
    made, optimizer = start()
    train(made, optimizer, given[:3])
    saved = io.BytesIO()
    torch.save([made.state_dict(), optimizer.state_dict()], saved)
    saved.seek(0)
    again, other = start()
    for one, state in zip((again, other), torch.load(saved, weights_only=True), strict=True):
        one.load_state_dict(state)
    copied = copy.deepcopy(made)
    train(made, optimizer, given[3:])
    train(again, other, given[3:])
    assert torch.equal(made.weight, again.weight)
    if fused:
        assert not torch.equal(copied.weight, made.weight)
        assert copied._fused.param_groups[0]["params"][0] is copied.weight


def test_schedulers_and_groups():
    first, second = layer("Embedding", sparse=True), layer("EmbeddingBag", sparse=True, mode="sum")
    groups = [{"params": first.parameters(), "lr": 0.5}, {"params": second.parameters(), "rule": optim.Adagrad(lr=0.2)}]
    optimizer = ours.RowOptimizer(groups, optim.SGD(lr=0.1))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    tables = [weight(), weight()]
    rules = [optim.SGD(lr=0.5), optim.Adagrad(lr=0.2)]
    states = [rule.init(table) for rule, table in zip(rules, tables, strict=True)]
    for k, (ids, dy) in enumerate(batches()):
        optimizer.zero_grad()
        (loss_of(first, ids, dy) + loss_of(second, ids, dy)).backward()
        optimizer.step()
        scheduler.step()
        for rule, table, state in zip(rules, tables, states, strict=True):
            rule.step_bag(table, state, ids, None, dy, padding_idx=1, lr=rule.lr * 0.5**k)
    for made, table in zip((first, second), tables, strict=True):
        np.testing.assert_allclose(made.weight.detach().numpy(), table, rtol=1e-5, atol=1e-6)
    assert [group["rule"] for group in optimizer.param_groups] == ["SGD", "Adagrad"]


def test_gradients_that_add_up_and_a_closure():
    made = layer("Embedding", sparse=True)
    optimizer = ours.RowOptimizer(made.parameters(), optim.SGD(lr=0.1))
    (ids, dy), (more, other) = batches(2)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(made, ids, dy) + loss_of(made, more, other)
        loss_of(made, ids, dy).backward()
        loss_of(made, more, other).backward()
        return loss

    assert optimizer.step(closure) is not None
    table = weight()
    optim.SGD(lr=0.1).step_bag(
        table, optim.SGD().init(table), np.concatenate([ids, more]), None, np.concatenate([dy, other]), padding_idx=1
    )
    np.testing.assert_allclose(made.weight.detach().numpy(), table, rtol=1e-5, atol=1e-6)


def test_fused_bags_give_weights_a_gradient():
    fused, plain = (layer("EmbeddingBag", mode="sum") for _ in range(2))
    ours.fuse(fused, optim.SGD(lr=0.1))
    ids, dy = next(batches(1))
    found = []
    for made in (fused, plain):
        weights = torch.linspace(-1, 1, 30).reshape(6, 5).requires_grad_()
        (made(torch.from_numpy(ids), per_sample_weights=weights) * torch.from_numpy(dy)).sum().backward()
        found.append(weights.grad)
    torch.testing.assert_close(*found)
    assert not torch.equal(fused.weight, plain.weight)
    assert torch.equal(fused.weight[1], plain.weight[1])


@pytest.mark.parametrize(
    "options", [{"max_norm": 0.5}, {"scale_grad_by_freq": True}, {"include_last_offset": True, "mode": "mean"}]
)
def test_fused_layers_with_options(options):
    kind = "EmbeddingBag" if "mode" in options else "Embedding"
    fused, plain = layer(kind, **options), layer(kind, **options)
    ours.fuse(fused, optim.SGD(lr=0.1))
    ids, dy = next(batches(1))
    for made in (fused, plain):
        loss_of(made, ids, dy).backward()
    with torch.no_grad():
        plain.weight -= 0.1 * plain.weight.grad
    torch.testing.assert_close(fused.weight, plain.weight)


def test_fused_layers_read_and_frozen():
    made = layer("Embedding")
    ours.fuse(made, optim.SGD(lr=0.1))
    ids = torch.tensor([2, 3])
    before = made.weight.detach().clone()
    with torch.no_grad():
        assert not made(ids).requires_grad
    made.weight.requires_grad_(False)
    assert not made(ids).requires_grad
    assert torch.equal(made.weight, before)
    made.weight.requires_grad_(True)
    (grad,) = torch.autograd.grad(made(ids).sum(), made.weight, allow_unused=True)
    assert grad is None
    assert not torch.equal(made.weight[2:4], before[2:4])
    assert torch.equal(made.weight[:2], before[:2])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda m: ours.RowOptimizer(m.parameters(), torch.optim.SGD),
            TypeError,
            "rule must be a rule of fastemb.optim",
        ),
        (
            lambda m: ours.RowOptimizer(m.parameters(), optim.Adam(mode="exact")),
            ValueError,
            "rule must be in mode 'lazy'",
        ),
        (
            lambda m: ours.RowOptimizer([torch.nn.Parameter(torch.zeros(3))], optim.SGD()),
            ValueError,
            "params must be tables",
        ),
        (lambda m: ours.RowOptimizer(m.half().parameters(), optim.SGD()), ValueError, "of torch.float16: give others"),
        (lambda m: ours.fuse(torch.nn.Linear(2, 2), optim.SGD()), ValueError, "module must have an Embedding"),
        (lambda m: ours.fuse(ours.EmbeddingBag(3, 2, mode="max"), optim.SGD()), ValueError, "mode 'max'"),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call(layer("Embedding"))


def test_dense_gradients_are_refused():
    dense, sparse = layer("Embedding"), layer("Embedding", sparse=True)
    optimizer = ours.RowOptimizer([*sparse.parameters(), *dense.parameters()], fastemb.optim.SGD(lr=0.1))
    ids, dy = next(batches(1))
    (loss_of(dense, ids, dy) + loss_of(sparse, ids, dy)).backward()
    with pytest.raises(RuntimeError, match="needs sparse gradients"):
        optimizer.step()
    np.testing.assert_array_equal(sparse.weight.detach().numpy(), weight())


def test_two_sparse_dimensions_are_refused():
    first, second = layer("Embedding", sparse=True), layer("Embedding", sparse=True)
    optimizer = ours.RowOptimizer([*first.parameters(), *second.parameters()], optim.SGD(lr=0.1))
    loss_of(first, *next(batches(1))).backward()
    second.weight.grad = torch.ones(ROWS, WIDTH).to_sparse()
    with pytest.raises(RuntimeError, match="rows alone are sparse, got one with 2 sparse dimensions"):
        optimizer.step()
    np.testing.assert_array_equal(first.weight.detach().numpy(), weight())


@each_kind
def test_a_table_replaced_after_fuse_is_refused(kind, options):
    made = layer(kind, **options)
    optimizer = ours.fuse(made, optim.SGD(lr=0.1))
    made.weight = torch.nn.Parameter(torch.from_numpy(weight()))
    loss = loss_of(made, *next(batches(1)))
    with pytest.raises(RuntimeError, match="call fuse again"):
        loss.backward()
    np.testing.assert_array_equal(made.weight.detach().numpy(), weight())
    assert not optimizer.state


@pytest.mark.parametrize("changed", ["ids", "offsets", "per_sample_weights"])
@pytest.mark.parametrize("fused", [False, True])
def test_inputs_changed_before_the_backward_pass_are_noticed(changed, fused):
    made = layer("EmbeddingBag", mode="sum")
    if fused:
        ours.fuse(made, optim.SGD(lr=0.1))
    inputs = {"ids": torch.tensor([2, 3, 4]), "offsets": torch.tensor([0, 2]), "per_sample_weights": torch.ones(3)}
    loss = made(*inputs.values()).sum()
    inputs[changed].fill_(0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    np.testing.assert_array_equal(made.weight.detach().numpy(), weight())


@pytest.mark.parametrize("fused", [False, True])
def test_indices_changed_before_the_backward_pass_are_noticed(fused):
    made = layer("Embedding")
    if fused:
        ours.fuse(made, optim.SGD(lr=0.1))
    ids = torch.tensor([2, 3])
    loss = made(ids).sum()
    ids.fill_(5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    np.testing.assert_array_equal(made.weight.detach().numpy(), weight())


def test_fused_weights_need_the_table_of_the_forward_pass():
    made = ours.EmbeddingBag.from_pretrained(torch.ones(4, 2), freeze=False, mode="sum")
    ours.fuse(made, optim.SGD(lr=1.0))
    ids = torch.tensor([[1, 2]])
    first, second = (torch.ones(1, 2, requires_grad=True) for _ in range(2))
    loss = made(ids, None, first).sum() + made(ids, None, second).sum()
    with pytest.raises(RuntimeError, match=r"it is at version 1; expected version 0 instead.* once per pass"):
        loss.backward()
    assert made.weight[:, 0].tolist() == [1, 0, 0, 1]  # one of the two steps was taken, and the other was not
    plain = torch.ones(1, 2)
    (made(ids, None, plain).sum() + made(ids, None, plain).sum()).backward()
    assert made.weight[:, 0].tolist() == [1, -2, -2, 1]  # without that gradient there is nothing to be wrong


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_fused_bags_read_where_weights_could_have_a_gradient(context):
    weights = torch.ones(1, 2, requires_grad=True)
    with context():
        made = layer("EmbeddingBag", mode="sum")
        ours.fuse(made, optim.SGD(lr=1.0))
        out = made(torch.tensor([[2, 3]]), None, weights)
    np.testing.assert_array_equal(out.numpy(), weight()[[2, 3]].sum(0, keepdims=True))
