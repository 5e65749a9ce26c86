"""From a plain Python function to machine code: what ``cuda.jit`` does, but without fused multiply-add.

``cuda.jit`` has no option for that, and where nvJitLink is installed it optimises at link time, which would fuse again.
This leans on parts that numba-cuda keeps to itself; the tests are for one version of it.
"""

import warnings
from dataclasses import dataclass
from typing import Any

from numba import types

from .intrin import cuda

REGISTERS_IN_LOG = "-Xptxas=-v"


@dataclass(frozen=True)
class Lowered:
    """A kernel as far as Numba takes it: LLVM IR, and what turns that into PTX."""

    library: Any
    name: str
    signature: tuple[Any, ...]
    capability: tuple[int, ...]

    @property
    def modules(self) -> list[str]:
        """LLVM IR of the kernel and of the functions that it calls."""
        return list(self.library.llvm_strs)

    def ptx(self) -> str:
        """What NVVM makes of it."""
        text: str = self.library.get_asm_str(cc=self.capability)
        return text


def lower(
    function: Any,
    signature: tuple[Any, ...],
    capability: tuple[int, ...],
    *,
    fma: bool = False,
    lineinfo: bool = False,
    launch_bounds: int | tuple[int, ...] | None = None,
    max_registers: int | None = None,
) -> Lowered:
    """Compile a kernel to LLVM IR.

    Parameters
    ----------
    function : callable
        A plain Python function, not yet given to ``cuda.jit``.
    signature : tuple of numba types
        One for each parameter.
    capability : tuple of int
        Compute capability.
    fma : bool
        Whether NVVM may fuse a product and a sum; False in all kernels of the project.
    lineinfo : bool
        Whether the IR says which line each instruction is from.
    launch_bounds : int or tuple of int, optional
        Threads of a block at most, and blocks that are to fit on a multiprocessor.
    max_registers : int, optional
        Registers of a thread.

    Returns
    -------
    Lowered
    """
    with warnings.catch_warnings():
        # a lambda or generated code has no lines
        warnings.simplefilter("ignore", cuda.core.errors.NumbaDebugInfoWarning)
        compiled = cuda.compiler.compile_cuda(
            function,
            types.void,
            tuple(signature),
            nvvm_options={"opt": 3, "fma": fma},
            cc=capability,
            lineinfo=lineinfo,
            max_registers=max_registers,
            lto=False,
        )
        library, name = compiled.library, compiled.fndesc.llvm_func_name
        kernel = library.get_function(name)
        library._entry_name = name  # noqa: SLF001
        cuda.compiler.kernel_fixup(kernel, False)
        cuda.cudadrv.nvvm.set_launch_bounds(kernel, launch_bounds)
        return Lowered(library, name, tuple(signature), tuple(capability))


def assemble(ptx: str, capability: tuple[int, ...], max_registers: int | None = None) -> tuple[bytes, str]:
    """Machine code of PTX.

    Parameters
    ----------
    ptx : str
        A kernel.
    capability : tuple of int
        Compute capability.
    max_registers : int, optional
        Registers of a thread.

    Returns
    -------
    cubin : bytes
        What a driver loads.
    log : str
        What ptxas says about registers and memory.

    Raises
    ------
    ValueError
        PTX that is refused, with the reason.
    """
    from cuda.bindings import nvjitlink

    options = [f"-arch=sm_{capability[0]}{capability[1]}", REGISTERS_IN_LOG]
    if max_registers:
        options.append(f"-maxrregcount={max_registers}")
    linker = nvjitlink.create(len(options), options)
    try:
        data = ptx.encode()
        try:
            nvjitlink.add_data(linker, nvjitlink.InputType.PTX, data, len(data), "kernel.ptx")
            nvjitlink.complete(linker)
        except nvjitlink.nvJitLinkError as error:
            refused = _text(linker, nvjitlink.get_error_log_size, nvjitlink.get_error_log)
            msg = f"PTX that is refused: {refused}"
            raise ValueError(msg) from error
        cubin = bytearray(nvjitlink.get_linked_cubin_size(linker))
        nvjitlink.get_linked_cubin(linker, cubin)
        return bytes(cubin), _text(linker, nvjitlink.get_info_log_size, nvjitlink.get_info_log)
    finally:
        nvjitlink.destroy(linker)


def _text(linker: Any, size: Any, read: Any) -> str:
    log = bytearray(size(linker))
    read(linker, log)
    return log.decode(errors="replace").strip("\0")
