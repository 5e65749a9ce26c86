"""The check that comes before every read and write."""

import numpy as np


def first_bad(indices, num_rows, start, stop):
    """Position of the first index outside ``[0, num_rows)`` among ``indices[start:stop]``, or -1."""
    part = indices[start:stop]
    bad = np.flatnonzero((part < 0) | (part >= num_rows))
    return start + int(bad[0]) if bad.size else -1
