"""``python benches/device.py [--quick]``: what there is to know of fastemb on the GPU at hand, in one command.

Versions, the tests that need a GPU, copy bandwidth, launch overhead, then lookups, pooled lookups, sums and steps
against torch and CuPy. Runs from a plain checkout; ends within eight minutes, with --quick after some ninety seconds.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # In place of this folder, whose files are not to be found as modules of their own.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

    from benches.gpu import command

    sys.exit(command.main())
