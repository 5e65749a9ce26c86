"""``python -m benches.regression --ratios``: fastemb against its NumPy reference, in one process, against floors.

A floor is half of the least ratio that the machines of `FLOORS` have shown, so that a kernel that has fallen off its
fast path is found on any. fastemb's side is the public call; the other runs the kernels that the call has used, in the
reference, on copies of their arguments: no operation is written down twice, and a call that has come to use no compiled
kernel is an error.

One thread: beside two other busy processes on two cores, `scatter_add` of two threads, which wait for each other, was
3.5 times as fast as NumPy in one run and 82 times in the next. A second thread is worth a factor of two at most, which
floors of one half would not see.
"""

import contextlib
import copy
import functools
import json
from pathlib import Path

import numba
import numpy as np
import rich.box
import rich.progress
import rich.table

import fastemb
from fastemb import _info, optim
from fastemb.kernels import cpu, reference

from .. import shapes
from ..report import ratio as shown
from ..update import LR, RULES
from .sample import fastest

FLOORS = Path(__file__).with_name("floors.json")
ROUNDS = 7
TIMES_TO_WRITE = 3
"""How often a ratio is measured before the least is written down."""

ROWS = shapes.Rows(50_000, 64, 16_384, "zipf")
BAGS = shapes.Bags(50_000, 64, 1024, 20)


def _table():
    return shapes.table(ROWS.num_rows, ROWS.width)


def _rows():
    return ROWS.ids(), shapes.gradient(ROWS.length, ROWS.width)


def _gather():
    return functools.partial(fastemb.gather, _table(), ROWS.ids())


def _scatter():
    return functools.partial(fastemb.scatter_add, _table(), *_rows())


def _gradient():
    return functools.partial(fastemb.embedding_grad, *_rows(), ROWS.num_rows)


def _renorm():
    return functools.partial(fastemb.renorm_, _table(), ROWS.ids(), 1.0)


def _bag(**options):
    return functools.partial(fastemb.embedding_bag, _table(), *BAGS.problem(), **options)


def _weighted():
    return _bag(mode="sum", per_sample_weights=np.random.default_rng(3).random(BAGS.bags * BAGS.hot, np.float32))


def _bag_gradient(function, mode):
    dy = shapes.gradient(BAGS.bags, BAGS.width)
    return functools.partial(function, _table(), *BAGS.problem(), dy, mode=mode)


def _step(rule):
    table = _table()
    return functools.partial(rule.step, table, rule.init(table), *_rows())


def _step_bag(rule):
    table = _table()
    dy = shapes.gradient(BAGS.bags, BAGS.width)
    return functools.partial(rule.step_bag, table, rule.init(table), *BAGS.problem(), dy)


