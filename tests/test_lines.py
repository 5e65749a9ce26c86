"""Where tables and their state begin: at cache lines."""

import numpy as np
import pytest

from fastemb import _lines, nn, optim


def behind(array):
    return array.ctypes.data % _lines.LINE


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (7, 5), (1000, 129)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64"])
def test_arrays_begin_at_a_line(shape, dtype):
    for array in (_lines.empty(shape, np.dtype(dtype)), _lines.filled(shape, np.dtype(dtype), 0)):
        assert array.shape == shape
        assert array.dtype == dtype
        assert array.flags.c_contiguous
        assert array.flags.aligned
        assert array.flags.writeable
        assert array.size == 0 or behind(array) == 0
    assert not _lines.filled(shape, np.dtype(dtype), 0).any()
    assert (_lines.filled(shape, np.dtype(dtype), 3) == 3).all()


@pytest.mark.parametrize("offset", range(0, 72, 4))
@pytest.mark.parametrize("number", [0, 2])
def test_an_array_begins_as_far_behind_a_line_as_another(offset, number):
    memory = np.zeros(256, np.uint8)
    start = (offset - memory.ctypes.data) % 64
    other = memory[start : start + 16].view(np.float32)
    for dtype in (np.float32, np.float64):
        array = _lines.filled((3, 5), np.dtype(dtype), number, other)
        assert behind(array) == offset % 64 // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize
        assert array.flags.aligned
        assert (array == number).all()


@pytest.mark.parametrize("init", ["normal", "uniform_fan", "zeros", lambda rng, shape, dtype: rng.random(shape)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_tables_of_layers_and_their_state(init, dtype):
    layer = nn.Embedding(300, 3, init=init, dtype=dtype, seed=1, optimizer=optim.Adam(lr=0.1))
    assert behind(layer.weight) == 0
    assert [behind(array) for array in layer.state.arrays().values()] == [0, 0]


@pytest.mark.parametrize("rule", [optim.Adagrad(lr=0.1, initial_accumulator=0.5), optim.Momentum(lr=0.1), optim.Ftrl()])
def test_state_begins_where_the_table_does(rule):
    table = np.zeros(1000, np.float32)[3:999].reshape(332, 3)
    for array in rule.init(table).arrays().values():
        if array.size:
            assert behind(array) == behind(table)


def test_the_numbers_are_those_of_the_generator():
    rng = np.random.default_rng(5)
    assert np.array_equal(nn.Embedding(40, 3, seed=5, init="normal").weight, rng.standard_normal((40, 3), np.float32))
