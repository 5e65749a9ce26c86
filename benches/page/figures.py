"""Figures of the page, as SVG to stand in a page: drawn by the reports, in pieces as wide as a phone."""

import functools
import io
import itertools
import math
import xml.etree.ElementTree as ET

import markupsafe
import matplotlib as mpl
import matplotlib.figure

from .. import report
from ..peers import report as peers_report
from ..train import __main__ as race

WIDTH = 4.4
"""Inches of a figure; a phone shows them at about their size, so that the smallest text is legible."""

LINES = 18
"""Comparisons in a figure: with more it would not fit on a printed page."""

HEADLINE = "LookupVsOneHot.time_"
"""Benchmarks of asv that the page draws."""

COMMITS = 20
"""The newest ones that a graph over commits shows."""

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"

STYLE = {
    "svg.fonttype": "none",  # text stays text: small, found by a search
    "svg.hashsalt": "fastemb",  # the same figures give the same page
    "text.parse_math": False,  # a name in a file is not a formula
}


def svg(figure, name, title, description):
    """A drawn figure as an ``<svg>`` element with a title, a description and ids of its own."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    root = ET.fromstring(buffer.getvalue())  # noqa: S314  matplotlib wrote it
    metadata = root.find(f"{{{SVG}}}metadata")
    if metadata is not None:
        root.remove(metadata)
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "id":
                element.set(key, f"{name}-{value}")
            elif key == f"{{{XLINK}}}href":
                element.set(key, value.replace("#", f"#{name}-"))
            elif "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{name}-"))
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.attrib |= {"role": "img", "aria-label": title, "aria-describedby": f"{name}-desc"}
    for tag, text in (("desc", description), ("title", title)):
        element = ET.Element(f"{{{SVG}}}{tag}", id=f"{name}-{tag}")
        element.text = text
        root.insert(0, element)
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    return markupsafe.Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704  ElementTree has escaped it


def _styled(draw):
    """Figures drawn in the style of the page, as a list."""

    @functools.wraps(draw)
    def drawn(given):
        with mpl.rc_context(STYLE):
            return list(draw(given))

    return drawn


@_styled
def headline(records):
    """Time and memory over N of each case of ``make bench``."""
    largest = max(r["N"] for r in records)
    for case in dict.fromkeys(r["case"] for r in records):
        of_case = [r for r in records if r["case"] == case]
        told = "; ".join(f"{r['op']} {report.seconds(r['median_s'])}" for r in of_case if r["N"] == largest)
        yield svg(
            report.figure({case: of_case}),
            f"headline-{case}",
            f"{report.TITLES[case]}: time and memory over N",
            f"Two log-log graphs, a line for each way. At N = {largest:,}: {told}.",
        )


def _places(records):
    """Where the lines of a figure are: with room for a heading above the first of each case."""
    y, places = -0.4, []
    for k, r in enumerate(records):
        y += 1 if k and records[k - 1]["case"] == r["case"] else 1.7
        places.append(y)
    return places


def _pieces(records):
    """(title, records) of each figure: those of an id, cases kept together, in pieces that fit on a page."""
    for name, of_id in itertools.groupby(records, lambda r: r["id"]):
        of_id = list(of_id)
        fit = math.ceil(len(of_id) / math.ceil(len(of_id) / LINES))
        pieces = [[]]
        for _, of_case in itertools.groupby(of_id, lambda r: r["case"]):
            if len(pieces[-1]) >= fit:
                pieces.append([])
            pieces[-1] += of_case
        for k, piece in enumerate(pieces, start=1):
            yield f"{name} ({k} of {len(pieces)})" if len(pieces) > 1 else name, piece


def _axis(name, records, places, words):
    """An axis with the names of the comparisons in it, and words at the right: beside it there is no room for them."""
    high = 0.3 * (places[-1] + 0.7)
    figure = matplotlib.figure.Figure(figsize=(WIDTH, high + 0.75))
    axis = figure.add_axes((0.03, 0.45 / (high + 0.75), 0.94, high / (high + 0.75)))
    placed = {
        "transform": axis.get_yaxis_transform(),
        "fontsize": 7.5,
        "va": "center",
        "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.6},
    }
    for k, (y, r, said) in enumerate(zip(places, records, words, strict=True)):
        if not k or records[k - 1]["case"] != r["case"]:
            axis.text(0, y - 1.05, r["case"], weight="bold", **placed)
        axis.text(0.02, y - 0.43, r["peer"], **placed)
        axis.text(1, y - 0.43, said, ha="right", **placed)
    axis.set_yticks([])
    axis.spines[["left", "right", "top"]].set_visible(False)
    axis.tick_params(labelsize=7.5)
    axis.set_title(name, fontsize=9, weight="bold", loc="left")
    return figure, axis


@_styled
def peers(records):
    """Ratios of each id, on one axis throughout, losses and missed targets marked in words."""
    ends = [r[key] for r in records for key in ("ratio_q1", "ratio_q3", "limit", "target") if r[key] is not None]
    for number, (name, piece) in enumerate(_pieces(records)):
        places = _places(piece)
        words = [", ".join(filter(None, (report.ratio(r["ratio"]), peers_report.verdict(r)))) for r in piece]
        figure, axis = _axis(name, piece, places, words)
        peers_report.draw(axis, piece, places)
        axis.set_ylim(places[-1] + 0.5, -0.2)
        axis.set_xlim(min(0.5, *ends) / 1.3, max(2, *ends) * 1.3)
        axis.set_xlabel("peer time / fastemb time", fontsize=7.5)
        told = "; ".join(f"{r['case']}, {r['peer']}: {said}" for r, said in zip(piece, words, strict=True))
        yield svg(figure, f"peers-{number}", f"{name}: peer time over fastemb time", f"Log axis. {told}.")


@_styled
def roofline(records):
    """The share of the copy's bandwidth as a bar for each comparison, against a line at 100 %."""
    known = [r for r in records if r["roof"] is not None]
    for number, (name, piece) in enumerate(_pieces(known)):
        places = _places(piece)
        words = [f"{100 * r['roof']:.0f} %" for r in piece]
        figure, axis = _axis(name, piece, places, words)
        shares = [100 * r["roof"] for r in piece]
        axis.barh(places, shares, height=0.3, color="0.55", edgecolor="black", linewidth=0.6)
        axis.axvline(100, color="black", linewidth=1, linestyle="--")
        axis.set_ylim(places[-1] + 0.5, -0.2)
        axis.set_xlim(0, 1.05 * max(100, *(100 * r["roof"] for r in known)))
        axis.set_xlabel("% of the bandwidth of a streaming copy", fontsize=7.5)
        told = "; ".join(f"{r['case']}, {r['peer']}: {said}" for r, said in zip(piece, words, strict=True))
        yield svg(figure, f"roofline-{number}", f"{name}: share of copy bandwidth", f"Bars. {told}.")


