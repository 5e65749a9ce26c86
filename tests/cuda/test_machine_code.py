"""What the accesses of `intrin` become, and that the report of machine code sees what it is asked about."""

import numpy as np
import pytest
from numba import types

from fastemb.kernels.cuda import rules
from fastemb.kernels.cuda.intrin import (
    add_rn,
    fma_rn,
    full,
    load,
    local_array,
    mul_rn,
    shared_array,
    store,
    sync_block,
    thread_x,
    u32,
    u64,
)

from .emulator import Kernel
from .kernels import COUNT, F16, F32, F64, I32, I64, gather_signature, make_gather, make_rule, make_scatter
from .machine_code import compile_kernel
from .offline import TARGETS

BOUNDS = 128, 8
HYPER = types.UniTuple(types.float64, 5)
ADAM = F32, F32, F32, F32, HYPER

targets = pytest.mark.parametrize("capability", TARGETS, ids=lambda cc: "sm_{}{}".format(*cc))


WIDTHS = [(F32, (1, 2, 4)), (F64, (1, 2)), (I32, (1, 4)), (I64, (1, 2)), (F16, (1, 2, 4, 8))]


@targets
@pytest.mark.parametrize(("table", "n"), [(table, n) for table, widths in WIDTHS for n in widths], ids=str)
def test_gather_has_one_load_and_one_store_of_its_width(capability, table, n):
    bits = n * table.dtype.bitwidth
    code = compile_kernel(make_gather(n), gather_signature(table, I32), capability=capability, launch_bounds=BOUNDS)
    rows = [text for text in code.loads(bits) if ".CONSTANT" in text]
    assert len(rows) == len(code.stores(bits)) == 1
    assert len(code.loads()) == 2, "the other is of an index"
    assert all(".EF" in text for text in code.stores())
    assert (code.calls, code.local, code.spills, code.stack) == (set(), [], 0, 0)
    assert code.registers <= 32


@targets
def test_reductions(capability):
    signature = F32, F32, I64, COUNT, COUNT
    at_once = 4 if capability >= (9, 0) else 1
    code = compile_kernel(make_scatter(4, at_once), signature, capability=capability, launch_bounds=BOUNDS)
    assert len(code.reductions(at_once)) == len(code.reductions()) == 4 // at_once
    assert len(code.loads(128)) == 1
    assert not code.matching("ATOM"), "nothing waits for what was there"


def test_vector_reductions_need_a_newer_device():
    with pytest.raises(ValueError, match="PTX that is refused: .*requires .target sm_90"):
        compile_kernel(make_scatter(4, 4), (F32, F32, I64, COUNT, COUNT), capability=(8, 0))
    code = compile_kernel(make_scatter(4, 2), (F32, F32, I64, COUNT, COUNT))
    assert len(code.reductions(2)) == 2


@targets
def test_plain_and_shared_accesses(capability):
    def kernel(out, x):
        block, at = shared_array(1024, types.float32), u64(thread_x() * u32(4))
        store(block, at, load(x, at, 4))
        sync_block()
        store(out, at, load(block, u64(508) - at, 4))

    code = compile_kernel(kernel, (F32, F32), capability=capability)
    assert len(code.loads(128)) == len(code.stores(128)) == len(code.shared_loads(128)) == 1
    assert code.matching(r"STS\.128")
    assert code.matching(r"BAR\.SYNC")
    assert code.shared == 4096


@targets
@pytest.mark.parametrize("n", [4, 2, 1])
def test_a_rule_stays_in_registers_and_is_not_fused(capability, n):
    code = compile_kernel(make_rule(rules._adam, n), ADAM, capability=capability, launch_bounds=BOUNDS)
    assert code.fused == []
    assert (code.local, code.spills, code.stack) == ([], 0, 0)
    assert code.registers <= 64
    assert (len(code.loads(32 * n)), len(code.stores(32 * n))) == (4, 3)
    assert all("slowpath" in name for name in code.calls)
    assert ".rn.f32" in code.ptx
    assert ".ftz" not in code.ptx
    assert compile_kernel(make_rule(rules._adam, n), ADAM, capability=capability, fma=True).fused


