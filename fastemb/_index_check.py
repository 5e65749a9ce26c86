"""When calls on a GPU say that an index is out of range."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ._arrays import check_indices
from .kernels import checking


@contextlib.contextmanager
def index_check(check: str) -> Iterator[None]:
    """Say when an index out of range is reported by calls on arrays on a GPU.

    On the CPU, where looking at the indices costs next to nothing, every call reports its own.

    Parameters
    ----------
    check : {"now", "later", "off"}
        "now", as without this context: by the call, which waits for the device. "later": at the end of the block;
        calls do not wait, and on the device find out that they may not write. "off": never; an index out of range is
        then undefined behaviour, as in CUDA itself.

    Raises
    ------
    IndexError
        "later", at the end of the block: that of the first call with an index out of range.
    ValueError
        `check` is none of the three.

    Notes
    -----
    In "now" and "later" alike an operation that changes its arguments changes nothing if an index is out of range; the
    step count of an optimizer has gone on in "later". What a lookup returned is undefined then. Calls that have to
    wait for the device report it at once: those that return a `RowGrad`, `renorm_`, clipping, mode "exact", and lookups
    of layers that map ids. Offsets are looked at by the call in any case. The mode belongs to the thread or task; of
    blocks within blocks the innermost holds.

    torch's CUDA kernels stop the process with a device-side assertion instead.

    Examples
    --------
    >>> import numpy as np, fastemb
    >>> table, ids = np.ones((10, 4)), np.array([3, 9])  # or of cupy
    >>> with fastemb.index_check("later"):
    ...     for _ in range(3):
    ...         rows = fastemb.gather(table, ids)
    """
    with checking.mode(check) as answers:
        yield
    bad = answers.first_bad()
    if bad is None:
        return
    try:
        check_indices(bad.indices, bad.num_rows)
    except IndexError as error:
        raise error from None
    first = f"(first at position {bad.position}). The array has been changed since that call."
    msg = f"Embedding indices must be in [0, {bad.num_rows}), but one was not {first}"
    raise IndexError(msg)
