"""Arithmetic of vectors: as functions, and as ``+ - * /``, so that a rule reads like its formula.

Where an operator has a vector and a number, the number stands in every lane.
"""

import operator

from llvmlite import ir
from numba.extending import intrinsic, overload

from . import simd


def _binary(operation, doc):
    @intrinsic
    def lanewise(context, x, y):
        def codegen(context, builder, signature, arguments):
            return getattr(builder, operation)(*arguments)

        return x(x, x), codegen

    lanewise.__doc__ = doc
    return lanewise


add = _binary("fadd", "``x + y``, lane by lane.")
sub = _binary("fsub", "``x - y``, lane by lane.")
mul = _binary("fmul", "``x * y``, lane by lane.")
div = _binary("fdiv", "``x / y``, lane by lane.")


@intrinsic
def fma(context, x, y, z):
    """``x * y + z``, lane by lane, rounded once."""

    def codegen(context, builder, signature, arguments):
        return simd.emit_call(builder, f"llvm.fma.{simd.suffix(x)}", arguments[0].type, *arguments)

    return x(x, x, x), codegen


@intrinsic
def larger(context, x, y):
    """`y` in the lanes where it is greater, or NaN and `x` not; else `x`, also where both are equal."""

    def codegen(context, builder, signature, arguments):
        x, y = arguments
        greater_or_nan = builder.fcmp_unordered(">", y, x)
        number = builder.fcmp_ordered("ord", x, x)
        return builder.select(builder.and_(greater_or_nan, number), y, x)

    return x(x, x), codegen


def _where(condition, doc):
    @intrinsic
    def where(context, x, y, yes, no):
        def codegen(context, builder, signature, arguments):
            x, y, yes, no = arguments
            return builder.select(builder.fcmp_ordered(condition, x, y), yes, no)

        return x(x, x, x, x), codegen

    where.__doc__ = doc
    return where


where_greater = _where(">", "`yes` in the lanes where ``x > y``, else `no`, also for NaN.")
where_numbers = _where("ord", "`yes` in the lanes where neither `x` nor `y` is NaN, else `no`.")


@intrinsic
def sqrt(context, x):
    """Square root, lane by lane."""

    def codegen(context, builder, signature, arguments):
        return simd.emit_call(builder, f"llvm.sqrt.{simd.suffix(x)}", arguments[0].type, *arguments)

    return x(x), codegen


@intrinsic
def add_lines(context, line, vector):
    """``line`` plus each line that a wider vector consists of, one after the other."""

    def codegen(context, builder, signature, arguments):
        total, whole = arguments
        for start in range(0, vector.lanes, line.lanes):
            lanes = ir.Constant(ir.VectorType(simd.INT32, line.lanes), list(range(start, start + line.lanes)))
            total = builder.fadd(total, builder.shuffle_vector(whole, whole, lanes))
        return total

    return line(line, vector), codegen


@intrinsic
def sum_lanes(context, x):
    """Sum over the lanes: the second half of them added to the first, and so on, until one is left."""

    def codegen(context, builder, signature, arguments):
        (vector,) = arguments
        while (half := vector.type.count // 2) > 0:
            first, second = (
                builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(simd.INT32, half), list(lanes)))
                for lanes in (range(half), range(half, 2 * half))
            )
            vector = builder.fadd(first, second)
        return builder.extract_element(vector, simd.INT32(0))

    return x.dtype(x), codegen


def _operator(symbol, vectors):
    @overload(symbol, jit_options={"forceinline": True})
    def of(x, y):
        if isinstance(x, simd.Vector) and x == y:
            return lambda x, y: vectors(x, y)
        if isinstance(x, simd.Vector) and x.dtype == y:
            return lambda x, y: vectors(x, simd.fill(y, x))
        if isinstance(y, simd.Vector) and y.dtype == x:
            return lambda x, y: vectors(simd.fill(x, y), y)
        return None


_operator(operator.add, add)
_operator(operator.sub, sub)
_operator(operator.mul, mul)
_operator(operator.truediv, div)
