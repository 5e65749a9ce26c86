"""What operations allocate, as NumPy reports it to tracemalloc; kernels allocate rows alone."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from strategies import run_python

import fastemb
from fastemb._arrays import BLOCK

ROWS, WIDTH, LENGTH = 200_000, 128, 20_000
TABLE_BYTES = ROWS * WIDTH * 4
GRADIENT_BYTES = LENGTH * WIDTH * 4
INTEGERS = 8 * LENGTH
"""One int64 for each index."""


def peak(call):
    """Bytes allocated at most during a call, beyond what there was; its result is freed first."""
    call()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def table():
    return np.zeros((ROWS, WIDTH), np.float32)


@pytest.fixture
def ids(rng):
    return rng.integers(0, ROWS, LENGTH)


@pytest.fixture(autouse=True)
def _no_recycled_memory():
    before = fastemb.buffers.limit()
    fastemb.buffers.set_limit(0)
    yield
    fastemb.buffers.set_limit(before)


def test_recycled_memory_is_not_allocated_again(table, ids):
    fastemb.buffers.set_limit(1 << 28)
    assert peak(lambda: fastemb.gather(table, ids)) < 10_000


def test_lookup_allocates_its_output(table, ids):
    assert GRADIENT_BYTES <= peak(lambda: fastemb.gather(table, ids)) < GRADIENT_BYTES + 10_000
    out = np.empty((LENGTH, WIDTH), np.float32)
    assert peak(lambda: fastemb.gather(table, ids, out=out)) < 10_000


@pytest.mark.parametrize("dtype", ["float16", ">f4", ">f8"])
def test_lookup_of_other_tables_allocates_its_output(dtype, ids):
    table = np.zeros((ROWS // 10, WIDTH), dtype)
    size = LENGTH * WIDTH * table.itemsize
    assert size <= peak(lambda: fastemb.gather(table, ids // 10)) < 1.5 * size
    out = np.empty((LENGTH, WIDTH), table.dtype.newbyteorder("="))
    assert peak(lambda: fastemb.gather(table, ids // 10, out=out)) < 0.5 * size


@pytest.mark.parametrize("convert", [lambda i: i.astype(np.uint32), lambda i: i.astype(">i8"), lambda i: i[::-1]])
def test_lookup_does_not_copy_all_indices(table, rng, convert):
    many = convert(rng.integers(0, ROWS, 400_000))
    narrow = table[:, :1]
    out = np.empty((many.size, 1), np.float32)
    assert peak(lambda: fastemb.gather(narrow, many, out=out)) < many.size


@pytest.mark.parametrize("layout", ["C", "F", "strided"])
def test_lookup_does_not_copy_the_table(layout, ids):
    table = np.zeros((ROWS, 8), np.float32, order="F" if layout == "F" else "C")
    table = table[:, ::2] if layout == "strided" else table
    assert peak(lambda: fastemb.gather(table, ids)) < LENGTH * 8 * 4 + 10_000


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("rule", [fastemb.optim.RowWiseAdagrad(), fastemb.optim.Adam()], ids=lambda r: type(r).__name__)
def test_step_of_bags_allocates_integers_alone(rng, rule, mode):
    table = np.zeros((100_000, 64), np.float32)
    state, length = rule.init(table), 150_000
    ids, offsets = rng.integers(0, len(table), length), np.arange(0, length, 3)
    grad = np.zeros((offsets.size, 64), np.float32)
    limit = 11 * 8 * length + 20_000
    assert peak(lambda: rule.step_bag(table, state, ids, offsets, grad, mode=mode)) < limit < length * 64 * 4 / 2


def test_large_tables_and_states_lie_on_huge_pages():
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not path.exists() or "[never]" in path.read_text():
        pytest.skip("the system offers no huge pages")

    def huge():
        (line,) = (x for x in Path("/proc/self/smaps_rollup").read_text().splitlines() if x.startswith("AnonHugePages"))
        return int(line.split()[1]) * 1024

    before = huge()
    layer = fastemb.Embedding(200_000, 128, optimizer=fastemb.optim.Adam())
    layer.state.m[:] = 1  # pages come with the first write
    layer.state.v[:] = 1
    assert huge() - before > 2.5 * layer.weight.nbytes


@pytest.mark.parametrize(
    "rule", [fastemb.optim.SGD(), fastemb.optim.Adam(), fastemb.optim.Adam(mode="exact")], ids=["SGD", "Adam", "exact"]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16], ids=str)
@pytest.mark.parametrize("grad_dtype", [np.float32, np.float16, np.int8, ">f4"], ids=str)
@pytest.mark.parametrize("hot", [False, True])
def test_step_allocates_integers_alone(rng, rule, dtype, grad_dtype, hot):
    table = np.zeros((100_000, 64), dtype)
    state = rule.init(table)
    length = 150_000
    ids = np.full(length, 7) if hot else rng.integers(0, len(table), length)
    grad = np.zeros((length, 64), grad_dtype)
    # rows, starts, positions and two words of scratch; for what kernels cannot read, some blocks of gradient rows
    plain = dtype != np.float16 and grad_dtype == np.float32
    limit = 6 * 8 * length + 20_000 + (0 if plain else 10 * BLOCK * 64 * max(4, np.dtype(dtype).itemsize))
    others = (ids + 1) % len(table)  # so that the next step finds rows behind

    def step():
        rule.step(table, state, ids, grad)
        rule.step(table, state, others, grad)

    if getattr(rule, "mode", "") == "exact" and dtype == np.float16:
        limit += 2 * BLOCK * 64 * 8  # rows that are made up for in float64
    assert peak(step) < limit < length * 64 * max(4, np.dtype(dtype).itemsize)


RESIDENT = """
import numpy as np, fastemb
from pathlib import Path

