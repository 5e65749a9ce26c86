"""Set up before anything imports Numba: threads to spare, so that results can be compared for 1 to 8 of them."""

import os

os.environ.setdefault("NUMBA_NUM_THREADS", "8")

import numba
import numpy as np
import pytest

try:
    import hypothesis
except ImportError:  # on a machine with a GPU, where `python benches/device.py` installs nothing
    pass
else:
    hypothesis.settings.register_profile(
        "fastemb",
        deadline=None,
        derandomize=True,
        max_examples=150,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("fastemb")


@pytest.fixture(scope="session", autouse=True)
def _as_many_threads_as_cores():
    numba.set_num_threads(min(numba.config.NUMBA_NUM_THREADS, os.cpu_count() or 1))


@pytest.fixture
def rng():
    """A generator with the same numbers in every run."""
    return np.random.default_rng(20260101)
