"""Grouping of duplicate indices: distinct rows, and the positions of each, in a stable order.

A position, or the bag that it is in, and its index are packed into one 64-bit key, index in the high bits, and sorted
over the bits of the index alone. The sort is stable, so positions of one row stay in order.
"""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from . import threads
from .bag_grad import bag_numbers_range
from .check import first_bad, part
from .jit import EXACT, jit
from .radix import INSERTION_BELOW, WORD, bits_of, counts_to_targets, insertion_sort, passes_of, radix_sort

BYTES = 8
"""Moved for an index, as `threads.chunks` counts them: in a training step threads pay from some 65,000 indices."""

SAMPLE = 512
"""Indices that say how rows are divided among threads."""

_NONE = np.empty(0, np.int64)


@jit(fastmath=EXACT, inline=True)
def _row_at(indices, k, num_rows, padding_idx):
    # Padding becomes a row past the last: it sorts to the end, where it is cut off.
    row = np.int64(indices[k])
    return num_rows if row == padding_idx else row


@jit(fastmath=EXACT)
def _begins(indices, num_rows, padding_idx, shift, parts):
    """Least keys of ranges of rows, but for the first, with about as many positions each: quantiles of a sample."""
    sample = np.empty(SAMPLE, np.int64)
    for i in range(SAMPLE):
        # Anywhere in its part, for columns of a batch come back at equal distances: multiples of the golden ratio.
        lo, hi = part(indices.size, i, SAMPLE), part(indices.size, i + 1, SAMPLE)
        k = lo + (((i * 2654435769) & 0xFFFFFFFF) * (hi - lo) >> 32)
        sample[i] = _row_at(indices, k, num_rows, padding_idx)
    sample.sort()
    begins = np.empty(parts - 1, np.uint64)
    for t in range(1, parts):
        wanted = part(SAMPLE, t, parts)
        row = sample[wanted]
        first, behind = np.searchsorted(sample, row), np.searchsorted(sample, row, side="right")
        if behind < SAMPLE and behind - wanted < wanted - first:  # a frequent row, which ends nearer than it begins
            row = sample[behind]
        begins[t - 1] = np.uint64(row) << np.uint64(shift)
    return begins


@jit(fastmath=EXACT)
def _count_ranges(counts, indices, begins, num_rows, padding_idx, shift, start, stop):
    """How many of a chunk of positions have a row of each range."""
    above = np.int64(stop - start)  # how many are at the begin of range t or above it: of the first, all
    for t in range(begins.size):
        begin, before, above = np.int64(begins[t] >> np.uint64(shift)), above, np.int64(0)
        for k in range(np.uintp(start), np.uintp(stop)):  # unsigned here and below: Numba wraps signed positions around
            above += np.int64(_row_at(indices, k, num_rows, padding_idx) >= begin)
        counts[t] = before - above
    counts[begins.size] = above


@jit(fastmath=EXACT, inline=True)
def _next(targets, key):
    (target,) = targets
    return target, (target + np.uintp(1),)


@jit(fastmath=EXACT, inline=True)
def _next_of_two(targets, key):
    # In registers: through memory each key would wait for the one before it.
    first, second, begin = targets
    beyond = np.uintp(key >= begin)
    return second if beyond else first, (first + np.uintp(1) - beyond, second + beyond, begin)


@jit(fastmath=EXACT, inline=True)
def _next_of_many(targets, key):
    nexts, begins = targets
    owner = np.uintp(np.searchsorted(begins, key, side="right"))
    target = nexts[owner]
    nexts[owner] = target + np.uintp(1)
    return target, targets


def _loader(next_target):
    """Make the pass that packs a chunk of indices with what stands for their positions.

    What stands for a position is how far it is from `origin`, or with offsets its bag. ``next_target(targets, key)``
    says where a key goes, and what `targets` are for the next one.
    """

    @jit(fastmath=EXACT)
    def load(keys, targets, indices, offsets, num_rows, padding_idx, shift, start, stop, origin):
        bags = offsets.size > 0
        # The bag before that of `start`, as if it ended here.
        bag, end = np.searchsorted(offsets, start, side="right") - 2, np.uintp(start)
        for k in range(np.uintp(start), np.uintp(stop)):
            row = np.uint64(_row_at(indices, k, num_rows, padding_idx))
            place = k - np.uintp(origin)
            if bags:
                while k >= end and bag + 2 < offsets.size:
                    bag += 1
                    end = np.uintp(offsets[np.uintp(bag + 1)])
                place = np.uintp(bag)
            key = (row << np.uint64(shift)) | place
            target, targets = next_target(targets, key)
            keys[target] = key

    return load


_load = _loader(_next)
_load_two_ranges = _loader(_next_of_two)
_load_ranges = _loader(_next_of_many)


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
def _key_space(rows, places, size, passes):
    """Two arrays of keys that lie in outputs: the one from which so many passes to and fro lead to `places`, first.

    The pass that cuts runs reads key k in `places` before it writes place k or an earlier one.
    """
    keys, spare = places[:size].view(np.uint64), rows[:size].view(np.uint64)
    return (spare, keys) if passes % 2 else (keys, spare)


