"""Indicator rows."""

import numpy as np
import pytest
from hypothesis import given
from strategies import lookups

import fastemb


@given(lookups())
def test_is_the_definition(arrays):
    table, indices = arrays
    classes = len(table)
    out = fastemb.one_hot(indices, classes, np.float64)
    assert out.shape == (*indices.shape, classes)
    assert np.array_equal(out, np.eye(classes)[indices.astype(np.int64)])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8, bool, complex, "bfloat16"])
def test_dtypes(dtype):
    out = fastemb.one_hot([1], 2, dtype)
    assert out.dtype == (dtype if dtype != "bfloat16" else out.dtype)
    assert np.array_equal(out, np.array([[0, 1]], out.dtype))


def test_options():
    assert fastemb.one_hot([0], 1).dtype == np.float32
    with pytest.raises(ValueError, match="^num_classes must be >= 0, got -1$"):
        fastemb.one_hot([0], -1)
    with pytest.raises(TypeError, match=r"^num_classes must be an integer, got 2\.0$"):
        fastemb.one_hot([0], 2.0)
    with pytest.raises(TypeError, match="^dtype must be numeric or bool, got <U1$"):
        fastemb.one_hot([0], 1, "U1")
