"""What a run has found, as text for any terminal."""

import textwrap

from . import records

HEADS = ("case", "way", "time us", "spread", "of copy", "distinct", "times fastemb's", "(quartiles)", "target", "bits")
LEFT = {0, 1}
"""Columns of words."""


def columns(rows):
    """Rows of texts as lines, each column as wide as its widest text: words to the left, numbers to the right."""
    widths = [max(len(text) for text in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (t.ljust(w) if i in LEFT else t.rjust(w) for i, (t, w) in enumerate(zip(row, widths, strict=True)))
        yield "  ".join(cells).rstrip()


def number(value):
    """Three figures, or all of a large one."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def target(record):
    """The target of a record and whether it is reached."""
    if record["target"] is None:
        return ""
    return f"{record['target']:g}: {'reached' if record['reached'] else 'NOT REACHED'}"


def bits(record):
    """Whether fastemb's result has the bits of the CPU, and the same bits twice."""
    if not record["same_bits_again"]:
        return "DIFFER FROM RUN TO RUN"
    return "the CPU's" if record["bits_of_cpu"] else "near the CPU's"


def case_rows(record):
    """A row for fastemb and one for each peer; the reason alone where there are no times."""
    if record["status"] == "error":
        yield (record["id"], f"ERROR: {record['reason']}", *("",) * 8)
        return
    yield (
        record["id"],
        "fastemb",
        number(record["us"]),
        f"{100 * record['spread']:.1f} %",
        f"{record['of_copy']:.2f}",
        f"{record['of_copy_distinct']:.2f}",
        "",
        "",
        target(record),
        bits(record),
    )
    for peer in record["peers"]:
        if peer["error"]:
            yield ("", f"{peer['name']}: {peer['error']}", *("",) * 8)
            continue
        yield (
            "",
            peer["name"],
            number(peer["us"]),
            f"{100 * peer['spread']:.1f} %",
            "",
            "",
            number(peer["ratio"]),
            f"{number(peer['ratio_q1'])} to {number(peer['ratio_q3'])}",
            target(peer),
            "another result" if peer["difference"] else "",
        )


def launch_rows(launches):
    """A row for each small call."""
    yield ("call", "way", "host us", "target")
    for launch in launches:
        if launch["error"]:
            yield (launch["op"], launch["way"], "", f"ERROR: {launch['error']}")
        else:
            yield (launch["op"], launch["way"], number(launch["host_us"]), target(launch))


def heading(about):
    """Device, versions, date and revision."""
    device, versions = about["device"], about["versions"]
    known = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    memory, cache = (device.get(key, 0) for key in ("memory_bytes", "l2_bytes"))
    return [
        f"{device['name']}, compute capability {device['compute_capability']}, {memory / 1e9:.1f} GB, L2 "
        f"{cache / 1e6:.0f} MB, driver {about['cuda']['driver']}, runtime {about['cuda']['runtime']}",
        known,
        f"{about['date']}, revision {about['revision']}",
    ]


def tests(found):
    """The outcome of ``pytest -m gpu`` in a line."""
    counts = ", ".join(f"{value} {name}" for name, value in found.items() if name not in ("outcome", "reason"))
    details = "; ".join(text for text in (counts, found.get("reason", "")) if text)
    return f"pytest -m gpu: {found['outcome']}" + (f" ({details})" if details else "")


def targets(document):
    """How many targets are reached, by what they are about."""
    kinds = {"of copy bandwidth": [], "times torch": [], "us a launch": []}
    for record in document["records"]:
        if record["status"] == "measured":
            kinds["of copy bandwidth"].append(record)
            kinds["times torch"] += [peer for peer in record["peers"] if not peer["error"]]
    kinds["us a launch"] = [launch for launch in document["launches"] if not launch["error"]]
    for kind, found in kinds.items():
        aimed = [r for r in found if r["target"] is not None]
        if aimed:
            reached = sum(r["reached"] for r in aimed)
            yield f"{aimed[0]['target']:g} {kind}: reached in {reached} of {len(aimed)}"


def losses(document):
    """Every comparison in which a peer is the faster one."""
    for record in document["records"]:
        for peer in record.get("peers", ()):
            if not peer["error"] and peer["ratio"] < 1:
                yield f"{record['id']}: {peer['name']} takes {number(peer['ratio'])} of fastemb's time"


def text(document):
    """All of it but the heading and the tests, which are printed as soon as they are known."""
    lines = []
    if document["copy_bytes_per_s"]:
        lines.append(f"Copy within the device: {document['copy_bytes_per_s'] / 1e9:,.0f} GB/s read and written")
    if document["launches"]:
        lines += ["", f"Launch overhead (checks of indices: {', '.join(records.CHECKS)})", ""]
        lines += columns(list(launch_rows(document["launches"])))
    for op in dict.fromkeys(r["op"] for r in document["records"]):
        found = [r for r in document["records"] if r["op"] == op and r["status"] != "left out"]
        if found:
            rows = [row for record in found for row in case_rows(record)]
            lines += ["", *columns([HEADS, *rows])]
    for title, found in (("Left out", _left(document)), ("Losses", losses(document)), ("Targets", targets(document))):
        lines += ["", f"{title}:", *(f"  {line}" for line in list(found) or ["none"])]
    return "\n".join(lines)


def _left(document):
    """Operations and reasons, each with its cases: there may be hundreds."""
    found = {}
    for record in document["records"]:
        if record["status"] == "left out":
            found.setdefault((record["op"], record["reason"]), []).append(record["id"])
    for (op, reason), names in found.items():
        yield f"{len(names)} of {op}, for {reason}"
        yield from textwrap.wrap("; ".join(names), 130, initial_indent="    ", subsequent_indent="    ")


def failures(document):
    """What makes the exit code 1: tests that did not pass, cases that raise, bits that differ from run to run."""
    if document["tests"]["outcome"] in ("failed", "stopped"):
        yield tests(document["tests"])
    for record in document["records"]:
        if record["status"] == "error":
            yield f"{record['id']}: {record['reason']}"
        elif record["status"] == "measured" and not record["same_bits_again"]:
            yield f"{record['id']}: bits differ from run to run"
    for launch in document["launches"]:
        if launch["error"] and launch["way"].startswith("fastemb"):
            yield f"launch of {launch['op']}: {launch['error']}"
