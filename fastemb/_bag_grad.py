"""Gradients of pooled rows, with respect to the table and to the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._arrays import Table, all_indices, cast_gradient, index_error, kernel_gradient
from ._bags import Bags
from ._devices import backend, compiled, empty, namespace, reference, unchecked, waiting
from ._groups import Groups, row_gradient, to_bags
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
    ids, factors = all_indices(bags.ids, num_rows), None
    groups = Groups.of(ids, num_rows, bags.padding_idx, bags.offsets if bags.weights is None else None)
    numbers = groups.positions
    if bags.weights is not None:
        factors = bags.weights[groups.positions]
        to_bags(numbers, bags.offsets)  # nobody needs the positions any more
        groups = groups._replace(coefficients=factors)
    divisors = bags.divisors(ids)
    if divisors is None:
        return groups, scale_grad_by_freq
    with np.errstate(all="ignore"):
        coefficients = (bags.dtype.type(1) if factors is None else factors) / divisors[numbers]
        groups = groups._replace(coefficients=coefficients)
        if factors is None:  # only bags that nothing is left of have a divisor of zero
            return groups, scale_grad_by_freq
        alive = divisors[numbers] != 0
        if alive.all():
            return groups, scale_grad_by_freq
        if scale_grad_by_freq:  # by all occurrences, those without a gradient too
            coefficients /= namespace(numbers).diff(groups.starts)[groups.runs()].astype(bags.dtype)
    return groups.where(alive), False


def _max_gradient(table: Table, bags: Bags, grad: NDArray[Any]) -> RowGrad:
    xp = namespace(table)
    ids = all_indices(bags.ids, table.shape[0])
    winners = empty(grad.shape, np.dtype(np.int64), table)
    with waiting(table):
        if backend(table).bag_winners(winners, table, ids, bags.offsets, bags.padding) >= 0:
            raise index_error(bags.ids, table.shape[0])
    won = xp.zeros(ids.size, np.bool)
    won[winners[winners >= 0]] = True
    groups = Groups.of(ids, table.shape[0], bags.padding_idx)
    groups = groups.where(won[groups.positions])
    places = xp.empty(ids.size, np.int64)
    places[groups.positions] = groups.runs()
    values = xp.empty((groups.rows.size, table.shape[1]), bags.dtype)
    if isinstance(table, np.ndarray):
        kernels = reference() if kernel_gradient(grad) is None else compiled(grad)
    else:
        kernels, grad = compiled(grad), cast_gradient(grad, bags.dtype)
    kernels.bag_max_grad(values, grad, winners, places)
    return hand_over(groups.rows, values, table.shape[0])


def weight_gradient(table: Table, bags: Bags, grad: NDArray[Any]) -> NDArray[Any]:
    """The gradient of the weights, flat."""
    xp = namespace(table)
    bags = bags._replace(ids=all_indices(bags.ids, table.shape[0]))
    dots: NDArray[Any] = xp.zeros(bags.ids.size, bags.dtype)
    terms = cast_gradient(grad, bags.dtype)
    if backend(table).bag_dots(dots, table, bags.ids, bags.offsets, terms, bags.padding) >= 0:
        raise index_error(bags.ids, table.shape[0])
    divisors = bags.divisors(bags.ids)
    if divisors is None:
        return dots
    # With s = sum of w: d(sum w x / s) / dw = (x - sum(w x) / s) / s. With s = sqrt(sum of w**2): the same, but for
    # one more w / s at the second x. Here x is already the product of the row and the gradient, one number.
    inner = xp.empty((bags.size, 1), bags.dtype)
    padding, none = bags.ids == bags.padding, xp.empty(0, bags.dtype)
    factors = none if bags.weights is None else bags.weights.copy()
    if bags.weights is not None:
        factors[padding] = 0
    with unchecked(inner):
        compiled(inner).bag_sum(inner, dots[:, np.newaxis], xp.arange(dots.size), bags.offsets, factors, none, -1)
    numbers = bags.numbers
    with np.errstate(all="ignore"):
        divisor = divisors[numbers]
        second = inner[numbers, 0] / divisor
        if bags.mode == "sqrtn":
            second *= (1 if bags.weights is None else bags.weights) / divisor
        result: NDArray[Any] = (dots - second) / divisor
    result[(divisor == 0) | padding] = 0
    return result