def _exact(kind):
    """Two steps, each on rows that have missed the other."""
    table, (ids, dy) = _table(), _rows()
    rule = kind(lr=LR, mode="exact")
    state = rule.init(table)
    batches = ids, (ids + ROWS.num_rows // 2) % ROWS.num_rows

    def call():
        for batch in batches:
            rule.step(table, state, batch, dy)

    call()  # nothing is missed in the first step
    return call


EXACT = {"Momentum": optim.Momentum, "Adam": optim.Adam}

CASES = {
    "gather": _gather,
    "scatter_add": _scatter,
    "embedding_grad": _gradient,
    "renorm_": _renorm,
    "embedding_bag sum": lambda: _bag(mode="sum"),
    "embedding_bag weighted": _weighted,
    "embedding_bag mean, padding": lambda: _bag(mode="mean", padding_idx=0),
    "embedding_bag max": lambda: _bag(mode="max"),
    "embedding_bag_grad sum": lambda: _bag_gradient(fastemb.embedding_bag_grad, "sum"),
    "embedding_bag_grad max": lambda: _bag_gradient(fastemb.embedding_bag_grad, "max"),
    "embedding_bag_weight_grad": lambda: _bag_gradient(fastemb.embedding_bag_weight_grad, "sum"),
    **{f"{name}.step": functools.partial(_step, rule) for name, rule in RULES.items()},
    "SGD.step_bag": functools.partial(_step_bag, RULES["SGD"]),
    **{f"{name} exact": functools.partial(_exact, kind) for name, kind in EXACT.items()},
}
"""For each name a function that makes the arrays and returns fastemb's call."""


@contextlib.contextmanager
def recorded():
    """The list of compiled kernels called meanwhile: (name, arguments as they were before the call)."""
    calls, memo = [], {}

    def recorder(name, kernel):
        def call(*arguments):
            calls.append((name, copy.deepcopy(arguments, memo)))  # one memo: arrays that calls share stay shared
            return kernel(*arguments)

        return call

    names = [name for name in reference.__all__ if not name.endswith("_range")]
    kernels = {name: getattr(cpu, name) for name in names}
    try:
        for name, kernel in kernels.items():
            setattr(cpu, name, recorder(name, kernel))
        yield calls
    finally:
        for name, kernel in kernels.items():
            setattr(cpu, name, kernel)


class Replay:
    """Runs in the reference, or other kernels, what `call` has run in compiled ones; LookupError if that is nothing."""

    def __init__(self, call, kernels=reference):
        self._kernels = kernels
        with recorded() as self.calls:
            call()
        if not self.calls:
            msg = "calls no compiled kernel any more"
            raise LookupError(msg)
        # Up to which step each row has come: put back each time, or nothing would be missed any more.
        counts = [arguments[2] for name, arguments in self.calls if name.endswith("_missed")]
        self._counts = [(last, last.copy()) for last in counts]

    def __call__(self):
        """All calls, in order."""
        for last, before in self._counts:
            last[:] = before
        for name, arguments in self.calls:
            getattr(self._kernels, name)(*arguments)


def ratio_of(make, rounds=ROUNDS):
    """Times that the reference takes as long, by the fastest round of each: noise only adds. 0 without a kernel."""
    call = make()
    try:
        best = fastest({"fastemb": call, "NumPy": Replay(call)}, rounds)
    except LookupError:
        return 0.0
    return best["NumPy"] / best["fastemb"]


def check(console, *, write=False, path=FLOORS, made=CASES):
    """Time all cases and compare with the floors, or write those: 0 all hold, 1 one does not, 2 one is missing."""
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        return _check(console, write, path, made)
    finally:
        numba.set_num_threads(before)


def _check(console, write, path, made):
    kept = floors(json.loads(path.read_text()))
    if not write and (missing := sorted(set(made) - set(kept))):
        console.print(f"No floor for {', '.join(missing)} in {path.name}: write it with --ratios --write", style="bold")
        return 2
    grid = rich.table.Table(box=rich.box.SIMPLE_HEAD)
    for column in ("call", "NumPy / fastemb", "floor"):
        grid.add_column(column, justify="left" if column == "call" else "right")
    ratios, below = {}, []
    with rich.progress.Progress(console=rich.console.Console(stderr=True), transient=True) as progress:
        task = progress.add_task("ratios", total=len(made))
        for name, make in made.items():
            progress.update(task, description=name)
            ratios[name] = min(ratio_of(make) for _ in range(TIMES_TO_WRITE if write else 1))
            floor = ratios[name] / 2 if write else kept[name]
            if ratios[name] < floor:  # once more: the machine may have done something else
                ratios[name] = max(ratios[name], ratio_of(make, 2 * ROUNDS))
            if ratios[name] < floor:
                below.append(f"{name} is {shown(ratios[name])} times as fast as NumPy, its floor is {shown(floor)}")
            grid.add_row(name, shown(ratios[name]), shown(floor))
            progress.advance(task)
    console.print(grid)
    if write:
        _write(path, ratios)
        console.print(f"Written: {path}", highlight=False)
    for sentence in below:
        console.print(f"Below its floor: {sentence}", style="bold red", highlight=False)
    if below:
        hint = "Has it fallen off its fast path? If not, write down what this machine shows: --ratios --write"
        console.print(hint, highlight=False)
    return int(bool(below))


def floors(document):
    """For each call half of the least ratio that a machine has shown."""
    shown_by = [of_one["ratios"] for of_one in document["machines"].values()]
    names = {name for ratios in shown_by for name in ratios}
    return {name: min(ratios[name] for ratios in shown_by if name in ratios) / 2 for name in names}


def _write(path, ratios):
    about = _info.info()
    machine = f"{about['cpu']['model']}, {about['cpu']['cores']} cores"
    versions = {name: about["versions"][name] for name in ("python", "numpy", "numba")}
    document = json.loads(path.read_text())
    seen = {name: float(f"{ratio:.2g}") for name, ratio in ratios.items()}
    document["machines"][machine] = {"versions": versions, "ratios": seen}
    path.write_text(json.dumps(document, indent=1) + "\n")
