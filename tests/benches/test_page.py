"""The report page: what it shows of its sources, what it says without them, and that nothing in them breaks it."""

import json
import math
import os
import re
import xml.etree.ElementTree as ET

import matplotlib.figure
import pytest

from benches import __main__ as onehot
from benches import report
from benches.page import __main__ as page
from benches.page import figures, sources
from benches.peers import report as peers_report

from .page_reader import Reader
from .page_sources import PEERS, REGRESSION, TRAIN, asv_results, comparison, everything, write

HOSTILE = """<script>alert(1)</script> & "quoted" 'single' $\\frac{$ </svg>{{ 7 * 7 }}"""


@pytest.fixture(scope="module")
def headline(tmp_path_factory):
    folder = tmp_path_factory.mktemp("headline")
    assert onehot.main(["--sizes", "10", "200", "--rounds", "2", "--output", str(folder)]) == 0
    return json.loads((folder / "onehot.json").read_text())


@pytest.fixture
def made(tmp_path, headline):
    """A folder with every source."""
    return everything(tmp_path, headline)


@pytest.fixture(scope="module")
def text(tmp_path_factory, headline):
    """The page of every source."""
    return run(everything(tmp_path_factory.mktemp("page"), headline))


def run(folder):
    """The page of a folder."""
    arguments = ["--input", str(folder), "--asv", str(folder / "asv"), "--output", str(folder / "out" / "report.html")]
    assert page.main(arguments) == 0
    assert [path.name for path in (folder / "out").iterdir()] == ["report.html"]
    return (folder / "out" / "report.html").read_text(encoding="utf-8")