def resident(name):
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) * 1024

fastemb.buffers.set_limit(0)
table, rule = np.ones((100_000, 64), np.float32), fastemb.optim.{rule}
state, length = rule.init(table), 150_000
for array in state.arrays().values():
    array += 0  # pages come with the first write
ids, grad = np.random.default_rng(0).integers(0, len(table), length), np.ones((length, 64), np.float32)
def step():
    global ids
    {step}
    ids = (ids + 1) % len(table)  # so that the next step finds rows behind
step()
Path("/proc/self/clear_refs").write_text("5")  # the peak is what there is now
before = resident("VmRSS")
step()
print(resident("VmHWM") - before)
"""


@pytest.mark.parametrize("rule", ["SGD()", "Adam()", "Adam(mode='exact')", "RowWiseAdagrad()"])
@pytest.mark.parametrize(
    "step",
    [
        "rule.step(table, state, ids, grad)",
        "rule.step(table, state, ids, grad, max_grad_norm=1.0)",
        "rule.step_bag(table, state, ids, np.arange(0, length, 3), grad[: length // 3], mode='mean')",
    ],
    ids=["step", "clipped", "bags"],
)
def test_resident_memory_of_a_step(rule, step):
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("no /proc here, which tells the peak of resident memory and forgets it")
    grown = int(run_python(RESIDENT.format(rule=rule, step=step)))
    gradient, integers = 150_000 * 64 * 4, 8 * 150_000
    assert grown < 11 * integers + (1 << 20) < gradient / 2


def test_gradient_of_a_lookup_is_not_of_the_size_of_the_table(ids):
    grad = np.zeros((LENGTH, WIDTH), np.float32)
    assert peak(lambda: fastemb.embedding_grad(ids, grad, ROWS)) < GRADIENT_BYTES + 8 * INTEGERS
    assert GRADIENT_BYTES + 8 * INTEGERS < TABLE_BYTES / 5


def test_layer_step_is_not_of_the_size_of_the_table(ids):
    layer = fastemb.Embedding(ROWS, WIDTH, optimizer=fastemb.optim.Adam(), init="zeros")
    dy = np.zeros((LENGTH, WIDTH), np.float32)

    def train():
        layer(ids)
        layer.backward(ids, dy)
        layer.step()

    assert peak(train) < 2 * GRADIENT_BYTES + 8 * INTEGERS


def test_scatter_add_allocates_integers_alone(table, ids):
    updates = np.zeros((LENGTH, WIDTH), np.float32)
    assert peak(lambda: fastemb.scatter_add(table, ids, updates)) < 6 * INTEGERS + 20_000


@pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn", "max"])
def test_pooled_lookup_allocates_its_output(table, ids, mode):
    offsets = np.arange(0, LENGTH, 20)
    size = offsets.size * WIDTH * 4
    assert size <= peak(lambda: fastemb.embedding_bag(table, ids, offsets, mode=mode)) < size + 5 * 8 * offsets.size
    out = np.empty((offsets.size, WIDTH), np.float32)
    limit = 5 * 8 * offsets.size
    assert peak(lambda: fastemb.embedding_bag(table, ids, offsets, mode=mode, out=out)) < limit < INTEGERS


@pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn", "max"])
def test_gradient_of_a_pooled_lookup_has_no_row_for_each_index(table, rng, mode):
    ids, offsets = rng.integers(0, 50, LENGTH), np.arange(0, LENGTH, 200)
    grad = np.zeros((offsets.size, WIDTH), np.float32)
    limit = 16 * INTEGERS + 4 * grad.nbytes
    assert peak(lambda: fastemb.embedding_bag_grad(table, ids, offsets, grad, mode=mode)) < limit < GRADIENT_BYTES


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", ["float16", ">f4"])
def test_pooled_lookup_of_other_tables_has_no_row_for_each_index(rng, mode, dtype):
    table, ids = np.ones((100, 64), dtype), rng.integers(0, 100, 100_000)
    limit = ids.size * 64 * 4 / 10
    assert peak(lambda: fastemb.embedding_bag(table, ids, [0], mode=mode)) < limit
    if mode == "max":
        grad = np.ones((1, 64), np.float32)
        assert peak(lambda: fastemb.embedding_bag_grad(table, ids, [0], grad, mode=mode)) < limit + 8 * ids.nbytes
