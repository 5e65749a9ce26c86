"""Explicit SIMD for Numba: vectors and memory; with `arithmetic` and `each` all LLVM IR on the CPU side.

A `Vector` is some numbers of one dtype that LLVM keeps in as many registers as they need on the machine at hand
(AVX-512, AVX2, SSE2, NEON). All functions here are Numba intrinsics, to be called from jitted code; addresses are
unsigned integers (`address`).
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import register_default
from numba.core.datamodel.models import PrimitiveModel
from numba.core.errors import TypingError
from numba.extending import intrinsic

INT8, INT32 = ir.IntType(8), ir.IntType(32)
LINE = 64
"""Bytes of a cache line, and of a `line` vector: one register of AVX-512, two of AVX2, four of SSE2."""

WIDE = 256
"""Bytes of a `wide` vector: four registers of AVX-512, eight of AVX2, all sixteen of SSE2."""


WIDEST = 512
"""Bytes of a `widest` vector: eight registers of AVX-512, all sixteen of AVX2; more than SSE2 has."""


class Vector(types.Type):  # type: ignore[misc]  # Numba has no types
    """Numba type of ``lanes`` numbers of `dtype`."""

    def __init__(self, dtype, lanes):
        self.dtype, self.lanes = dtype, lanes
        super().__init__(name=f"vector({dtype} x {lanes})")


@register_default(Vector)
class _VectorModel(PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager, vector):
        element = manager.lookup(vector.dtype).get_value_type()
        super().__init__(manager, vector, ir.VectorType(element, vector.lanes))


def _pointer(builder, address, vector_type):
    return builder.inttoptr(address, vector_type.as_pointer())


def _constant(vector_type, value):
    return ir.Constant(vector_type, [value] * vector_type.count)


def _splat(builder, scalar, lanes):
    one = builder.insert_element(ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined), scalar, INT32(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(INT32, lanes), [0] * lanes))


def emit_call(builder, name, result, *arguments):
    """IR of a call of a function of LLVM's."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def suffix(vector):
    """How LLVM's functions of such vectors end."""
    return f"v{vector.lanes}f{vector.dtype.bitwidth}"


@intrinsic
def address(context, array):
    """Where an array's first element lies."""

    def codegen(context, builder, signature, arguments):
        struct = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(struct.data, ir.IntType(64))

    return types.uintp(array), codegen


