"""asv: row lookup against the product with a one-hot matrix, the headline as a history."""

import numpy as np

import fastemb

from . import data, devices, measure, shapes, workloads


class _OnText:
    params = (list(workloads.SIZES), devices.NAMES)
    param_names = ("N", "device")

    def setup_cache(self):
        """The words of the text stream, read once."""
        return {num_rows: data.text(num_rows, workloads.LENGTH) for num_rows in workloads.SIZES}


class LookupVsOneHot(_OnText):
    """Time of a lookup of 1,024 words, by index and as a product with a one-hot matrix that is built already."""

    def setup(self, words, num_rows, device):
        """Check that all ways give the same rows; they are compiled then."""
        devices.require_host(device)
        case = workloads.lookup(num_rows, words[num_rows])
        case.check()
        self.ways = {way.name: way.call for way in case.ways}

    def time_lookup(self, words, num_rows, device):
        """``fastemb.gather(table, ids)``."""
        self.ways["fastemb.gather"]()

    def time_indexing(self, words, num_rows, device):
        """``table[ids]``."""
        self.ways["W[ids]"]()

    def time_matmul(self, words, num_rows, device):
        """``one_hot @ table``, dense, by BLAS."""
        self.ways["one-hot matmul"]()

    def time_sparse_matmul(self, words, num_rows, device):
        """``one_hot @ table``, in CSR form, by scipy."""
        self.ways["sparse matmul"]()

    def track_speedup(self, words, num_rows, device):
        """Time of the dense product over that of the lookup, in turn."""
        lookup, matmul = measure.in_turn([self.ways["fastemb.gather"], self.ways["one-hot matmul"]])
        return matmul.ratio_to(lookup)[1]

    track_speedup.unit = "times"


class LookupVsOneHotMemory(_OnText):
    """Peak memory of a process that looks 1,024 words up, one way or the other.

    `peakmem_reference` is what the process has before: the table, the ids, the libraries.
    """

    def setup(self, words, num_rows, device):
        """What both ways need, and one call of each on a few rows: code is loaded before memory is looked at."""
        devices.require_host(device)
        self.table = shapes.table(num_rows, workloads.WIDTH)
        self.ids = words[num_rows]
        few, some = self.table[:10], self.ids % 10
        np.testing.assert_array_equal(fastemb.gather(few, some), few[some])
        np.testing.assert_array_equal(fastemb.one_hot(some, 10) @ few, few[some])

    def peakmem_reference(self, words, num_rows, device):
        """Nothing."""

    def peakmem_lookup(self, words, num_rows, device):
        """The lookup."""
        fastemb.gather(self.table, self.ids)

    def peakmem_one_hot(self, words, num_rows, device):
        """The one-hot matrix, and its product with the table."""
        fastemb.one_hot(self.ids, num_rows) @ self.table
