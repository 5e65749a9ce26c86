"""What launches kernels on a device, as far as it can be seen without one."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from fastemb.kernels import cuda as kernels
from fastemb.kernels.cuda import launch
from fastemb.kernels.cuda.gather import make_gather

from .emulator import arguments


class FakeArray(np.ndarray):
    """NumPy's memory with the address where CuPy has it."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


class FakeFunction:
    def __init__(self, name):
        self.name, self.calls = name, []

    def __call__(self, grid, block, words):
        self.calls.append((grid, block, words))


def forget_device(monkeypatch):
    """Let the module that needs CuPy be imported anew."""
    monkeypatch.delitem(sys.modules, "fastemb.kernels.cuda.device", raising=False)
    monkeypatch.delattr(kernels, "device", raising=False)


@pytest.fixture
def cupy(monkeypatch):
    """A CuPy that remembers what it is asked for."""
    made = ModuleType("cupy")
    made.loaded = []

    class Module:
        def load(self, cubin):
            assert cubin[:4] == b"\x7fELF"

        def get_function(self, name):
            made.loaded.append(FakeFunction(name))
            return made.loaded[-1]

    made.device = 0
    made.cuda = SimpleNamespace(
        Device=lambda number: SimpleNamespace(compute_capability=["80", "90"][number]),
        runtime=SimpleNamespace(getDevice=lambda: made.device),
        function=SimpleNamespace(Module=Module),
    )
    forget_device(monkeypatch)
    monkeypatch.setitem(sys.modules, "cupy", made)
    yield made
    forget_device(monkeypatch)


@pytest.fixture
def device(cupy, monkeypatch):
    """`kernels.cuda.device` on the fake CuPy, compiling without a driver."""
    from fastemb.kernels.cuda import device as module
    from fastemb.kernels.cuda import lowering

    from .offline import without_driver

    def code(function, signature, capability):
        with without_driver(capability):
            lowered = lowering.lower(function, signature, capability)
            return lowering.assemble(lowered.ptx(), capability)[0], lowered.name

    monkeypatch.setattr(module, "_machine_code", code)
    return module


def test_words_are_those_that_the_emulator_passes(device):
    table = np.arange(12, dtype=np.float32)
    given = (table.view(FakeArray), np.uint64(7), (table.view(FakeArray), np.float64(2.5)))
    types = tuple(launch._type_of(x) for x in (table, np.uint64(7), (table, np.float64(2.5))))
    expected = [
        word for kind, x in zip(types, given, strict=True) for word in arguments.slots(kind, x, lambda a: a.ctypes.data)
    ]
    found = [
        int(np.asarray(word).view(np.int64)) if isinstance(word, np.generic) else word for word in device.words(given)
    ]
    assert found == expected


def test_a_kernel_is_compiled_once_and_loaded_on_each_device(device, cupy, monkeypatch):
    out, table = np.zeros((3, 8), np.float32), np.ones((5, 8), np.float32)
    kernel = make_gather(4)
    words, weight, ids = out.view(np.uint32).reshape(-1), table.view(np.uint32).reshape(-1), np.arange(3)
    flag = np.zeros(1, np.int64)
    given = [array.view(FakeArray) for array in (words, weight, ids, flag)]
    given = (*given, np.uint64(8))
    run = device.compile_for_current_device(kernel, tuple(map(launch._type_of, given)))
    for cupy.device in (1, 1, 0, 1):
        run(2, (2, 128), given)
    first, second = cupy.loaded
    assert all("gather" in function.name for function in cupy.loaded)
    assert [len(first.calls), len(second.calls)] == [3, 1]
    grid, block, passed = first.calls[0]
    assert (grid, block, len(passed)) == ((2,), (2, 128), 4 * 7 + 1)
    assert passed[4] == words.ctypes.data


def test_a_kernel_is_compiled_once_for_each_kind_of_arguments(monkeypatch):
    asked = []

    def compiler(function, signature):
        asked.append(signature)
        return lambda grid, block, given: None

    def kernel(x, n):
        raise AssertionError

    monkeypatch.setattr(launch, "compiler", compiler)
    for x in (np.zeros((2, 3), np.float32), np.ones(9, np.float32), np.zeros(4)):
        for n in (np.uint64(3), np.uint64(4), np.int64(3)):
            launch.run(kernel, 1, (1, 1), x, n)
    assert len(asked) == len(set(asked)) == 4


def test_without_cupy_the_device_says_what_is_missing(monkeypatch):
    forget_device(monkeypatch)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ImportError, match="cupy"):
        launch.device(lambda: None, ())


@pytest.mark.parametrize(
    ("rows", "threads", "at_once"), [(0, 32, 1), (1, 32, 1), (7, 32, 4), (10**6, 4, 4), (10**9, 32, 1)]
)
def test_grids_reach_all_rows(rows, threads, at_once):
    grid, (x, y) = launch.teams(rows, threads, at_once)
    assert x * y == launch.THREADS
    assert x == threads
    assert 1 <= grid <= launch.MOST_BLOCKS
    assert grid == launch.MOST_BLOCKS or grid * y * at_once >= rows
