"""pytest-benchmark: the compiled kernels of each operation alone, as the operation calls them.

``pytest benches --benchmark-only`` times them; with ``--benchmark-disable`` each runs once, against the reference.
"""

import copy

import numpy as np

from benches.regression import ratios
from fastemb.kernels import cpu, reference


def pytest_generate_tests(metafunc):
    """A test for each operation. (asv imports this module where there is no pytest.)"""
    metafunc.parametrize("operation", ratios.CASES)


def run(kernels, calls):
    """Run recorded calls in one set of kernels, on copies of their arguments, which are returned."""
    memo = {}
    copies = [(name, copy.deepcopy(arguments, memo)) for name, arguments in calls]
    for name, arguments in copies:
        assert getattr(kernels, name)(*arguments) == -1
    return copies


def arrays(calls):
    """(name of the kernel, array) of all arguments, but for what grouping used as scratch behind its results."""
    for name, arguments in calls:
        defined = list(arguments)
        if name in ("group", "group_bags"):
            rows, starts, positions, count = arguments[:4]
            kept = int(count[0])
            defined[:3] = rows[:kept], starts[: kept + 1], positions[: starts[kept]]
        for argument in defined:
            for array in argument if isinstance(argument, tuple) else (argument,):
                if isinstance(array, np.ndarray):
                    yield name, array


def test_kernels(benchmark, operation):
    """The results of the reference, and the time."""
    call = ratios.CASES[operation]()
    again = ratios.Replay(call, cpu)
    found, wanted = (arrays(run(kernels, again.calls)) for kernels in (cpu, reference))
    for (name, one), (_, other) in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=name)
    benchmark(again)
