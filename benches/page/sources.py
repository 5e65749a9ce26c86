"""What the other commands left, read and checked: nothing reaches the page that it could not draw."""

import dataclasses
import datetime
import itertools
import json
import math
import shutil
import subprocess
from pathlib import Path
from types import NoneType

from .. import machine, report


class MalformedError(Exception):
    """A file that is there and not what its command writes."""


@dataclasses.dataclass(frozen=True)
class Source:
    """A file of figures, and where these come from."""

    path: Path
    document: dict
    when: str
    machine: str


@dataclasses.dataclass(frozen=True)
class Run:
    """What asv measured for a commit in one environment: ``{benchmark: {parameters: value}}``.

    A value is None where the benchmark failed, NaN where it left these parameters out.
    """

    commit: str
    date: str
    machine: str
    environment: str
    values: dict


@dataclasses.dataclass(frozen=True)
class History:
    """All runs of asv, oldest first; of each benchmark its unit and the names of its parameters."""

    runs: list
    units: dict
    names: dict

    @property
    def latest(self):
        """The runs of the newest commit, one for each environment."""
        return [run for run in self.runs if run.commit == self.runs[-1].commit]


def _text(value):
    return isinstance(value, str) and value.isprintable()


def _positive(value):
    return type(value) in (int, float) and 0 < value < math.inf


def _count(value):
    return type(value) is int and value >= 0


def _series(value):
    numbers = isinstance(value, list) and all(type(v) in (int, float) and math.isfinite(v) for v in value)
    return numbers and len(value) > 1


def _or_none(check):
    return lambda value: value is None or check(value)


FIELDS = {
    "onehot": {
        "case": lambda value: value in list(report.TITLES),
        "op": _text,
        "stream": _text,
        **dict.fromkeys(("N", "D", "L"), _positive),
        "distinct": _count,
        "median_s": _positive,
        **dict.fromkeys(("speedup", "speedup_q1", "speedup_q3"), _or_none(_positive)),
        "input_bytes": _positive,
        "peak_bytes": _count,
    },
    "peers": {
        **dict.fromkeys(("id", "case", "peer"), _text),
        **dict.fromkeys(("fastemb_ms", "peer_ms", "roof", "limit", "target"), _or_none(_positive)),
        **dict.fromkeys(("ratio", "ratio_q1", "ratio_q3"), _positive),
        **dict.fromkeys(("holds", "reachable"), lambda value: value in (None, True, False)),
    },
    "train": {
        "model": _text,
        **dict.fromkeys(("words_per_s", "times_first"), _positive),
        **dict.fromkeys(("loss", "seconds"), _series),
    },
    "regression": {**dict.fromkeys(("name", "verdict"), _text), "ratio": _or_none(_positive)},
}
"""What a record of each file has, as checks of its fields."""

AROUND = {
    "peers": {"threads": _positive, "copy_bytes_per_s": _positive},
    "regression": {"threads": _positive, "conclusion": lambda value: isinstance(value, str)},
}
"""What else a file has that the page shows."""

TOGETHER = {
    "onehot": lambda r: (
        len({r[key] is None for key in ("speedup", "speedup_q1", "speedup_q3")}) == 1
        and (r["op"] != "one-hot matmul" or r["speedup"] is not None)
    ),
    "peers": lambda r: (r["target"] is None) == (r["holds"] is None) == (r["reachable"] is None),
    "train": lambda r: len(r["loss"]) == len(r["seconds"]) and r["seconds"][1] > 0,
    "regression": lambda _: True,
}
"""What has to hold between the fields of a record."""


