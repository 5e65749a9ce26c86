"""Kernels for CUDA, tested without a GPU: in the emulator, in Numba's simulator, and as machine code.

numba-cuda is for Linux and Windows, and the emulator's fibers are for Linux. Elsewhere nothing here is collected; on
Linux what is missing is an error.
"""

import sys

if sys.platform == "linux":
    from .offline import require_version

    require_version()
else:
    collect_ignore_glob = ["test_*.py"]
