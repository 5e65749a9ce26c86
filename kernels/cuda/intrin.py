"""What a kernel needs and Numba's CUDA target cannot say: the only LLVM IR and PTX on the GPU side.

Nothing else imports ``numba.cuda``. Every name has two forms, of which one is chosen when this file is imported: an
intrinsic for the device, and with ``NUMBA_ENABLE_CUDASIM=1`` the function of that name in `simulated`. The emulator of
the tests runs the form for the device; it knows the LLVM intrinsics and the PTX that stand here, and no others.

Arrays are flat and C-contiguous, an index counts elements and is not wrapped, and the ``n`` elements of an access must
begin at a multiple of their bytes, at most 16: ``n`` is a whole number known to the compiler (1, 2, 4; 8 for float16).
float16 is a format to keep numbers in: it is loaded as float32 and rounded to nearest, ties to even, when stored.
"""

# ruff: noqa: SLF001, TID251  the one file that may

from numba import cuda as cuda
from numba import types
from numba.core import config

from . import llvm, memory, simulated
from .llvm import I1, I32, call
from .memory import FLOATS, require

SIMULATED = bool(config.ENABLE_CUDASIM)
"""Whether Numba's simulator runs the kernels."""

WARP = 32
"""Threads of a warp."""

ALL_LANES = 0xFFFFFFFF
"""The mask of a whole warp."""

WIDEST = memory.WIDEST
"""Bytes of the widest access."""

if not SIMULATED:
    import numpy as np
    from numba.cuda import cudaimpl, ufuncs
    from numba.cuda.extending import intrinsic

    def _square_root(context, builder, signature, arguments):
        return llvm.rounded("sqrt")(builder, *arguments)

    # Rules of optimizers are shared with the CPU, and Numba's CUDA target has math.sqrt but not np.sqrt.
    ufuncs.ufunc_db()[np.sqrt] = {"f->f": _square_root, "d->d": _square_root}


def _form(device):
    """The intrinsic that `device` describes; in the simulator the function of its name."""
    if not SIMULATED:
        return intrinsic(device)
    twin = getattr(simulated, device.__name__)
    twin.__doc__ = device.__doc__
    return twin


# Where a thread is


def _registers(name, register, doc):
    def along(axis):
        def read(context):
            def codegen(context, builder, signature, arguments):
                return call(builder, f"llvm.nvvm.read.ptx.sreg.{register}{axis}", I32)

            return types.uint32(), codegen

        read.__name__, read.__doc__ = name + axis.replace(".", "_"), f"{doc}, along {axis[1:]}; uint32."
        return _form(read)

    return along(".x"), along(".y")


thread_x, thread_y = _registers("thread", "tid", "Which thread of its block this is")
block_x, block_y = _registers("block", "ctaid", "Which block of the grid this is")
block_dim_x, block_dim_y = _registers("block_dim", "ntid", "Threads of a block")
grid_dim_x, grid_dim_y = _registers("grid_dim", "nctaid", "Blocks of the grid")


@_form
def lane(context):
    """Which thread of its warp this is; uint32."""

    def codegen(context, builder, signature, arguments):
        return call(builder, "llvm.nvvm.read.ptx.sreg.laneid", I32)

    return types.uint32(), codegen


u32 = simulated.u32 if SIMULATED else types.uint32
"""A number as uint32. Sums and products of two are uint64 to Numba: cast what is to stay narrow."""

u64 = simulated.u64 if SIMULATED else types.uint64
"""A number as uint64: what an index into an array should be."""


# Memory

load = _form(memory.load)
load_stream = _form(memory.load_stream)
store = _form(memory.store)
store_stream = _form(memory.store_stream)
red_add = _form(memory.red_add)


