"""The hash of `HashEmbedding`, once more, in Python's integers."""

import hashlib

MASK = 2**64 - 1


def mix(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def splitmix64(seed, count):
    return [mix(seed + k * 0x9E3779B97F4A7C15 & MASK) for k in range(1, count + 1)]


def key(item):
    if isinstance(item, int):
        return item & MASK
    data = item.encode() if isinstance(item, str) else item
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def slots(item, size, count, seed=0):
    """Rows of the table; the row of the factors is that of stream 0."""
    return [mix(mix(key(item)) ^ stream) % size for stream in splitmix64(seed, count + 1)[1:]]


def place(item, size, seed=0):
    return mix(mix(key(item)) ^ splitmix64(seed, 1)[0]) % size
