"""asv: rows of a table, one for each index."""

import numpy as np

import fastemb

from . import bandwidth, devices, measure, shapes

LARGE = {name: shape for name, shape in shapes.LARGE.items() if shape.stream == "uniform"}
WORKLOADS = shapes.SMALL | shapes.MID | LARGE


class _Lookup:
    """A table, ids, and memory for the result."""

    param_names = ("workload", "device")

    def setup(self, workload, device):
        """Check the rows; the kernel is compiled then."""
        devices.require(device)
        shape = WORKLOADS[workload]
        self.table, self.ids = shapes.table(shape.num_rows, shape.width), shape.ids()
        self.out = fastemb.buffers.empty((self.ids.size, shape.width), self.table.dtype)
        self.out[:] = np.nan
        self.look_up()
        np.testing.assert_array_equal(self.out, self.table[self.ids])
        self.nbytes = shapes.moved(self.table, self.ids, self.ids.size)

    def look_up(self):
        """Look the rows up, into the memory that is there."""
        fastemb.gather(self.table, self.ids, out=self.out)


class Gather(_Lookup):
    """Time of ``fastemb.gather``."""

    params = (list(WORKLOADS), devices.NAMES)

    def time_gather(self, workload, device):
        """``fastemb.gather(table, ids)``."""
        fastemb.gather(self.table, self.ids)

    def time_gather_out(self, workload, device):
        """``fastemb.gather(table, ids, out=out)``."""
        self.look_up()

    def time_indexing(self, workload, device):
        """``table[ids]``."""
        self.table[self.ids]

    def track_bandwidth(self, workload, device):
        """Bytes that have to move, over the time with ``out=``."""
        return bandwidth.gigabytes_a_second(self.look_up, self.nbytes)

    track_bandwidth.unit = "GB/s"

    def track_allocated(self, workload, device):
        """Most bytes that a lookup holds, its result with them."""
        return measure.peak_bytes(lambda: self.time_gather(workload, device))

    track_allocated.unit = "bytes"


class Roof(_Lookup):
    """How near ``fastemb.gather`` is to what the memory can do, where rows come from memory."""

    params = (list(LARGE), devices.NAMES)

    def track_share_of_copy(self, workload, device):
        """Time of a streaming copy of the bytes that have to move over the time of the lookup, in turn."""
        return bandwidth.share_of_copy(self.look_up, self.nbytes)

    track_share_of_copy.unit = "% of copy bandwidth"