def _array(name, space, doc):
    def device(context, shape, dtype):
        extents = shape if isinstance(shape, types.BaseTuple) else (shape,)
        if not all(isinstance(extent, types.IntegerLiteral) for extent in extents):
            return None
        array = types.Array(dtype.dtype, len(extents), "C")

        def codegen(context, builder, signature, arguments):
            return cudaimpl._generic_array(
                context,
                builder,
                shape=tuple(extent.literal_value for extent in extents),
                dtype=array.dtype,
                symbol_name=cudaimpl._get_unique_smem_id(f"_{name}"),
                addrspace=space,
                alignment=memory.WIDEST,
            )

        return array(shape, dtype), codegen

    device.__name__, device.__doc__ = name, doc
    return _form(device)


shared_array = _array("shared_array", 3, "An array of the block, of a shape known to the compiler; for `load` too.")
local_array = _array("local_array", 5, "An array of the thread; in registers where the compiler knows every index.")

atomic_add = _form(memory.atomic("atomic_add", "add", "Add to an element (floats too)"))
atomic_min = _form(memory.atomic("atomic_min", "min", "Replace an element by a smaller number"))
atomic_max = _form(memory.atomic("atomic_max", "max", "Replace an element by a larger number"))
atomic_exch = _form(memory.atomic("atomic_exch", "xchg", "Replace an element"))
atomic_cas = _form(memory.atomic("atomic_cas", "cas", "Replace an element where it is the expected number", 2))


def _order(name, function, doc):
    def device(context):
        def codegen(context, builder, signature, arguments):
            call(builder, function, llvm.VOID)
            return context.get_dummy_value()

        return types.void(), codegen

    device.__name__, device.__doc__ = name, doc
    return _form(device)


fence = _order("fence", "llvm.nvvm.membar.gl", "What this thread wrote before is seen before what it writes after.")
sync_block = _order("sync_block", "llvm.nvvm.barrier0", "Wait for the block; what was written before is seen after.")


# Arithmetic that the compiler leaves as it is


def _lanewise(name, parameters, emit, doc):
    """`emit` on numbers, on tuples of them, or on both: a number stands for a tuple of it."""

    def apply(context, *kinds):
        tuples = [kind for kind in kinds if isinstance(kind, types.UniTuple)]
        result = tuples[0] if tuples else kinds[0]
        dtype = result.dtype if tuples else result
        fits = dtype in FLOATS and all(kind in (result, dtype) for kind in kinds)
        require(fits, f"no {name} of {', '.join(map(str, kinds))}")

        def codegen(context, builder, signature, arguments):
            if not tuples:
                return emit(builder, *arguments)
            rows = (
                [x if kind == dtype else builder.extract_value(x, k) for x, kind in zip(arguments, kinds, strict=True)]
                for k in range(result.count)
            )
            return context.make_tuple(builder, result, [emit(builder, *row) for row in rows])

        return result(*kinds), codegen

    forms = {
        1: lambda context, x: apply(context, x),
        2: lambda context, x, y: apply(context, x, y),
        3: lambda context, x, y, z: apply(context, x, y, z),
    }
    device = forms[parameters]
    device.__name__, device.__doc__ = name, f"{doc}; float32 or float64, numbers or tuples of them."
    return _form(device)


add_rn = _lanewise("add_rn", 2, llvm.rounded("add"), "``x + y``, rounded to nearest, never part of a fused operation")
sub_rn = _lanewise("sub_rn", 2, llvm.subtract, "``x - y``, rounded to nearest, never part of a fused operation")
mul_rn = _lanewise("mul_rn", 2, llvm.rounded("mul"), "``x * y``, rounded to nearest, never part of a fused operation")
div_rn = _lanewise("div_rn", 2, llvm.rounded("div"), "``x / y``, rounded to nearest")
sqrt_rn = _lanewise("sqrt_rn", 1, llvm.rounded("sqrt"), "Square root, rounded to nearest")
fma_rn = _lanewise("fma_rn", 3, llvm.rounded("fma"), "``x * y + z``, rounded once")
larger = _lanewise("larger", 2, llvm.larger, "`y` where it is greater, or NaN and `x` not; else `x`")


