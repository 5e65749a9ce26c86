"""What runs in a fresh process: ``python -m benches.regression.sample NAME ...`` prints seconds a call as JSON."""

import argparse
import functools
import json
import math
import os
import platform
import runpy
import sys
import time
from pathlib import Path

SAMPLES = 5
"""Of each bench; the fastest counts, as noise only adds."""

SAMPLE_SECONDS = 5e-3
"""A sample repeats a call until it lasts about this long."""


def own_clock():
    """Seconds, without those that this thread, ready to run, waited for a core (which Linux tells).

    What the code itself waits for is left in. For work of one thread: nothing is known of the waits of others.
    """
    return time.perf_counter() - _waited()


def _waited():
    file = _scheduler()
    return 0.0 if file is None else int(os.pread(file, 96, 0).split()[1]) * 1e-9


@functools.cache
def _scheduler():
    try:
        return os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    except OSError:
        return None


def _spent(call, number, clock):
    start = clock()
    for _ in range(number):
        call()
    return clock() - start


def repeats(call, clock, spent=_spent):
    """How often to repeat a call so that a sample lasts `SAMPLE_SECONDS`."""
    number = 1
    while (seconds := spent(call, number, clock)) < SAMPLE_SECONDS:
        number = math.ceil(number * min(10, max(1.2, 1.2 * SAMPLE_SECONDS / max(seconds, 1e-9))))
    return number


def fastest(calls, samples, clock=own_clock):
    """Least seconds of each call. They take turns, so that a bad moment costs each of them one sample at most."""
    numbers = {name: repeats(call, clock) for name, call in calls.items()}
    best = dict.fromkeys(calls, math.inf)
    for _ in range(samples):
        for name, call in calls.items():
            best[name] = min(best[name], _spent(call, numbers[name], clock) / numbers[name])
    return best


def start_up(clock):
    """Import fastemb with all its names, then look a few rows up, each for the first time: (seconds, seconds).

    NumPy is part of the first, and Numba of the second unless fastemb has come to import it earlier: until then nothing
    but the standard library may have been imported.
    """
    began = clock()
    import fastemb

    for name in fastemb.__all__:
        getattr(fastemb, name)
    imported = clock()
    import numpy as np

    fastemb.gather(np.ones((1000, 64), np.float32), np.arange(32))
    return imported - began, clock() - imported


def benches_of(path):
    """``BENCHES`` of a Python file, which may import what lies beside it."""
    sys.path.append(str(Path(path).resolve().parent))
    return runpy.run_path(str(path))["BENCHES"]


def main(arguments=None):
    """Time the benches named; those that raise are reported as errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="benches (all)")
    parser.add_argument("--cases", type=Path, help="another file with BENCHES")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    options = parser.parse_args(arguments)

    clock = own_clock if os.environ.get("NUMBA_NUM_THREADS") == "1" else time.perf_counter
    started = start_up(clock)
    import fastemb

    if not Path(fastemb.__file__).resolve().is_relative_to(Path(sys.prefix).resolve()):
        sys.exit(f"fastemb was imported from {fastemb.__file__}, not from the environment of the wheel, {sys.prefix}")
    import numba
    import numpy as np

    from . import cases

    benches = benches_of(options.cases) if options.cases else cases.BENCHES
    seconds, errors, calls = dict(zip(cases.STARTUP, started, strict=True)), {}, {}
    for name in [n for n in options.names or benches if n not in cases.STARTUP]:
        try:
            calls[name] = benches[name]()
            calls[name]()
        except Exception as error:  # noqa: BLE001  whatever another revision makes of the call
            calls.pop(name, None)
            errors[name] = f"{type(error).__name__}: {error}"
    seconds |= fastest(calls, options.samples, clock)
    about = {"python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__}
    print(json.dumps({"seconds": seconds, "errors": errors, "fastemb": fastemb.__file__, "versions": about}))
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # to take the compiler apart is a sixth of a process that times one bench
