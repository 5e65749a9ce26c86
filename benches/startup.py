"""asv: what a process waits for before its first result."""

import subprocess
import sys

from . import devices

ARRAYS = (
    "import numpy as np, fastemb; "
    "W, ids, dy = np.ones((1000, 64), np.float32), np.arange(2048) % 7, np.ones((2048, 64), np.float32)"
)
FIRST_CALLS = {
    "gather": "fastemb.gather(W, ids)",
    "scatter_add": "fastemb.scatter_add(W, ids, dy)",
    "embedding_bag": "fastemb.embedding_bag(W, ids, [0])",
    "SGD.step": "rule = fastemb.optim.SGD(); rule.step(W, rule.init(W), ids, dy)",
    "Adam.step": "rule = fastemb.optim.Adam(); rule.step(W, rule.init(W), ids, dy)",
}
WITHOUT_CACHE = "import os; os.environ['FASTEMB_CACHE'] = '0'"
WITH_CLOCK = "import time; start = time.perf_counter(); {call}; print(time.perf_counter() - start)"


def _process(*statements):
    return subprocess.run([sys.executable, "-c", "\n".join(statements)], check=True, capture_output=True, text=True)


class Startup:
    """Seconds of fresh processes."""

    params = (devices.NAMES,)
    param_names = ("device",)
    number, repeat, rounds, warmup_time = 1, 5, 1, 0

    def setup(self, device):
        """Let the cache of compiled kernels be warm."""
        devices.require_host(device)
        self.time_first_lookup(device)

    def time_import(self, device):
        """``import fastemb``, which loads nothing."""
        _process("import fastemb")

    def time_import_numpy(self, device):
        """``import numpy``, for comparison."""
        _process("import numpy")

    def time_first_lookup(self, device):
        """To the end of the first lookup, its kernel compiled in an earlier process."""
        _process(ARRAYS, FIRST_CALLS["gather"])

    def time_first_lookup_cold(self, device):
        """The same without the cache on disk: the kernel is compiled."""
        _process(WITHOUT_CACHE, ARRAYS, FIRST_CALLS["gather"])


class Compile:
    """Seconds of the first call of an operation, the cache on disk off: mostly Numba and LLVM."""

    params = (list(FIRST_CALLS), devices.NAMES)
    param_names = ("call", "device")

    def setup(self, call, device):
        """Nothing to make ready."""
        devices.require_host(device)

    def track_compile(self, call, device):
        """The first call in a fresh process, imports and arrays not counted."""
        process = _process(WITHOUT_CACHE, ARRAYS, WITH_CLOCK.format(call=FIRST_CALLS[call]))
        return float(process.stdout)

    track_compile.unit = "seconds"
