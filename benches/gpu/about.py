"""The device, the versions of everything, and what to try next where results are doubted."""

import dataclasses
import datetime
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import fastemb
from fastemb import _compat, _info

from . import problems, suite, timing

PACKAGES = ("numba-cuda", "cuda-bindings", "cuda-core", "torch", "pytest")
"""Beyond those that fastemb reports."""

PROPERTIES = {
    "totalGlobalMem": "memory_bytes",
    "multiProcessorCount": "multiprocessors",
    "l2CacheSize": "l2_bytes",
    "memoryClockRate": "memory_clock_khz",
    "memoryBusWidth": "memory_bus_bits",
}
"""Of a device, as the runtime calls them (not every version has all), and what they are called here."""


@dataclasses.dataclass(frozen=True)
class Device:
    """What `run.measure` works on: tools and clock, and the memory of the device, free now or given back to it."""

    tools: problems.Tools
    clock: Any
    free_bytes: Callable[[], int]
    free: Callable[[], None]


def problem():
    """Why there is nothing to measure, in a line, or None."""
    found = _compat.cuda_problem()
    return None if found is None else " ".join(str(found).split())


def torch_problem(torch):
    """Why torch is no peer here, or None."""
    if torch is None:
        return "torch is not installed"
    return None if torch.cuda.is_available() else f"torch {torch.__version__} finds no GPU"


def device():
    """(Device, why torch is left out or None)."""
    from fastemb.kernels.cuda import scatter  # needs numba-cuda

    cupy, torch = _compat.cupy(), _compat.optional("torch")
    missing = torch_problem(torch)
    if missing:
        torch = None
    else:
        torch.sparse.check_sparse_tensor_invariants.disable()  # its default, but said aloud it warns no more
    tools = problems.Tools(cupy, torch, fastemb.index_check, scatter.scatter_add_unordered)

    def free():
        cupy.get_default_memory_pool().free_all_blocks()
        if torch is not None:
            torch.cuda.empty_cache()

    def free_bytes():
        free()
        return int(cupy.cuda.runtime.memGetInfo()[0])

    return Device(tools, timing.Events(cupy), free_bytes, free), missing


def about(cupy, quick):
    """Date, revision, versions, CPU and GPU, as plain values."""
    report = _info.info()
    report["date"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    report["revision"] = revision()
    report["quick"] = quick
    report["versions"] |= {name: _compat.version_of(name) for name in PACKAGES} | {"cupy": cupy.__version__}
    runtime = cupy.cuda.runtime
    report["cuda"] = {"driver": runtime.driverGetVersion(), "runtime": runtime.runtimeGetVersion()}
    number = runtime.getDevice()
    known = runtime.getDeviceProperties(number)
    name = known["name"]
    report["device"] = {
        "name": name.decode() if isinstance(name, bytes) else name,
        "compute_capability": cupy.cuda.Device(number).compute_capability,
        **{ours: known[theirs] for theirs, ours in PROPERTIES.items() if theirs in known},
    }
    return report


def revision():
    """The commit of this checkout, "-dirty" behind it where files have changed since; "unknown" outside of git."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        found = subprocess.run(command, cwd=suite.ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def sanitizers():
    """What to type where memory or order of accesses are doubted, a line each."""
    where = shutil.which("compute-sanitizer")
    files = " ".join(str(path.relative_to(suite.ROOT)) for path in suite.files()) or "tests"
    # CuPy's pool hands out parts of large blocks, beyond whose ends an access is still inside of the block.
    run = "import cupy, pytest, sys; cupy.cuda.set_allocator(None); sys.exit(pytest.main(sys.argv[1:]))"
    command = f'{sys.executable} -c "{run}" -m gpu -x {files}'
    return [
        f"compute-sanitizer is {where or 'not in the PATH: it comes with the CUDA toolkit'}",
        *(f"  compute-sanitizer --tool {tool} {command}" for tool in ("memcheck", "racecheck", "synccheck")),
    ]
