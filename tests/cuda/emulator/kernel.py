"""A kernel on the CPU, launched as on a GPU: ``kernel[grid, block](*arguments)``."""

import ctypes
import random
import re

import llvmlite.binding as llvm
import numpy as np

from ..offline import lower
from . import arguments, ir, native, pieces

WAITS = [
    "a block barrier",
    "a block barrier that counts",
    "a block barrier that asks for all",
    "a block barrier that asks for any",
    "a shuffle",
    "a vote",
    "a match",
    "a warp barrier",
]
DONE = 3
DEADLOCK, BOUNDS, ALIGNMENT, READ_ONLY, FOREIGN_LANE, ABSENT_LANE = range(1, 7)
MOST_THREADS = 1024


class EmulationError(RuntimeError):
    """A thread did what it must not do, or waits for ever."""


def _machine():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(opt=2, cpu=llvm.get_host_cpu_name(), features=features)


def _entry(name, parameters):
    """IR of a function without parameters that calls the kernel with the words at ``emu_arguments``."""
    loads = "".join(
        f"  %a{k} = load {kind}, ptr getelementptr (i64, ptr @emu_arguments, i64 {k})\n"
        for k, kind in enumerate(parameters)
    )
    passed = ", ".join(f"{kind} %a{k}" for k, kind in enumerate(parameters))
    return (
        f"@emu_arguments = global [{max(len(parameters), 1)} x i64] zeroinitializer\n"
        f'define void @emu_body() {{\n{loads}  call void @"{name}"({passed})\n  ret void\n}}\n'
    )


