"""The same tests for every library whose arrays fastemb takes.

"numpy" is the host. "emulated" is a stand-in for CuPy with the kernels for CUDA in an emulator: see tests/cuda. "gpu"
is CuPy itself and is marked so: ``pytest -m gpu`` on a machine that has one.
"""

import sys

import numpy as np
import pytest

LIBRARIES = ["numpy", "emulated", pytest.param("gpu", marks=pytest.mark.gpu)]


class Device:
    """Where a test's arrays are."""

    def __init__(self, xp, name):
        self.xp, self.name = xp, name
        self.on_gpu = name != "cpu"

    def put(self, array):
        """A copy on the device."""
        return self.xp.array(array)

    def same_bits(self, found, expected):
        """Assert that an array is on the device and has the shape, dtype and bits of one on the host."""
        assert isinstance(found, self.xp.ndarray)
        host = self.xp.asnumpy(found) if self.on_gpu else found
        assert host.dtype == expected.dtype
        np.testing.assert_array_equal(host, expected)

    def same_rows(self, found, expected):
        """Likewise of the gradient of some rows."""
        assert found.num_rows == expected.num_rows
        self.same_bits(found.rows, expected.rows)
        self.same_bits(found.values, expected.values)


@pytest.fixture(params=LIBRARIES)
def device(request):
    """A library's arrays, on a device."""
    if request.param == "numpy":
        return Device(np, "cpu")
    if request.param == "emulated":
        if sys.platform != "linux":
            pytest.skip("numba-cuda is for Linux and Windows, and the emulator's fibers are for Linux")
        return Device(request.getfixturevalue("stand_in"), "cuda:0")
    import cupy

    return Device(cupy, "cuda:0")


@pytest.fixture
def stand_in(monkeypatch):
    """The stand-in for CuPy, imported by whoever imports CuPy; kernels run in the emulator."""
    from fastemb.kernels.cuda import launch

    from ..cuda import standin
    from ..cuda.launched import emulator

    monkeypatch.setattr(launch, "compiler", emulator)
    with standin.installed(monkeypatch) as module:
        yield module
