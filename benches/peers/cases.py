"""What `python -m benches.peers` compares: for each row of the table of targets its cases, peers and arrays.

A case is made when its turn comes and freed after it: tables are large.
"""

import functools
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np

import fastemb
from fastemb.kernels import cpu

from .. import data, shapes, workloads
from . import interop, roof, train, update
from .bags import bag, bag_slow
from .comparison import Comparison, filled, has, same


def onehot(quick):
    """Lookup against the product with a one-hot matrix that is built already."""
    for num_rows in workloads.SIZES[-1:] if quick else workloads.SIZES:
        case = workloads.lookup(num_rows, data.text(num_rows, workloads.LENGTH))
        ways = {way.name: way.call for way in case.ways}
        target = 1000.0 if num_rows == 50_000 else None
        name = f"N {num_rows:,} D {workloads.WIDTH} L {workloads.LENGTH}"
        yield Comparison(name, "NumPy matmul", ways["fastemb.gather"], ways["one-hot matmul"], target, case.check)
        yield Comparison(name, "scipy sparse", ways["fastemb.gather"], ways["sparse matmul"], None, case.check)


def gather_small(quick):
    """A few rows, output allocated."""
    for name, shape in shapes.SMALL.items():
        table = shapes.table(shape.num_rows, shape.width)
        yield from _allocating(name, table, shape.ids(), torch_target=2.0, numpy_target=1.0)


def gather_mid(quick):
    """Some thousand rows of a table that the caches nearly hold."""
    ((name, shape),) = shapes.MID.items()
    table, ids = shapes.table(shape.num_rows, shape.width), shape.ids()
    nbytes = shapes.moved(table, ids, ids.size)
    yield from _allocating(name, table, ids, torch_target=1.2, numpy_target=None)
    out, other = np.zeros((2, ids.size, shape.width), np.float32)
    kernel = functools.partial(cpu.gather, out, table, ids)
    lookup = functools.partial(fastemb.gather, table, ids)
    yield Comparison(name, "the kernel alone", lookup, kernel, None, filled(lookup, kernel, out), nbytes)
    ours = functools.partial(fastemb.gather, table, ids, out=out)
    theirs = functools.partial(np.take, table, ids, axis=0, out=other, mode="clip")
    yield Comparison(f"{name}, out given", "np.take clip", ours, theirs, 2.0, same(ours, theirs), nbytes)


def _allocating(name, table, ids, torch_target, numpy_target):
    nbytes = shapes.moved(table, ids, ids.size)
    ours, numpys = (lambda: fastemb.gather(table, ids)), (lambda: table[ids])
    yield Comparison(name, "W[ids]", ours, numpys, numpy_target, same(ours, numpys), nbytes)
    if has("torch"):
        import torch

        weight, indices = torch.from_numpy(table), torch.from_numpy(ids)
        theirs = functools.partial(torch.nn.functional.embedding, indices, weight)
        yield Comparison(name, "torch F.embedding", ours, theirs, torch_target, same(ours, theirs), nbytes)


def gather_large(quick):
    """Many rows of a table in memory, into an array given."""
    for name, table, ids in roof.large(quick):
        if has("torch"):
            import torch

            out, other = np.zeros((2, ids.size, table.shape[1]), np.float32)
            weight, indices, target = torch.from_numpy(table), torch.from_numpy(ids), torch.from_numpy(other)
            ours = functools.partial(fastemb.gather, table, ids, out=out)
            theirs = functools.partial(torch.index_select, weight, 0, indices, out=target)
            yield Comparison(
                name, "torch index_select", ours, theirs, 1.15, same(ours, theirs), shapes.moved(table, ids, ids.size)
            )


def gather_alloc(quick):
    """The same with the output allocated."""
    for name, table, ids in roof.large(quick):
        yield from _allocating(name, table, ids, torch_target=2.5, numpy_target=None)


def scatter(quick):
    """Gradient rows added into a table."""
    for name, shape in shapes.some(shapes.SCATTERS, quick).items():
        ids, updates = shape.ids(), shapes.gradient(shape.length, shape.width)
        ours, theirs = np.empty((2, shape.num_rows, shape.width), np.float32)
        nbytes = (shape.length + 2 * np.unique(ids).size) * shape.width * 4

        def check(other, ours=ours, theirs=theirs, ids=ids, updates=updates):
            ours[:] = theirs[:] = 0
            fastemb.scatter_add(ours, ids, updates)
            other()
            np.testing.assert_array_equal(ours, theirs)
            ours[:] = theirs[:] = 0

        add = functools.partial(fastemb.scatter_add, ours, ids, updates)
        slow = functools.partial(np.add.at, theirs, ids, updates)
        yield Comparison(name, "np.add.at", add, slow, 25.0, functools.partial(check, slow), nbytes)
        if has("torch"):
            import torch

            peer = functools.partial(
                torch.from_numpy(theirs).index_add_, 0, torch.from_numpy(ids), torch.from_numpy(updates)
            )
            yield Comparison(name, "torch index_add_", add, peer, 1.3, functools.partial(check, peer), nbytes)


def _process(code):
    return lambda: subprocess.run([sys.executable, "-c", code], check=True)


def _nothing():
    """Processes give no result; that they end well is checked each time."""


SMALLEST_NUMBA = "import numba; numba.njit(lambda x: x)(1)"
FIRST_LOOKUP = "import numpy as np, fastemb; fastemb.gather(np.ones((1000, 64), np.float32), np.arange(32))"
FIRST_LOOKUP_TORCH = (
    "import numpy as np, torch; "
    "torch.nn.functional.embedding(torch.arange(32), torch.from_numpy(np.ones((1000, 64), np.float32)))"
)


def start(quick):
    """Fresh processes."""
    yield Comparison(
        "import", "import numpy", _process("import fastemb"), _process("import numpy"), 1 / 1.5, _nothing, samples=15
    )
    numba_alone = _process(SMALLEST_NUMBA)
    lookup = _process(FIRST_LOOKUP)
    yield Comparison(
        "process to first lookup", "Numba's smallest program", lookup, numba_alone, None, _nothing, samples=15
    )
    if has("torch"):
        other = _process(FIRST_LOOKUP_TORCH)
        yield Comparison("process to first lookup", "the same with torch", lookup, other, 2.0, _nothing, samples=15)


CASES: dict[str, Callable[[bool], Iterator[Comparison]]] = {
    "onehot": onehot,
    "gather-small": gather_small,
    "gather-mid": gather_mid,
    "gather-large": gather_large,
    "gather-alloc": gather_alloc,
    "scatter": scatter,
    "bag": bag,
    "bag-slow": bag_slow,
    "update": update.update,
    "interop": interop.interop,
    "train": train.train_steps,
    "roof": roof.roof,
    "start": start,
}

MEANS: dict[tuple[str, str], float] = {("bag", "torch embedding_bag"): 1.2, **update.MEANS, **interop.MEANS}
"""(id, peer): the least geometric mean of the ratios over the cases."""
