"""A small dashboard, and pages in headless Chromium: on loopback, cut off from all else, silent about errors."""

import contextlib
import functools
import http.server
import json
import shutil
import threading
from pathlib import Path

import pytest

from benches.dashboard import commits, suite, vendor

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
TIMES = 1.0, 2.0, 4.0
"""What the figures of the three commits are multiples of."""


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@contextlib.contextmanager
def _served(folder):
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="session")
def browser():
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.fail("no Chromium on PATH: `apt-get install chromium` (Debian) or your system's package")
    from playwright.sync_api import sync_playwright  # of the extra `browser`, which other tests do without

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser):
    """``visit(folder, name)``: a page that is open; in the end nothing may have failed or been asked of other hosts."""
    with contextlib.ExitStack() as stack:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        stack.callback(context.close)
        outside, problems = [], []

        def route(route):
            if route.request.url.startswith("http://127.0.0.1:"):
                route.continue_()
            else:
                outside.append(route.request.url)
                route.abort()

        context.route("**/*", route)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: message.type == "error" and problems.append(message.text))
        page.on("response", lambda answer: answer.status >= 400 and problems.append(f"{answer.status} {answer.url}"))

        def open_page(folder, name):
            page.goto(stack.enter_context(_served(folder)) + name)
            return page

        yield open_page
        assert outside == []
        assert problems == []


def _history(folder):
    """A repository of as many commits as there are figures: hashes, oldest first."""
    folder.mkdir()
    commits.git(folder, "init", "--quiet", "--initial-branch=trunk")
    for day in range(len(TIMES)):
        author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        date = f"2026-01-{day + 1:02}T12:00:00"
        commits.git(folder, *author, "commit", "--quiet", "--allow-empty", f"--date={date}", f"--message={day}")
    return commits.git(folder, "rev-list", "--reverse", "HEAD")


def _results(folder, hashes):
    """The figures of the first commit that asv has, and from them figures of the others."""
    (path,) = folder.glob(f"*/{hashes[0][:8]}-*.json")
    first = json.loads(path.read_text())
    for day, (commit, factor) in enumerate(zip(hashes, TIMES, strict=True)):
        result = json.loads(json.dumps(first)) | {"commit_hash": commit, "date": first["date"] + day * 86_400_000}
        for row in result["results"].values():
            row[0] = [value if value is None else value * factor for value in row[0]]
        path.with_name(path.name.replace(hashes[0][:8], commit[:8])).write_text(json.dumps(result))
    return {name: row[0][::2] for name, row in first["results"].items()}  # of the CPU, which comes before CUDA


@pytest.fixture(scope="session")
def dashboard(tmp_path_factory):
    """(folder of the pages, hashes, {benchmark: figures of the first commit by N}): the suite, timed for once."""
    folder = tmp_path_factory.mktemp("dashboard")
    hashes = _history(folder / "repository")
    config = folder / "asv.conf.json"
    places = {f"{name}_dir": str(folder / name) for name in ("env", "results", "html")}
    suite.configuration(config, repo=str(folder / "repository"), branches=["trunk"], **places)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))  # asv keeps what it knows of the machine there
        machine = ("--machine", suite.name_machine())
        bench = r"LookupVsOneHot\.(time_lookup|time_matmul|track_speedup)\(.*'cpu'"
        record = ("--python=same", "--quick", "--set-commit-hash", hashes[0])
        suite.asv(config, "run", *machine, *record, "--bench", bench)
        figures = _results(folder / "results", hashes)
        suite.publish(config, folder / "results")
    reason = vendor.vendor(folder / "html", ROOT / ".asv" / "npm")
    assert not reason, reason
    return folder / "html", hashes, figures
