"""Least-significant-digit radix sort of 64-bit keys by their high bits: stable."""

import numpy as np

from .jit import EXACT, jit

INSERTION_BELOW = 48
"""Keys up to here are sorted by insertion: faster than clearing one histogram."""

NARROW_BELOW = 4096
"""Below this many keys a digit has 8 bits and a histogram of 256 counts, above it 11 bits and 2048."""

WORD = 64


@jit(fastmath=EXACT)
def bits_of(value):
    """Bits needed for a number: ``ceil(log2(value + 1))``."""
    bits = 0
    while bits < WORD - 1 and (value >> bits) > 0:
        bits += 1
    return bits


@jit(fastmath=EXACT)
def passes_of(count, key_bits):
    """How many passes `count` keys deserve, and the width of a digit, so that all are evenly filled."""
    widest = 8 if count < NARROW_BELOW else 11
    digit_bits = max(1, -(-key_bits // max(1, -(-key_bits // widest))))
    return -(-key_bits // digit_bits), digit_bits


@jit(fastmath=EXACT)
def insertion_sort(keys):
    """Sort a few keys by all of their bits."""
    for k in range(1, keys.size):
        key = keys[k]
        j = k
        while j > 0 and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            j -= 1
        keys[j] = key


@jit(fastmath=EXACT)
def counts_to_targets(counts):
    """Where keys go: by digit or range, then by chunk, so that those of one lie behind those of the chunks before."""
    total = 0
    for digit in range(counts.shape[1]):
        for c in range(counts.shape[0]):
            n = counts[c, digit]
            counts[c, digit] = total
            total += n


@jit(fastmath=EXACT)
def _count_digits(counts, keys, shift, mask):
    counts[:] = 0
    for k in range(np.uintp(keys.size)):
        counts[(keys[k] >> shift) & mask] += 1


@jit(fastmath=EXACT)
def _move(target, targets, keys, shift, mask):
    for k in range(np.uintp(keys.size)):
        digit = (keys[k] >> shift) & mask
        target[np.uintp(targets[digit])] = keys[k]
        targets[digit] += 1


@jit(fastmath=EXACT)
def radix_sort(keys, spare, shift, key_bits, digit_bits):
    """Sort by `key_bits` bits from `shift` up; each of the passes moves all keys to the other array."""
    mask = np.uint64((1 << digit_bits) - 1)
    counts = np.empty((1, 1 << digit_bits), np.int64)
    for low in range(0, key_bits, digit_bits):
        at = np.uint64(shift + low)
        _count_digits(counts[0], keys, at, mask)
        counts_to_targets(counts)
        _move(spare, counts[0], keys, at, mask)
        keys, spare = spare, keys
