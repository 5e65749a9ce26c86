"""What `python -m fastemb info` reports: everything that a bug report or a benchmark has to say about its machine."""

from __future__ import annotations

import os
import platform
import warnings
from pathlib import Path
from typing import Any

import fastemb

from ._compat import cuda_problem, cupy, version_of

ENVIRONMENT = (
    "FASTEMB_CACHE",
    "NUMBA_CACHE_DIR",
    "NUMBA_CPU_FEATURES",
    "NUMBA_CPU_NAME",
    "NUMBA_DISABLE_JIT",
    "NUMBA_NUM_THREADS",
    "NUMBA_THREADING_LAYER",
    "OMP_NUM_THREADS",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "XDG_CACHE_HOME",
)
"""Environment variables that change what fastemb does or how fast it is."""


def info() -> dict[str, Any]:
    """Versions, CPU, threads, GPU, compile cache and environment of this process, as plain values."""
    return {
        "versions": versions(),
        "cpu": cpu(),
        "cache": _cache(),  # first: it imports the kernels
        "threads": _threads(),
        "gpu": gpu(),
        "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    }


def versions() -> dict[str, str | None]:
    """Versions of fastemb, Python and the packages it works with; None where one is not installed."""
    packages = ("numpy", "numba", "llvmlite", "numba-cuda", "ml_dtypes", "scipy")
    return {
        "fastemb": fastemb.__version__,
        "python": platform.python_version(),
        **{name: version_of(name) for name in packages},
    }


def cpu() -> dict[str, Any]:
    """Model, usable cores and cache sizes in bytes (of the first core, where Linux tells)."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"model": _cpu_model(), "machine": platform.machine(), "cores": usable, "caches": _caches()}


def gpu() -> dict[str, Any]:
    """The GPUs that arrays can be on, or why there are none."""
    problem = cuda_problem()
    if problem is not None:
        return {"available": False, "reason": str(problem)}
    library = cupy()
    runtime = library.cuda.runtime
    devices = {}
    for number in range(runtime.getDeviceCount()):
        found = runtime.getDeviceProperties(number)
        devices[f"cuda:{number}"] = {
            "model": found["name"].decode(),
            "compute_capability": library.cuda.Device(number).compute_capability,
            "memory": found["totalGlobalMem"],
        }
    versions = {"driver": runtime.driverGetVersion(), "runtime": runtime.runtimeGetVersion()}
    return {"available": True, "cupy": library.__version__, **versions, "devices": devices}


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _caches() -> dict[str, int]:
    caches = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
            caches[f"L{level} {kind.lower()}"] = int(size.removesuffix("K")) * 1024
        except (OSError, ValueError):
            continue
    return caches


def _threads() -> dict[str, Any]:
    import numba

    from .kernels.cpu import threads

    try:
        count = numba.get_num_threads()
        layer = numba.threading_layer()
    except ValueError as error:  # none of the layers asked for can be loaded
        return {"count": 1, "layer": None, "reason": str(error).split(".")[0]}
    return {"count": count, "layer": layer, "serial_below_bytes": threads.SERIAL_BELOW}


def _cache() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the report says it
        from .kernels.cpu import jit
    folder = jit.cache_folder()
    return {"folder": folder} if folder else {"folder": None, "reason": jit.why_no_cache()}
