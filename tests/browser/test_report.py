"""The report page as a person sees it, at a desk and on a phone."""

import json
import subprocess
import sys

import pytest

from .conftest import BUILD, ROOT

pytestmark = pytest.mark.browser

PEERS = (
    {"case": "50k x 64", "peer": "np.add.at", "ratio": 12.5, "target": 25.0, "holds": False, "reachable": True},
    {"case": "10 x 64", "peer": "torch index_add_", "ratio": 0.75, "target": None, "holds": None, "reachable": None},
)


@pytest.fixture(scope="session")
def report(dashboard, tmp_path_factory):
    """The folder of a page that was made from a small run of everything but training."""
    folder = tmp_path_factory.mktemp("report")
    program = [sys.executable, "-m"]
    sizes = ["--sizes", "10", "200", "--rounds", "2", "--output", str(folder)]
    subprocess.run([*program, "benches", *sizes], cwd=ROOT, check=True, capture_output=True)
    about = json.loads((folder / "onehot.json").read_text())["machine"]
    times = {"id": "scatter", "fastemb_ms": 0.02, "peer_ms": 0.03, "roof": 0.43, "limit": 30.0}
    records = [times | r | {"ratio_q1": r["ratio"] * 0.9, "ratio_q3": r["ratio"] * 1.1} for r in PEERS]
    peers = {"machine": about, "threads": 2, "copy_bytes_per_s": 4e10, "records": records}
    (folder / "peers.json").write_text(json.dumps(peers))
    shown = folder / "served"
    places = ["--input", str(folder), "--asv", str(dashboard[0].parent / "results")]
    subprocess.run([*program, "benches.page", *places, "--output", str(shown / "report.html")], cwd=ROOT, check=True)
    return shown


def test_headline_and_sections(report, visit):
    page = visit(report, "report.html")
    assert "one-hot matmul alone takes" in page.locator("#onehot ~ .lead").first.inner_text()
    headline = page.locator("section[aria-labelledby=onehot] svg").first
    assert headline.is_visible()
    box = headline.bounding_box()
    assert box["width"] > 200
    assert box["height"] > 200
    for name in ("peers", "asv"):
        assert page.locator(f"section[aria-labelledby={name}] svg").first.is_visible()
    page.locator("nav a[href='#peers']").click()
    page.wait_for_function("Math.abs(document.querySelector('#peers').getBoundingClientRect().top) < 100")
    BUILD.mkdir(exist_ok=True)
    page.screenshot(path=BUILD / "report.png", full_page=True)


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_no_sideways_scrolling(report, visit, width):
    page = visit(report, "report.html")
    page.set_viewport_size({"width": width, "height": 740})
    scrolled, seen = page.evaluate("(e => [e.scrollWidth, e.clientWidth])(document.documentElement)")
    assert scrolled <= seen
    if width == 360:
        BUILD.mkdir(exist_ok=True)
        page.screenshot(path=BUILD / "report-phone.png")
