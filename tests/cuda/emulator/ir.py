"""From the LLVM IR that Numba hands to NVVM to IR that runs on the CPU at hand.

`retarget` replaces what only a GPU has: registers, barriers, collectives, atomics, PTX. `guard` puts a check before
every access to memory. What is not known here is an error that names it.
"""

import functools
import re

import llvmlite.binding as llvm

from . import pieces


class NotEmulatedError(NotImplementedError):
    """A kernel uses something of the GPU that the emulator does not know."""


SHARED = re.compile(
    r'^@"?([^"\s]+)"? = .*addrspace\(3\) global (\[(\d+) x ([^\]]+)\]) [^,]*(?:, align (\d+))?', re.MULTILINE
)
DEFINED = re.compile(r'^define [^@]*@"?([^"(\s]+)', re.MULTILINE)
ASSEMBLY = re.compile(r'asm\s+(?:sideeffect\s+)?"([^"]*)", "[^"]*"')
NVVM = re.compile(r'@"?(llvm\.nvvm\.[\w.]+)"?')
LINE = re.compile(r"^!(\d+) = (?:distinct )?!DILocation\(.*?line: (\d+)", re.MULTILINE)
ACCESS = re.compile(
    r"^\s*(?:%\S+ = )?(?:tail )?(?P<verb>load|store|atomicrmw|cmpxchg)(?: atomic| volatile| weak)* (?P<rest>.*)$"
)
TYPED_STORE = re.compile(r"(<[^>]*>|\[.*?\]|\{.*?\}|\S+) .*?, ptr ([^,\s]+)")


def shared_arrays(module):
    """Name and bytes of each shared array."""
    return {name: int(n) * pieces.size(kind) for name, _, n, kind, _ in SHARED.findall(module)}


def _lines(module):
    return {int(number): int(line) for number, line in LINE.findall(module)}


def _line(text, lines):
    found = re.search(r"!dbg !(\d+)", text)
    return lines.get(int(found[1]), 0) if found else 0


def _replace(used, found):
    name = found[1]
    piece = pieces.of_intrinsic(name) if name.startswith("llvm.") else pieces.of_assembly(name)
    if piece is None:
        msg = f"PTX or an intrinsic of NVVM that the emulator does not know: {name}"
        raise NotEmulatedError(msg)
    used[piece.name] = piece
    return f"@{piece.name}"


def retarget(module, used):
    """The IR of one module for the CPU; `used` collects the names of the pieces that it calls."""
    lines, replace = _lines(module), functools.partial(_replace, used)
    module = SHARED.sub(r'@"\1" = global <{ \2, [256 x i8] }> zeroinitializer, align 256', module)
    done = []
    for text in module.splitlines():
        if re.match(r'target (triple|datalayout)|declare .*@"?llvm\.nvvm\.|!nvvm', text):
            continue
        line = _line(text, lines)
        text = NVVM.sub(replace, ASSEMBLY.sub(replace, text))
        text = re.sub(r"@(emu_at_\w+)\(", rf"@\1(i32 {line}, ", text).replace(f"(i32 {line}, )", f"(i32 {line})")
        done.append(re.sub(r" ?addrspace\(\d+\)", "", text).replace("addrspacecast", "bitcast"))
    return "\n".join(done)


def library_functions(module, modules):
    """Definitions of the functions of libdevice that one of some modules declares; an error that names any other."""
    text, defined = [], set(DEFINED.findall("\n".join(modules)))
    for name in re.findall(r'^declare [^@]*@"?([^"(\s]+)', module, re.MULTILINE):
        if name.startswith(("llvm.", "emu_")) or name in defined:
            continue
        definition = pieces.of_library(name)
        if definition is None:
            msg = f"a function that the emulator does not know: {name}"
            raise NotEmulatedError(msg)
        text.append(definition)
    return "\n".join(text)


def _access(verb, rest):
    """(type that is read or written, operand that says where) of an instruction."""
    if verb == "load":
        return re.match(r"(.*?), ptr ([^,\s]+)", rest).groups()
    if verb == "store":
        return TYPED_STORE.match(rest).groups()
    where, kind = re.match(r"(?:\w+ )?ptr ([^,\s]+), (\S+) ", rest).groups()
    return kind, where


def guard(module):
    """A check before each access whose address is not a constant; what was there for debuggers is gone."""
    lines, done = _lines(module), []
    for text in module.splitlines():
        if re.match(r"\s*(#dbg_|!llvm.dbg)", text):
            continue
        found = ACCESS.match(text)
        if found:
            kind, where = _access(found["verb"], found["rest"])
            nbytes = pieces.size(kind)
            if where.startswith("%") and nbytes:
                align = re.search(r", align (\d+)", text)
                written = int(found["verb"] != "load")
                check = f"i64 {nbytes}, i32 {align[1] if align else 1}, i32 {written}, i32 {_line(text, lines)}"
                done.append(f"  call void @emu_access(ptr {where}, {check})")
        done.append(re.sub(r",? !dbg !\d+", "", text))
    if not any(text.startswith("declare void @emu_access(") for text in done):
        done.append("declare void @emu_access(ptr, i64, i32, i32, i32)")
    return "\n".join(done)


def simplified(module, machine):
    """A module whose variables are in registers where that is possible, so that few accesses are left to check."""
    passes, builder = llvm.create_new_module_pass_manager(), llvm.create_pass_builder(machine, _tuning(1))
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, builder)
    return module


def optimised(module, machine):
    """A module as fast as it gets without vector registers that no kernel asked for."""
    builder = llvm.create_pass_builder(machine, _tuning(2))
    builder.getModulePassManager().run(module, builder)
    return module


def _tuning(level):
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.slp_vectorization = False
    return options
