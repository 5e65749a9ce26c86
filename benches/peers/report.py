"""Peer comparisons as a table and as a picture."""

import matplotlib as mpl
import rich.box
import rich.markup
import rich.table

mpl.use("Agg")

import matplotlib.pyplot as plt

from ..report import ratio, seconds


def table(records):
    """A rich table: a line for each comparison, its ratio against the target."""
    grid = rich.table.Table(title="Peer time / fastemb time", box=rich.box.SIMPLE_HEAD, title_justify="left")
    for name in ("id", "case", "peer"):
        grid.add_column(name, no_wrap=True)
    for name in ("fastemb", "peer", "ratio", "(quartiles)", "of copy", "target", ""):
        grid.add_column(name, justify="right", no_wrap=True)
    previous = None
    for r in records:
        if previous not in (None, r["id"]):
            grid.add_section()
        grid.add_row(
            "" if previous == r["id"] else r["id"],
            rich.markup.escape(r["case"]),
            rich.markup.escape(r["peer"]),
            *("" if r[key] is None else seconds(r[key] / 1e3) for key in ("fastemb_ms", "peer_ms")),
            ratio(r["ratio"]),
            f"{ratio(r['ratio_q1'])} to {ratio(r['ratio_q3'])}",
            "" if r["roof"] is None else f"{100 * r['roof']:.0f} %",
            "" if r["target"] is None else ratio(r["target"]),
            {None: "", True: "holds", False: "[bold]not reached[/bold]"}[r["holds"]],
        )
        previous = r["id"]
    return grid


def plot(path, records, footer):
    """Ratios with quartiles on a log axis, targets as marks; readable in grey."""
    figure, axis = plt.subplots(figsize=(11, 1.6 + 0.19 * len(records)))
    for y, r in enumerate(records):
        if y and records[y - 1]["id"] != r["id"]:
            axis.axhline(y - 0.5, color="0.8", linewidth=0.8)
        axis.plot([r["ratio_q1"], r["ratio_q3"]], [y, y], color="0.5", linewidth=3, solid_capstyle="butt")
        axis.plot(r["ratio"], y, "o", color="black", markersize=5)
        if r["target"] is not None:
            axis.plot(r["target"], y, "|", color="0.3", markersize=9, markeredgewidth=2)
    axis.set_yticks(range(len(records)), [f"{r['id']}: {r['case']}, {r['peer']}" for r in records], fontsize=7)
    axis.set_ylim(len(records) - 0.5, -0.5)
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_xscale("log")
    axis.set_xlabel("peer time / fastemb time: median, quartiles (bar), target (tick); right of 1 fastemb is faster")
    axis.grid(visible=True, axis="x", color="0.9")
    axis.set_title(footer, fontsize=7, wrap=True)
    figure.tight_layout()
    figure.savefig(path, dpi=130, metadata={"Description": footer})
    plt.close(figure)
