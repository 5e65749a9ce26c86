"""``cupy.cuda``: two devices, of which each thread has a current one, and streams that have nothing to wait for."""

import threading
from types import ModuleType

from .counts import counts

COUNT = 2


class CUDARuntimeError(RuntimeError):
    """What the CUDA runtime refuses."""


class _Thread(threading.local):
    device = 0

    def __init__(self):
        self.streams = []


_thread = _Thread()


def current():
    """Number of the current device."""
    return _thread.device


def use(device):
    """Make a device the current one of this thread."""
    if not 0 <= device < COUNT:
        msg = "cudaErrorInvalidDevice: invalid device ordinal"
        raise CUDARuntimeError(msg)
    _thread.device = device


def require_current(*arrays):
    """ValueError for an array that another device holds: the devices here cannot read each other's memory."""
    for array in arrays:
        if array.device.id != current():
            msg = (
                f"The device where the array resides ({array.device.id}) is different from the current device "
                f"({current()}). Peer access is unavailable between these devices."
            )
            raise ValueError(msg)


class Device:
    """A device, which is the current one in a ``with`` block."""

    def __init__(self, device=None):
        self.id = current() if device is None else int(device)
        self._before = []

    def __int__(self):
        return self.id

    def __enter__(self):
        self._before.append(current())
        use(self.id)
        return self

    def __exit__(self, *args):
        use(self._before.pop())

    def __eq__(self, other):
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self):
        return hash(self.id)

    def __repr__(self):
        return f"<CUDA Device {self.id}>"

    @property
    def compute_capability(self):
        return "90"

    def use(self):
        use(self.id)
        return self

    def synchronize(self):
        counts.synchronisations += 1


class Stream:
    """A stream, which is the current one in a ``with`` block."""

    def __init__(self, null=False):
        self.ptr = 0 if null else id(self)

    def __enter__(self):
        _thread.streams.append(self)
        return self

    def __exit__(self, *args):
        _thread.streams.remove(self)

    def synchronize(self):
        counts.synchronisations += 1


Stream.null = Stream(null=True)


def get_current_stream(device_id=-1):
    """The stream on which work is started."""
    return _thread.streams[-1] if _thread.streams else Stream.null


def module(name, **contents):
    """A module of some contents."""
    made = ModuleType(name)
    vars(made).update(contents)
    return made


runtime = module(
    "cupy.cuda.runtime",
    CUDARuntimeError=CUDARuntimeError,
    deviceSynchronize=lambda: Device().synchronize(),
    getDevice=current,
    getDeviceCount=lambda: COUNT,
    setDevice=use,
)

cuda = module(
    "cupy.cuda",
    Device=Device,
    Stream=Stream,
    get_current_stream=get_current_stream,
    is_available=lambda: True,
    runtime=runtime,
)
