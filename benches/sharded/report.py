"""Tables and a picture of what was measured, and of what the model makes of it."""

import dataclasses

import rich.box
import rich.table

from . import model

STREAMS = {"zipf": 1.05, "uniform": 0.0}
"""Exponents of the power laws."""

IDS = 65_536
"""Of a lookup on each rank of the large machine."""


def local_machine(records, bandwidth, row_bytes, cores, way="dedup"):
    """The machine of the records, for the model: ids and rows as one rank takes them, bytes as two do."""
    alone = next(r for r in records if r["ranks"] == 1 and r["way"] == way)
    return model.Machine(
        latency=0.0,
        bandwidth=bandwidth,
        dedup=alone["dedup"] / alone["ids"],
        gather=alone["gather"] / (alone["distinct"] * row_bytes),
        expand=alone["expand"] / (alone["ids"] * row_bytes),
        cores=cores,
    )


def modelled(machines, latencies, record, row_bytes):
    """What the model says of a record, seconds of each phase; None for a way without a machine."""
    if record["way"] not in machines:
        return None
    here = dataclasses.replace(machines[record["way"]], latency=latencies[record["ranks"] - 1])
    lookup = model.Lookup(record["ids"], record["distinct"], row_bytes, record["hot"])
    return model.seconds(here, lookup, record["ranks"])


def extrapolated(local, options):
    """Records of the model for the large machine, whose ranks have cores as fast as this one's."""
    far = dataclasses.replace(local, latency=options.latency, bandwidth=options.bandwidth, cores=None)
    rows, found = int(options.parameters) // options.width, []
    counts = sorted({1, options.ranks, *(c for c in (3, 10, 30, 100, 300) if c < options.ranks)})
    for stream in options.streams:
        distinct = model.distinct(rows, IDS, STREAMS[stream])
        for ranks in counts:
            phases = model.seconds(far, model.Lookup(IDS, distinct, 4 * options.width), ranks)
            total = sum(phases.values())
            found.append(
                {
                    "stream": stream,
                    "ranks": ranks,
                    "distinct": distinct,
                    "bytes_of_rank": 4 * options.width * rows / ranks,
                    "seconds": total,
                    "ids_per_second": ranks * IDS / total,
                    **phases,
                }
            )
    return found


def _grid(title, caption):
    left = {"title_justify": "left", "caption_justify": "left"}
    return rich.table.Table(title=title, caption=caption, box=rich.box.SIMPLE_HEAD, **left)


def _ms(seconds):
    return f"{1e3 * seconds:.3g}"


def table(records, options):
    """What was measured, a row for each number of ranks, stream and way."""
    title = f"Lookup over ranks (N {options.rows:,}, D {options.width}, L {options.ids:,} on each rank, float32)"
    made = _grid(title, "milliseconds of the slowest rank; kB that a rank sends, on average")
    for name in ("ranks", "stream", "way", "distinct", "sent kB", "least kB", "total", *model.PHASES, "model"):
        made.add_column(name, justify="left" if name in ("stream", "way") else "right")
    before = None
    for record in records:
        if before not in (None, record["ranks"]):
            made.add_section()
        before = record["ranks"]
        made.add_row(
            str(record["ranks"]),
            record["stream"],
            record["way"],
            f"{record['distinct']:,.0f}",
            f"{record['sent_bytes'] / 1e3:,.0f}",
            f"{record['least_bytes'] / 1e3:,.0f}",
            *(_ms(record[name]) for name in ("seconds", *model.PHASES)),
            _ms(sum(record["model"].values())) if record["model"] else "",
        )
    return made


def about(local, latencies, records):
    """What the model was given, and how far off it is."""
    ratios = [sum(r["model"].values()) / r["seconds"] for r in records if r["model"]]
    off = max(max(ratios), 1 / min(ratios))
    waits = ", ".join(f"{1e6 * x:.3g}" for x in latencies)
    return (
        f"Model of this machine: {waits} us a message on 1 to {len(latencies)} ranks, {local.bandwidth / 1e9:.3g} GB/s,"
        f" {1e9 * local.dedup:.3g} ns an id, rows gathered at {1e-9 / local.gather:.3g} GB/s and expanded at"
        f" {1e-9 / local.expand:.3g} GB/s on one rank, {local.cores} cores.\n"
        f"Model over measured: {min(ratios):.2f} to {max(ratios):.2f}: within a factor of {off:.2f}."
    )


def far_table(far, options):
    """What the model says of many ranks."""
    title = (
        f"Model: {options.parameters:.3g} parameters, D {options.width}, L {IDS:,} on each rank, "
        f"{1e6 * options.latency:.3g} us a message, {options.bandwidth / 1e9:.3g} GB/s a rank"
    )
    made = _grid(title, "milliseconds")
    for name in ("stream", "ranks", "GB a rank", "distinct", "total", *model.PHASES, "million ids/s"):
        made.add_column(name, justify="left" if name == "stream" else "right")
    for record in far:
        made.add_row(
            record["stream"],
            f"{record['ranks']:,}",
            f"{record['bytes_of_rank'] / 1e9:,.3g}",
            f"{record['distinct']:,.0f}",
            *(_ms(record[name]) for name in ("seconds", *model.PHASES)),
            f"{record['ids_per_second'] / 1e6:,.0f}",
        )
    return made


def plot(path, records, far, options):
    """Measured beside modelled phases, and the phases of the large machine."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.8), layout="constrained")
    shown = [r for r in records if r["way"] == "dedup"]
    colours = dict(zip(model.PHASES, ("tab:blue", "tab:red", "tab:green", "tab:orange"), strict=True))
    for x, record in enumerate(shown):
        for source, shift in ((record, -0.2), (record["model"], 0.2)):
            bottom = 0.0
            for phase in model.PHASES:
                height = 1e3 * source[phase]
                hatch = None if source is record else "//"
                left.bar(x + shift, height, 0.36, bottom, color=colours[phase], hatch=hatch, edgecolor="white")
                bottom += height
    left.set_xticks(range(len(shown)), [f"{r['ranks']}\n{r['stream']}" for r in shown])
    left.set(title=f"N {options.rows:,}: measured, and hatched the model", xlabel="ranks", ylabel="ms")
    stream = options.streams[0]
    chosen = [record for record in far if record["stream"] == stream]
    for phase in model.PHASES:
        right.plot(
            [r["ranks"] for r in chosen],
            [1e3 * r[phase] or None for r in chosen],
            "o-",
            color=colours[phase],
            label=phase,
        )
    right.plot([r["ranks"] for r in chosen], [1e3 * r["seconds"] for r in chosen], "k--", label="all")
    right.set(
        title=f"Model of {options.parameters:.3g} parameters, {stream}",
        xlabel="ranks",
        ylabel="ms",
        xscale="log",
        yscale="log",
    )
    right.legend()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
