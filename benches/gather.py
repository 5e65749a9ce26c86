"""asv: rows of a table, one for each index."""

import numpy as np

import fastemb

from . import bandwidth, devices, measure, shapes

WORKLOADS = shapes.SMALL | shapes.MID | {name: s for name, s in shapes.LARGE.items() if s.stream == "uniform"}


class Gather:
    """Time of ``fastemb.gather``, and how near it is to what the memory can do."""

    params = (list(WORKLOADS), devices.NAMES)
    param_names = ("workload", "device")

    def setup(self, workload, device):
        """Check the rows; the kernel is compiled then."""
        devices.require(device)
        shape = WORKLOADS[workload]
        self.table, self.ids = shapes.table(shape.num_rows, shape.width), shape.ids()
        self.out = fastemb.buffers.empty((self.ids.size, shape.width), self.table.dtype)
        self.out[:] = np.nan
        fastemb.gather(self.table, self.ids, out=self.out)
        np.testing.assert_array_equal(self.out, self.table[self.ids])
        self.nbytes = shapes.moved(self.table, self.ids, self.ids.size)

    def time_gather(self, workload, device):
        """``fastemb.gather(table, ids)``."""
        fastemb.gather(self.table, self.ids)

    def time_gather_out(self, workload, device):
        """``fastemb.gather(table, ids, out=out)``."""
        fastemb.gather(self.table, self.ids, out=self.out)

    def time_indexing(self, workload, device):
        """``table[ids]``."""
        self.table[self.ids]

    def track_bandwidth(self, workload, device):
        """Bytes that have to move, over the time with ``out=``."""
        return bandwidth.gigabytes_a_second(lambda: self.time_gather_out(workload, device), self.nbytes)

    track_bandwidth.unit = "GB/s"

    def track_share_of_copy(self, workload, device):
        """That over the bandwidth of a streaming copy of as many bytes, in turn."""
        if workload not in shapes.LARGE:
            msg = "the caches hold it: a copy past them is no measure"
            raise NotImplementedError(msg)
        return bandwidth.share_of_copy(lambda: self.time_gather_out(workload, device), self.nbytes)

    track_share_of_copy.unit = "% of copy bandwidth"

    def track_allocated(self, workload, device):
        """Most bytes that a lookup holds, its result with them."""
        return measure.peak_bytes(lambda: self.time_gather(workload, device))

    track_allocated.unit = "bytes"
