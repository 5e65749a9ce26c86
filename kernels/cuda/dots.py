"""Products of rows with a gradient, each summed over the lanes of the team that has the row: pieces and kernel."""

import functools

from .check import GOOD
from .fold import device_function, make_ask
from .intrin import (
    ALL_LANES,
    WARP,
    add_rn,
    block_dim_x,
    block_dim_y,
    block_x,
    full,
    grid_dim_x,
    lane,
    load,
    mul_rn,
    shuffle_xor,
    store,
    thread_x,
    thread_y,
    u32,
    u64,
)


@functools.cache
def _make_products(n, count):
    """Products of `n` columns of a gradient with those of `count` rows, one row after the other."""
    if count == 1:

        def products(gradient, asked):
            return mul_rn(gradient, asked[0][3])

    else:
        half, ahead = _make_products(n, count // 2), count // 2

        def products(gradient, asked):
            return half(gradient, asked[:ahead]) + half(gradient, asked[ahead:])

    return device_function(products)


@functools.cache
def _make_sum(n):
    """The sum of a tuple of `n` numbers, halves first."""
    if n == 1:

        def total_of(values):
            return values[0]

    else:
        half, ahead = _make_sum(n // 2), n // 2

        def total_of(values):
            return half(values[:ahead]) + half(values[ahead:])

    return device_function(total_of)


@functools.cache
def _make_write_dots(n, count):
    """Sum over the lanes of a team, `n` numbers in each for each of `count` positions, and write that."""
    if count == 1:
        total_of = _make_sum(n)

        def write_dots(dots, indices, totals, k, padding, zero, mask):
            dot = total_of(totals)
            apart = u32(block_dim_x() >> u32(1))
            while apart > 0:
                dot = add_rn(dot, shuffle_xor(mask, dot, apart))
                apart = u32(apart >> u32(1))
            if thread_x() == 0:
                store(dots, k, full(dot if indices[k] != padding else zero, 1))

    else:
        half, ahead = _make_write_dots(n, count // 2), count // 2
        first = n * ahead

        def write_dots(dots, indices, totals, k, padding, zero, mask):
            half(dots, indices, totals[:first], k, padding, zero, mask)
            half(dots, indices, totals[first:], k + u64(ahead), padding, zero, mask)

    return device_function(write_dots)


@functools.cache
def _make_dots_of(n, count):
    """Products of the rows at `count` positions with the gradient of their bag."""
    ask, products, write_dots = make_ask(n, count), _make_products(n, count), _make_write_dots(n, count)
    width = n * count

    def dots_of(dots, weight, indices, grad, b, k, columns, padding, zero, mask):
        totals = full(zero, width)
        c = u32(thread_x() * u32(n))
        while c < columns:
            asked = ask(weight, indices, indices, k, c, columns)
            totals = add_rn(totals, products(load(grad, b * u64(columns) + u64(c), n), asked))
            c = u32(c + block_dim_x() * u32(n))
        write_dots(dots, indices, totals, k, padding, zero, mask)

    return device_function(dots_of)


@functools.cache
def make_dots(n, rows):
    """The kernel of `bag_dots`: a team, of one warp at most, for a bag, `rows` of it together."""
    several, one = _make_dots_of(n, rows), _make_dots_of(n, 1)

    def bag_dots(dots, weight, indices, offsets, grad, flag, columns, padding, zero):
        if flag[u64(0)] != GOOD:
            return
        count = u64(offsets.size - 1)
        b = u64(block_x()) * u64(block_dim_y()) + u64(thread_y())
        mask = u32(u32(u32(ALL_LANES) >> u32(u32(WARP) - block_dim_x())) << u32(lane() - thread_x()))
        while b < count:
            k, hi = u64(offsets[b]), u64(offsets[b + u64(1)])
            while k + u64(rows) <= hi:
                several(dots, weight, indices, grad, b, k, columns, padding, zero, mask)
                k += u64(rows)
            while k < hi:
                one(dots, weight, indices, grad, b, k, columns, padding, zero, mask)
                k += u64(1)
            b += u64(grid_dim_x()) * u64(block_dim_y())

    return bag_dots
