"""What stands for the registers, intrinsics, PTX and library functions of the GPU: small functions in LLVM IR.

Those named ``emu_at_...`` take the line of the call first.
"""

import re
from typing import NamedTuple

SIZES = {"half": 2, "float": 4, "double": 8, "ptr": 8}
REGISTERS = [f"{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"] + ["laneid"]
WORDS = {"f32": "float", "f64": "double", "b16": "i16", "b32": "i32", "u32": "i32", "b64": "i64", "u64": "i64"}
LETTERS = {"f": ("float", "f32"), "d": ("double", "f64")}
READS = {"nc", "ca", "cg", "cs", "L1::no_allocate", "L1::evict_last"}
WRITES = {"wb", "cg", "cs", "wt"}

RUNTIME = """
declare void @emu_access(ptr, i64, i32, i32, i32)
declare i32 @emu_barrier(i32, i32, i32)
declare i64 @emu_collective(i32, i32, i32, i64, i32, i32, i32)
"""
PAIR = """  %low = trunc i64 %r to i32
  %high = lshr i64 %r, 32
  %flag = trunc i64 %high to i1
  %first = insertvalue {i32, i1} undef, i32 %low, 0
  %both = insertvalue {i32, i1} %first, i1 %flag, 1
  ret {i32, i1} %both"""


class Piece(NamedTuple):
    """A function in LLVM IR."""

    name: str
    result: str
    parameters: str
    body: str

    @property
    def text(self):
        return f"define linkonce_odr {self.result} @{self.name}({self.parameters}) alwaysinline {{\n{self.body}\n}}\n"


def size(kind):
    """Bytes of an LLVM type; 0 of a structure, which is only ever on a thread's stack."""
    if kind in SIZES:
        return SIZES[kind]
    if found := re.fullmatch(r"i(\d+)", kind):
        return (int(found[1]) + 7) // 8
    if found := re.fullmatch(r"[<\[](\d+) x (.*)[>\]]", kind):
        return int(found[1]) * size(found[2])
    return 0


def registers(initial="external global i32"):
    """Globals for the registers of a thread, which who runs it sets."""
    return "".join(f'@"emu_{name}" = {initial}\n' for name in REGISTERS)


def _collective(operation, result, parameters, mode, value, by="0", clamp="0"):
    call = (
        f"  %r = call i64 @emu_collective(i32 {operation}, i32 {mode}, i32 %mask, i64 {value}, "
        f"i32 {by}, i32 {clamp}, i32 %line)"
    )
    end = {"pair": PAIR, "i32": "  %low = trunc i64 %r to i32\n  ret i32 %low", "void": "  ret void"}[result]
    return {"pair": "{i32, i1}"}.get(result, result), f"i32 %line, {parameters}", f"{call}\n{end}"


def _barrier(operation, result):
    call = f"  %r = call i32 @emu_barrier(i32 {operation}, i32 {'%p' if operation else 0}, i32 %line)"
    parameters = "i32 %line, i32 %p" if operation else "i32 %line"
    return result, parameters, f"{call}\n  ret {result}{' %r' if operation else ''}"


def _widened(body, kind):
    """A collective's value as 64 bits."""
    result, parameters, text = body
    return result, parameters, f"  %wide = zext {kind} %v to i64\n{text}"


MATCH = "i32 %mask, {} %v"
COLLECTIVES = {
    "barrier0": _barrier(0, "void"),
    "barrier0.popc": _barrier(1, "i32"),
    "barrier0.and": _barrier(2, "i32"),
    "barrier0.or": _barrier(3, "i32"),
    "shfl.sync.i32": _widened(
        _collective(4, "pair", "i32 %mask, i32 %mode, i32 %v, i32 %by, i32 %clamp", "%mode", "%wide", "%by", "%clamp"),
        "i32",
    ),
    "vote.sync": _widened(_collective(5, "pair", "i32 %mask, i32 %mode, i1 %v", "%mode", "%wide"), "i1"),
    "match.any.sync.i32": _widened(_collective(6, "i32", MATCH.format("i32"), "0", "%wide"), "i32"),
    "match.any.sync.i64": _collective(6, "i32", MATCH.format("i64"), "0", "%v"),
    "bar.warp.sync": _collective(7, "void", "i32 %mask", "0", "0"),
}


def of_intrinsic(name):
    """The piece for an intrinsic of NVVM, or None."""
    short = name.removeprefix("llvm.nvvm.")
    plain = re.sub(r"\W", "_", short)
    if short in COLLECTIVES:
        return Piece(f"emu_at_{plain}", *COLLECTIVES[short])
    register = short.removeprefix("read.ptx.sreg.")
    if register in REGISTERS:
        return Piece(f"emu_{plain}", "i32", "", f'  %v = load i32, ptr @"emu_{register}"\n  ret i32 %v')
    if short in ("membar.gl", "membar.cta", "membar.sys"):
        return Piece(f"emu_{plain}", "void", "", "  fence seq_cst\n  ret void")
    if found := re.fullmatch(r"atomic\.load\.add\.(f32|f64)\.p0f\d+", short):
        kind = WORDS[found[1]]
        body = f"  %v = atomicrmw fadd ptr %p, {kind} %x monotonic\n  ret {kind} %v"
        return Piece(f"emu_{plain}", kind, f"ptr %p, {kind} %x", body)
    if found := re.fullmatch(r"(add|mul|div|sqrt|fma)\.rn\.([fd])", short):
        return _rounded(f"emu_{plain}", found[1], *LETTERS[found[2]])
    return None


