"""What a gate found: a table, a Markdown comment for a pull request, JSON."""

import dataclasses
import statistics

import rich.box
import rich.table

from .. import report
from . import gate

ORDER = (
    gate.FAILED,
    gate.REGRESSION,
    gate.UNCLEAR,
    gate.SLOWER,
    gate.NOT_IN_BASE,
    gate.FASTER,
    gate.SAME,
)
"""The worst first."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One bench: seconds a call, the ratio and its p-value, or the text of the error."""

    name: str
    verdict: str
    base_s: float | None = None
    head_s: float | None = None
    ratio: float | None = None
    lowest: float | None = None
    highest: float | None = None
    p: float | None = None
    pairs: int = 0
    error: str | None = None


def rows_of(pairs, not_in_base, failed):
    """A `Row` for each bench, by verdict; the last two map names to the texts of errors."""
    rows = [Row(name, gate.FAILED, error=error) for name, error in failed.items()]
    rows += [Row(name, gate.NOT_IN_BASE, error=error) for name, error in not_in_base.items() if name not in failed]
    for name, of_this in pairs.items():
        bases, heads = zip(*of_this.deciding, strict=True)
        rows.append(
            Row(
                name,
                of_this.verdict(),
                statistics.median(bases),
                statistics.median(heads),
                of_this.ratio,
                min(of_this.ratios),
                max(of_this.ratios),
                min(of_this.slower, of_this.faster),
                len(of_this.deciding),
            )
        )
    return sorted(rows, key=lambda row: ORDER.index(row.verdict))


def conclusion(rows):
    """One sentence, and the exit code."""
    code = gate.exit_code([row.verdict for row in rows])
    named = {verdict: [row.name for row in rows if row.verdict == verdict] for verdict in ORDER}
    if code == 1:
        return f"Regression: {'; '.join(named[gate.REGRESSION])}", 1
    if code == 2:
        unknown = [*named[gate.FAILED], *named[gate.UNCLEAR], *named[gate.NOT_IN_BASE]]
        return f"Could not be measured: {'; '.join(unknown) or 'no bench was run'}", 2
    slower = f" Slower, without failing: {'; '.join(named[gate.SLOWER])}" if named[gate.SLOWER] else ""
    return f"No regression in {len(rows)} bench{'es' * (len(rows) > 1)}.{slower}", 0


def _cells(row):
    if row.ratio is None:
        return row.name, "", "", "", "", "", "", row.verdict
    times = report.seconds(row.base_s), report.seconds(row.head_s)
    spread = f"{row.lowest:.2f} to {row.highest:.2f}"
    return row.name, *times, f"{row.ratio:.3f}", spread, str(row.pairs), f"{row.p:.2g}", row.verdict


HEADER = ("bench", "base", "head", "head / base", "(range)", "pairs", "p", "verdict")


def table(rows):
    """The rows, as a rich table."""
    grid = rich.table.Table(box=rich.box.SIMPLE_HEAD)
    for column in HEADER:
        grid.add_column(column, justify="left" if column in {"bench", "verdict"} else "right", no_wrap=True)
    for row in rows:
        style = {gate.REGRESSION: "bold red", gate.FAILED: "bold red", gate.UNCLEAR: "bold", gate.SLOWER: "yellow"}
        grid.add_row(*map(rich.markup.escape, _cells(row)), style=style.get(row.verdict))
    return grid


def markdown(sentence, rows, footer):
    """The same for a comment: the sentence, the rows, what the verdicts mean."""
    lines = [f"### {_plain(sentence)}", ""]
    if rows:
        lines += ["| " + " | ".join(HEADER) + " |", "|" + "|".join("---" for _ in HEADER) + "|"]
        lines += ["| " + " | ".join(map(_plain, _cells(row))) + " |" for row in rows]
        lines += [""]
    lines += [f"- {_plain(row.name)}: `{_one_line(row.error)}`" for row in rows if row.error]
    lines += [f"- *{verdict}*: {gate.MEANING[verdict]}" for verdict in ORDER if verdict in {r.verdict for r in rows}]
    return "\n".join([*lines, "", footer, ""])


def _plain(text):
    return text.replace("|", "\\|").replace("\n", " ")


def _one_line(text):
    return " ".join(text.replace("`", "'").split())


def document(sentence, code, rows, about):
    """The same for programs."""
    limits = {"reported": gate.REPORTED, "failing": gate.FAILING, "level": gate.LEVEL}
    benches = [dataclasses.asdict(row) for row in rows]
    return {"exit_code": code, "conclusion": sentence, "limits": limits, **about, "benches": benches}
