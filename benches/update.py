"""asv: steps of the seven rules on the touched rows of a table."""

import numpy as np

from fastemb import optim

from . import devices, shapes

LR = 2.0**-6
RULES = {
    kind.__name__: kind(lr=LR)
    for kind in (
        optim.SGD,
        optim.Momentum,
        optim.Adagrad,
        optim.RowWiseAdagrad,
        optim.RMSprop,
        optim.Adam,
        optim.Ftrl,
    )
}
WORKLOADS = {name: shape for name, shape in shapes.BAGS.items() if shape.width == 64 and shape.hot > 1}
CHECKED = 500
"""Rows, and twice as many positions, whose results are compared with the reference, which is slow."""


class RowUpdate:
    """Time of a step: gradients grouped by row, summed, and the rule applied to each touched row once."""

    params = (list(RULES), list(WORKLOADS), devices.NAMES)
    param_names = ("rule", "workload", "device")

    def setup(self, rule, workload, device):
        """Check two steps against the reference kernels; the kernels are compiled then."""
        devices.require(device)
        shape = WORKLOADS[workload]
        ids, offsets = shape.problem()
        pooled_grad = shapes.gradient(shape.bags, shape.width)
        grad = np.repeat(pooled_grad, shape.hot, axis=0)
        self.rule = RULES[rule]
        self._check(ids[: 2 * CHECKED] % CHECKED, grad[: 2 * CHECKED], device)
        table = shapes.table(shape.num_rows, shape.width)
        arrays = (devices.put(array, device) for array in (ids, offsets, pooled_grad, grad, table))
        self.ids, self.offsets, self.pooled_grad, self.grad, self.table = arrays
        self.state = self.rule.init(self.table)
        self.time_step_bag(rule, workload, device)

    def _check(self, ids, grad, device):
        table = shapes.table(CHECKED, grad.shape[1])
        tables = [devices.put(table.copy(), device), shapes.unaligned(table)]
        for table, where in zip(tables, (device, "cpu"), strict=True):
            state = self.rule.init(table)
            for _ in range(2):
                self.rule.step(table, state, devices.put(ids, where), devices.put(grad, where))
        np.testing.assert_array_equal(*(devices.host(table) for table in tables))

    def time_step(self, rule, workload, device):
        """``rule.step(table, state, ids, grad)``, a row of the gradient for each index."""
        self.rule.step(self.table, self.state, self.ids, self.grad)
        devices.synchronize(device)

    def time_step_bag(self, rule, workload, device):
        """``rule.step_bag(table, state, ids, offsets, grad)``, a row for each bag."""
        self.rule.step_bag(self.table, self.state, self.ids, self.offsets, self.pooled_grad)
        devices.synchronize(device)

    def track_allocated(self, rule, workload, device):
        """Most bytes that a step of bags holds beyond its arguments."""
        return devices.peak_bytes(lambda: self.time_step_bag(rule, workload, device), device)

    track_allocated.unit = "bytes"