def _rounded(name, operation, kind, suffix):
    if operation in ("sqrt", "fma"):
        names = ["%x"] if operation == "sqrt" else ["%x", "%y", "%z"]
        arguments = ", ".join(f"{kind} {name}" for name in names)
        body = f"  %r = call {kind} @llvm.{operation}.{suffix}({arguments})\n  ret {kind} %r"
        return Piece(name, kind, arguments, body)
    return Piece(name, kind, f"{kind} %x, {kind} %y", f"  %r = f{operation} {kind} %x, %y\n  ret {kind} %r")


def of_assembly(text):
    """The piece for an instruction in PTX, or None."""
    found = re.fullmatch(r"(ld|st|red)\.(\S+) [^;]*;", text)
    if found is None:
        return None
    verb, (*modifiers, word) = found[1], found[2].split(".")
    count = int(modifiers.pop()[1:]) if re.fullmatch(r"v[24]", modifiers[-1]) else 1
    kind = WORDS.get(word)
    if kind is None or not modifiers:
        return None
    name = "emu_" + re.sub(r"\W", "_", f"{verb}_{count}_{word}")
    vector = f"<{count} x {kind}>" if count > 1 else kind
    align = count * size(kind)
    parameters = ", ".join(["ptr %p", *(f"{kind} %v{k}" for k in range(count))])
    if verb == "ld" and modifiers[0] == "global" and set(modifiers[1:]) <= READS:
        return _read(name, kind, vector, count, align)
    if verb == "st" and modifiers[0] == "global" and set(modifiers[1:]) <= WRITES:
        return Piece(name, "void", parameters, _write(kind, vector, count, align))
    if verb == "red" and modifiers == ["relaxed", "gpu", "global", "add"]:
        check = f"  call void @emu_access(ptr %p, i64 {align}, i32 {align}, i32 1, i32 0)\n" if count > 1 else ""
        add = "fadd" if kind in ("float", "double") else "add"
        steps = "\n".join(
            f"  %p{k} = getelementptr {kind}, ptr %p, i64 {k}\n"
            f"  %o{k} = atomicrmw {add} ptr %p{k}, {kind} %v{k} monotonic"
            for k in range(count)
        )
        return Piece(name, "void", parameters, f"{check}{steps}\n  ret void")
    return None


def _read(name, kind, vector, count, align):
    load = f"  %all = load {vector}, ptr %p, align {align}\n"
    if count == 1:
        return Piece(name, kind, "ptr %p", f"{load}  ret {kind} %all")
    result, body, last = f"{{{', '.join([kind] * count)}}}", load, "undef"
    for k in range(count):
        body += f"  %e{k} = extractelement {vector} %all, i32 {k}\n"
        body += f"  %s{k} = insertvalue {result} {last}, {kind} %e{k}, {k}\n"
        last = f"%s{k}"
    return Piece(name, result, "ptr %p", f"{body}  ret {result} {last}")


def _write(kind, vector, count, align):
    if count == 1:
        return f"  store {kind} %v0, ptr %p, align {align}\n  ret void"
    body, last = "", "undef"
    for k in range(count):
        body += f"  %s{k} = insertelement {vector} {last}, {kind} %v{k}, i32 {k}\n"
        last = f"%s{k}"
    return f"{body}  store {vector} {last}, ptr %p, align {align}\n  ret void"


LIBRARY = {"sqrt": 1, "fabs": 1, "floor": 1, "ceil": 1, "exp": 1, "log": 1, "pow": 2, "fmax": 2, "fmin": 2}


def of_library(name):
    """The definition of a function of libdevice, or None; ``exp``, ``log`` and ``pow`` are those of the CPU."""
    short = name.removeprefix("__nv_")
    for kind, suffix, letter in (("float", "f32", "f"), ("double", "f64", "")):
        base = short.removesuffix("f") if letter and short.endswith("f") else short
        if name.startswith("__nv_") and base + letter == short and base in LIBRARY:
            intrinsic = {"fmax": "maxnum", "fmin": "minnum"}.get(base, base)
            parameters = ", ".join(f"{kind} %x{k}" for k in range(LIBRARY[base]))
            body = f"  %r = call {kind} @llvm.{intrinsic}.{suffix}({parameters})\n  ret {kind} %r"
            return Piece(name, kind, parameters, body).text
    return None
