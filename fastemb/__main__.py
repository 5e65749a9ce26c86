"""``python -m fastemb info | warmup``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    from ._warmup import DTYPES, INDEX_DTYPES

    parser = argparse.ArgumentParser(prog="python -m fastemb", description="Embedding kernels for NumPy.")
    commands = parser.add_subparsers(dest="command", required=True)
    about = commands.add_parser("info", help="what a bug report has to say about this machine")
    about.add_argument("--json", action="store_true", help="print JSON")
    warm = commands.add_parser("warmup", help="compile the kernels now, so that no first call has to wait")
    warm.add_argument("--dtype", nargs="+", choices=DTYPES, default=DTYPES, help="table dtypes (all)")
    warm.add_argument("--index-dtype", nargs="+", choices=INDEX_DTYPES, default=INDEX_DTYPES, help="index dtypes (all)")
    warm.add_argument("--quiet", action="store_true", help="print nothing")
    options = parser.parse_args(arguments)
    if options.command == "info":
        return _info(as_json=options.json)
    return _warmup(options.dtype, options.index_dtype, quiet=options.quiet)


def _info(*, as_json: bool) -> int:
    from ._info import info

    report = info()
    print(json.dumps(report, indent=2) if as_json else "\n".join(_lines(report)))
    return 0


def _lines(report: dict[str, Any]) -> list[str]:
    lines = []
    for section, values in report.items():
        lines.append(f"{section}:")
        for name, value in values.items():
            if isinstance(value, dict):
                value = ", ".join(f"{k} {v:,}" for k, v in value.items())
            lines.append(f"  {name:20} {'-' if value is None else value}")
        if not values:
            lines.append("  (none of those that matter is set)")
    return lines


def _warmup(dtypes: Sequence[str], index_dtypes: Sequence[str], *, quiet: bool) -> int:
    from ._warmup import warmup
    from .kernels.cpu import jit

    folder = jit.cache_folder()
    if folder is None:
        print(f"Compiled kernels are not kept, so there is nothing to warm up: {jit.why_no_cache()}.", file=sys.stderr)
        return 1
    start = time.perf_counter()
    warmup(dtypes, index_dtypes, quiet=quiet)
    if not quiet:
        print(f"Compiled kernels are in {folder} ({time.perf_counter() - start:.0f} s).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
