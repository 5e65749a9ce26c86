"""Grouping of duplicate indices: distinct rows, and the positions of each, in a stable order.

A position and its index are packed into one 64-bit key, index in the high bits, and sorted over the bits of the index
alone. The sort is stable, so positions of one row stay in order.
"""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from . import threads
from .bag_grad import bag_numbers_range
from .check import first_bad, part
from .jit import EXACT, jit
from .radix import INSERTION_BELOW, WORD, bits_of, count_digits, counts_to_targets, insertion_sort, move, passes_of

BYTES = 8
"""Moved for an index, as `threads.chunks` counts them: in a training step threads pay from some 65,000 indices."""

_NONE = np.empty(0, np.int64)


@jit(fastmath=EXACT, inline=True)
def _row_at(indices, k, num_rows, padding_idx):
    # Padding becomes a row past the last: it sorts to the end, where it is cut off.
    row = np.int64(indices[k])
    return num_rows if row == padding_idx else row


@jit(fastmath=EXACT)
def _count_rows(counts, indices, num_rows, padding_idx, mask, start, stop):
    """How often each last digit of a row occurs in a chunk of positions."""
    counts[:] = 0
    for k in range(np.uintp(start), np.uintp(stop)):  # unsigned here and below: Numba wraps signed positions around
        counts[np.uint64(_row_at(indices, k, num_rows, padding_idx)) & mask] += 1


@jit(fastmath=EXACT)
def _move_rows(keys, targets, indices, offsets, num_rows, padding_idx, shift, mask, start, stop, origin):
    """Pack rows of a chunk with what stands for their positions, and move them to where their last digits go.

    What stands for a position is how far it is from `origin`, or with offsets its bag.
    """
    bags = offsets.size > 0
    bag, end = np.searchsorted(offsets, start, side="right") - 2, np.uintp(start)  # of the position before
    for k in range(np.uintp(start), np.uintp(stop)):
        row = np.uint64(_row_at(indices, k, num_rows, padding_idx))
        place = k - np.uintp(origin)
        if bags:
            while k >= end and bag + 2 < offsets.size:
                bag += 1
                end = np.uintp(offsets[np.uintp(bag + 1)])
            place = np.uintp(bag)
        digit = row & mask
        keys[np.uintp(targets[digit])] = (row << np.uint64(shift)) | place
        targets[digit] += 1


@jit(fastmath=EXACT, inline=True)
def _of_packed(keys, k, shift):
    return np.int64(keys[k] >> shift), np.int64(keys[k] & ((np.uint64(1) << shift) - np.uint64(1)))


@jit(fastmath=EXACT, inline=True)
def _of_order(source, k, shift):
    indices, order = source
    return np.int64(indices[order[k]]), order[k]


def _cutter(row_and_place):
    """Make the pass from sorted positions to distinct rows, starts of runs and places.

    ``row_and_place(source, k, shift)`` reads the k-th in order, from `start`, where a run begins, to `stop`; the run of
    `skipped` is left out. `runs` lie before; returned is how many there are then.
    """

    @jit(fastmath=EXACT)
    def cut_runs(rows, starts, places, source, shift, skipped, start, stop, runs, origin):
        # Whether a row is new cannot be foretold, so there is no branch on it: the end of the run so far is written
        # again and again.
        runs = np.uintp(runs)
        kept = np.uintp(start)
        last = np.int64(-1)
        for k in range(np.uintp(start), np.uintp(stop)):
            row, place = row_and_place(source, k, np.uint64(shift))
            if row == skipped:
                continue
            places[kept] = origin + place
            kept += np.uintp(1)
            runs += np.uintp(row != last)
            rows[runs - np.uintp(1)] = row
            starts[runs] = kept
            last = row
        return np.int64(runs)

    return cut_runs


_cut_packed = _cutter(_of_packed)
_cut_order = _cutter(_of_order)


@jit(fastmath=EXACT)
def _key_space(rows, places, size, moves):
    """Two arrays of keys that lie in outputs: the one from which so many moves to and fro lead to `places`, first.

    The pass that cuts runs reads key k in `places` before it writes place k or an earlier one.
    """
    keys, spare = places[:size].view(np.uint64), rows[:size].view(np.uint64)
    return (spare, keys) if moves % 2 else (keys, spare)


