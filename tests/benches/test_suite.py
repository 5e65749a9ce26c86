"""The asv suite: what every benchmark has, that it checks before it is timed, and that asv finds it."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from strategies import run_python

import fastemb
from benches import bag, bandwidth, devices, gather, growth, layers, lookup, roofline, scatter, startup, update

ROOT = Path(__file__).parents[2]

# For each class the parameters that are quick to run, device aside.
QUICK = {
    lookup.LookupVsOneHot: [(10,)],
    lookup.LookupVsOneHotMemory: [(10,)],
    gather.Gather: [("1,000 x 64 L 32",)],
    scatter.ScatterAdd: [("10 x 64 L 65,536 uniform",)],
    bag.Bag: [("50k x 64 B 4096 H 20 uniform", mode) for mode in ("sum", "mean", "max")],
    update.RowUpdate: [(rule, "50k x 64 B 4096 H 20 uniform") for rule in update.RULES],
    gather.Roof: [("1M x 33 L 65,536 uniform",)],
    layers.Layers: [(layer,) for layer in layers.LAYERS],
    layers.LayerTraining: [(layer,) for layer in layers.LayerTraining.params[0]],
    startup.Startup: [()],
    startup.Compile: [("gather",)],
    growth.Growth: [("N",)],
}
every_class = pytest.mark.parametrize("kind", QUICK, ids=lambda kind: kind.__name__)


def benchmarks(kind):
    return [name for name in dir(kind) if name.startswith(("time_", "track_", "peakmem_"))]


def ready(kind, parameters):
    """(benchmark after its setup, what its methods take)."""
    made = kind()
    if hasattr(made, "setup_cache"):
        parameters = (made.setup_cache(), *parameters)
    made.setup(*parameters)
    return made, parameters


def test_every_class_is_here():
    modules = [importlib.import_module(f"benches.{path.stem}") for path in (ROOT / "benches").glob("[a-z]*.py")]
    found = {kind for module in modules for _, kind in inspect.getmembers(module, inspect.isclass)}
    assert {kind for kind in found if hasattr(kind, "params") and not kind.__name__.startswith("_")} == set(QUICK)


@every_class
def test_parameters_are_plain_and_named(kind):
    lists = [kind.params] if isinstance(kind.params[0], str) else list(kind.params)
    assert len(lists) == len(kind.param_names)
    assert lists[-1] == devices.NAMES
    assert kind.param_names[-1] == "device"
    assert all(type(value) in (str, int) for values in lists for value in values)


@every_class
def test_cuda_is_listed_and_left_out_with_the_reason(kind):
    (first, *_) = QUICK[kind]
    with pytest.raises(NotImplementedError, match="arrays on a GPU need|about the host alone"):
        ready(kind, (*first, "cuda"))


@every_class
def test_tracked_numbers_have_units_and_all_have_docstrings(kind):
    assert kind.__doc__
    for name in benchmarks(kind):
        method = getattr(kind, name)
        assert method.__doc__
        if name.startswith("track_"):
            assert getattr(method, "unit", getattr(kind, "unit", None))


@pytest.mark.parametrize(
    ("kind", "parameters"), [(kind, p) for kind, many in QUICK.items() for p in many if kind is not growth.Growth]
)
def test_runs(kind, parameters):
    made, arguments = ready(kind, (*parameters, "cpu"))
    for name in benchmarks(kind):
        value = getattr(made, name)(*arguments)  # asv takes NotImplementedError from a setup alone
        assert not name.startswith("track_") or value > 0


def wrong(function):
    def call(*arguments, **options):
        result = function(*arguments, **options)
        changed = result if isinstance(result, np.ndarray) else getattr(result, "values", None)
        changed = next(a for a in arguments if isinstance(a, np.ndarray)) if changed is None else changed
        changed += 1
        return result

    return call


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (lookup.LookupVsOneHot, "fastemb.gather"),
        (gather.Gather, "fastemb.gather"),
        (scatter.ScatterAdd, "fastemb.scatter_add"),
        (bag.Bag, "fastemb.embedding_bag"),
        (bag.Bag, "fastemb.embedding_bag_grad"),
        (update.RowUpdate, "fastemb.kernels.cpu.sgd"),
    ],
)
def test_wrong_results_are_not_timed(kind, target, monkeypatch):
    parameters = (*QUICK[kind][0], "cpu")
    module, _, name = target.rpartition(".")
    found = sys.modules[module]
    monkeypatch.setattr(found, name, wrong(getattr(found, name)))
    with pytest.raises(AssertionError):
        ready(kind, parameters)


@pytest.mark.parametrize("layer", layers.LAYERS)
def test_wrong_layers_are_not_timed(layer, monkeypatch):
    make = layers.LAYERS[layer]
    monkeypatch.setitem(layers.LAYERS, layer, lambda rule: (*make(rule)[:2], make(rule)[2] + 1))
    with pytest.raises(AssertionError):
        layers.Layers().setup(layer, "cpu")


@pytest.mark.parametrize("nread", [None, 0, 5000, 1 << 21])
@pytest.mark.parametrize("nwritten", [0, 100, 4096, 1 << 20])
def test_a_copy_writes_all_that_it_says(nwritten, nread):
    target, copy = roofline.streaming_copy(nwritten, nread)
    assert target.nbytes == max(4096, nwritten // 4096 * 4096)
    assert target.ctypes.data % 64 == 0
    target.base[:] = 0
    copy()
    assert (target == 1).all()
    assert not target.base[target.size :].any()


def test_a_copy_goes_through_memory(monkeypatch):
    """One call after another reads other bytes, until all have been read."""
    monkeypatch.setattr(roofline, "FAR", 5 << 20)
    read = []
    monkeypatch.setattr(roofline, "_stream_copy", lambda target, source, *_: read.append(source.ctypes.data))
    _, copy = roofline.streaming_copy(1 << 20)
    for _ in range(6):
        copy()
    assert np.diff(read).tolist() == [1 << 20] * 4 + [-4 << 20]
    assert roofline.times_to_pass(1 << 30) == 1


@pytest.mark.parametrize("width", [16, 33, 3, 128])
def test_rows_are_read(width):
    """All of each row and nothing else, and as many ones are written as there is room for."""
    memory = np.full((102, width), np.nan, np.float32)
    table = memory[1:-1]
    table[:] = np.arange(100 * width).reshape(100, width) % 97
    ids = np.array([3, 3, 99, 0])
    read = roofline.reading(table, ids)
    read()
    assert read.args[0].sum() == table[ids].sum()
    out = fastemb.buffers.empty((1 << 18,), np.dtype(np.float32))
    out[:] = 0
    again = roofline.reading(table, ids, out[: ids.size * width])
    again()
    assert again.args[0].sum() == table[ids].sum()
    whole = ids.size * width // 16 * 16
    assert (out[:whole] == 1).all()
    assert not out[ids.size * width :].any()


def test_rows_and_columns_are_scaled():
    table, column = np.arange(100 * 16, dtype=np.float32).reshape(100, 16), np.arange(100, dtype=np.float32)[:, None]
    expected, rows = (table.copy(), column.copy()), np.array([0, 3, 99])
    for array in expected:
        array[rows] *= 2
    roofline.scaling([table, column], rows, 2)()
    np.testing.assert_array_equal(table, expected[0])
    np.testing.assert_array_equal(column, expected[1])


def test_bandwidth_is_bytes_over_time(monkeypatch):
    class Timing:
        median = 0.5

        def ratio_to(self, _):
            return 0.1, 0.25, 0.3

    monkeypatch.setattr("benches.measure.in_turn", lambda calls, rounds: [Timing()] * len(calls))
    assert bandwidth.gigabytes_a_second(None, 2e9) == 4
    assert bandwidth.share_of_copy(None, 1 << 20) == 25


SIZES = np.array([1, 2, 4, 8, 16])


@pytest.mark.parametrize("power", [0, 0.5, 1, 2])
def test_slope_of_a_power_law(power):
    assert growth.slope(SIZES, 3.0 * SIZES**power, "N") == pytest.approx(power)


@pytest.mark.parametrize("axis", ["L", "D"])
@pytest.mark.parametrize("fixed", [0, 7, 100])
def test_a_fixed_cost_bends_no_line_that_should_grow(axis, fixed):
    assert growth.slope(SIZES, fixed + 3.0 * SIZES, axis) == pytest.approx(1)
    assert growth.slope(SIZES, fixed + 3.0 * SIZES**2, axis) > 1.5
    assert growth.slope(SIZES, fixed + 3.0 * SIZES**0.5, axis) < 0.85
    assert growth.slope(SIZES, np.full(5, 1.0 + fixed), axis) == pytest.approx(0)


@pytest.mark.parametrize("axis", ["L", "D", "N"])
@pytest.mark.parametrize("operation", ["lookup", "scatter_add", "bag", "step", "one_hot"])
def test_times_grow_as_they_should(operation, axis):
    expected = 0 if axis == "N" and operation != "one_hot" else 1
    fits = []  # on a machine that does something else too: a wrong power is never near, a right one soon
    while len(fits) < 5 and not any(abs(fit - expected) <= 0.15 for fit in fits):
        fits.append(growth.exponent(getattr(growth, operation), axis))
    assert min(abs(fit - expected) for fit in fits) <= 0.15, fits
    says = getattr(growth.Growth, f"track_{operation}").__doc__
    assert f"{expected} in {axis}" in says


def test_asv_finds_all():
    found = subprocess.check_output([sys.executable, "-c", DISCOVER], cwd=ROOT, text=True).split()
    expected = {f"{kind.__module__}.{kind.__name__}.{name}" for kind in QUICK for name in benchmarks(kind)}
    assert {f"benches.{name}" for name in found} == expected


DISCOVER = """
import asv_runner.discovery
print(*(benchmark.name for benchmark in asv_runner.discovery.disc_benchmarks("benches")))
"""


def test_memory_of_a_lookup_is_its_own():
    peaks = dict(line.split() for line in run_python(PEAKS, folder=ROOT).splitlines())
    unit = 1024 if sys.platform == "darwin" else 1  # of ru_maxrss in kB
    added = {name: (int(peak) - int(peaks["reference"])) // unit for name, peak in peaks.items()}
    assert abs(added["lookup"]) < 5_000  # processes differ by some pages
    assert added["one_hot"] > 40_000  # kB: 1,024 x 10,000 numbers


PEAKS = """
import os, resource
from benches import lookup
words = lookup.LookupVsOneHotMemory().setup_cache()
for name in ("reference", "lookup", "one_hot"):
    if os.fork() == 0:
        made = lookup.LookupVsOneHotMemory()
        made.setup(words, 10_000, "cpu")
        getattr(made, f"peakmem_{name}")(words, 10_000, "cpu")
        print(name, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)
        os._exit(0)
    os.wait()
"""