def _date(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _guess(path):
    """Date and revision of a file that does not say them: its own date, which a copy does not keep."""
    seconds = path.stat().st_mtime
    commit = "unknown"
    if git := shutil.which("git"):
        command = [git, "-C", str(Path(__file__).parent), "log", "-1", f"--before={int(seconds)}", "--format=%h"]
        commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or commit
    return f"revision not recorded: file of {_date(seconds)}, newest commit then {commit}"


def _parsed(path):
    def refuse(word):
        msg = f"{word} is not a figure"
        raise ValueError(msg)

    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    except ValueError as error:
        msg = f"{path} is not JSON: {error}"
        raise MalformedError(msg) from error


def _check(where, record, fields):
    for field, check in fields.items():
        if field not in record or not check(record[field]):
            msg = f"{where}: {field} is {record.get(field, 'missing')!r}"
            raise MalformedError(msg)


def _check_all(path, name, document):
    _check(path, document, AROUND.get(name, {}))
    records = document["benches" if name == "regression" else "records"]
    for k, record in enumerate(records):
        _check(f"{path}: record {k}", record, FIELDS[name])
        if not TOGETHER[name](record):
            msg = f"{path}: record {k}: its fields do not fit each other"
            raise MalformedError(msg)
    if not records and name != "regression":
        msg = f"{path} has no records"
        raise MalformedError(msg)
    if name == "onehot" and not any(r["op"] == "one-hot matmul" for r in records):
        msg = f"{path} has no record of the one-hot matmul"
        raise MalformedError(msg)


def _origin(path, name, document):
    """(date and revision, machine) of a document."""
    if name != "regression":
        about = document["machine"]
        recorded = f"{about['date']}, revision {about['revision']}" if "revision" in about else _guess(path)
        return recorded, machine.one_line(about)
    versions = ", ".join(f"{module} {version}" for module, version in document.get("versions", {}).items())
    about = f"{document.get('cpu', 'CPU not recorded')}; {versions or 'versions not recorded'}"
    sides = [document[side] for side in ("head", "base") if side in document]
    told = " against ".join(f"{side['name']} ({side['commit'][:7]})" for side in sides)
    when = f"file of {_date(path.stat().st_mtime)}, {told}" if told else _guess(path)
    return when, f"{about}; {document['threads']} threads"


def read(path, name):
    """The source in a file, None where there is none."""
    if not path.exists():
        return None
    document = _parsed(path)
    try:
        _check_all(path, name, document)
        when, about = _origin(path, name, document)
    except (KeyError, TypeError, AttributeError) as error:
        msg = f"{path} is not what its command writes: {error!r}"
        raise MalformedError(msg) from error
    return Source(path, document, when, about)


def _run(result, described):
    """A result of asv as a run: the benchmarks that are still what they were when it was made."""
    values = {}
    for name in sorted(result.get_result_keys(described)):
        parameters = result.get_result_params(name)
        values[name] = {
            tuple(word.strip("'") for word in words): value
            for words, value in zip(
                itertools.product(*parameters), result.get_result_value(name, parameters), strict=True
            )
        }
    figures = [value for of_one in values.values() for value in of_one.values()]
    words = [word for of_one in values.values() for parameters in of_one for word in parameters]
    texts = [result.commit_hash, result.params["machine"], result.env_name, *values, *words]
    if wrong := [v for v in figures if type(v) not in (int, float, NoneType)] + [t for t in texts if not _text(t)]:
        msg = f"{wrong[0]!r} among the results"
        raise ValueError(msg)
    cpu = f"{result.params.get('cpu')}, {result.params.get('num_cpu')} cores ({result.params['machine']})"
    return Run(result.commit_hash, _date(result.date / 1e3), cpu, result.env_name, values)


def history(folder):
    """The results of asv in a folder, None where there are none."""
    paths = [path for path in sorted(folder.glob("*/*.json")) if path.name != "machine.json"]
    if not paths:
        return None
    # Not at the top: asv imports this package in environments that do not have asv.
    import asv.benchmarks
    import asv.results
    import asv.util

    runs = []
    path = folder / "benchmarks.json"
    try:
        described = asv.util.load_json(str(path), asv.benchmarks.Benchmarks.api_version)
        units = {name: str(benchmark["unit"]) for name, benchmark in described.items()}
        names = {name: benchmark["param_names"] for name, benchmark in described.items()}
        for path in paths:
            result = asv.results.Results.load(str(path))
            runs.append((result.date, result.commit_hash, _run(result, described)))
    except (asv.util.UserError, OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        msg = f"{path}: {error}"
        raise MalformedError(msg) from error
    return History([run for *_, run in sorted(runs, key=lambda entry: entry[:2])], units, names)