@intrinsic
def integers(context, where, size, stride):
    """The int64 at an address and every `stride` bytes after it, as an array whose references nobody counts."""
    array = types.Array(types.int64, 1, "A")

    def codegen(context, builder, signature, arguments):
        made = context.make_array(array)(context, builder)
        where, size, stride = arguments
        data = _pointer(builder, where, context.get_value_type(array.dtype))
        itemsize = size.type(array.dtype.bitwidth // 8)
        context.populate_array(made, data=data, shape=[size], strides=[stride], itemsize=itemsize, meminfo=None)
        return made._getvalue()  # noqa: SLF001  as all of Numba's own array functions do

    return array(types.uintp, types.intp, types.intp), codegen


@intrinsic
def item_size(context, scalar):
    """Bytes of a number."""

    def codegen(context, builder, signature, arguments):
        return ir.IntType(64)(scalar.bitwidth // 8)

    return types.uintp(scalar), codegen


@intrinsic
def lanes(context, vector):
    """How many numbers a vector holds."""

    def codegen(context, builder, signature, arguments):
        return ir.IntType(64)(vector.lanes)

    return types.int64(vector), codegen


@intrinsic
def number(context, where, like):
    """The number at an address; of the type of `like`."""

    def codegen(context, builder, signature, arguments):
        return builder.load(_pointer(builder, arguments[0], context.get_value_type(like)))

    return like(types.uintp, like), codegen


@intrinsic
def store_number(context, where, value):
    """Write a number to an address."""

    def codegen(context, builder, signature, arguments):
        builder.store(arguments[1], _pointer(builder, arguments[0], arguments[1].type))
        return context.get_dummy_value()

    return types.void(types.uintp, value), codegen


@intrinsic
def as_number(context, value, like):
    """A number as one of the type of `like`."""

    def codegen(context, builder, signature, arguments):
        return context.cast(builder, arguments[0], value, like)

    return like(value, like), codegen


def _filler(nbytes, doc):
    @intrinsic
    def fill(context, scalar):
        if scalar not in (types.float32, types.float64):
            msg = f"a vector holds float32 or float64, not {scalar}"
            raise TypingError(msg)
        vector = Vector(scalar, nbytes * 8 // scalar.bitwidth)

        def codegen(context, builder, signature, arguments):
            return _splat(builder, arguments[0], vector.lanes)

        return vector(scalar), codegen

    fill.__doc__ = doc
    return fill


line = _filler(LINE, "The vector of `LINE` bytes with a number in every lane.")
wide = _filler(WIDE, "The vector of `WIDE` bytes with a number in every lane.")
widest = _filler(WIDEST, "The vector of `WIDEST` bytes with a number in every lane.")


@intrinsic
def fill(context, scalar, like):
    """The vector of the type of `like` with a number in every lane."""

    def codegen(context, builder, signature, arguments):
        return _splat(builder, arguments[0], like.lanes)

    return like(like.dtype, like), codegen


def _lanes_below(builder, count, lanes):
    numbers = ir.Constant(ir.VectorType(INT32, lanes), list(range(lanes)))
    return builder.icmp_unsigned("<", numbers, _splat(builder, builder.trunc(count, INT32), lanes))


def _lanes_between(builder, limits, lanes):
    first, last = limits
    below = _lanes_below(builder, last, lanes)
    return builder.and_(below, builder.not_(_lanes_below(builder, first, lanes)))


def _masked_load(builder, where, vector, mask, kind, under):
    size = INT32(vector.dtype.bitwidth // 8)
    pointer = _pointer(builder, where, kind)
    return emit_call(builder, f"llvm.masked.load.{suffix(vector)}.p0", kind, pointer, size, mask, under)


def emit_load(context: Any, builder: Any, where: Any, like: Any, between: Any = None) -> Any:
    """IR of `load`, or with the limits of the lanes of `load_between`."""
    kind = context.get_value_type(like)
    if between is None:
        return builder.load(_pointer(builder, where, kind), align=like.dtype.bitwidth // 8)
    mask = _lanes_between(builder, between, like.lanes)
    return _masked_load(builder, where, like, mask, kind, _constant(kind, 0.0))


@intrinsic
def load(context, where, like):
    """The vector at an address of its elements' alignment; of the type of `like`."""

    def codegen(context, builder, signature, arguments):
        return emit_load(context, builder, arguments[0], like)

    return like(types.uintp, like), codegen


def emit_store(builder: Any, where: Any, value: Any, vector: Any, between: Any = None) -> None:
    """IR of `store`, or with the limits of the lanes of `store_between`."""
    pointer, size = _pointer(builder, where, value.type), vector.dtype.bitwidth // 8
    if between is None:
        builder.store(value, pointer, align=size)
        return
    mask = _lanes_between(builder, between, vector.lanes)
    emit_call(builder, f"llvm.masked.store.{suffix(vector)}.p0", ir.VoidType(), value, pointer, INT32(size), mask)


@intrinsic
def store(context, where, vector):
    """Write a vector to an address of its elements' alignment."""

    def codegen(context, builder, signature, arguments):
        emit_store(builder, arguments[0], arguments[1], vector)
        return context.get_dummy_value()

    return types.void(types.uintp, vector), codegen


@intrinsic
def stream(context, where, vector):
    """Write a vector past the caches, to the address of a cache line; see `fence`."""

    def codegen(context, builder, signature, arguments):
        pointer = _pointer(builder, arguments[0], arguments[1].type)
        written = builder.store(arguments[1], pointer, align=LINE)
        written.set_metadata("nontemporal", builder.module.add_metadata([INT32(1)]))
        return context.get_dummy_value()

    return types.void(types.uintp, vector), codegen


@intrinsic
def fence(context):
    """Order streamed writes before everything after it, for other threads too."""

    def codegen(context, builder, signature, arguments):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def load_between(context, where, like, first, last):
    """The lanes from `first` up to `last` from an address, zeros in the others; nothing else is read."""

    def codegen(context, builder, signature, arguments):
        return emit_load(context, builder, arguments[0], like, arguments[2:])

    return like(types.uintp, like, types.int64, types.int64), codegen


@intrinsic
def load_first(context, where, like, count):
    """The first `count` lanes from an address, zeros in the others; nothing beyond them is read."""

    def codegen(context, builder, signature, arguments):
        kind = context.get_value_type(like)
        mask = _lanes_below(builder, arguments[2], like.lanes)
        return _masked_load(builder, arguments[0], like, mask, kind, _constant(kind, 0.0))

    return like(types.uintp, like, types.int64), codegen


@intrinsic
def load_after(context, where, under, count):
    """`under` in the first `count` lanes, and from an address on in the others; nothing before or beyond is read."""

    def codegen(context, builder, signature, arguments):
        after = builder.not_(_lanes_below(builder, arguments[2], under.lanes))
        size = under.dtype.bitwidth // 8
        begin = builder.sub(arguments[0], builder.mul(arguments[2], ir.IntType(64)(size)))
        return _masked_load(builder, begin, under, after, arguments[1].type, arguments[1])

    return under(types.uintp, under, types.int64), codegen


@intrinsic
def store_first(context, where, vector, count):
    """Write the first `count` lanes to an address; nothing beyond them is written."""

    def codegen(context, builder, signature, arguments):
        emit_store(builder, arguments[0], arguments[1], vector, (arguments[2].type(0), arguments[2]))
        return context.get_dummy_value()

    return types.void(types.uintp, vector, types.int64), codegen


def _prefetch_line(builder, where):
    pointer = builder.inttoptr(where, INT8.as_pointer())
    emit_call(builder, "llvm.prefetch.p0", ir.VoidType(), pointer, INT32(0), INT32(2), INT32(1))


@intrinsic
def prefetch(context, where):
    """Ask for the cache line at an address; any address will do.

    For the second level of the caches: those that are on the way to the first are few, on the machine measured some 24
    of a core, which is half of what its share of the memory can bring.
    """

    def codegen(context, builder, signature, arguments):
        _prefetch_line(builder, arguments[0])
        return context.get_dummy_value()

    return types.void(types.uintp), codegen


def emit_prefetch(builder, where, vector):
    """IR of `prefetch_vector`."""
    for at in range(0, vector.lanes * vector.dtype.bitwidth // 8, LINE):
        _prefetch_line(builder, builder.add(where, where.type(at)))


@intrinsic
def prefetch_vector(context, where, like):
    """Ask for the cache lines of a vector of the type of `like` at an address; any address will do."""

    def codegen(context, builder, signature, arguments):
        emit_prefetch(builder, arguments[0], like)
        return context.get_dummy_value()

    return types.void(types.uintp, like), codegen