@jit(fastmath=EXACT)
def _group_checked(rows, starts, places, count, indices, offsets, num_rows, padding_idx, start, stop):
    size = stop - start
    shift, key_bits = bits_of(max(size, offsets.size)), bits_of(num_rows)
    origin = np.int64(0) if offsets.size > 0 else start
    starts[0] = 0
    if shift + key_bits > WORD:  # N * L above 2**64: a position and its index do not fit into one word
        part = indices[start:stop]
        order = np.argsort(part, kind="mergesort")
        count[0] = _cut_order(rows, starts, places, (part, order), shift, padding_idx, 0, size, 0, start)
        if offsets.size > 0:
            bag_numbers_range(places, places, offsets, 0, starts[count[0]])
        return
    passes, digit_bits = passes_of(size, key_bits)
    few = size <= INSERTION_BELOW
    if few:  # packed where they are
        passes, digit_bits = 1, 0
    mask, counts = np.uint64((1 << digit_bits) - 1), np.empty((1, 1 << digit_bits), np.int64)
    keys, spare = _key_space(rows, places, size, passes - 1)
    _count_rows(counts[0], indices, num_rows, padding_idx, mask, start, stop)
    counts_to_targets(counts)
    _move_rows(keys, counts[0], indices, offsets, num_rows, padding_idx, shift, mask, start, stop, start)
    for n in range(1, passes):
        at = np.uint64(shift + n * digit_bits)
        count_digits(counts[0], keys, at, mask, 0, size)
        counts_to_targets(counts)
        move(spare, counts[0], keys, at, mask, 0, size)
        keys, spare = spare, keys
    if few:
        insertion_sort(keys)
    count[0] = _cut_packed(rows, starts, places, keys, shift, num_rows, 0, size, 0, origin)


@jit(fastmath=EXACT)
def _between_runs(keys, shift, parts):
    """Boundaries that cut sorted keys into about equal parts, each where a run begins."""
    size = keys.size
    bounds = np.empty(parts + 1, np.int64)
    bounds[0] = 0
    for c in range(1, parts):
        k = max(part(size, c, parts), bounds[c - 1])
        while 0 < k < size and keys[k] >> shift == keys[k - 1] >> shift:
            k += 1
        bounds[c] = k
    bounds[parts] = size
    return bounds


@jit(fastmath=EXACT)
def _count_runs(keys, shift, skipped, start, stop):
    """How many runs begin in a part that begins with one, the run of `skipped` left out."""
    runs = np.int64(0)
    last = np.int64(-1)
    for k in range(np.uintp(start), np.uintp(stop)):
        row = np.int64(keys[k] >> shift)
        runs += np.int64((row != last) & (row != skipped))
        last = row
    return runs


@jit(fastmath=EXACT, parallel=True)
def _group_parallel(rows, starts, places, count, indices, offsets, num_rows, padding_idx, shift, key_bits, bounds):
    """`group_range` of all, each chunk of positions or of keys in a thread: the same keys in the same order."""
    chunks, size = bounds.size - 1, indices.size
    passes, digit_bits = passes_of(size, key_bits)
    mask, counts = np.uint64((1 << digit_bits) - 1), np.empty((chunks, 1 << digit_bits), np.int64)
    keys, spare = _key_space(rows, places, size, passes - 1)
    found = np.empty(chunks, np.int64)
    for c in numba.prange(chunks):
        found[c] = first_bad(indices, num_rows, bounds[c], bounds[c + 1])
        _count_rows(counts[c], indices, num_rows, padding_idx, mask, bounds[c], bounds[c + 1])
    for c in range(chunks):
        if found[c] >= 0:
            return found[c]
    counts_to_targets(counts)
    for c in numba.prange(chunks):
        of, to = bounds[c], bounds[c + 1]
        _move_rows(keys, counts[c], indices, offsets, num_rows, padding_idx, shift, mask, of, to, 0)
    for n in range(1, passes):
        at = np.uint64(shift + n * digit_bits)
        for c in numba.prange(chunks):
            count_digits(counts[c], keys, at, mask, bounds[c], bounds[c + 1])
        counts_to_targets(counts)
        for c in numba.prange(chunks):
            move(spare, counts[c], keys, at, mask, bounds[c], bounds[c + 1])
        keys, spare = spare, keys
    between = _between_runs(keys, np.uint64(shift), chunks)
    runs = np.zeros(chunks + 1, np.int64)
    for c in numba.prange(chunks):
        runs[c + 1] = _count_runs(keys, np.uint64(shift), num_rows, between[c], between[c + 1])
    for c in range(chunks):
        runs[c + 1] += runs[c]
    starts[0] = 0
    for c in numba.prange(chunks):
        _cut_packed(rows, starts, places, keys, shift, num_rows, between[c], between[c + 1], runs[c], 0)
    count[0] = runs[chunks]
    return np.int64(-1)


