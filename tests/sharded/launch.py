"""mpiexec for tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def mpiexec(ranks, *command, seconds=300, **environment):
    """Run Python on so many ranks, one thread each; the finished process, its output as one text.

    It is killed, and the test fails, after some seconds.
    """
    program = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert program, "mpiexec is not installed: pip install fastemb[mpi]"
    variables = os.environ | {"NUMBA_NUM_THREADS": "1"} | environment
    arguments = [program, "-n", str(ranks), sys.executable, *map(str, command)]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, _ = process.communicate()
            msg = f"{ranks} ranks did not end within {seconds} s:\n{output}"
            raise AssertionError(msg) from None
    return subprocess.CompletedProcess(arguments, process.returncode, output)
