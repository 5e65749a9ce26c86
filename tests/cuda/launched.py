"""The drivers of kernels/cuda on NumPy's arrays, their kernels in the emulator."""

import pytest

from fastemb.kernels.cuda import launch

from .emulator import Kernel


def emulator(function, signature):
    """A `launch.Runner`; a block's and the threads' order is made from a seed."""
    kernel = Kernel(function, signature)

    def run(grid, block, arguments):
        kernel[grid, block, emulator.seed](*arguments)

    return run


emulator.seed = 1


@pytest.fixture
def emulated(monkeypatch):
    """Kernels run in the emulator."""
    monkeypatch.setattr(launch, "compiler", emulator)