class Kernel:
    """A kernel compiled for the CPU.

    Parameters
    ----------
    function : callable
        A plain Python function, not yet given to ``cuda.jit``.
    signature : tuple of numba types
        One for each parameter.

    Examples
    --------
    ``Kernel(gather, (f32, i64, f32))[8, (32, 4), 7](weight, indices, out)``: 8 blocks of 32 x 4 threads, which run in
    an order made from 7; without a seed, or with 0, blocks and threads run in the order of their numbers.
    """

    def __init__(self, function, signature):
        self.name = function.__name__
        self.signature = tuple(signature)
        lowered = lower(function, signature, lineinfo=True)
        machine = _machine()
        self.shared = {name: n for text in lowered.modules for name, n in ir.shared_arrays(text).items()}
        used = {}
        modules = [ir.retarget(text, used) for text in lowered.modules]
        entry = next(k for k, text in enumerate(modules) if f'define void @"{lowered.name}"' in text)
        head = re.search(rf'define void @"{re.escape(lowered.name)}"\((.*?)\)', modules[entry])[1]
        self._parameters = re.findall(r'(\S+) %"', head)
        modules[entry] += "\n" + _entry(lowered.name, self._parameters)
        self._waits = any(name.startswith("emu_at_") for name in used)
        self._engine = self._compile(modules, used, machine)
        where = self._engine.get_global_value_address
        self._registers = {r: ctypes.c_int32.from_address(where(f"emu_{r}")) for r in pieces.REGISTERS}
        self._words = (ctypes.c_uint64 * len(self._parameters)).from_address(where("emu_arguments"))
        self._body = self._engine.get_function_address("emu_body")

    def _compile(self, modules, used, machine):
        for name in native.FUNCTIONS:
            llvm.add_symbol(name, native.address(name))
        layout = f'target datalayout = "{machine.target_data}"\ntarget triple = "{machine.triple}"\n'
        prelude = layout + pieces.RUNTIME + pieces.registers() + "".join(piece.text for piece in used.values())
        whole = llvm.parse_assembly(layout + pieces.registers("global i32 0"))
        for text in modules:
            whole.link_in(llvm.parse_assembly(f"{prelude}\n{text}"))
            whole.link_in(llvm.parse_assembly(layout + ir.library_functions(text, modules)))
        whole = llvm.parse_assembly(ir.guard(str(ir.simplified(whole, machine))))
        whole.verify()
        engine = llvm.create_mcjit_compiler(ir.optimised(whole, machine), machine)
        engine.finalize_object()
        return engine

    def __getitem__(self, launch):
        grid, block, *rest = launch
        grid, block = (_three(extent) for extent in (grid, block))
        if not 0 < np.prod(block) <= MOST_THREADS:
            msg = f"a block has 1 to {MOST_THREADS} threads, not {block}"
            raise ValueError(msg)
        return lambda *given: self._run(grid, block, rest[0] if rest else 0, given)

    def _run(self, grid, block, seed, given):
        if len(given) != len(self.signature):
            msg = f"{self.name} takes {len(self.signature)} arguments, not {len(given)}"
            raise TypeError(msg)
        pairs = list(zip(self.signature, given, strict=True))
        memory = arguments.Memory([a for k, (kind, x) in enumerate(pairs) for a in arguments.arrays(kind, x, k)])
        words = [word for kind, x in pairs for word in arguments.slots(kind, x, memory.moved)]
        self._words[:] = words
        where = self._engine.get_global_value_address
        shared = [(where(name), where(name) + size, 1, 1) for name, size in self.shared.items()]
        ranges = np.concatenate([memory.ranges, np.array(shared, arguments.RANGE)])
        memory.ranges, memory.names = ranges, [*memory.names, *(f"a shared array ({n})" for n in self.shared)]
        runtime = native.runtime()
        registers = (where(f"emu_{name}") for name in ("tid.x", "tid.y", "tid.z", "laneid"))
        runtime.emu_setup(*registers, self._body, ranges.ctypes.data, len(ranges))
        run = runtime.emu_run_fibers if self._waits else runtime.emu_run_in_turn
        self._set("ntid", block)
        self._set("nctaid", grid)
        numbers = random.Random(seed)
        blocks = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
        if seed:
            numbers.shuffle(blocks)
        for number in blocks:
            self._set("ctaid", number)
            if run(*block, numbers.randrange(1, 2**32) if seed else 0):
                raise EmulationError(self._report(number, block, memory))
        memory.copy_back()

    def _set(self, name, extents):
        for axis, extent in zip("xyz", extents, strict=True):
            self._registers[f"{name}.{axis}"].value = extent

    def _report(self, number, block, memory):
        report, threads = native.runtime().emu_report()[0], native.runtime().emu_threads()
        if report.failure == DEADLOCK:
            return f"{self.name}, block {number}: deadlock: " + _waiting(threads, int(np.prod(block)))
        thread = np.unravel_index(report.thread, block[::-1])[::-1]
        who = f"{self.name}, line {report.line}, block {number}, thread {tuple(map(int, thread))}"
        if report.failure == FOREIGN_LANE:
            return f"{who}: calls a collective of lanes {threads[report.thread].mask:#010x}, without being one"
        if report.failure == ABSENT_LANE:
            return f"{who}: a shuffle from a lane that is not in {threads[report.thread].mask:#010x}"
        verb = "writes" if report.written else "reads"
        what = f"{verb} {report.bytes} bytes {memory.describe(report.address, report.bytes)}"
        reason = {BOUNDS: "out of bounds", ALIGNMENT: "misaligned", READ_ONLY: "read-only"}[report.failure]
        return f"{who}: {reason}: {what}"


def _three(extent):
    extent = (extent,) if isinstance(extent, int) else tuple(extent)
    return extent + (1,) * (3 - len(extent))


def _waiting(threads, count):
    """Who waits where, threads with one answer together."""
    groups = {}
    for t in range(count):
        thread = threads[t]
        where = f"at {WAITS[thread.operation]} in line {thread.line}" if thread.state != DONE else "returned"
        if thread.state != DONE and thread.operation > WAITS.index("a block barrier that asks for any"):
            where += f" for lanes {thread.mask:#010x}"
        groups.setdefault(where, []).append(t)
    return "; ".join(f"threads {_runs(numbers)} {where}" for where, numbers in groups.items())


def _runs(numbers):
    """``0-3, 7`` for 0, 1, 2, 3, 7."""
    runs = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{first}-{last}" if first < last else f"{first}" for first, last in runs)
