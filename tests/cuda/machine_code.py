"""The instructions that a device would run, made on a machine without one.

Numba lowers a kernel to LLVM IR, libNVVM makes PTX of it, nvJitLink a cubin, nvdisasm a list of instructions: four
programs that come as wheels and ask for no driver.
"""

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from fastemb.kernels.cuda.lowering import assemble

from .offline import lower, ptx_of


@dataclass(frozen=True)
class MachineCode:
    """A kernel compiled for one compute capability.

    Attributes
    ----------
    capability : tuple of int
        Compute capability.
    registers : int
        Registers of a thread.
    stack, spills, shared : int
        Bytes of a thread's stack, written and read because registers ran out, and of a block's shared memory.
    instructions : tuple of str
        Machine instructions (SASS) in their order, without predicates.
    ptx : str
        What NVVM made.
    """

    capability: tuple[int, ...]
    registers: int
    stack: int
    spills: int
    shared: int
    instructions: tuple[str, ...] = field(repr=False)
    ptx: str = field(repr=False)

    def matching(self, pattern):
        """Instructions that begin with a regular expression."""
        return [text for text in self.instructions if re.match(pattern, text)]

    def loads(self, bits=None):
        """Loads from global memory, of 32, 64, 128 or, without `bits`, any number of bits at once."""
        return self._accesses(r"LDG?\.", bits)

    def stores(self, bits=None):
        """Stores to global memory."""
        return self._accesses(r"STG?\.", bits)

    def shared_loads(self, bits=None):
        """Loads from shared memory."""
        return self._accesses(r"LDS\b", bits)

    def reductions(self, numbers=None):
        """Additions to global memory that return nothing, of so many float32 at once."""
        found = self.matching(r"REDG?\.")
        width = {None: "", 1: r"(?!.*F32x)", 2: r".*F32x2", 4: r".*F32x4"}[numbers]
        return [text for text in found if re.match(width, text.split(" ")[0])]

    @property
    def local(self):
        """Loads from and stores to a thread's stack."""
        return self.matching(r"(LDL|STL)\b")

    @property
    def calls(self):
        """Functions of the compiler that are called, such as ``__cuda_sm20_div_s64`` for a 64-bit division.

        Exact division and square root in float32 have one for rare numbers, ``__cuda_..._slowpath``.
        """
        targets = self.matching(r"CALL\b")
        return {found[0] if (found := re.search(r"__cuda\w+", text)) else text for text in targets}

    @property
    def fused(self):
        """Products and sums that are rounded once; from PTX, since division is made of such."""
        return re.findall(r"\bfma\.rn\S*|\bmad\.f\S*", self.ptx)

    def _accesses(self, pattern, bits):
        names = [(text, text.split(" ")[0]) for text in self.matching(pattern)]
        return [text for text, name in names if bits is None or _bits(name) == bits]


def _bits(name):
    """Bits of an access: 32 unless its name says otherwise."""
    found = re.search(r"\.(128|64|U8|S8|U16|S16)\b", name)
    return int(found[1].lstrip("US")) if found else 32


def compile_kernel(function, signature, *, capability=(9, 0), fma=False, launch_bounds=None, max_registers=None):
    """Compile a kernel to machine code; parameters as for `offline.lower`.

    Returns
    -------
    MachineCode
    """
    lowered = lower(
        function,
        signature,
        capability=capability,
        fma=fma,
        launch_bounds=launch_bounds,
        max_registers=max_registers,
    )
    ptx = ptx_of(lowered)
    cubin, log = assemble(ptx, capability, max_registers)
    log = log[log.index(lowered.name) :]
    stack, stored, loaded = map(
        int, re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log).groups()
    )
    shared = re.findall(r"^(?:\.visible )?\.shared .*\[(\d+)\];", ptx, re.MULTILINE)  # known to the linker alone
    return MachineCode(
        capability=tuple(capability),
        registers=int(re.search(r"Used (\d+) registers", log)[1]),
        stack=stack,
        spills=stored + loaded,
        shared=sum(map(int, shared)),
        instructions=_disassemble(cubin),
        ptx=ptx,
    )


def _disassembler():
    """The nvdisasm of the wheel; else the one of the system."""
    try:
        files = metadata.files("nvidia-cuda-nvdisasm") or []
    except metadata.PackageNotFoundError:
        files = []
    found = [str(file.locate()) for file in files if file.name == "nvdisasm"] or [shutil.which("nvdisasm")]
    if found[0] is None:
        msg = "nvdisasm is missing: pip install nvidia-cuda-nvdisasm"
        raise RuntimeError(msg)
    return found[0]


def _disassemble(cubin):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        listing = subprocess.run([_disassembler(), "-c", file], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?(.*?) ;", listing, re.MULTILINE)
    return tuple(text.strip() for text in found)
