"""How JAX is set up for a test."""

import pytest


@pytest.fixture(params=[False, True], ids=["32 bits", "64 bits"])
def x64(request):
    """Whether JAX has 64 bits; both."""
    import jax

    jax.config.update("jax_enable_x64", request.param)
    yield request.param
    jax.config.update("jax_enable_x64", False)
