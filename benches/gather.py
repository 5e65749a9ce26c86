"""asv: rows of a table, one for each index."""

import numpy as np

import fastemb

from . import bandwidth, devices, shapes

LARGE = {name: shape for name, shape in shapes.LARGE.items() if shape.stream == "uniform"}
WORKLOADS = shapes.SMALL | shapes.MID | LARGE


class _Lookup:
    """A table, ids, and memory for the result."""

    param_names = ("workload", "device")

    def setup(self, workload, device):
        """Check the rows; the kernel is compiled then."""
        devices.require(device)
        shape = WORKLOADS[workload]
        table, ids = shapes.table(shape.num_rows, shape.width), shape.ids()
        out = fastemb.buffers.empty((ids.size, shape.width), table.dtype)
        out[:] = np.nan
        self.table, self.ids, self.out = (devices.put(array, device) for array in (table, ids, out))
        self.look_up(device)
        np.testing.assert_array_equal(devices.host(self.out), table[ids])
        self.nbytes = shapes.moved(table, ids, ids.size)

    def look_up(self, device):
        """Look the rows up, into the memory that is there."""
        fastemb.gather(self.table, self.ids, out=self.out)
        devices.synchronize(device)


class Gather(_Lookup):
    """Time of ``fastemb.gather``."""

    params = (list(WORKLOADS), devices.NAMES)

    def time_gather(self, workload, device):
        """``fastemb.gather(table, ids)``."""
        result = fastemb.gather(self.table, self.ids)
        devices.synchronize(device)
        return result

    def time_gather_out(self, workload, device):
        """``fastemb.gather(table, ids, out=out)``."""
        self.look_up(device)

    def time_indexing(self, workload, device):
        """``table[ids]``."""
        self.table[self.ids]
        devices.synchronize(device)

    def track_bandwidth(self, workload, device):
        """Bytes that have to move, over the time with ``out=``."""
        return bandwidth.gigabytes_a_second(lambda: self.look_up(device), self.nbytes)

    track_bandwidth.unit = "GB/s"

    def track_allocated(self, workload, device):
        """Most bytes that a lookup holds, its result with them."""
        return devices.peak_bytes(lambda: self.time_gather(workload, device), device)

    track_allocated.unit = "bytes"


class Roof(_Lookup):
    """How near ``fastemb.gather`` is to what the memory can do, where rows come from memory."""

    params = (list(LARGE), devices.NAMES)

    def track_share_of_copy(self, workload, device):
        """Time of a streaming copy of the bytes that have to move over the time of the lookup, in turn."""
        return devices.share_of_copy(lambda: self.look_up(device), self.nbytes, device)

    track_share_of_copy.unit = "% of copy bandwidth"
