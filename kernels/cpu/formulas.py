"""What ``+ - * /`` mean for vectors, so that a rule reads like its formula; a number stands for itself in every lane."""

import operator

from numba.extending import overload

from . import simd


def _lanewise(symbol, vectors):
    @overload(symbol, jit_options={"forceinline": True})
    def of(x, y):
        if isinstance(x, simd.Vector) and x == y:
            return lambda x, y: vectors(x, y)
        if isinstance(x, simd.Vector) and x.dtype == y:
            return lambda x, y: vectors(x, simd.fill(y, x))
        if isinstance(y, simd.Vector) and y.dtype == x:
            return lambda x, y: vectors(simd.fill(x, y), y)
        return None


_lanewise(operator.add, simd.add)
_lanewise(operator.sub, simd.sub)
_lanewise(operator.mul, simd.mul)
_lanewise(operator.truediv, simd.div)
