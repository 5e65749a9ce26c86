"""A table and the arrays of its state at once: the same row of each, the same columns of each.

Jitted code has no comprehension over a tuple, so these are intrinsics; addresses and vectors are those of `simd`.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import simd


def _of_arrays(context, builder, arrays, values):
    """(address of the first row, number of rows, bytes from a row to the next) of each array."""
    for kind, value in zip(arrays, cgutils.unpack_tuple(builder, values), strict=True):
        struct = context.make_array(kind)(context, builder, value)
        rows, stride = (cgutils.unpack_tuple(builder, part)[0] for part in (struct.shape, struct.strides))
        yield builder.ptrtoint(struct.data, ir.IntType(64)), rows, stride


def _where_there_are(builder, rows, value, other):
    return builder.select(builder.icmp_signed("==", rows, rows.type(0)), other, value)


@intrinsic
def begins(context, arrays, spare):
    """Where each array begins; `spare` for one that has no rows."""
    result = types.UniTuple(types.uintp, len(arrays))

    def codegen(context, builder, signature, arguments):
        found = _of_arrays(context, builder, arrays, arguments[0])
        wheres = [_where_there_are(builder, rows, start, arguments[1]) for start, rows, _ in found]
        return context.make_tuple(builder, result, wheres)

    return result(arrays, types.uintp), codegen


@intrinsic
def strides(context, arrays):
    """Bytes from a row of each array to the next; 0 for one that has no rows, whose every row is the spare one."""
    result = types.UniTuple(types.uintp, len(arrays))

    def codegen(context, builder, signature, arguments):
        found = _of_arrays(context, builder, arrays, arguments[0])
        return context.make_tuple(
            builder, result, [_where_there_are(builder, rows, stride, stride.type(0)) for _, rows, stride in found]
        )

    return result(arrays), codegen


@intrinsic
def addresses(context, begins, strides, row):
    """Where a row of each array lies."""
    result = types.UniTuple(types.uintp, len(begins))

    def codegen(context, builder, signature, arguments):
        pairs = zip(*(cgutils.unpack_tuple(builder, part) for part in arguments[:2]), strict=True)
        found = [builder.add(start, builder.mul(arguments[2], stride)) for start, stride in pairs]
        return context.make_tuple(builder, result, found)

    return result(begins, strides, types.uintp), codegen


@intrinsic
def rows_of(context, array, arrays):
    """Where the first rows of an array lie, as many as there are arrays."""
    result = types.UniTuple(types.uintp, len(arrays))

    def codegen(context, builder, signature, arguments):
        struct = context.make_array(array)(context, builder, arguments[0])
        stride = cgutils.unpack_tuple(builder, struct.strides)[0]
        start = builder.ptrtoint(struct.data, ir.IntType(64))
        found = [builder.add(start, builder.mul(stride, stride.type(k))) for k in range(len(arrays))]
        return context.make_tuple(builder, result, found)

    return result(array, arrays), codegen


@intrinsic
def as_many(context, places, others):
    """The first of the addresses, as many as there are others."""
    result = types.UniTuple(types.uintp, len(others))

    def codegen(context, builder, signature, arguments):
        return context.make_tuple(builder, result, cgutils.unpack_tuple(builder, arguments[0])[: len(others)])

    return result(places, others), codegen


@intrinsic
def as_numbers(context, values, like):
    """Numbers as ones of the type of `like`."""
    result = types.Tuple([like] * len(values))

    def codegen(context, builder, signature, arguments):
        pairs = zip(cgutils.unpack_tuple(builder, arguments[0]), values, strict=True)
        return context.make_tuple(builder, result, [context.cast(builder, value, kind, like) for value, kind in pairs])

    return result(values, like), codegen


def _wheres(builder, places, at):
    return [builder.add(where, at) for where in cgutils.unpack_tuple(builder, places)]


def _load(context, builder, arguments, result, between=None):
    wheres = _wheres(builder, *arguments[:2])
    vectors = [simd.emit_load(context, builder, where, result.dtype, between) for where in wheres]
    return context.make_tuple(builder, result, vectors)


def _store(context, builder, arguments, vectors, between=None):
    values = cgutils.unpack_tuple(builder, arguments[2])
    for where, value in zip(_wheres(builder, *arguments[:2]), values, strict=True):
        simd.emit_store(builder, where, value, vectors.dtype, between)
    return context.get_dummy_value()


@intrinsic
def prefetch(context, places, at, like):
    """Ask for the cache lines of a vector of the type of `like` that is `at` bytes from each address."""

    def codegen(context, builder, signature, arguments):
        for where in _wheres(builder, *arguments[:2]):
            simd.emit_prefetch(builder, where, like)
        return context.get_dummy_value()

    return types.void(places, types.uintp, like), codegen


@intrinsic
def load(context, places, at, like):
    """The vector `at` bytes from each address, of the type of `like`."""
    result = types.UniTuple(like, len(places))

    def codegen(context, builder, signature, arguments):
        return _load(context, builder, arguments, result)

    return result(places, types.uintp, like), codegen


@intrinsic
def load_between(context, places, at, like, first, last):
    """The lanes from `first` up to `last` of each, zeros in the others; nothing else is read."""
    result = types.UniTuple(like, len(places))

    def codegen(context, builder, signature, arguments):
        return _load(context, builder, arguments, result, arguments[3:])

    return result(places, types.uintp, like, types.int64, types.int64), codegen


@intrinsic
def store(context, places, at, vectors):
    """Write a vector `at` bytes from each address."""

    def codegen(context, builder, signature, arguments):
        return _store(context, builder, arguments, vectors)

    return types.void(places, types.uintp, vectors), codegen


@intrinsic
def store_between(context, places, at, vectors, first, last):
    """Write the lanes from `first` up to `last` of each; nothing else is written."""

    def codegen(context, builder, signature, arguments):
        return _store(context, builder, arguments, vectors, arguments[3:])

    return types.void(places, types.uintp, vectors, types.int64, types.int64), codegen
