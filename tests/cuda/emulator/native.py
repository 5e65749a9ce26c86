"""The C part, compiled once for each state of its source."""

import ctypes
import functools
import hashlib
import os
import subprocess
import sysconfig
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("fibers.c")
FUNCTIONS = "emu_access", "emu_barrier", "emu_collective"
"""What compiled kernels call."""


class Thread(ctypes.Structure):
    """What a thread waits for: ``struct thread``."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("state", "operation", "mode", "line")),
        ("mask", ctypes.c_uint32),
        *((name, ctypes.c_int32) for name in ("by", "clamp")),
        *((name, ctypes.c_uint64) for name in ("value", "result")),
    ]


class Report(ctypes.Structure):
    """What went wrong: ``struct report``."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("failure", "thread", "line", "written")),
        *((name, ctypes.c_uint64) for name in ("address", "bytes")),
    ]


def _compiled():
    """The library, in a folder for temporary files; tests that run at once do not meet half of it."""
    compiler = os.environ.get("CC") or (sysconfig.get_config_var("CC") or "cc").split()[0]
    digest = hashlib.sha256(SOURCE.read_bytes() + compiler.encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"fastemb-emulator-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        msg = f"{folder} belongs to somebody else"
        raise RuntimeError(msg)
    library = folder / f"fibers-{digest}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as own:
            fresh = Path(own) / library.name
            command = [*compiler.split(), "-O2", "-U_FORTIFY_SOURCE", "-shared", "-fPIC", "-o", fresh, SOURCE]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                msg = f"the emulator needs a C compiler ({compiler}): {done.stderr}"
                raise RuntimeError(msg)
            fresh.replace(library)
    return library


@functools.cache
def runtime():
    """The C functions."""
    library = ctypes.CDLL(str(_compiled()))
    library.emu_threads.restype = ctypes.POINTER(Thread)
    library.emu_report.restype = ctypes.POINTER(Report)
    library.emu_setup.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_int32]
    for name in ("emu_run_in_turn", "emu_run_fibers"):
        getattr(library, name).argtypes = [ctypes.c_int32] * 3 + [ctypes.c_uint32]
    return library


def address(name):
    """Where a C function lies."""
    return ctypes.cast(getattr(runtime(), name), ctypes.c_void_p).value
