"""The devices that every asv benchmark lists, so that its parameters are the same everywhere, and their arrays."""

import numpy as np

from fastemb import _compat

from . import measure

NAMES = ["cpu", "cuda"]

ROUNDS = 9


def require(device):
    """Leave a benchmark out, with the reason, where its device is missing."""
    if device == "cuda":
        problem = getattr(_compat, "cuda_problem", _before_cuda)()
        if problem is not None:
            raise NotImplementedError(str(problem))


def _before_cuda():
    return "this version of fastemb has kernels for the CPU alone"


def require_host(device):
    """Leave a benchmark out that is about the host, whatever its device."""
    if device != "cpu":
        msg = "this is about the host alone: the time is the same with a GPU"
        raise NotImplementedError(msg)


def put(array, device):
    """The array, or a copy of it on the device."""
    return array if device == "cpu" else _compat.cupy().asarray(array)


def host(array):
    """The array, or a copy of it on the host."""
    return array if isinstance(array, np.ndarray) else array.get()


def synchronize(device):
    """Wait for what has been started: the last thing that a timed function does."""
    if device == "cuda":
        _compat.cupy().cuda.runtime.deviceSynchronize()


def peak_bytes(call, device):
    """Most memory that one call holds beyond what there was before: of the host's, or of CuPy's pool."""
    if device == "cpu":
        return measure.peak_bytes(call)
    pool = _compat.cupy().get_default_memory_pool()
    call()
    pool.free_all_blocks()
    before = pool.total_bytes()
    kept = call()  # the result is part of it
    added = pool.total_bytes() - before
    del kept
    return added


def share_of_copy(call, nbytes, device):
    """Per cent: time of a copy that moves as many bytes over that of the call, in turn; the call waits for its end."""
    if device == "cpu":
        from . import bandwidth

        return bandwidth.share_of_copy(call, nbytes)
    xp = _compat.cupy()
    source, target = (xp.ones(max(1, nbytes // 8), np.float32) for _ in range(2))

    def copy():
        xp.copyto(target, source)
        synchronize(device)

    ours, copied = measure.in_turn([call, copy], ROUNDS)
    return 100 * copied.ratio_to(ours)[1]