@pytest.mark.parametrize("n", [4, 2, 1])
def test_a_rule_has_the_bits_of_the_cpu(rng, n):
    given = [rng.standard_normal(600).astype(np.float32) for _ in range(4)]
    given[2] = np.abs(given[2]) * np.float32(1e-30)
    expected = [x[None].copy() for x in given]
    hyper = 1e-3, 0.999, 0.1, 1e-3, 1e-8
    rules._adam(expected[0], (expected[1], expected[2]), 0, expected[3][0], np.array(hyper))
    Kernel(make_rule(rules._adam, n), ADAM)[8, 128, 3](*given, hyper)
    for got, wanted in zip(given, expected, strict=True):
        np.testing.assert_array_equal(got.view(np.uint32), wanted[0].view(np.uint32))


# Widths of the arrays of state, and how many hyper-parameters.
RULES = {
    "_sgd": ((), 2),
    "_momentum": ((9, 1), 5),
    "_adagrad": ((9,), 3),
    "_rmsprop": ((9, 9, 9), 7),
    "_ftrl": ((9, 9), 4),
}


@pytest.mark.parametrize("name", RULES)
def test_every_rule_that_is_plain_numba_is_the_same_on_a_device(rng, name):
    rule, (widths, count) = getattr(rules, name), RULES[name]
    rows = types.float32[:, ::1]

    def kernel(weight, state, total, hyper):
        rule(weight, state, u64(thread_x()), total, hyper)

    state_type = types.UniTuple(rows, len(widths)) if widths else types.Tuple(())
    signature = rows, state_type, F32, types.UniTuple(types.float64, count)
    weight, *state = (np.abs(rng.standard_normal((4, width))).astype(np.float32) for width in (9, *widths))
    total, hyper = rng.standard_normal(9).astype(np.float32), np.abs(rng.standard_normal(count))
    expected = weight.copy(), tuple(part.copy() for part in state)
    for row in range(4):
        rule(*expected[:2], row, total, hyper)
    Kernel(kernel, signature)[1, 4](weight, tuple(state), total, tuple(hyper))
    for got, wanted in zip([weight, *state], [expected[0], *expected[1]], strict=True):
        np.testing.assert_array_equal(got.view(np.uint32), wanted.view(np.uint32))
    assert compile_kernel(kernel, signature).fused == []


def test_exact_operations_are_not_fused_where_others_are():
    def kernel(out, x):
        at = u64(thread_x())
        product = mul_rn(load(x, at, 1), full(types.float32(3), 1))
        store(out, at, add_rn(product, load(x, at + u64(1), 1)))

    def fused(out, x):
        at = u64(thread_x())
        store(out, at, fma_rn(load(x, at, 1), types.float32(3), load(x, at + u64(1), 1)))

    assert compile_kernel(kernel, (F32, F32), fma=True).fused == []
    assert len(compile_kernel(fused, (F32, F32)).fused) == 1


def test_divisions_are_seen():
    def kernel(out, x):
        out[0] = x[0] // x[1]

    assert any("div_s64" in name for name in compile_kernel(kernel, (I64, I64)).calls)


def test_local_memory_is_seen():
    def kernel(out, x):
        own = local_array(32, types.float32)
        for k in range(32):
            own[k] = x[k]
        for k in range(32):
            out[k] = own[int(x[k])]

    code = compile_kernel(kernel, (F32, F32))
    assert code.local
    assert code.stack == 128


def test_spills_are_seen():
    def kernel(out, x):
        a, b, c, d = load(x, 0, 4), load(x, 4, 4), load(x, 8, 4), load(x, 12, 4)
        e, f, g, h = load(x, 16, 4), load(x, 20, 4), load(x, 24, 4), load(x, 28, 4)
        sync_block()
        store(out, 0, mul_rn(a, mul_rn(b, mul_rn(c, d))))
        store(out, 4, mul_rn(e, mul_rn(f, mul_rn(g, h))))
        store(out, 8, add_rn(h, add_rn(g, add_rn(f, e))))
        store(out, 12, add_rn(d, add_rn(c, add_rn(b, a))))

    assert compile_kernel(kernel, (F32, F32), max_registers=24).spills > 0
    assert compile_kernel(kernel, (F32, F32)).spills == 0
