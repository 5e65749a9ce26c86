"""Kernels for CUDA run on the CPU: see README.md."""

from .arguments import guarded
from .ir import NotEmulatedError
from .kernel import EmulationError, Kernel

__all__ = ["EmulationError", "Kernel", "NotEmulatedError", "guarded"]
