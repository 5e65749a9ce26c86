"""Duplicate-safe scatter-add of grouped rows."""

from typing import Any

from numpy.typing import NDArray

from .runs import row_pass


def _add(target, state, total, hyper):
    """``target += G``; state (), hyper ()."""
    return target + total, state


_add_range, _add_driver = row_pass(_add)


def scatter_add_range(target, updates, rows, starts, positions, scale_grad_by_freq, start, stop):
    """See `fastemb.kernels.cpu.scatter_add_range`."""
    return _add_range(target, (), updates, rows, starts, positions, (), scale_grad_by_freq, start, stop)


def scatter_add(
    target: NDArray[Any],
    updates: NDArray[Any],
    rows: NDArray[Any],
    starts: NDArray[Any],
    positions: NDArray[Any],
    scale_grad_by_freq: bool,
) -> int:
    """See `fastemb.kernels.cpu.scatter_add`."""
    return _add_driver(target, (), updates, rows, starts, positions, (), scale_grad_by_freq)