@_form
def full(context, x, n):
    """A tuple of `n` times a number."""
    if not isinstance(n, types.IntegerLiteral):
        return None
    width = n.literal_value

    def codegen(context, builder, signature, arguments):
        return context.make_tuple(builder, signature.return_type, [arguments[0]] * width)

    return types.UniTuple(x, width)(x, n), codegen


# Threads of a block and of a warp


@_form
def sync_warp(context, mask):
    """Wait for the lanes of a mask; what they wrote before is seen after."""

    def codegen(context, builder, signature, arguments):
        call(builder, "llvm.nvvm.bar.warp.sync", llvm.VOID, context.cast(builder, arguments[0], mask, types.uint32))
        return context.get_dummy_value()

    return types.void(mask), codegen


def _whole(name, x):
    fits = isinstance(x, types.Integer) and x.bitwidth in (32, 64)
    require(fits, f"no {name} of {x}: whole numbers of 32 or 64 bits")


def _shuffle(name, mode, clamp, doc):
    def device(context, mask, value, x):
        numbers = isinstance(value, (types.Integer, types.Float)) and value.bitwidth in (32, 64)
        require(numbers, f"no {name} of {value}: numbers of 32 or 64 bits")

        def codegen(context, builder, signature, arguments):
            lanes, by = (context.cast(builder, arguments[k], signature.args[k], types.uint32) for k in (0, 2))
            parts = llvm.split(builder, arguments[1])
            got = (
                call(builder, "llvm.nvvm.shfl.sync.i32", llvm.PAIR, lanes, I32(mode), part, by, I32(clamp))
                for part in parts
            )
            return llvm.join(builder, [builder.extract_value(pair, 0) for pair in got], arguments[1].type)

        return value(mask, value, x), codegen

    device.__name__, device.__doc__ = name, f"{doc}; the own value where that is no lane of the warp."
    return _form(device)


shuffle = _shuffle("shuffle", 0, 31, "The value that lane `x` has")
shuffle_up = _shuffle("shuffle_up", 1, 0, "The value of the lane `x` below this one")
shuffle_down = _shuffle("shuffle_down", 2, 31, "The value of the lane `x` above this one")
shuffle_xor = _shuffle("shuffle_xor", 3, 31, "The value of the lane ``lane() ^ x``")


@_form
def ballot(context, mask, predicate):
    """The lanes, of those in a mask, for which a predicate holds; uint32."""

    def codegen(context, builder, signature, arguments):
        lanes = context.cast(builder, arguments[0], mask, types.uint32)
        holds = context.cast(builder, arguments[1], predicate, types.boolean)
        pair = call(builder, "llvm.nvvm.vote.sync", llvm.PAIR, lanes, I32(3), builder.trunc(holds, I1))
        return builder.extract_value(pair, 0)

    return types.uint32(mask, predicate), codegen


@_form
def match_any(context, mask, value):
    """The lanes, of those in a mask, that have the same whole number of 32 or 64 bits as this one; uint32."""
    _whole("match_any", value)

    def codegen(context, builder, signature, arguments):
        lanes = context.cast(builder, arguments[0], mask, types.uint32)
        return call(builder, f"llvm.nvvm.match.any.sync.i{value.bitwidth}", I32, lanes, arguments[1])

    return types.uint32(mask, value), codegen


def _bits(name, emit, doc):
    def device(context, x):
        _whole(name, x)

        def codegen(context, builder, signature, arguments):
            counted = emit(builder, arguments[0])
            return counted if x.bitwidth == 32 else builder.trunc(counted, I32)

        return types.uint32(x), codegen

    device.__name__, device.__doc__ = name, f"{doc}; uint32, of a whole number of 32 or 64 bits."
    return _form(device)


popc = _bits("popc", llvm.ones, "How many bits are set")
ffs = _bits("ffs", llvm.first_one, "The place of the lowest bit that is set, counted from 1; 0 where none is")
clz = _bits("clz", llvm.leading_zeros, "How many bits are clear above the highest that is set")
