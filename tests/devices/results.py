"""What tests of layers on several devices compare."""

import numpy as np
import pytest

GPUS = ["emulated", pytest.param("gpu", marks=pytest.mark.gpu)]
"""For ``parametrize("device", GPUS, indirect=True)``: what there is to test on the host needs no parameter."""


def on_host(array):
    """A copy on the host of an array that may be on a GPU."""
    return array.copy() if isinstance(array, np.ndarray) else array.get()


def assert_close(device, found, expected, rtol=1e-6, atol=1e-7):
    """Like ``device.same_bits``, for what the array library has summed, or taken a sine of."""
    assert isinstance(found, device.xp.ndarray)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(on_host(found), expected, rtol, atol)


def leaves(saved, path=""):
    """The entries of a state_dict that are no mappings, by path."""
    found = {}
    for name, value in saved.items():
        found |= leaves(value, f"{path}{name}.") if isinstance(value, dict) else {f"{path}{name}": value}
    return found


def assert_same_state(found, expected, *, exact):
    """Assert that two layers have the same state, wherever they lie."""
    found, expected = leaves(found.state_dict()), leaves(expected.state_dict())
    assert list(found) == list(expected)
    for name, value in expected.items():
        if isinstance(value, int):
            assert found[name] == value
        else:
            assert found[name].dtype == value.dtype
            compare = np.testing.assert_array_equal if exact else np.testing.assert_allclose
            compare(on_host(found[name]), on_host(value), **({} if exact else {"rtol": 2e-5, "atol": 1e-6}))
