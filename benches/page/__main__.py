"""``python -m benches.page``: one static page of what the other commands measured."""

import argparse
import itertools
import math
import sys
from pathlib import Path

import jinja2

from .. import report
from ..peers import report as peers_report
from . import figures, sources

COMMANDS = {
    "onehot": ("Headline", "make bench"),
    "peers": ("Peers", "make peers"),
    "train": ("Training race", ".venv-peers/bin/python -m benches.train"),
    "regression": ("Two revisions", "make regress BASE=HEAD~1"),
    "asv": ("History", "make asv"),
}
"""What each source is called, and the command that makes it."""


def runs(records, key):
    """(value, records) of each run of records that have one value of a key."""
    return [(value, list(part)) for value, part in itertools.groupby(records, lambda r: r[key])]


def measured(value, unit):
    """A figure of asv as text."""
    if value is None:
        return "failed"
    if unit == "seconds":
        return report.seconds(value)
    return report.size(value) if unit == "bytes" else report.ratio(value)


def named(parameters, names):
    """Parameters of an asv benchmark with their names."""
    return ", ".join(f"{name} {value}" for name, value in zip(names, parameters, strict=True)) or "no parameters"


def page(found, history):
    """The page as text."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "seconds": report.seconds,
        "size": report.size,
        "ratio": report.ratio,
        "verdict": peers_report.verdict,
        "measured": measured,
        "named": named,
        "runs": runs,
    }
    environment.tests["skipped"] = lambda value: value is not None and math.isnan(value)
    environment.globals |= {"figures": figures, "report": report, "commands": COMMANDS}
    machines = {source.machine for source in found.values() if source and source.machine}
    given = {"sources": found, "history": history, "machines": machines}
    return environment.get_template("page.html.j2").render(given) + "\n"


def main(arguments=None):
    """Make the page; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benches.page", description=__doc__)
    parser.add_argument("--input", type=Path, default=Path("build"), help="folder of the JSON files (build)")
    parser.add_argument("--asv", type=Path, default=Path(".asv/results"), help="results of asv (.asv/results)")
    parser.add_argument("--output", type=Path, default=Path("build/report.html"), help="the page (build/report.html)")
    options = parser.parse_args(arguments)
    try:
        found = {name: sources.read(options.input / f"{name}.json", name) for name in sources.FIELDS}
        history = sources.history(options.asv)
    except sources.MalformedError as error:
        parser.error(str(error))
    if not (history or any(found.values())):
        makers = "; ".join(command for _, command in COMMANDS.values())
        parser.error(f"nothing to show in {options.input} and {options.asv}: these commands make it: {makers}")
    text = page(found, history)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = options.output.with_name(f"{options.output.name}.part")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(options.output)
    sys.stdout.write(f"Written: {options.output}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
