"""How arrays are read and written: what `intrin` makes its loads, stores, additions and atomics of.

Each function here describes an intrinsic to Numba: from the types of the arguments to a signature and a function that
emits the code. None is for "not with these": Numba tries again with the values of arguments that it knows.
"""

from llvmlite import ir
from numba import types

from . import llvm
from .llvm import I32, I64, call

WIDEST = 16
"""Bytes of the widest access."""

FLOATS = types.float32, types.float64


def require(condition, message):
    """Refuse to compile."""
    if not condition:
        raise TypeError(message)


def _access(array, index, n, *, writes):
    """The dtype of an array of which `n` elements can be accessed at once; else TypeError."""
    flat = isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C"
    require(flat, f"an array with one axis, C-contiguous, not {array}")
    require(array.mutable or not writes, f"an array that may be written, not {array}")
    require(isinstance(index, types.Integer), f"an index is a whole number, not {index}")
    dtype = array.dtype
    whole = isinstance(dtype, types.Integer) and dtype.bitwidth >= 32
    require(whole or dtype in (types.float16, *FLOATS), f"numbers of 32 or 64 bits, or float16, not {dtype}")
    fits = n in (1, 2, 4, 8) and n * dtype.bitwidth <= 8 * WIDEST
    require(fits, f"1, 2, 4 or 8 elements of together at most {WIDEST} bytes, not {n} of {dtype}")
    return dtype


def _count(values):
    require(isinstance(values, types.UniTuple), f"a tuple of numbers of one type, not {values}")
    return values.count


def _pointer(context, builder, signature, arguments, element=None):
    """Where an element lies; in global memory if `element` is not given, else anywhere, as that type."""
    array, index = signature.args[:2]
    data = context.make_array(array)(context, builder, arguments[0]).data
    at = context.cast(builder, arguments[1], index, types.int64 if index.signed else types.uint64)
    pointer = builder.gep(data, [at])
    if element is None:
        return builder.addrspacecast(pointer, ir.PointerType(pointer.type.pointee, 1))
    return builder.bitcast(pointer, element.as_pointer())


def _packed(context, builder, dtype, kind, values):
    """The words of a tuple of numbers."""
    scalars = (builder.extract_value(values, k) for k in range(kind.count))
    return llvm.pack(builder, [context.cast(builder, x, kind.dtype, llvm.number(dtype)) for x in scalars], dtype)


