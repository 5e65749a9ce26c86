"""What the compiler makes of every kernel, on every device; that the README names them all, and its example runs."""

import functools
import re

import numpy as np
import pytest

from fastemb.kernels import reference
from fastemb.kernels.cuda import check, intrin, launch

from . import report
from .launched import emulated as emulated
from .offline import TARGETS
from .registry import CALLS, WIDE, kernels

NAMES = list(kernels())
FUSED = "adam_missed", "momentum_missed", "renorm, any p"
"""Kernels with sums of products that are rounded once, in float64: those of the CPU, and ``pow``."""

NARROW = re.compile(r"first_bad|group|bag_(divisors|winners|max_grad|numbers)|.*D odd|.*D even")
"""Kernels whose rows are narrower than an access, or which read indices alone."""


@pytest.mark.parametrize("capability", TARGETS, ids=lambda cc: "sm_{}{}".format(*cc))
@pytest.mark.parametrize("name", NAMES)
def test_machine_code(name, capability):
    code = report.machine_code(name, capability)
    assert (code.local, code.spills, code.stack) == ([], 0, 0)
    assert code.registers <= report.MOST_REGISTERS
    assert not [call for call in code.calls if re.search(r"(div|rem)_[su]64", call)]
    if name.startswith(FUSED):
        assert all(".f64" in operation for operation in code.fused)
    else:
        assert code.fused == []
    if not NARROW.match(name):
        assert report.widest(code.loads) == 128
        assert kernels(capability)[name].columns == WIDE


def test_kernels_without_order_add_several_numbers_at_once():
    for capability, expected in zip(TARGETS, (0, 1), strict=True):
        assert len(report.machine_code("scatter_add_unordered", capability).reductions(4)) == expected
        for name in NAMES:
            if "unordered" not in name:
                assert not report.machine_code(name, capability).reductions()


def test_every_driver_is_in_the_registry():
    called = {call(dtype, columns)[0].__name__ for call, dtype, columns in CALLS.values()}
    drivers = {name for name in reference.__all__ if not name.endswith("_range")}
    assert called == drivers | {"scatter_add_unordered", "step"}


def test_table_names_every_kernel():
    text = report.README.read_text()
    inside = text.partition(report.MARKS[0])[2].partition(report.MARKS[1])[0]
    named = re.findall(r"^\| ([^|]*?) +\|", inside, re.MULTILINE)
    assert named == ["kernel", "---", *NAMES], "run python -m tests.cuda.report --write"


def test_what_is_said_of_calls():
    class Code:
        calls = {
            "__cuda_sm20_div_rn_f64_full",
            "__cuda_sm20_dsqrt_rn_f64_mediumpath_v1",
            "__cuda_sm20_dblrcp_rn_slowpath_v3",
            "__cuda_sm20_rem_s64",
            "CALL.ABS.NOINC `(__internal_accurate_pow)",
            "CALL.REL.NOINC `(.L_x_17)",
            "__cuda_sm70_shflsync_bfly_p",
            "another",
        }

    assert report.calls(Code) == "another, div f64, pow, rcp f64, rem s64, sqrt f64"


def test_what_is_widest():
    assert report.widest(lambda bits: ["LDG.E.64"] if bits == 64 else []) == 64
    assert report.widest(lambda bits: []) == 0


@pytest.mark.usefixtures("emulated")
def test_example_of_the_readme(rng):
    (block,) = re.findall(r"```python\n(.*?)```", report.README.read_text(), re.DOTALL)
    names = {**vars(intrin), "GOOD": check.GOOD, "check": check, "functools": functools, "launch": launch, "np": np}
    exec(block, names)
    for columns in (8, 6, 5):
        weight, indices = rng.standard_normal((9, columns), dtype=np.float32), rng.integers(0, 9, 40)
        out = np.full((40, columns), np.nan, np.float32)
        assert names["double"](out, weight, indices) == -1
        np.testing.assert_array_equal(out, 2 * weight[indices])
        indices[3], out[:] = 9, np.nan
        assert names["double"](out, weight, indices) == 3
        assert np.isnan(out).all()
