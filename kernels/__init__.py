"""The kernels of fastemb: functions that fill arrays they are given.

Import a backend: ``from fastemb.kernels import cpu`` (Numba) or ``from fastemb.kernels import reference`` (plain NumPy,
slow and obvious, the oracle of every test). Each has the same functions with the same parameters.

The contract, for every kernel and every backend:

- Letters: N rows and D columns of a table, L indices, U distinct rows among them.
- Argument order: arrays that are written, then tables, indices, offsets, weights, then scalars.
- A kernel allocates no result, prints nothing and raises nothing. It returns the position of the first index outside
  ``[0, N)``, or -1. When it does not return -1 it has written nothing into its outputs.
- ``name_range(..., start, stop)`` works on a part of the positions in the caller's thread; under ``cpu`` it is a nogil
  function to call from your own ``@njit`` code. ``name(...)`` is the driver that splits the range over threads.
- Every index is checked before anything is written; offsets into tables are 64-bit. The check and the work read the
  indices one after the other, so no other thread may change them meanwhile.
- Indices are one-dimensional int32 or int64 arrays. Shapes, dtypes and aliasing are the caller's to check: the
  functions of the ``fastemb`` package do that.
- ``scatter_add`` adds one by one, in the order of the positions; a row or a column belongs to one thread. Elsewhere
  duplicates are handled by grouping (``group``): distinct rows, where each one's run of positions starts, and the
  positions in a stable order. A run's sum follows the positions and is cut every `SUM_BLOCK` of them: the partial sums
  are added in order. So the bits depend on the data alone, never on the number of threads.
"""

from typing import Any

import numpy as np

if __name__ != "fastemb.kernels":
    msg = f"import fastemb.kernels, not {__name__}: a second copy would compile everything twice and share no state"
    raise ImportError(msg)

SERIES_TERMS = 8
"""Coefficients of the power series by which rows make up for missed steps: a line of float64."""

SUM_BLOCK = 1024
"""Positions in one partial sum of a run; part of the result's definition, so changing it changes bits."""


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that sums and optimizer state have for a table: float32 for half-width ones, else the table's own."""
    if dtype.itemsize < 4:
        return np.dtype(np.float32)
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def name_after_rule(range_form: Any, driver: Any, rule: Any, doc: str) -> None:
    """Give the two kernels that were made for the rule ``_name`` its name, so that help and pickle find them."""
    name = rule.__name__.removeprefix("_")
    for kernel, called in ((range_form, f"{name}_range"), (driver, name)):
        kernel.__name__ = kernel.__qualname__ = called
        kernel.__module__ = rule.__module__
        kernel.__doc__ = doc
