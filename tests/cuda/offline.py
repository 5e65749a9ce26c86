"""A kernel as Numba would compile it for a device, on a machine that has neither a device nor a driver.

This leans on what numba-cuda keeps to itself, so it is for one version of it.
"""

import contextlib
import types as python_types
from importlib import metadata
from pathlib import Path
from unittest import mock

from fastemb.kernels.cuda import lowering

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


def lower(function, signature, *, capability=(9, 0), **options):
    """`fastemb.kernels.cuda.lowering.lower` without a driver."""
    with without_driver(capability):
        return lowering.lower(function, signature, capability, **options)


def ptx_of(lowered):
    """What NVVM makes of a kernel."""
    with without_driver(lowered.capability):
        return lowered.ptx()
