"""What kernels do with the bytes of a row."""

import numpy as np

from . import simd
from .jit import EXACT, jit


@jit(fastmath=EXACT, inline=True)
def prefetch(start, nbytes):
    """Ask for the cache lines of `nbytes` from an address."""
    at = np.uintp(0)
    while at < nbytes:
        simd.prefetch(start + at)
        at += np.uintp(simd.LINE)
