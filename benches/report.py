"""Records as a table for a terminal and as a picture."""

import matplotlib.figure
import matplotlib.ticker
import rich.box
import rich.markup
import rich.table

STYLES = (
    {"color": "black", "marker": "o", "linestyle": "-", "linewidth": 2.4},
    {"color": "0.35", "marker": "s", "linestyle": "--"},
    {"color": "0.6", "marker": "^", "linestyle": ":"},
    {"color": "0.2", "marker": "D", "linestyle": "-."},
    {"color": "0.5", "marker": "x", "linestyle": (0, (5, 1))},
)
"""Told apart in grey: by shade, marker and dashes."""

TITLES = {
    "lookup": "Row lookup",
    "scatter_add": "Gradient added into the table",
    "adam_step": "One Adam step",
}


def seconds(value):
    """A duration with three figures and a fitting unit."""
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def size(nbytes):
    """A number of bytes with a fitting decimal unit."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}"
    return f"{nbytes:.3g} B"


def ratio(value):
    """A ratio with three figures, or all digits of a large one."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def table(case, records, subtitle):
    """The records of one case, as a rich table."""
    grid = rich.table.Table(title=f"{TITLES[case]} ({subtitle})", box=rich.box.SIMPLE_HEAD, title_justify="left")
    grid.add_column("N", justify="right")
    grid.add_column("distinct", justify="right")
    grid.add_column("way", no_wrap=True)
    for name in ("time", "times fastemb's", "(quartiles)", "input", "peak memory"):
        grid.add_column(name, justify="right")
    previous = None
    for r in records:
        if previous not in (None, r["N"]):
            grid.add_section()
        grid.add_row(
            *(("", "") if previous == r["N"] else (f"{r['N']:,}", f"{r['distinct']:,}")),
            rich.markup.escape(r["op"]),
            seconds(r["median_s"]),
            "" if r["speedup"] is None else ratio(r["speedup"]),
            "" if r["speedup"] is None else f"{ratio(r['speedup_q1'])} to {ratio(r['speedup_q3'])}",
            size(r["input_bytes"]),
            size(r["peak_bytes"]),
        )
        previous = r["N"]
    return grid


def headline(records):
    """What the headline shows, in a sentence."""
    matmul = max((r for r in records if r["op"] == "one-hot matmul"), key=lambda r: r["N"])
    times = ratio(matmul["speedup"])
    return f"At N = {matmul['N']:,} the one-hot matmul alone takes {times} times as long as the lookup."


class _Ticks(matplotlib.ticker.LogFormatter):
    """Ticks of a log axis labelled by a function of their values, minor ones only where there are few major ones."""

    def __init__(self, text):
        super().__init__(labelOnlyBase=False)
        self.text = text

    def __call__(self, value, position=None):
        """The label, or none."""
        return self.text(value) if super().__call__(value, position) else ""


def ticks(axis, text):
    """Label the ticks of a log axis by a function of their values."""

    def label(value, _=None):
        return text(float(f"{value:.6g}"))  # a power of ten may come as 9.999...e-07

    axis.set_major_formatter(matplotlib.ticker.FuncFormatter(label))
    axis.set_minor_formatter(_Ticks(label))


def figure(by_case, footer=""):
    """Times above, memory below, a column for each case; log-log, readable in grey."""
    drawn = matplotlib.figure.Figure(figsize=(5.2 * len(by_case), 8.4))
    axes = drawn.subplots(2, len(by_case), sharex=True, squeeze=False)
    for column, (case, records) in enumerate(by_case.items()):
        ways = list(dict.fromkeys(r["op"] for r in records))
        for way, style in zip(ways, STYLES, strict=False):
            mine = [r for r in records if r["op"] == way]
            numbers = [r["N"] for r in mine]
            axes[0, column].plot(numbers, [r["median_s"] for r in mine], label=way, **style)
            memory = [r["input_bytes"] + r["peak_bytes"] for r in mine]
            axes[1, column].plot(numbers, memory, label=way, **style)
        axes[0, column].set_title(TITLES[case])
        axes[0, column].set_ylabel("time of a call (median)")
        axes[1, column].set_ylabel("memory: input and peak of the call")
        axes[1, column].set_xlabel("N, rows of the table")
        for axis, text in zip(axes[:, column], (seconds, size), strict=True):
            axis.set_xscale("log")
            axis.set_yscale("log")
            ticks(axis.xaxis, "{:,.0f}".format)
            ticks(axis.yaxis, text)
            axis.grid(visible=True, which="major", color="0.9")
            axis.legend(fontsize=8, framealpha=0.9)
    drawn.suptitle(footer, fontsize=8.5, wrap=True)
    drawn.tight_layout(rect=(0, 0, 1, 0.97 if footer else 1))
    return drawn


def plot(path, by_case, footer):
    """The figure as a file."""
    figure(by_case, footer).savefig(path, dpi=130, metadata={"Description": footer})