@jit(fastmath=EXACT)
def group_range(rows, starts, positions, count, indices, num_rows, padding_idx, start, stop):
    """Group ``indices[start:stop]`` by value, n = stop - start.

    ``rows[:U]`` are the distinct indices, ascending; ``positions[starts[u]:starts[u + 1]]`` are the places in `indices`
    where ``rows[u]`` stands, ascending; ``count[0]`` is U.

    Parameters
    ----------
    rows : (n,) int64, contiguous
        Output: U rows.
    starts : (n + 1,) int64
        Output: U + 1 starts, from 0.
    positions : (n,) int64, contiguous
        Output: ``starts[U]`` positions, each in ``[start, stop)``.
    count : (1,) int64
        Output: U.
    indices : (L,) int32 or int64
        Never written.
    num_rows : int
        N; sets how many bits are sorted.
    padding_idx : int
        Positions with this index are left out; -1 leaves none out.
    start, stop : int
        The part of the positions to group.

    Returns
    -------
    int
        Position of the first index outside ``[0, N)`` among them, nothing written then; or -1.

    Notes
    -----
    The outputs serve as scratch, so all of them may be written, whatever U. Moves about
    ``16 * n * (ceil(log2 N) / 11 + 2)`` bytes. Integers alone, and stable: the same result however it is computed.
    """
    bad = first_bad(indices, num_rows, start, stop)
    if bad < 0:
        none = np.empty(0, np.int64)
        _group_checked(rows, starts, positions, count, indices, none, num_rows, padding_idx, start, stop)
    return bad


@jit(fastmath=EXACT)
def group_bags_range(rows, starts, numbers, count, indices, offsets, num_rows, padding_idx, start, stop):
    """Group ``indices[start:stop]`` by value, as bags: `group_range`, then `bag_numbers` of the positions.

    Parameters
    ----------
    rows : (n,) int64, contiguous
        Output: U rows.
    starts : (n + 1,) int64
        Output: U + 1 starts, from 0.
    numbers : (n,) int64, contiguous
        Output: for each position that `group_range` gives, ``starts[U]`` of them, the bag that it is in.
    count : (1,) int64
        Output: U.
    indices : (L,) int32 or int64
        Never written.
    offsets : (B + 1,) int64
        Where bags begin, and the last one ends; from 0 to L, not decreasing.
    num_rows : int
        N; sets how many bits are sorted.
    padding_idx : int
        Positions with this index are left out; -1 leaves none out.
    start, stop : int
        The part of the positions to group.

    Returns
    -------
    int
        Position of the first index outside ``[0, N)`` among them, nothing written then; or -1.

    Notes
    -----
    As `group_range`: bags are sorted in place of positions.
    """
    bad = first_bad(indices, num_rows, start, stop)
    if bad < 0:
        _group_checked(rows, starts, numbers, count, indices, offsets, num_rows, padding_idx, start, stop)
    return bad


def group(
    rows: NDArray[Any],
    starts: NDArray[Any],
    positions: NDArray[Any],
    count: NDArray[Any],
    indices: NDArray[Any],
    num_rows: int,
    padding_idx: int,
) -> int:
    """Group all L indices by value, over threads.

    Parameters and result as `group_range`, with n = L.
    """
    parts = _parts(indices.size, 0, num_rows)
    if parts == 1:
        return group_range(rows, starts, positions, count, indices, num_rows, padding_idx, 0, indices.size)
    return _over_threads(rows, starts, positions, count, indices, _NONE, num_rows, padding_idx, parts)


def group_bags(
    rows: NDArray[Any],
    starts: NDArray[Any],
    numbers: NDArray[Any],
    count: NDArray[Any],
    indices: NDArray[Any],
    offsets: NDArray[Any],
    num_rows: int,
    padding_idx: int,
) -> int:
    """Group all L indices by value, as bags, over threads.

    Parameters and result as `group_bags_range`, with n = L.
    """
    parts = _parts(indices.size, offsets.size, num_rows)
    if parts == 1:
        return group_bags_range(rows, starts, numbers, count, indices, offsets, num_rows, padding_idx, 0, indices.size)
    return _over_threads(rows, starts, numbers, count, indices, offsets, num_rows, padding_idx, parts)


def _parts(size, bounds, num_rows):
    """How many threads it is worth to group so many indices; 1 where a key is more than a word."""
    if max(size, bounds).bit_length() + int(num_rows).bit_length() > WORD:
        return 1
    return threads.chunks(size * BYTES)


def _over_threads(rows, starts, places, count, indices, offsets, num_rows, padding_idx, parts):
    shift, key_bits = max(indices.size, offsets.size).bit_length(), int(num_rows).bit_length()
    bounds = threads.split(indices.size, parts)
    with threads.region():
        return _group_parallel(
            rows, starts, places, count, indices, offsets, num_rows, padding_idx, shift, key_bits, bounds
        )