@_styled
def train(records):
    """Loss over seconds of the race."""
    told = "; ".join(f"{r['model']}: {r['loss'][-1]:.4f} after {r['seconds'][-1]:.3g} s" for r in records)
    figure = race.figure(records, size=(1.3 * WIDTH, WIDTH))
    yield svg(figure, "train", "Loss over seconds of training", f"A line for each model. {told}.")


def _known(values):
    return {key: value for key, value in values.items() if value is not None and not math.isnan(value)}


def _over_rows(history, run):
    """``{device: {way: {N: seconds}}}`` of the headline's benchmarks in a run."""
    found = {}
    for name, values in run.values.items():
        _, headline, way = name.partition(HEADLINE)
        if headline and history.names[name] == ["N", "device"]:
            for (rows, device), value in _known(values).items():
                found.setdefault(device, {}).setdefault(way, {})[int(rows)] = value
    return found


def _panel(lines, label, title):
    """A small graph: a line for each name, on a log axis of seconds; readable in grey."""
    figure = matplotlib.figure.Figure(figsize=(WIDTH, 0.9 * WIDTH))
    axis = figure.subplots()
    for k, (name, points) in enumerate(lines.items()):
        shade = f"{0.6 * k / len(lines):.2f}"
        axis.plot(list(points), list(points.values()), ("-", "--", ":", "-.")[k % 4], color=shade, label=name)
        axis.lines[-1].set_marker("os^Dxv*P"[k % 8])
    every = [value for points in lines.values() for value in points.values()]
    axis.set_yscale("log")
    axis.set_ylim(min(every) / 1.5, max(every) * 1.5)
    report.ticks(axis.yaxis, report.seconds)
    axis.grid(visible=True, which="major", color="0.9")
    axis.set_xlabel(label)
    axis.set_title(title, fontsize=9)
    axis.legend(fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.45, -0.2), frameon=False)
    return figure, axis


@_styled
def asv_rows(history):
    """The headline's times over N at the newest commit, for each environment and device."""
    for number, run in enumerate(history.latest):
        for k, (device, lines) in enumerate(_over_rows(history, run).items()):
            figure, axis = _panel(lines, "N, rows of the table", f"{run.commit[:7]}, {device}")
            axis.set_xscale("log")
            report.ticks(axis.xaxis, "{:,.0f}".format)
            figure.tight_layout()
            told = "; ".join(f"{way} {report.seconds(v[max(v)])} at N = {max(v):,}" for way, v in lines.items())
            yield svg(figure, f"rows-{number}-{k}", f"Times over N at {run.commit[:7]}, {device}", f"{told}.")


@_styled
def asv_trend(history):
    """The same over commits, a small graph for each way that several commits have, a line for each N."""
    for number, newest in enumerate(history.latest):
        trend = {}
        for run in history.runs:
            if (run.machine, run.environment) == (newest.machine, newest.environment):
                for device, ways in _over_rows(history, run).items():
                    for way, values in ways.items():
                        trend.setdefault((way, device), {})[run.commit[:7]] = values
        for k, ((way, device), commits) in enumerate(trend.items()):
            shown = dict(list(commits.items())[-COMMITS:])
            if len(shown) > 1:
                yield _trend(f"trend-{number}-{k}", f"{way}, {device}", shown)


def _trend(name, title, commits):
    rows = sorted({n for values in commits.values() for n in values})
    lines = {f"N = {n:,}": {c: values[n] for c, values in commits.items() if n in values} for n in rows}
    figure, axis = _panel(lines, "commit, oldest first", title)
    axis.tick_params(axis="x", labelrotation=60 if len(commits) > 6 else 0)
    figure.tight_layout()
    told = "; ".join(f"{c} {report.seconds(values[max(values)])}" for c, values in commits.items())
    return svg(figure, name, f"Times over commits: {title}", f"At the largest N of each commit: {told}.")
