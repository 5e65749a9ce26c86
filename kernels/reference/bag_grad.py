"""What the training of pooled lookups needs: where greatest elements came from, and gradients of the weights."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .bag import bad_in_bags, greatest
from .check import first_bad


def bag_winners_range(winners, weight, indices, offsets, padding_idx, start, stop):
    """See `fastemb.kernels.cpu.bag_winners_range`."""
    bad = bad_in_bags(indices, offsets, weight.shape[0], start, stop)
    if bad >= 0:
        return bad
    for b in range(start, stop):
        found = greatest(weight, indices, int(offsets[b]), int(offsets[b + 1]), padding_idx)
        winners[b] = -1 if found is None else found[1]
    return bad


def bag_winners(
    winners: NDArray[Any], weight: NDArray[Any], indices: NDArray[Any], offsets: NDArray[Any], padding_idx: int
) -> int:
    """See `fastemb.kernels.cpu.bag_winners`."""
    return bag_winners_range(winners, weight, indices, offsets, padding_idx, 0, offsets.size - 1)


@np.errstate(all="ignore")
def bag_max_grad_range(values, grad, winners, places, start, stop):
    """See `fastemb.kernels.cpu.bag_max_grad_range`."""
    values[:, start:stop] = 0
    bags, columns = np.nonzero(winners[:, start:stop] >= 0)
    columns += start
    np.add.at(values, (places[winners[bags, columns]], columns), grad[bags, columns].astype(values.dtype))
    return -1


def bag_max_grad(values: NDArray[Any], grad: NDArray[Any], winners: NDArray[Any], places: NDArray[Any]) -> int:
    """See `fastemb.kernels.cpu.bag_max_grad`."""
    return bag_max_grad_range(values, grad, winners, places, 0, grad.shape[1])


@np.errstate(all="ignore")
def bag_dots_range(dots, weight, indices, offsets, grad, padding_idx, start, stop):
    """See `fastemb.kernels.cpu.bag_dots_range`."""
    bad = bad_in_bags(indices, offsets, weight.shape[0], start, stop)
    if bad >= 0:
        return bad
    for b in range(start, stop):
        for k in range(offsets[b], offsets[b + 1]):
            row = weight[indices[k]].astype(dots.dtype)
            dots[k] = 0 if indices[k] == padding_idx else (grad[b].astype(dots.dtype) * row).sum()
    return bad


def bag_dots(
    dots: NDArray[Any],
    weight: NDArray[Any],
    indices: NDArray[Any],
    offsets: NDArray[Any],
    grad: NDArray[Any],
    padding_idx: int,
) -> int:
    """See `fastemb.kernels.cpu.bag_dots`."""
    return bag_dots_range(dots, weight, indices, offsets, grad, padding_idx, 0, offsets.size - 1)


def bag_numbers_range(numbers, positions, offsets, start, stop):
    """See `fastemb.kernels.cpu.bag_numbers_range`."""
    bad = first_bad(positions, int(offsets[-1]) if offsets.size > 1 else 0, start, stop)
    if bad < 0:
        numbers[start:stop] = np.searchsorted(offsets, positions[start:stop], side="right") - 1
    return bad


def bag_numbers(numbers: NDArray[Any], positions: NDArray[Any], offsets: NDArray[Any]) -> int:
    """See `fastemb.kernels.cpu.bag_numbers`."""
    return bag_numbers_range(numbers, positions, offsets, 0, positions.size)