def load(context, array, index, n):
    """`n` numbers from an index on, in one access; a tuple, of float32 where the array is of float16."""
    if not isinstance(n, types.IntegerLiteral):
        return None
    width = n.literal_value
    dtype = _access(array, index, width, writes=False)
    word, _, _, count = llvm.plan(dtype, width)

    def codegen(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature, arguments, ir.VectorType(word, count))
        vector = builder.load(pointer, align=width * dtype.bitwidth // 8)
        got = [builder.extract_element(vector, I32(k)) for k in range(count)]
        return context.make_tuple(builder, signature.return_type, llvm.unpack(builder, got, dtype))

    return types.UniTuple(llvm.number(dtype), width)(array, index, n), codegen


def load_stream(context, array, index, n):
    """`load` from global memory that nobody writes while the kernel runs, without a place in the first cache."""
    if not isinstance(n, types.IntegerLiteral):
        return None
    width = n.literal_value
    dtype = _access(array, index, width, writes=False)
    word, name, letter, count = llvm.plan(dtype, width)

    def codegen(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature, arguments)
        names, vector = llvm.operands(0, count)
        text = f"ld.global.nc.L1::no_allocate{vector}.{name} {names}, [${count}];"
        got = llvm.read(builder, text, word, letter, count, pointer)
        return context.make_tuple(builder, signature.return_type, llvm.unpack(builder, got, dtype))

    return types.UniTuple(llvm.number(dtype), width)(array, index, n), codegen


def store(context, array, index, values):
    """Write the numbers of a tuple from an index on, in one access."""
    dtype = _access(array, index, _count(values), writes=True)
    word, _, _, count = llvm.plan(dtype, len(values))

    def codegen(context, builder, signature, arguments):
        vector = ir.Constant(ir.VectorType(word, count), ir.Undefined)
        for k, packed in enumerate(_packed(context, builder, dtype, values, arguments[2])):
            vector = builder.insert_element(vector, packed, I32(k))
        pointer = _pointer(context, builder, signature, arguments, vector.type)
        builder.store(vector, pointer, align=len(values) * dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, index, values), codegen


def store_stream(context, array, index, values):
    """`store` to global memory of what will not be read again soon: the first to leave the caches."""
    dtype = _access(array, index, _count(values), writes=True)
    _, name, letter, count = llvm.plan(dtype, len(values))

    def codegen(context, builder, signature, arguments):
        names, vector = llvm.operands(1, count)
        packed = _packed(context, builder, dtype, values, arguments[2])
        pointer = _pointer(context, builder, signature, arguments)
        llvm.write(builder, f"st.global.cs{vector}.{name} [$0], {names};", letter, pointer, packed)
        return context.get_dummy_value()

    return types.void(array, index, values), codegen


def red_add(context, array, index, values, n):
    """Add a tuple to global memory that other threads add to as well, `n` numbers in one instruction.

    `n` above 1 is for float32, on devices of compute capability 9.0 or above. float32 sums flush subnormal numbers.
    """
    if not isinstance(n, types.IntegerLiteral):
        return None
    width = n.literal_value
    dtype = _access(array, index, width, writes=True)
    fits = _count(values) % width == 0 and dtype != types.float16 and (width == 1 or dtype == types.float32)
    require(fits, f"no red_add of {values} to {dtype}, {width} at once")
    _, name, letter, _ = llvm.plan(dtype, width)

    def codegen(context, builder, signature, arguments):
        names, vector = llvm.operands(1, width)
        text = f"red.relaxed.gpu.global.add{vector}.{name.replace('b', 'u')} [$0], {names};"
        pointer = _pointer(context, builder, signature, arguments)
        packed = _packed(context, builder, dtype, values, arguments[2])
        for k in range(0, len(values), width):
            llvm.write(builder, text, letter, builder.gep(pointer, [I64(k)]), packed[k : k + width])
        return context.get_dummy_value()

    return types.void(array, index, values, n), codegen


def atomic(name, operation, doc, parameters=1):
    """The description of an intrinsic that changes one element at once and returns what was there."""

    def change(context, array, index, *values):
        dtype = _access(array, index, 1, writes=True)
        fits = isinstance(dtype, types.Integer) or (name == "atomic_add" and dtype in FLOATS)
        require(fits, f"no {name} on {dtype}")

        def codegen(context, builder, signature, arguments):
            given = [context.cast(builder, x, kind, dtype) for x, kind in zip(arguments[2:], values, strict=True)]
            pointer = _pointer(context, builder, signature, arguments, context.get_value_type(dtype))
            if dtype in FLOATS:
                bits = f"f{dtype.bitwidth}"
                return call(builder, f"llvm.nvvm.atomic.load.add.{bits}.p0{bits}", given[0].type, pointer, *given)
            if operation == "cas":
                return builder.extract_value(builder.cmpxchg(pointer, *given, "monotonic", "monotonic"), 0)
            unsigned = "u" if operation in ("min", "max") and not dtype.signed else ""
            return builder.atomic_rmw(unsigned + operation, pointer, *given, "monotonic")

        return dtype(array, index, *values), codegen

    forms = {
        1: lambda context, array, index, value: change(context, array, index, value),
        2: lambda context, array, index, expected, value: change(context, array, index, expected, value),
    }
    device = forms[parameters]
    device.__name__, device.__doc__ = name, f"{doc}; returns what was there. Whole numbers of 32 or 64 bits."
    return device