def svgs(text):
    return [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def test_figures_and_structure(text):
    read = Reader(text)
    assert text.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert 'name="viewport"' in text
    assert read.headings[0] == 1
    assert 1 not in read.headings[1:]
    assert all(b <= a + 1 for a, b in zip(read.headings, read.headings[1:], strict=False))
    found = svgs(text)
    kinds = [svg.get("aria-describedby").split("-")[0] for svg in found]
    counts = {"headline": 3, "peers": 2, "roofline": 1, "train": 1, "rows": 1, "trend": 1}
    assert {kind: kinds.count(kind) for kind in kinds} == counts
    assert text.count("<svg") == len(found) == text.count("<figure>")
    for svg in found:
        title, description = svg[0], svg[1]
        assert (title.tag.split("}")[1], description.tag.split("}")[1]) == ("title", "desc")
        assert svg.get("role") == "img"
        assert svg.get("aria-label") == title.text
        assert svg.get("aria-describedby") == description.get("id")
        assert svg.get("viewBox")
        assert not {"width", "height"} & set(svg.attrib)
    ids = [value for _, key, value in read.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    for _, key, value in read.attributes:
        if key in ("aria-labelledby", "aria-describedby"):
            assert value in ids
        for target in re.findall(r"url\(#(.*?)\)", value or ""):
            assert target in ids
    assert all(value[1:] in ids for _, key, value in read.attributes if key in ("href", "xlink:href"))
    assert all(rows for rows in read.tables.values())
    assert not re.search(r"<th(?![^>]* scope=)[ >]", text)


def test_nothing_is_fetched(text):
    outside = [(tag, key, v) for tag, key, v in Reader(text).attributes if key in ("src", "srcset", "action", "data")]
    assert not outside
    assert not re.search(r"<(script|link|iframe|object|embed|img|base)\b|@import|@font-face", text)
    assert not [u for u in re.findall(r"url\((.*?)\)", text) if not u.startswith("#")]
    assert not re.search(r"https?://(?!www\.w3\.org/(2000/svg|1999/xlink)\")", text)


def test_the_headline(text, headline):
    read = Reader(text)
    matmul = next(r for r in headline["records"] if r["N"] == 200 and r["op"] == "one-hot matmul")
    sentence = f"At N = 200 the one-hot matmul alone takes {report.ratio(matmul['speedup'])} times as long"
    assert sentence in read.text
    for case, title in report.TITLES.items():
        records = [r for r in headline["records"] if r["case"] == case]
        rows = read.table(f"{title} (D 64, L 1024, float32, text stream)")[1:]
        assert len(rows) == len(records)
        for row, r in zip(rows, records, strict=True):
            told = ["", "", ""]
            if r["speedup"] is not None:
                low, mid, high = (report.ratio(r[key]) for key in ("speedup_q1", "speedup", "speedup_q3"))
                told = [mid, "loss" if r["speedup"] < 1 else "", f"{low} to {high}"]
            sizes = [report.size(r[key]) for key in ("input_bytes", "peak_bytes")]
            assert row[-8:] == [r["op"], report.seconds(r["median_s"]), *told, str(r["distinct"]), *sizes]


def test_a_loss_of_the_headline_is_marked(made, headline):
    document = json.loads(json.dumps(headline))
    for k, r in enumerate(document["records"]):
        if r["speedup"]:
            r["speedup"] = 0.5 if k % 2 else 2.0
    write(made, "onehot", document)
    read = Reader(run(made))
    rows = [row for title in report.TITLES.values() for row in read.table(title)[1:]]
    assert [row[-5] for row in rows] == ["loss" if r["speedup"] == 0.5 else "" for r in document["records"]]
    assert {row[-5] for row in rows} == {"loss", ""}


def test_peers(text):
    read = Reader(text)
    assert "1 of 4 targets hold; not reached: 2; out of reach of this machine: 1." in " ".join(read.text.split())
    assert "2 of 6 comparisons are losses." in read.text
    assert "2 threads each" in read.text
    assert "47.1 GB a second" in read.text
    assert read.table("Peer time")[1:] == [
        ["scatter"],
        ["50k x 64 np.add.at", "1,234", "holds", "1,111 to 1,358", "", "25", "20 us", "24.7 ms", "43 %"],
        ["50k x 64 torch index_add_", "0.75", "loss", "0.675 to 0.825", "", "", "20 us", "15 us", "127 %"],
        ["10 x 64 torch index_add_", "1.5", "target not reached", "1.35 to 1.65", "", "2", "20 us", "30 us", "31 %"],
        ["update"],
        [
            "1M x 128, SGD FBGEMM TBE SGD",
            *("0.625", "loss, target not reached", "0.562 to 0.688", "", "1.25", "20 us", "12.5 us", ""),
        ],
        [
            "1M x 128, SGD torch sparse SGD",
            *("3.5", "target out of reach", "3.15 to 3.85", "4.5", "5", "20 us", "70 us", ""),
        ],
        ["geometric mean of 2 cases all", "1.4", "", "1.26 to 1.54", "", "", "", "", ""],
    ]
    drawn = {svg.get("aria-label"): svg for svg in svgs(text)}
    for name, told in (
        ("scatter", {"1,234, target holds", "0.75, loss", "1.5, target not reached"}),
        ("update", {"0.625, loss, target not reached", "3.5, target out of reach"}),
    ):
        words = {"".join(part.itertext()).strip() for part in drawn[f"{name}: peer time over fastemb time"].iter()}
        assert told <= words


def drawn_lines(records):
    axis = matplotlib.figure.Figure().subplots()
    peers_report.draw(axis, records, range(len(records)))
    return [line for line in axis.lines if len(set(line.get_ydata())) == 1]


def of_marker(lines, marker):
    return next((line for line in lines if line.get_marker() == marker), None)


def test_losses_and_missed_targets_differ_without_colour():
    win, loss, missed = (drawn_lines([r]) for r in PEERS[:3])
    assert [of_marker(lines, "o").get_markerfacecolor() for lines in (win, loss, missed)] == ["black", "white", "black"]
    assert [len([line for line in lines if line.get_linestyle() == ":"]) for lines in (win, loss, missed)] == [0, 0, 1]
    (dotted,) = (line for line in missed if line.get_linestyle() == ":")
    assert list(dotted.get_xdata()) == [1.5, 2]
    assert of_marker(win, "|").get_xdata() == [25]
    assert of_marker(missed, "|").get_xdata() == [2]
    assert of_marker(loss, "|") is None


def test_every_comparison_is_drawn_once():
    records = [comparison("a", f"case {k // 3}", f"peer {k}", 1 + k) for k in range(50)]
    pieces = list(figures._pieces(records))
    assert [r for _, piece in pieces for r in piece] == records
    assert [name for name, _ in pieces] == ["a (1 of 3)", "a (2 of 3)", "a (3 of 3)"]
    assert all(len(piece) < figures.LINES + 3 for _, piece in pieces)
    cases = [{r["case"] for r in piece} for _, piece in pieces]
    assert not cases[0] & cases[1]
    assert not cases[1] & cases[2]


def test_race_and_regression(text):
    read = Reader(text)
    assert read.table("Words a second")[1:] == [
        ["fastemb Adam", "294,809", "1", "4.2000", "2.8800"],
        ["torch", "27,025", "10.1", "4.2000", "2.8700"],
    ]
    assert read.table("Head time")[1:] == [["gather", "1.31", "regression"], ["new", "", "not in base"]]
    assert "Regression: gather" in read.text
    assert "UTC, HEAD (fedcba9) against main (0123456); some CPU" in read.text


def test_asv(text):
    read = Reader(text)
    assert read.table("All that asv measured at bbbbbbb")[1:] == [
        ["gather.Gather.peakmem_it, bytes"],
        ["stream text", "failed"],
        ["lookup.LookupVsOneHot.time_lookup, seconds"],
        ["N 10, device cpu", "40 us"],
        ["N 1000, device cpu", "60 us"],
        ["left out on this machine", "2 of 4"],
        ["start.Start.track_one, times"],
        ["no parameters", "7.5"],
    ]
    assert "At the largest N of each commit: aaaaaaa 30 us; bbbbbbb 60 us." in read.text
    assert "No results at this commit" not in read.text


def test_one_commit_has_no_trend_and_says_what_was_not_run(made):
    (next((made / "asv").glob("box/bbbbbbbb*"))).unlink()
    path = next((made / "asv").glob("box/aaaaaaaa*"))
    document = json.loads(path.read_text())
    del document["results"]["start.Start.track_one"]
    path.write_text(json.dumps(document))
    text = run(made)
    assert "over commits, where several" not in text
    assert "No results at this commit: start.Start.track_one." in text


def test_origins(made):
    text = run(made)
    assert "of different machines or versions" in text  # the regression's CPU
    (made / "regression.json").unlink()
    assert "of different machines or versions" not in run(made)
    document = json.loads((made / "peers.json").read_text())
    document["machine"]["versions"]["numba"] = "1.2.3-other"
    write(made, "peers", document)
    text = run(made)
    assert "numba 1.2.3-other" in text
    assert "of different machines or versions" in text


def test_date_and_revision(made):
    document = json.loads((made / "peers.json").read_text())
    for key in ("date", "revision"):
        document["machine"].pop(key, None)
    write(made, "peers", document)
    os.utime(made / "peers.json", (1e9, 1e9))  # before the first commit
    assert "revision not recorded: file of 2001-09-09 01:46 UTC, newest commit then unknown;" in run(made)
    document["machine"] |= {"date": "2026-01-02 03:04 UTC", "revision": "abc1234 with changes"}
    write(made, "peers", document)
    assert "<dd>2026-01-02 03:04 UTC, revision abc1234 with changes;" in run(made)


def test_the_same_sources_give_the_same_page(made):
    assert run(made) == run(made)


@pytest.mark.parametrize("name", list(page.COMMANDS))
def test_a_missing_source_is_named_with_its_command(made, name):
    if name == "asv":
        (made / "asv").rename(made / "elsewhere")
    else:
        (made / f"{name}.json").unlink()
    text = run(made)
    command = page.COMMANDS[name][1]
    section = re.search(rf'<section aria-labelledby="{name}">.*?</section>', text, re.DOTALL)[0]
    assert f"No figures here: <code>{command}</code> makes them." in section
    assert "<svg" not in section
    assert "<table" not in section
    assert text.count("No figures here") == 1
    assert f"missing: <code>{command}</code>" in text


def test_nothing_at_all(tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        run(tmp_path)
    assert stop.value.code == 2
    told = capsys.readouterr().err
    assert all(command in told for _, command in page.COMMANDS.values())
    assert not (tmp_path / "out").exists()


def test_hostile_strings_are_text(made, headline):
    onehot = json.loads(json.dumps(headline).replace("np.add.at", "PLACE"))
    for r in onehot["records"]:
        r["op"], r["stream"] = r["op"].replace("PLACE", HOSTILE), HOSTILE
    onehot["machine"]["cpu"]["model"] = HOSTILE
    write(made, "onehot", onehot)
    document = json.loads((made / "peers.json").read_text())
    document["records"] = [{**PEERS[k], "id": HOSTILE, "case": HOSTILE, "peer": HOSTILE} for k in range(3)]
    write(made, "peers", document)
    write(made, "train", {**document, "records": [{**TRAIN[0], "model": HOSTILE}]})
    benches = [{**REGRESSION["benches"][0], "name": HOSTILE, "verdict": HOSTILE}]
    write(made, "regression", {**REGRESSION, "conclusion": HOSTILE, "cpu": HOSTILE, "benches": benches})
    asv_results(made / "asv", ["a" * 40, "b" * 40], name=f"x.LookupVsOneHot.time_{HOSTILE}")
    text = run(made)
    assert "<script" not in text
    read = Reader(text)
    assert read.text.count(HOSTILE) > 20
    assert [row[0] for row in read.table("Head time")[1:]] == [HOSTILE]
    assert read.table("Peer time")[1] == [HOSTILE]
    assert len(svgs(text)) == text.count("<svg")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("onehot", "{"),
        ("onehot", "[]"),
        ("onehot", '{"machine": {}, "records": []}'),
        ("peers", '{"records": 3}'),
        ("peers", {"ratio": 0}),
        ("peers", {"ratio": "<b>"}),
        ("peers", {"ratio_q1": math.nan}),
        ("peers", {"case": "a\0b"}),
        ("peers", {"holds": True, "target": None}),
        ("train", {"loss": [1.0]}),
        ("train", {"seconds": [0, 1, 2, 3]}),
        ("onehot", {"case": "unknown"}),
        ("onehot", {"op": None}),
        ("asv/box/aaaaaaaa-virtualenv-py3.11", "{"),
        ("asv/box/aaaaaaaa-virtualenv-py3.11", '{"version": 2}'),
        ("asv/box/aaaaaaaa-virtualenv-py3.11", "[]"),
        ("asv/benchmarks", "{}"),
    ],
)
def test_a_malformed_file_is_named_and_the_old_page_stays(made, capsys, name, content):
    report_file = made / "out" / "report.html"
    report_file.parent.mkdir()
    report_file.write_text("the old page")
    path = made / f"{name}.json"
    if isinstance(content, dict):
        document = json.loads(path.read_text())
        document["records"][1] |= content
        content = json.dumps(document)
    path.write_text(content)
    with pytest.raises(SystemExit) as stop:
        run(made)
    assert stop.value.code == 2
    assert str(path) in capsys.readouterr().err
    assert report_file.read_text() == "the old page"
    assert [p.name for p in report_file.parent.iterdir()] == ["report.html"]


def test_a_file_without_its_machine_is_malformed(made):
    path = made / "peers.json"
    document = json.loads(path.read_text())
    del document["machine"]["versions"]["numpy"]
    write(made, "peers", document)
    with pytest.raises(sources.MalformedError, match=r"peers\.json.*numpy"):
        sources.read(path, "peers")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(2e-5, "seconds", "20 us"), (322_000_000, "bytes", "322 MB"), (5654.8, "times", "5,655"), (None, "x", "failed")],
)
def test_values_of_asv(value, unit, text):
    assert page.measured(value, unit) == text


def test_pictures_are_still_written(tmp_path, headline):
    by_case = dict(page.runs(headline["records"], "case"))
    report.plot(tmp_path / "onehot.png", by_case, "footer")
    peers_report.plot(tmp_path / "peers.png", PEERS, "footer")
    for name in ("onehot.png", "peers.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
