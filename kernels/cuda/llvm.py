"""How numbers travel between memory and registers: pieces of LLVM IR and PTX that `intrin` puts together."""

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function

VOID, I1, I16, I32, I64 = ir.VoidType(), ir.IntType(1), ir.IntType(16), ir.IntType(32), ir.IntType(64)
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()

PAIR = ir.LiteralStructType([I32, I1])
"""What shuffles and votes return: a word, and whether its lane took part or the vote was carried."""


def call(builder, name, result, *arguments):
    """Call a function of LLVM's or NVVM's."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(get_or_insert_function(builder.module, kind, name), arguments)


def plan(dtype, n):
    """How `n` numbers of a dtype travel: (LLVM type of a word, its PTX type, the letter of its register, words)."""
    if dtype == types.float16:
        return (I16, "b16", "h", 1) if n == 1 else (I32, "b32", "r", n // 2)
    if dtype == types.float32:
        return F32, "f32", "f", n
    if dtype == types.float64:
        return F64, "f64", "d", n
    return (I32, "b32", "r", n) if dtype.bitwidth == 32 else (I64, "b64", "l", n)


def number(dtype):
    """The type of a number of a dtype once it is loaded."""
    return types.float32 if dtype == types.float16 else dtype


def unpack(builder, words, dtype):
    """Numbers out of words."""
    if dtype != types.float16:
        return words
    if words[0].type == I32:
        words = [builder.trunc(part, I16) for word in words for part in (word, builder.lshr(word, I32(16)))]
    return [builder.fpext(builder.bitcast(word, F16), F32) for word in words]


def pack(builder, numbers, dtype):
    """Words out of numbers; `unpack` backwards."""
    if dtype != types.float16:
        return numbers
    halves = [builder.bitcast(builder.fptrunc(x, F16), I16) for x in numbers]
    if len(halves) == 1:
        return halves
    wide = [builder.zext(half, I32) for half in halves]
    return [builder.or_(low, builder.shl(high, I32(16))) for low, high in zip(wide[::2], wide[1::2], strict=True)]


def operands(first, count):
    """PTX for `count` operands: ``$0`` and nothing, or ``{$0,$1}`` and the suffix of an instruction for a vector."""
    names = ",".join(f"${first + k}" for k in range(count))
    return (names, "") if count == 1 else (f"{{{names}}}", f".v{count}")


def read(builder, text, word, letter, count, pointer):
    """The words that a PTX instruction reads from a pointer."""
    result = word if count == 1 else ir.LiteralStructType([word] * count)
    kind = ir.FunctionType(result, [pointer.type])
    got = builder.call(ir.InlineAsm(kind, text, f"={letter}," * count + "l"), [pointer])
    return [got] if count == 1 else [builder.extract_value(got, k) for k in range(count)]


def write(builder, text, letter, pointer, words):
    """A PTX instruction that writes words to a pointer."""
    kind = ir.FunctionType(VOID, [pointer.type] + [word.type for word in words])
    constraints = "l," + f"{letter}," * len(words) + "~{memory}"
    builder.call(ir.InlineAsm(kind, text, constraints, side_effect=True), [pointer, *words])


def rounded(operation):
    """Emit an operation that is rounded to nearest and that no compiler merges with another."""

    def emit(builder, *arguments):
        letter = "f" if arguments[0].type == F32 else "d"
        return call(builder, f"llvm.nvvm.{operation}.rn.{letter}", arguments[0].type, *arguments)

    return emit


def subtract(builder, x, y):
    """``x - y``: NVVM has no such function, and to add ``-y`` is the same."""
    return rounded("add")(builder, x, builder.fsub(ir.Constant(y.type, -0.0), y))


def larger(builder, x, y):
    """`y` where it is greater, or NaN and `x` not; else `x`."""
    greater_or_nan = builder.fcmp_unordered(">", y, x)
    return builder.select(builder.and_(greater_or_nan, builder.fcmp_ordered("ord", x, x)), y, x)


def split(builder, value):
    """The 32-bit halves of a number, low first; the number itself if it has 32 bits."""
    if value.type in (F32, I32):
        return [builder.bitcast(value, I32)]
    whole = builder.bitcast(value, I64)
    return [builder.trunc(whole, I32), builder.trunc(builder.lshr(whole, I64(32)), I32)]


def join(builder, parts, kind):
    """`split` backwards."""
    if len(parts) == 1:
        return builder.bitcast(parts[0], kind)
    low, high = (builder.zext(part, I64) for part in parts)
    return builder.bitcast(builder.or_(low, builder.shl(high, I64(32))), kind)


def ones(builder, x):
    """How many bits are set."""
    return call(builder, f"llvm.ctpop.i{x.type.width}", x.type, x)


def first_one(builder, x):
    """The place of the lowest bit that is set, from 1; 0 where none is."""
    place = call(builder, f"llvm.cttz.i{x.type.width}", x.type, x, I1(1))
    none = builder.icmp_unsigned("==", x, x.type(0))
    return builder.select(none, x.type(0), builder.add(place, x.type(1)))


def leading_zeros(builder, x):
    """How many bits are clear above the highest that is set."""
    return call(builder, f"llvm.ctlz.i{x.type.width}", x.type, x, I1(0))
