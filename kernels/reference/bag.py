"""Pooled lookup: the sum of the rows that a bag of indices names, or their greatest elements."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import SUM_BLOCK, accumulator
from .check import first_bad


def bad_in_bags(indices, offsets, num_rows, start, stop):
    """Position of the first index out of range among those of some bags, or -1."""
    return first_bad(indices, num_rows, int(offsets[start]), int(offsets[stop]))


def kept(indices, lo, hi, padding_idx):
    """Positions of a bag without padding."""
    return lo + np.flatnonzero(indices[lo:hi] != padding_idx)


def greatest(weight, indices, lo, hi, padding_idx):
    """For each column of a bag its greatest element and where that is: the first of equal ones, of NaN the first.

    None for a bag without rows.
    """
    found = None
    columns = np.arange(weight.shape[1])
    for cut in range(lo, hi, SUM_BLOCK):
        places = kept(indices, cut, min(cut + SUM_BLOCK, hi), padding_idx)
        if not places.size:
            continue
        rows, places = weight[indices[places]], np.broadcast_to(places[:, np.newaxis], (places.size, columns.size))
        if found is not None:  # the greatest so far stands first
            rows, places = np.concatenate((found[0], rows)), np.concatenate((found[1], places))
        best = rows.astype(np.float64).argmax(axis=0)
        found = rows[best, columns][np.newaxis], places[best, columns][np.newaxis]
    return found


@np.errstate(all="ignore")  # NaN and inf flow through, as they do in compiled kernels
def bag_sum_range(out, weight, indices, offsets, per_sample_weights, divisors, padding_idx, start, stop):
    """See `fastemb.kernels.cpu.bag_sum_range`; half-width tables are summed in float32 and rounded once."""
    bad = bad_in_bags(indices, offsets, weight.shape[0], start, stop)
    if bad >= 0:
        return bad
    dtype = accumulator(weight.dtype)
    for b in range(start, stop):
        total = np.zeros(weight.shape[1], dtype)
        if not divisors.size or divisors[b] != 0:
            for cut in range(offsets[b], offsets[b + 1], SUM_BLOCK):
                places = kept(indices, cut, min(cut + SUM_BLOCK, offsets[b + 1]), padding_idx)
                terms = weight[indices[places]].astype(dtype)
                if per_sample_weights.size:
                    terms *= per_sample_weights[places, np.newaxis]
                part = np.zeros_like(total)
                for term in terms:  # one by one, in order
                    part += term
                total += part
            if divisors.size:
                total /= divisors[b]
        out[b] = total
    return bad


def bag_sum(
    out: NDArray[Any],
    weight: NDArray[Any],
    indices: NDArray[Any],
    offsets: NDArray[Any],
    per_sample_weights: NDArray[Any],
    divisors: NDArray[Any],
    padding_idx: int,
) -> int:
    """See `fastemb.kernels.cpu.bag_sum`."""
    bags = offsets.size - 1
    return bag_sum_range(out, weight, indices, offsets, per_sample_weights, divisors, padding_idx, 0, bags)


def bag_max_range(out, weight, indices, offsets, padding_idx, start, stop):
    """See `fastemb.kernels.cpu.bag_max_range`."""
    bad = bad_in_bags(indices, offsets, weight.shape[0], start, stop)
    if bad >= 0:
        return bad
    for b in range(start, stop):
        found = greatest(weight, indices, int(offsets[b]), int(offsets[b + 1]), padding_idx)
        out[b] = 0 if found is None else found[0]
    return bad


def bag_max(
    out: NDArray[Any], weight: NDArray[Any], indices: NDArray[Any], offsets: NDArray[Any], padding_idx: int
) -> int:
    """See `fastemb.kernels.cpu.bag_max`."""
    return bag_max_range(out, weight, indices, offsets, padding_idx, 0, offsets.size - 1)


def bag_divisors_range(divisors, indices, offsets, per_sample_weights, padding_idx, squared, start, stop):
    """See `fastemb.kernels.cpu.bag_divisors_range`."""
    for b in range(start, stop):
        places = kept(indices, int(offsets[b]), int(offsets[b + 1]), padding_idx)
        w = per_sample_weights[places].astype(np.float64) if per_sample_weights.size else np.ones(places.size)
        terms = w * w if squared else w
        total = np.add.accumulate(np.append(0.0, terms))[-1]  # one by one; Python's sum is another one from 3.12 on
        divisors[b] = np.sqrt(total) if squared else total
    return -1


def bag_divisors(
    divisors: NDArray[Any],
    indices: NDArray[Any],
    offsets: NDArray[Any],
    per_sample_weights: NDArray[Any],
    padding_idx: int,
    squared: bool,
) -> int:
    """See `fastemb.kernels.cpu.bag_divisors`."""
    bags = offsets.size - 1
    return bag_divisors_range(divisors, indices, offsets, per_sample_weights, padding_idx, squared, 0, bags)