@jit(fastmath=EXACT)
def _group_checked(rows, starts, places, count, indices, offsets, num_rows, padding_idx, start, stop):
    size = stop - start
    shift, key_bits = bits_of(max(size, offsets.size)), bits_of(num_rows)
    starts[0] = 0
    if shift + key_bits > WORD:  # a position, or a bag, and its index do not fit into one word
        chosen = indices[start:stop]
        order = np.argsort(chosen, kind="mergesort")
        count[0] = _cut_order(rows, starts, places, (chosen, order), shift, padding_idx, 0, size, 0, start)
        if offsets.size > 0:
            bag_numbers_range(places, places, offsets, 0, starts[count[0]])
        return
    passes, digit_bits = passes_of(size, key_bits)
    if size <= INSERTION_BELOW:
        passes = 0
    keys, spare = _key_space(rows, places, size, passes)
    _load(keys, (np.uintp(0),), indices, offsets, num_rows, padding_idx, shift, start, stop, start)
    if passes == 0:
        insertion_sort(keys)
    else:
        radix_sort(keys, spare, shift, key_bits, digit_bits)
    done, _ = _key_space(rows, places, size, 0)
    origin = np.int64(0) if offsets.size > 0 else start
    count[0] = _cut_packed(rows, starts, places, done, shift, num_rows, 0, size, 0, origin)


@jit(fastmath=EXACT)
def _count_runs(keys, shift, skipped):
    """How many runs sorted keys are, the run of `skipped` left out."""
    runs = np.int64(0)
    last = np.int64(-1)
    for k in range(np.uintp(keys.size)):
        row = np.int64(keys[k] >> shift)
        runs += np.int64((row != last) & (row != skipped))
        last = row
    return runs


@jit(fastmath=EXACT, parallel=True)
def _group_parallel(rows, starts, places, count, indices, offsets, num_rows, padding_idx, shift, key_bits, bounds):
    """All positions or bags: threads divide a chunk of positions each by ranges of rows, then sort a range each.

    After the first step a thread keeps to its own part of every array. Cores whose caches are far apart wait longer for
    each other's lines than they sort: with shared passes two were slower than one (EPYC, cores of two chips).
    """
    parts, size = bounds.size - 1, indices.size
    begins = _begins(indices, num_rows, padding_idx, shift, parts)
    found, counts = np.empty(parts, np.int64), np.empty((parts, parts), np.int64)
    for c in numba.prange(parts):
        found[c] = first_bad(indices, num_rows, bounds[c], bounds[c + 1])
        _count_ranges(counts[c], indices, begins, num_rows, padding_idx, shift, bounds[c], bounds[c + 1])
    for c in range(parts):
        if found[c] >= 0:
            return found[c]
    counts_to_targets(counts)
    edges = np.append(counts[0], size)
    passes, digit_bits = passes_of(size, key_bits)
    keys, spare = _key_space(rows, places, size, passes)
    for c in numba.prange(parts):
        start, stop = bounds[c], bounds[c + 1]
        nexts = counts[c].astype(np.uintp)
        if parts == 2:
            two = nexts[0], nexts[1], begins[0]
            _load_two_ranges(keys, two, indices, offsets, num_rows, padding_idx, shift, start, stop, 0)
        else:
            _load_ranges(keys, (nexts, begins), indices, offsets, num_rows, padding_idx, shift, start, stop, 0)
    done, _ = _key_space(rows, places, size, 0)
    runs = np.zeros(parts + 1, np.int64)
    for c in numba.prange(parts):
        lo, hi = edges[c], edges[c + 1]
        radix_sort(keys[lo:hi], spare[lo:hi], shift, key_bits, digit_bits)
        runs[c + 1] = _count_runs(done[lo:hi], np.uint64(shift), num_rows)
    for c in range(parts):
        runs[c + 1] += runs[c]
    starts[0] = 0
    for c in numba.prange(parts):
        _cut_packed(rows, starts, places, done, shift, num_rows, edges[c], edges[c + 1], runs[c], 0)
    count[0] = runs[parts]
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
    start, stop = np.int64(start), np.int64(stop)
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
    As `group_range`: the numbers of bags are sorted instead of positions.
    """
    start, stop = np.int64(start), np.int64(stop)
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
    plan = _plan(indices.size, 0, num_rows)
    if plan is None:
        return group_range(rows, starts, positions, count, indices, num_rows, padding_idx, 0, indices.size)
    with threads.region():
        return _group_parallel(rows, starts, positions, count, indices, _NONE, num_rows, padding_idx, *plan)


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
    plan = _plan(indices.size, offsets.size, num_rows)
    if plan is None:
        return group_bags_range(rows, starts, numbers, count, indices, offsets, num_rows, padding_idx, 0, indices.size)
    with threads.region():
        return _group_parallel(rows, starts, numbers, count, indices, offsets, num_rows, padding_idx, *plan)


def _plan(size, num_offsets, num_rows):
    """Bits of what stands for a position, bits of an index, and a chunk for each thread; None for one thread."""
    shift, key_bits = max(size, num_offsets).bit_length(), int(num_rows).bit_length()
    parts = threads.chunks(size * BYTES) if shift + key_bits <= WORD else 1
    return None if parts == 1 else (shift, key_bits, threads.split(size, parts))
