"""Gradients of pooled rows, with respect to the table and to the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import buffers
from ._arrays import Table, all_indices, backend, cpu, index_error, kernel_gradient, reference
from ._bags import Bags
from ._groups import Groups, row_gradient
from .rowgrad import RowGrad, hand_over


def bag_gradient(table: Table, bags: Bags, grad: NDArray[Any], *, scale_grad_by_freq: bool) -> RowGrad:
    """The gradient of the table, given that of the pooled rows, (B, D)."""
    if bags.mode == "max":
        return _max_gradient(table, bags, grad)
    groups, scale = bag_groups(table.shape[0], bags, scale_grad_by_freq=scale_grad_by_freq)
    return row_gradient(groups, grad, table.shape[0], bags.dtype, scale_grad_by_freq=scale)


def bag_groups(num_rows: int, bags: Bags, *, scale_grad_by_freq: bool) -> tuple[Groups, bool]:
    """Positions grouped by row, as rows of the (B, D) gradient and what to multiply those by.

    Also whether kernels are still to scale by frequency. Bags whose divisor is zero have no gradient, not even of NaN.
    """
    bags = bags._replace(ids=all_indices(bags.ids, num_rows))
    groups = Groups.of(bags.ids, num_rows, bags.padding_idx)
    factors = None if bags.weights is None else bags.weights[groups.positions]
    numbers = groups.positions  # which nobody needs any more
    cpu().bag_numbers(numbers, numbers, bags.offsets)
    divisors = bags.divisors(bags.ids)
    if divisors is None:
        return groups._replace(positions=numbers, coefficients=factors), scale_grad_by_freq
    with np.errstate(all="ignore"):
        coefficients = (np.ones(1, bags.dtype) if factors is None else factors) / divisors[numbers]
        groups = groups._replace(positions=numbers, coefficients=coefficients)
        alive = divisors[numbers] != 0
        if alive.all():
            return groups, scale_grad_by_freq
        if scale_grad_by_freq:  # by all occurrences, those without a gradient too
            coefficients /= np.diff(groups.starts)[groups.runs()].astype(bags.dtype)
    return groups.where(alive), False


def _max_gradient(table: Table, bags: Bags, grad: NDArray[Any]) -> RowGrad:
    ids = all_indices(bags.ids, table.shape[0])
    winners = buffers.empty(grad.shape, np.dtype(np.int64))
    if backend(table).bag_winners(winners, table, ids, bags.offsets, bags.padding) >= 0:
        raise index_error(bags.ids, table.shape[0])
    won = np.zeros(ids.size, np.bool)
    won[winners[winners >= 0]] = True
    groups = Groups.of(ids, table.shape[0], bags.padding_idx)
    groups = groups.where(won[groups.positions])
    places = np.empty(ids.size, np.int64)
    places[groups.positions] = groups.runs()
    values = np.empty((groups.rows.size, table.shape[1]), bags.dtype)
    readable = kernel_gradient(grad) is not None
    (cpu() if readable else reference()).bag_max_grad(values, grad, winners, places)
    return hand_over(groups.rows, values, table.shape[0])


def weight_gradient(table: Table, bags: Bags, grad: NDArray[Any]) -> NDArray[Any]:
    """The gradient of the weights, flat."""
    bags = bags._replace(ids=all_indices(bags.ids, table.shape[0]))
    dots = np.zeros(bags.ids.size, bags.dtype)
    with np.errstate(all="ignore"):
        terms = grad if kernel_gradient(grad) is not None else np.require(grad, bags.dtype, ["C", "A"])
    if backend(table).bag_dots(dots, table, bags.ids, bags.offsets, terms, bags.padding) >= 0:
        raise index_error(bags.ids, table.shape[0])
    divisors = bags.divisors(bags.ids)
    if divisors is None:
        return dots
    # With s = sum of w: d(sum w x / s) / dw = (x - sum(w x) / s) / s. With s = sqrt(sum of w**2): the same, but for
    # one more w / s at the second x. Here x is already the product of the row and the gradient, one number.
    inner = np.empty((bags.size, 1), bags.dtype)
    padding, none = bags.ids == bags.padding, np.empty(0, bags.dtype)
    factors = none if bags.weights is None else np.where(padding, 0, bags.weights)
    cpu().bag_sum(inner, dots[:, np.newaxis], np.arange(dots.size), bags.offsets, factors, none, -1)
    numbers = bags.numbers
    with np.errstate(all="ignore"):
        divisor = divisors[numbers]
        second = inner[numbers, 0] / divisor
        if bags.mode == "sqrtn":
            second *= (1 if bags.weights is None else bags.weights) / divisor
        result: NDArray[Any] = (dots - second) / divisor
    result[(divisor == 0) | padding] = 0
    return result
