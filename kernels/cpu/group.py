"""Grouping of duplicate indices: distinct rows, and the positions of each, in a stable order.

A position and its index are packed into one 64-bit key, index in the high bits, and sorted by a least-significant-digit
radix sort over the bits of the index alone. Such a sort is stable, so positions of one row stay in order.
"""

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from . import threads
from .check import first_bad
from .jit import EXACT, jit

INSERTION_BELOW = 48
"""Keys up to here are sorted by insertion: faster than clearing one histogram."""

NARROW_BELOW = 4096
"""Below this many keys a digit has 8 bits and a histogram of 256 counts, above it 11 bits and 2048."""

WORD = 64


@jit(fastmath=EXACT)
def _bits(value):
    """Bits needed for a number: ``ceil(log2(value + 1))``."""
    bits = 0
    while bits < WORD - 1 and (value >> bits) > 0:
        bits += 1
    return bits


@jit(fastmath=EXACT)
def _digit_bits(count, key_bits):
    """Width of a digit: the passes that `count` keys deserve, evenly filled."""
    widest = 8 if count < NARROW_BELOW else 11
    passes = max(1, -(-key_bits // widest))
    return -(-key_bits // passes)


@jit(fastmath=EXACT)
def _load(keys, indices, num_rows, padding_idx, shift, start, stop, origin):
    # Padding becomes a row past the last: it sorts to the end, where it is cut off.
    for k in range(np.uintp(start), np.uintp(stop)):  # unsigned here and below: Numba wraps signed positions around
        row = np.int64(indices[k])
        if row == padding_idx:
            row = num_rows
        place = k - np.uintp(origin)
        keys[place] = (np.uint64(row) << np.uint64(shift)) | place


@jit(fastmath=EXACT)
def _insertion_sort(keys):
    for k in range(1, keys.size):
        key = keys[k]
        j = k
        while j > 0 and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            j -= 1
        keys[j] = key


@jit(fastmath=EXACT)
def _histogram(counts, keys, shift, mask, start, stop):
    counts[:] = 0
    for k in range(np.uintp(start), np.uintp(stop)):
        counts[(keys[k] >> shift) & mask] += 1


@jit(fastmath=EXACT)
def _counts_to_targets(counts):
    # Digit first, then chunk: a chunk's keys of one digit land behind those of the chunks before it.
    total = 0
    for digit in range(counts.shape[1]):
        for c in range(counts.shape[0]):
            n = counts[c, digit]
            counts[c, digit] = total
            total += n


@jit(fastmath=EXACT)
def _move(target, targets, keys, shift, mask, start, stop):
    for k in range(np.uintp(start), np.uintp(stop)):
        digit = (keys[k] >> shift) & mask
        target[np.uintp(targets[digit])] = keys[k]
        targets[digit] += 1


@jit(fastmath=EXACT)
def _radix_sort(keys, spare, shift, key_bits):
    """Sort by the bits from `shift` up; returns whichever of the two arrays holds the result."""
    digit_bits = _digit_bits(keys.size, key_bits)
    mask = np.uint64((1 << digit_bits) - 1)
    counts = np.empty((1, 1 << digit_bits), np.int64)
    for low in range(0, key_bits, digit_bits):
        at = np.uint64(shift + low)
        _histogram(counts[0], keys, at, mask, 0, keys.size)
        _counts_to_targets(counts)
        _move(spare, counts[0], keys, at, mask, 0, keys.size)
        keys, spare = spare, keys
    return keys


@jit(fastmath=EXACT, parallel=True)
def _radix_sort_parallel(keys, spare, indices, num_rows, padding_idx, shift, key_bits, bounds):
    """`_load` and `_radix_sort`, each chunk of positions in a thread: the same keys in the same order."""
    chunks = bounds.size - 1
    digit_bits = _digit_bits(keys.size, key_bits)
    mask = np.uint64((1 << digit_bits) - 1)
    counts = np.empty((chunks, 1 << digit_bits), np.int64)
    for c in numba.prange(chunks):  # the first digit's count is read from keys that are still at hand
        _load(keys, indices, num_rows, padding_idx, shift, bounds[c], bounds[c + 1], 0)
        _histogram(counts[c], keys, np.uint64(shift), mask, bounds[c], bounds[c + 1])
    for low in range(0, key_bits, digit_bits):
        at = np.uint64(shift + low)
        if low > 0:
            for c in numba.prange(chunks):
                _histogram(counts[c], keys, at, mask, bounds[c], bounds[c + 1])
        _counts_to_targets(counts)
        for c in numba.prange(chunks):
            _move(spare, counts[c], keys, at, mask, bounds[c], bounds[c + 1])
        keys, spare = spare, keys
    return keys


@jit(fastmath=EXACT, inline=True)
def _of_packed(keys, k, shift):
    return np.int64(keys[k] >> shift), np.int64(keys[k] & ((np.uint64(1) << shift) - np.uint64(1)))


@jit(fastmath=EXACT, inline=True)
def _of_order(source, k, shift):
    indices, order = source
    return np.int64(indices[order[k]]), order[k]


def _cutter(row_and_place):
    """Make the pass from sorted positions to distinct rows, starts of runs and positions.

    ``row_and_place(source, k, shift)`` reads the k-th in order; the run of `skipped` is left out.
    """

    @jit(fastmath=EXACT)
    def cut_runs(rows, starts, positions, count, source, size, shift, skipped, start):
        # Whether a row is new cannot be foretold, so there is no branch on it: the end of the run so far is written
        # again and again.
        runs = np.uintp(0)
        kept = np.uintp(0)
        last = np.int64(-1)
        starts[0] = 0
        for k in range(np.uintp(size)):
            row, place = row_and_place(source, k, np.uint64(shift))
            if row == skipped:
                continue
            positions[kept] = start + place
            kept += np.uintp(1)
            runs += np.uintp(row != last)
            rows[runs - np.uintp(1)] = row
            starts[runs] = kept
            last = row
        count[0] = runs

    return cut_runs


_cut_packed = _cutter(_of_packed)
_cut_order = _cutter(_of_order)


@jit(fastmath=EXACT)
def _key_space(rows, starts, size):
    """Two arrays of keys that lie in outputs.

    The last pass reads key k and then writes row u <= k and start u + 1 <= k + 1, so it never writes a key that is
    still to be read, in whichever of the two they are.
    """
    return starts[1 : size + 1].view(np.uint64), rows[:size].view(np.uint64)


@jit(fastmath=EXACT)
def _group_checked(rows, starts, positions, count, indices, num_rows, padding_idx, start, stop):
    size = stop - start
    shift = _bits(size)
    key_bits = _bits(num_rows)
    if shift + key_bits > WORD:  # N * L above 2**64: a position and its index do not fit into one word
        part = indices[start:stop]
        order = np.argsort(part, kind="mergesort")
        _cut_order(rows, starts, positions, count, (part, order), size, shift, padding_idx, start)
        return
    keys, spare = _key_space(rows, starts, size)
    _load(keys, indices, num_rows, padding_idx, shift, start, stop, start)
    if size <= INSERTION_BELOW:
        _insertion_sort(keys)
    else:
        keys = _radix_sort(keys, spare, shift, key_bits)
    _cut_packed(rows, starts, positions, count, keys, size, shift, num_rows, start)


@jit(fastmath=EXACT)
def group_range(rows, starts, positions, count, indices, num_rows, padding_idx, start, stop):
    """Group ``indices[start:stop]`` by value, n = stop - start.

    ``rows[:U]`` are the distinct indices, ascending; ``positions[starts[u]:starts[u + 1]]`` are the places in `indices`
    where ``rows[u]`` stands, ascending; ``count[0]`` is U.

    Parameters
    ----------
    rows : (n,) int64, contiguous
        Output: U rows.
    starts : (n + 1,) int64, contiguous
        Output: U + 1 starts, from 0.
    positions : (n,) int64
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
    if bad >= 0:
        return bad
    _group_checked(rows, starts, positions, count, indices, num_rows, padding_idx, start, stop)
    return -1


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
    size = indices.size
    bad = first_bad(indices, num_rows, 0, size)
    if bad >= 0:
        return bad
    parts = threads.chunks(size * 8)  # in a training step pays from some 65,000 indices
    shift, key_bits = size.bit_length(), int(num_rows).bit_length()
    if parts == 1 or shift + key_bits > WORD:
        _group_checked(rows, starts, positions, count, indices, num_rows, padding_idx, 0, size)
    else:
        bounds = threads.split(size, parts)
        space = _key_space(rows, starts, size)
        with threads.region():
            keys = _radix_sort_parallel(*space, indices, num_rows, padding_idx, shift, key_bits, bounds)
        _cut_packed(rows, starts, positions, count, keys, size, shift, num_rows, 0)
    return -1
