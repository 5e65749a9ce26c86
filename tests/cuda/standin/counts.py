"""What takes time on a device, counted."""

import contextlib


class Counts:
    """How often the host waited for a device, and how many operations it started there."""

    def __init__(self):
        self.synchronisations = 0
        self.operations = 0


counts = Counts()


@contextlib.contextmanager
def waits(expected):
    """Fails unless the host waits for a device so many times meanwhile."""
    before = counts.synchronisations
    yield
    found = counts.synchronisations - before
    assert found == expected, f"the host waited for the device {found} times, not {expected}"
