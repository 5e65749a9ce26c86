"""The devices that every asv benchmark lists, so that its parameters are the same on every machine."""

NAMES = ["cpu", "cuda"]


def require(device):
    """Leave a benchmark out, with the reason, where its device is missing."""
    if device == "cuda":
        msg = "this version of fastemb has kernels for the CPU alone"
        raise NotImplementedError(msg)
