"""What the report page is made of, as the tests of it leave it in a folder: one file a source, and results of asv."""

import json
import math

import asv.benchmarks
import asv.results
import asv.runner
import asv.util

from benches import machine


def comparison(name, case, peer, ratio, target=None, roof=None, limit=None):
    times = {"fastemb_ms": 0.02, "peer_ms": 0.02 * ratio}
    spread = {"ratio": ratio, "ratio_q1": 0.9 * ratio, "ratio_q3": 1.1 * ratio}
    holds, reachable = (None, None) if target is None else (ratio >= target, limit is None or limit >= target)
    judged = {"roof": roof, "limit": limit, "target": target, "holds": holds, "reachable": reachable}
    return {"id": name, "case": case, "peer": peer, **times, **spread, **judged}


PEERS = [
    comparison("scatter", "50k x 64", "np.add.at", 1234.5, 25, roof=0.4312),
    comparison("scatter", "50k x 64", "torch index_add_", 0.75, roof=1.27),
    comparison("scatter", "10 x 64", "torch index_add_", 1.5, 2, roof=0.31),
    comparison("update", "1M x 128, SGD", "FBGEMM TBE SGD", 0.625, 1.25),
    comparison("update", "1M x 128, SGD", "torch sparse SGD", 3.5, 5, limit=4.5),
    {**comparison("update", "geometric mean of 2 cases", "all", 1.4), "fastemb_ms": None, "peer_ms": None},
]

TRAIN = [
    {
        "model": "fastemb Adam",
        "words_per_s": 294809.4,
        "times_first": 1,
        "loss": [4.2, 3.5, 2.88],
        "seconds": [0, 1, 2],
    },
    {"model": "torch", "words_per_s": 27025.1, "times_first": 10.1, "loss": [4.2, 3, 2.87], "seconds": [0, 10, 20]},
]

REGRESSION = {
    "conclusion": "Regression: gather",
    "threads": 1,
    "cpu": "some CPU",
    "base": {"name": "main", "commit": "0123456789"},
    "head": {"name": "HEAD", "commit": "fedcba9876"},
    "benches": [
        {"name": "gather", "verdict": "regression", "ratio": 1.31},
        {"name": "new", "verdict": "not in base", "ratio": None},
    ],
}


def benchmark(name, unit, params, param_names):
    return {"name": name, "unit": unit, "params": params, "param_names": param_names, "version": "1", "type": "time"}


def asv_results(folder, commits, name="lookup.LookupVsOneHot.time_lookup"):
    """What asv leaves: of each commit the headline's times, and a benchmark that failed."""
    rows = [["10", "1000"], ["'cpu'", "'cuda'"]]
    made = [
        benchmark(name, "seconds", rows, ["N", "device"]),
        benchmark("gather.Gather.peakmem_it", "bytes", [["'text'"]], ["stream"]),
        benchmark("start.Start.track_one", "times", [], []),
    ]
    described = {b["name"]: b for b in made}
    asv.util.write_json(str(folder / "benchmarks.json"), described, asv.benchmarks.Benchmarks.api_version)
    for k, commit in enumerate(commits):
        params = {"machine": "box", "cpu": "some CPU", "num_cpu": "2"}
        result = asv.results.Results(params, {}, commit, 1_796_000_000_000 + k, "3.11", "virtualenv-py3.11", {})
        values = [2e-5 * (k + 1), math.nan, 3e-5 * (k + 1), math.nan], [None], [7.5]
        for b, of_b in zip(made, values, strict=True):
            none = [None] * len(of_b)
            result.add_result(b, asv.runner.BenchmarkResult(of_b, none, none, 0, "", None))
        result.save(str(folder))


def write(folder, name, document):
    (folder / f"{name}.json").write_text(json.dumps(document))


def everything(folder, headline):
    about = {"machine": machine.machine()}
    write(folder, "onehot", headline)
    write(folder, "peers", {**about, "threads": 2, "copy_bytes_per_s": 47.1e9, "records": PEERS})
    write(folder, "train", {**about, "records": TRAIN})
    write(folder, "regression", REGRESSION)
    (folder / "asv").mkdir()
    asv_results(folder / "asv", ["a" * 40, "b" * 40])
    return folder
