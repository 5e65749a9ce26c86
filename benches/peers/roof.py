"""Lookups and updates against what the memory can do: the share of it that they reach."""

import functools

import numpy as np

import fastemb
from fastemb import optim
from fastemb.kernels import cpu, reference

from .. import roofline, shapes
from .comparison import Comparison
from .update import RULES

KERNELS = {
    # the kernel of a rule, and its numbers: a rate of 0, so that it can go on for ever
    optim.SGD: ("sgd", (0.0, 1.0)),
    optim.Adagrad: ("adagrad", (0.0, 1.0, 1e-8)),
    optim.RowWiseAdagrad: ("rowwise_adagrad", (0.0, 1.0, 1e-8)),
    optim.Adam: ("adam", (0.0, 1.0, 0.1, 0.001, 1e-8)),
}


def large(quick):
    """(name, table, ids) of large lookups."""
    for name, shape in shapes.some(shapes.LARGE, quick).items():
        yield name, shapes.table(shape.num_rows, shape.width), shape.ids()


def _batches(ids, num_rows, nbytes):
    """Row numbers, and the same moved by so many rows that in a large table the next call finds none in a cache."""
    times = roofline.times_to_pass(nbytes)
    return ((ids + num_rows * k // times) % num_rows for k in range(times))


def _lookups(quick):
    """Large lookups against a streaming copy that reads and writes as much: how near to what the memory can do."""
    for name, table, ids in large(quick):
        out = fastemb.buffers.empty((ids.size, table.shape[1]), np.dtype(np.float32))
        nbytes = shapes.moved(table, ids, ids.size)
        target, copy = roofline.streaming_copy(out.nbytes, nbytes - out.nbytes)
        batches = list(_batches(ids, len(table), nbytes - out.nbytes))
        ours = roofline.in_rotation([functools.partial(fastemb.gather, table, batch, out=out) for batch in batches])

        def check(ours=ours, copy=copy, out=out, table=table, batches=batches, target=target):
            for batch in batches:
                out[:] = target[:] = np.nan
                ours()
                copy()
                np.testing.assert_array_equal(out, table[batch])
                np.testing.assert_array_equal(target, 1)

        limit = roofline.in_rotation([roofline.reading(table, batch, out) for batch in batches])
        yield Comparison(name, "streaming copy", ours, copy, 0.85, check, nbytes, limit=limit)


def _updates(quick):
    """The row pass of a step of bags against scaling the same distinct rows, of the table and of the rule's state."""
    for name, shape in shapes.some(shapes.BAGS, quick).items():
        ids, offsets = shape.problem()
        rows, numbers, starts = np.empty((3, ids.size + 1), np.int64)
        count, bounds = np.empty(1, np.int64), np.append(offsets, ids.size)
        cpu.group_bags(rows[:-1], starts, numbers[:-1], count, ids, bounds, shape.num_rows, -1)
        distinct = int(count[0])
        rows, starts, numbers = rows[:distinct], starts[: distinct + 1], numbers[:-1]
        dy = shapes.gradient(shape.bags, shape.width)
        none = np.empty(0, np.float32)
        for rule, *_ in RULES[:1] if quick else RULES:
            table = shapes.table(shape.num_rows, shape.width)
            arrays = tuple(array.reshape(shape.num_rows, -1) for array in rule.init(table).arrays().values())
            name_of_kernel, hyper = KERNELS[type(rule)]
            runs = (starts, numbers, none)
            moved = [table, *arrays]
            nbytes = distinct * sum(array.shape[1] for array in moved) * 4
            kernel = functools.partial(getattr(cpu, name_of_kernel), table, arrays, dy)
            pairs = [
                (functools.partial(kernel, batch, *runs, hyper, False), roofline.scaling(moved, batch))
                for batch in _batches(rows, shape.num_rows, nbytes)
            ]
            equal = functools.partial(_check, pairs, name_of_kernel, hyper)
            ours, scale = (roofline.in_rotation(calls) for calls in zip(*pairs, strict=True))
            # Elsewhere the caches hold the table, or there are several gradient rows to each, and scaling is no limit.
            target = 0.8 if shape.num_rows > 100_000 and 2 * distinct > ids.size > shape.bags else None
            case = f"{name}, {type(rule).__name__}"
            yield Comparison(case, "scaling the rows", ours, scale, target, equal, 2 * nbytes)


def _check(pairs, name, hyper):
    """A thousand rows have the bits of the reference; a rate of 0 and a factor of 1 change no row."""
    table, arrays, dy, rows, starts, numbers, none, *_ = pairs[0][0].args
    some = slice(min(1000, rows.size))
    results = []
    for kernels in (reference, cpu):
        block, state = table[rows[some]], tuple(array[rows[some]] for array in arrays)
        runs = (np.arange(len(block)), starts[: len(block) + 1], numbers, none)
        assert getattr(kernels, name)(block, state, dy, *runs, (0.5, *hyper[1:]), False) == -1
        results.append((block, *state))
    for mine, wanted in zip(*results, strict=True):
        np.testing.assert_array_equal(mine, wanted)
    before = table.copy()
    for ours, scale in pairs:
        assert ours() == -1
        scale()
    np.testing.assert_array_equal(table, before)


def roof(quick):
    """Large lookups against a streaming copy of the bytes that have to move, and updates against scaled rows."""
    yield from _lookups(quick)
    yield from _updates(quick)
