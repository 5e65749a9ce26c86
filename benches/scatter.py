"""asv: rows added into a table, duplicates summed."""

import numpy as np

import fastemb
from fastemb import _compat

from . import bandwidth, devices, shapes


class ScatterAdd:
    """Time of ``fastemb.scatter_add``."""

    params = (list(shapes.SCATTERS), devices.NAMES)
    param_names = ("workload", "device")

    def setup(self, workload, device):
        """Check the sums; the kernel is compiled then."""
        devices.require(device)
        shape = shapes.SCATTERS[workload]
        ids, updates = shape.ids(), shapes.gradient(shape.length, shape.width)
        target, expected = (np.zeros((shape.num_rows, shape.width), np.float32) for _ in range(2))
        self.ids, self.updates, self.target = (devices.put(array, device) for array in (ids, updates, target))
        fastemb.scatter_add(self.target, self.ids, self.updates)
        np.add.at(expected, ids, updates)
        np.testing.assert_array_equal(devices.host(self.target), expected)
        # the updates are read once, every touched row is read and written
        self.nbytes = (shape.length + 2 * np.unique(ids).size) * shape.width * 4

    def time_scatter_add(self, workload, device):
        """``fastemb.scatter_add(target, ids, updates)``."""
        fastemb.scatter_add(self.target, self.ids, self.updates)
        devices.synchronize(device)

    def time_add_at(self, workload, device):
        """``np.add.at(target, ids, updates)``, or CuPy's."""
        xp = np if device == "cpu" else _compat.cupy()
        xp.add.at(self.target, self.ids, self.updates)
        devices.synchronize(device)

    def track_bandwidth(self, workload, device):
        """Bytes that have to move, over the time."""
        return bandwidth.gigabytes_a_second(lambda: self.time_scatter_add(workload, device), self.nbytes)

    track_bandwidth.unit = "GB/s"

    def track_allocated(self, workload, device):
        """Most bytes that a call holds beyond its arguments."""
        return devices.peak_bytes(lambda: self.time_scatter_add(workload, device), device)

    track_allocated.unit = "bytes"
