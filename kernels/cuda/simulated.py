"""What `intrin` is when ``NUMBA_ENABLE_CUDASIM=1``: the same names in plain Python.

Numba's simulator runs one thread of the system for each thread of a block; such a thread knows where it is. Numbers are
Python's: whole numbers do not wrap, so it is no test of widths. Collectives wait for every lane of their mask.
"""

# ruff: noqa: ARG005, D103, SLF001  the documentation is that of intrin; what threads know is private

import sys
import threading

import numpy as np

TIMEOUT = 20.0
"""Seconds after which lanes that wait for others give up."""

_memory = threading.RLock()


def _me():
    return threading.current_thread()


def _axis(get):
    return lambda: int(get(_me()))


thread_x, thread_y = _axis(lambda t: t.threadIdx.x), _axis(lambda t: t.threadIdx.y)
block_x, block_y = _axis(lambda t: t.blockIdx.x), _axis(lambda t: t.blockIdx.y)
block_dim_x, block_dim_y = _axis(lambda t: t._manager._block_dim[0]), _axis(lambda t: t._manager._block_dim[1])
grid_dim_x, grid_dim_y = _axis(lambda t: t._manager._grid_dim[0]), _axis(lambda t: t._manager._grid_dim[1])
lane = _axis(lambda t: t.thread_id % 32)


def u32(x):
    return int(x) & 0xFFFFFFFF


def u64(x):
    return int(x) & 0xFFFFFFFFFFFFFFFF


def _at(array, index, n):
    index = int(index)
    if not 0 <= index <= array.size - n:
        msg = f"elements {index} to {index + n - 1} of an array of {array.size}"
        raise IndexError(msg)
    if index % n:
        msg = f"{n} elements at once from element {index}, which is no multiple of {n}"
        raise IndexError(msg)
    return range(index, index + n)


def load(array, index, n):
    values = (array[k] for k in _at(array, index, n))
    return tuple(np.float32(value) if array.dtype == np.float16 else value for value in values)


def store(array, index, values):
    with np.errstate(over="ignore"):  # a number too large for float16 is inf, as on the device
        for k, value in zip(_at(array, index, len(values)), values, strict=True):
            array[k] = array.dtype.type(value)


load_stream, store_stream = load, store


def red_add(array, index, values, n):
    with _memory:
        for k, value in zip(_at(array, index, len(values)), values, strict=True):
            array[k] += value


def _lanewise(operation):
    def apply(*arguments):
        lanes = max((len(x) for x in arguments if isinstance(x, tuple)), default=0)
        if not lanes:
            return operation(*arguments)
        rows = (x if isinstance(x, tuple) else (x,) * lanes for x in arguments)
        with np.errstate(all="ignore"):
            return tuple(operation(*row) for row in zip(*rows, strict=True))

    return apply


add_rn = _lanewise(lambda x, y: x + y)
sub_rn = _lanewise(lambda x, y: x - y)
mul_rn = _lanewise(lambda x, y: x * y)
div_rn = _lanewise(lambda x, y: x / y)
sqrt_rn = _lanewise(np.sqrt)
larger = _lanewise(lambda x, y: y if y > x or (np.isnan(y) and not np.isnan(x)) else x)


def _fma(x, y, z):
    if isinstance(x, np.float64):
        msg = "the simulator has no float64 fma_rn: it would have to be rounded once"
        raise NotImplementedError(msg)
    return np.float32(np.float64(x) * np.float64(y) + np.float64(z))  # twice rounded: rarely one unit off


fma_rn = _lanewise(_fma)


def full(x, n):
    return (x,) * n


def _meet(mask, value):
    """The values of all lanes of `mask`, once each has brought one."""
    me = _me()
    mask = u32(mask)
    warp, own = divmod(me.thread_id, 32)
    threads = int(np.prod(me._manager._block_dim))
    lanes = [k for k in range(32) if mask >> k & 1 and warp * 32 + k < threads]
    if own not in lanes:
        msg = f"lane {own} calls a collective of the lanes {mask:#010x}"
        raise RuntimeError(msg)
    with _memory:
        meetings = me._manager.__dict__.setdefault("meetings", {})
        barrier, brought = meetings.setdefault((warp, mask), (threading.Barrier(len(lanes)), {}))
    brought[own] = value
    try:
        barrier.wait(TIMEOUT)
        everything = dict(brought)
        barrier.wait(TIMEOUT)
    except threading.BrokenBarrierError:
        msg = f"warp {warp}: not all lanes of {mask:#010x} came to a collective"
        raise RuntimeError(msg) from None
    return own, everything


def _shuffle(source):
    def exchange(mask, value, x):
        own, values = _meet(mask, value)
        return values.get(source(own, int(x)), value)

    return exchange


shuffle = _shuffle(lambda own, x: x % 32)
shuffle_up = _shuffle(lambda own, x: own - x)
shuffle_down = _shuffle(lambda own, x: own + x)
shuffle_xor = _shuffle(lambda own, x: own ^ x)


def ballot(mask, predicate):
    return sum(1 << k for k, value in _meet(mask, bool(predicate))[1].items() if value)


def match_any(mask, value):
    own, values = _meet(mask, value)
    return sum(1 << k for k, other in values.items() if other == values[own])


def sync_warp(mask):
    _meet(mask, None)


def sync_block():
    _me().syncthreads()


def fence():
    pass


def popc(x):
    return int(x).bit_count()


def ffs(x):
    return (int(x) & -int(x)).bit_length()


def clz(x):
    msg = "the simulator has no clz: a Python number has no width"
    raise NotImplementedError(msg)


def _atomic(change):
    def apply(array, index, *arguments):
        (at,) = _at(array, index, 1)
        with _memory:
            old = array[at]
            array[at] = change(old, *arguments)
        return old

    return apply


atomic_add = _atomic(lambda old, value: old + value)
atomic_min = _atomic(min)
atomic_max = _atomic(max)
atomic_exch = _atomic(lambda old, value: value)
atomic_cas = _atomic(lambda old, expected, value: value if old == expected else old)


def local_array(shape, dtype):
    return np.empty(shape, str(dtype))


def shared_array(shape, dtype):
    caller = sys._getframe(1)
    with _memory:  # one array for each call in the source
        arrays = _me()._manager.__dict__.setdefault("shared", {})
        return arrays.setdefault((caller.f_code, caller.f_lasti), np.empty(shape, str(dtype)))
