"""A kernel as Numba would compile it for a device, on a machine that has neither a device nor a driver.

This leans on what numba-cuda keeps to itself, so it is for one version of it.
"""

import contextlib
import types as python_types
import warnings
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

from numba import types

ROOT = Path(__file__).parents[2]

VERSION = "0.30.4"
"""The numba-cuda whose private parts are known here."""

TARGETS = (8, 0), (9, 0)
"""Compute capabilities that kernels are checked for."""


def require_version():
    """Fail, and say why, where another numba-cuda is installed."""
    try:
        found = metadata.version("numba-cuda")
    except metadata.PackageNotFoundError:
        found = "none"  # Numba's own CUDA target, which it replaces, is another
    if found != VERSION:
        msg = f"tests/cuda is made for numba-cuda {VERSION}, not {found}; see tests/cuda/emulator/README.md"
        raise RuntimeError(msg)


@contextlib.contextmanager
def without_driver(capability):
    """What Numba asks the driver and NVRTC while it compiles, answered for a device of some compute capability."""
    require_version()
    from numba.cuda import api, compiler, cuda_paths, dispatcher
    from numba.cuda.cudadrv import nvrtc

    device = python_types.SimpleNamespace(compute_capability=capability[:2], id=0)
    with contextlib.ExitStack() as stack:
        for module in (api, compiler, dispatcher):
            stack.enter_context(mock.patch.object(module, "get_current_device", return_value=device))
        stack.enter_context(mock.patch.object(nvrtc, "get_supported_ccs", return_value=list(TARGETS)))
        stack.enter_context(mock.patch.object(cuda_paths, "_get_nvrtc_path", return_value=None))
        yield


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
        with without_driver(self.capability):
            return self.library.get_asm_str(cc=self.capability)


def lower(function, signature, *, capability=(9, 0), fma=False, lineinfo=False, launch_bounds=None, max_registers=None):
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
    launch_bounds : tuple of int, optional
        Threads of a block, and blocks that are to fit on a multiprocessor.
    max_registers : int, optional
        Registers of a thread.
    """
    with without_driver(capability), warnings.catch_warnings():
        from numba.cuda import compiler
        from numba.cuda.core.errors import NumbaDebugInfoWarning
        from numba.cuda.cudadrv import nvvm

        warnings.simplefilter("ignore", NumbaDebugInfoWarning)  # a lambda or generated code: lines are a courtesy
        compiled = compiler.compile_cuda(
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
        library._entry_name = name
        compiler.kernel_fixup(kernel, False)
        nvvm.set_launch_bounds(kernel, launch_bounds)
        return Lowered(library, name, tuple(signature), tuple(capability))
