"""Peer comparisons as a table and as a picture."""

import matplotlib.figure
import rich.box
import rich.markup
import rich.table

from ..report import ratio, seconds, ticks


def table(records):
    """A rich table: a line for each comparison, its ratio against the target."""
    grid = rich.table.Table(title="Peer time / fastemb time", box=rich.box.SIMPLE_HEAD, title_justify="left")
    for name in ("id", "case", "peer"):
        grid.add_column(name, no_wrap=True)
    for name in ("fastemb", "peer", "ratio", "(quartiles)", "of copy", "limit", "target", ""):
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
            *("" if r[key] is None else ratio(r[key]) for key in ("limit", "target")),
            f"[bold]{words_of(r)}[/bold]" if r["holds"] is False and r["reachable"] else words_of(r),
        )
        previous = r["id"]
    return grid


def words_of(record):
    """What became of a target, if there is one."""
    return {None: "", True: "holds", False: "not reached" if record["reachable"] else "out of reach"}[record["holds"]]


def verdict(record):
    """What the numbers of a comparison mean, in words: whether it is a loss, whether its target holds."""
    words = ["loss"] if record["ratio"] < 1 else []
    words += [f"target {words_of(record)}"] if record["target"] is not None else []
    return ", ".join(words)


def draw(axis, records, places):
    """Ratios with quartiles on a log axis, targets as marks, each at its place from the top; readable in grey."""
    for y, r in zip(places, records, strict=True):
        axis.plot([r["ratio_q1"], r["ratio_q3"]], [y, y], color="0.6", linewidth=3, solid_capstyle="butt")
        if r["target"] is not None:
            axis.plot(r["target"], y, "|", color="0.3", markersize=9, markeredgewidth=2)
        if r["limit"] is not None:
            axis.plot(r["limit"], y, "4", color="0.3", markersize=7)
        if r["holds"] is False:  # how far it is
            axis.plot([r["ratio"], r["target"]], [y, y], ":", color="0.3", linewidth=1)
        face = "white" if r["ratio"] < 1 else "black"
        axis.plot(r["ratio"], y, "o", color="black", markerfacecolor=face, markersize=5)
    axis.set_ylim(places[-1] + 0.5, -0.5)
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_xscale("log")
    ticks(axis.xaxis, ratio)
    axis.grid(visible=True, axis="x", color="0.9")


def figure(records, footer):
    """All comparisons, each with its name at the left."""
    drawn = matplotlib.figure.Figure(figsize=(11, 1.6 + 0.19 * len(records)))
    axis = drawn.subplots()
    places = range(len(records))
    draw(axis, records, places)
    for y in places[1:]:
        if records[y - 1]["id"] != records[y]["id"]:
            axis.axhline(y - 0.5, color="0.8", linewidth=0.8)
    axis.set_yticks(places, [f"{r['id']}: {r['case']}, {r['peer']}" for r in records], fontsize=7)
    axis.set_xlabel(
        "peer time / fastemb time: median (open: a loss), quartiles (bar), at the limit (fork), "
        "target (tick, dotted line where not reached)"
    )
    axis.set_title(footer, fontsize=7, wrap=True)
    drawn.tight_layout()
    return drawn


def plot(path, records, footer):
    """The figure as a file."""
    figure(records, footer).savefig(path, dpi=130, metadata={"Description": footer})
