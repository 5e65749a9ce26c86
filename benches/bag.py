"""asv: pooled lookups and their gradient."""

import numpy as np

import fastemb

from . import bandwidth, devices, shapes

CHECKED = 64
"""Bags whose results are compared with the reference, which is slow."""


WORKLOADS = {name: shape for name, shape in shapes.BAGS.items() if shape.stream == "uniform" and shape.hot != 10}
"""Of those of the peers: rows from memory, single rows, and rows from the caches."""


class Bag:
    """Time of ``fastemb.embedding_bag`` and ``fastemb.embedding_bag_grad``."""

    params = (list(WORKLOADS), ["sum", "mean", "max"], devices.NAMES)
    param_names = ("workload", "mode", "device")

    def setup(self, workload, mode, device):
        """Check the first bags; the kernels are compiled then."""
        devices.require(device)
        shape = WORKLOADS[workload]
        table, (ids, offsets) = shapes.table(shape.num_rows, shape.width), shape.problem()
        grad = shapes.gradient(shape.bags, shape.width)
        self.table, self.ids, self.offsets, self.grad = (devices.put(a, device) for a in (table, ids, offsets, grad))
        pooled = self.time_bag(workload, mode, device)
        rows = table[ids[: CHECKED * shape.hot]].reshape(CHECKED, shape.hot, shape.width)
        np.testing.assert_allclose(devices.host(pooled)[:CHECKED], getattr(np, mode)(rows, axis=1), rtol=1e-6)
        found = devices.host(self.time_grad(workload, mode, device).values)
        given = grad.sum(axis=0) * (shape.hot if mode == "sum" else 1)  # nothing is lost, nothing is added
        np.testing.assert_allclose(found.sum(axis=0, dtype=np.float64), given, rtol=1e-4, atol=1e-2)
        self.nbytes = shapes.moved(table, ids, shape.bags)

    def time_bag(self, workload, mode, device):
        """``fastemb.embedding_bag(table, ids, offsets, mode=mode)``."""
        result = fastemb.embedding_bag(self.table, self.ids, self.offsets, mode=mode)
        devices.synchronize(device)
        return result

    def time_grad(self, workload, mode, device):
        """``fastemb.embedding_bag_grad(table, ids, offsets, grad, mode=mode)``."""
        result = fastemb.embedding_bag_grad(self.table, self.ids, self.offsets, self.grad, mode=mode)
        devices.synchronize(device)
        return result

    def track_bandwidth(self, workload, mode, device):
        """Bytes that have to move, over the time of the lookup."""
        return bandwidth.gigabytes_a_second(lambda: self.time_bag(workload, mode, device), self.nbytes)

    track_bandwidth.unit = "GB/s"

    def track_allocated(self, workload, mode, device):
        """Most bytes that a lookup holds, its result with them."""
        return devices.peak_bytes(lambda: self.time_bag(workload, mode, device), device)

    track_allocated.unit = "bytes"
