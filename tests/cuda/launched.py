"""The drivers of kernels/cuda on arrays of the host, NumPy's or those of the stand-in for CuPy, in the emulator."""

import pytest

from fastemb.kernels.cuda import launch

from . import standin
from .emulator import Kernel


def _memory(argument):
    """What the emulator reads and writes in place of an argument."""
    if isinstance(argument, tuple):
        return tuple(_memory(part) for part in argument)
    if not isinstance(argument, standin.ndarray):
        return argument
    standin.devices.require_current(argument)
    return argument._host


def emulator(function, signature):
    """A `launch.Runner`; a block's and the threads' order is made from a seed."""
    kernel = Kernel(function, signature)

    def run(grid, block, arguments):
        standin.counts.operations += 1
        kernel[grid, block, emulator.seed](*_memory(arguments))

    return run


emulator.seed = 1


@pytest.fixture
def emulated(monkeypatch):
    """Kernels run in the emulator."""
    monkeypatch.setattr(launch, "compiler", emulator)


@pytest.fixture
def cupy(emulated, monkeypatch):
    """The stand-in for CuPy, imported by whoever imports CuPy; kernels run in the emulator."""
    with standin.installed(monkeypatch) as module:
        yield module
