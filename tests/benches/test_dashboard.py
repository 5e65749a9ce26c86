"""The dashboard's command, but for asv itself: which commits, whether there are results, pages without a network."""

import base64
import hashlib
import json
import re
import sys

import pytest

from benches.dashboard import __main__ as dashboard
from benches.dashboard import commits, suite, vendor

HTML = """<head>
<script src="https://host.example/jquery-3.3.1.min.js" integrity="sha256-{good}" crossorigin="anonymous"
        onerror="failed()"></script>
<script src="//host.example/flot/0.8.3/jquery.flot.min.js" integrity="sha512-AA" referrerpolicy="no-referrer"></script>
<link rel="stylesheet" href="https://host.example/bootstrap@3.1.1/bootstrap.min.css">
<script src="asv.js"></script>
<link rel="shortcut icon" href="swallow.ico"/>
</head><a href="https://host.example/about">about</a>
"""
CONTENT = b"jquery"


@pytest.fixture
def repository(tmp_path):
    """``commit(path)``: a commit that changes a file, and its hash."""
    root = tmp_path / "repository"
    root.mkdir()
    commits.git(root, "init", "--quiet", "--initial-branch=trunk")

    def commit(name):
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(path.read_text() + "more\n" if path.exists() else "some\n")
        commits.git(root, "add", ".")
        author = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        commits.git(root, *author, "commit", "--quiet", f"--message={name}")
        return commits.git(root, "rev-parse", "HEAD")[0]

    commit.root = root
    return commit


def test_commits_that_changed_code(repository):
    names = ["kernels/a.py", "README.md", "benches/b.py", "tests/c.py", "fastemb/d.py", "Makefile", "CHANGELOG.md"]
    a, readme, b, c, d, makefile, head = map(repository, names)
    root = repository.root
    assert commits.last(root, 1) == [head]
    assert commits.last(root, 3) == [head, d, b]
    assert commits.last(root, 4) == [head, d, b, a]
    assert commits.last(root, 6) == [head, makefile, d, c, b, a]  # no others: the newest of the rest
    assert commits.last(root, 99) == [head, makefile, d, c, b, readme, a]
    e = repository("kernels/e.py")
    assert commits.last(root, 3) == [e, d, b]


def test_a_merge_is_one_point(repository):
    first = repository("kernels/a.py")
    root = repository.root
    commits.git(root, "checkout", "--quiet", "-b", "side")
    repository("kernels/b.py")
    commits.git(root, "checkout", "--quiet", "trunk")
    second = repository("kernels/c.py")
    commits.git(root, "-c", "user.name=A", "-c", "user.email=a@example.org", "merge", "--quiet", "--no-edit", "side")
    assert commits.last(root, 3) == [commits.git(root, "rev-parse", "HEAD")[0], second, first]


def test_remarks(repository, tmp_path):
    repository("kernels/a.py")
    head = repository("kernels/a.py")
    root = repository.root
    assert list(commits.remarks(root, 2, 2)) == []
    assert list(commits.remarks(root, 2, 3)) == ["2 of 3 commits: there are no more."]
    commits.git(tmp_path, "clone", "--quiet", "--depth=1", root.as_uri(), "shallow")
    assert commits.last(tmp_path / "shallow", 3) == [head]
    (sentence,) = commits.remarks(tmp_path / "shallow", 1, 3)
    assert "git fetch --unshallow" in sentence
    (root / "kernels" / "a.py").write_text("changed\n")
    (sentence,) = commits.remarks(root, 2, 2)
    assert "changes in 1 of the files" in sentence


def test_branch(repository):
    head = repository("kernels/a.py")
    assert commits.branch(repository.root) == "trunk"
    commits.git(repository.root, "checkout", "--quiet", head)
    assert commits.branch(repository.root) == "HEAD"


def test_configuration(tmp_path):
    values = suite.configuration(tmp_path / "new" / "asv.conf.json", branches=["trunk"], results_dir="elsewhere")
    assert json.loads((tmp_path / "new" / "asv.conf.json").read_text()) == values
    assert values["branches"] == ["trunk"]
    assert values["results_dir"] == str(suite.ROOT / "elsewhere")
    assert values["benchmark_dir"] == str(suite.ROOT / "benches")
    assert values["build_command"] == ["python -m pip wheel --no-deps -w {build_cache_dir} {build_dir}"]


def results(folder, commit, **rows):
    path = folder / "box" / f"{commit[:8]}-env.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"python": suite.PYTHON, "results": rows}))
    (folder / "benchmarks.json").write_text(json.dumps({"one": {}, "two": {}, "version": 2}))


FULL, PART, NONE, LEFT_OUT = [[1.5, float("nan")]], [[1.5, None]], [None], [[float("nan"), float("nan")]]
NEW, OLD = "a" * 40, "b" * 40


def test_results_are_there(tmp_path, capsys):
    results(tmp_path, NEW, one=FULL, two=[2.5], removed=NONE)
    results(tmp_path, OLD, one=FULL, two=NONE)
    suite.check(tmp_path, "box", [NEW, OLD])
    assert capsys.readouterr().out == "aaaaaaaa: 2 benchmarks\nbbbbbbbb: 1 benchmarks, 1 failed\n"


@pytest.mark.parametrize("new", [{"one": FULL, "two": NONE}, {"two": PART}, {"two": LEFT_OUT}, {}])
def test_results_are_missing_or_failed(tmp_path, new):
    results(tmp_path, NEW, **new)
    results(tmp_path, OLD, one=FULL)
    with pytest.raises(suite.AsvError, match="aaaaaaaa"):
        suite.check(tmp_path, "box", [NEW, OLD])


def test_no_results_of_an_older_commit(tmp_path):
    results(tmp_path, NEW, one=FULL)
    with pytest.raises(suite.AsvError, match="no results for commit bbbbbbbb"):
        suite.check(tmp_path, "box", [NEW, OLD])


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)


@pytest.fixture
def fake_asv(tmp_path, monkeypatch):
    """``fake_asv(code)``: an asv that says what it is told to and exits with a code."""

    def make(code):
        program(tmp_path / "asv", f"import sys; print(sys.argv[3:]); sys.exit({code} if 'run' in sys.argv else 0)")
        monkeypatch.setattr(dashboard, "FOLDER", tmp_path / ".asv")
        monkeypatch.setattr(suite, "ASV", (str(tmp_path / "asv"),))
        monkeypatch.setattr(commits, "last", lambda root, count: [NEW, OLD][:count])

    return make


@pytest.mark.parametrize(("code", "words"), [(1, "exit code 1"), (0, "no results for commit"), (2, "no results for")])
def test_asv_without_results_is_an_error(fake_asv, monkeypatch, tmp_path, capfd, code, words):
    fake_asv(code)
    monkeypatch.setattr(suite, "name_machine", lambda: "box")
    monkeypatch.setattr(dashboard, "RESULTS", {True: str(tmp_path / "quick"), False: str(tmp_path / "results")})
    assert dashboard.main(["--commits", "2", "--quick"]) == 2
    out, err = capfd.readouterr()
    assert words in err
    assert "http.server" not in out
    assert "LookupVsOneHot" in out
    assert "'--machine', 'box'" in out


def test_parameters_of_missing_devices_are_not_run(monkeypatch):
    names = ["a.B.time_c(10, 'cpu')", "a.B.time_c(10, 'cuda')", "a.B.time_d", "a.B.time_e('x', 'cuda', 'y')"]

    def chosen(regex):
        return [name for name in names if re.search(dashboard.selection(regex), name)]

    assert chosen("") == [names[0], names[2]]
    assert chosen("^a.B.time_c") == chosen("time_c") == chosen(r"time_c\(10|nothing") == [names[0]]
    assert chosen("time_d$") == [names[2]]
    monkeypatch.setattr("benches.devices.require", lambda device: None)
    assert chosen("") == names


@pytest.fixture
def html(tmp_path):
    """A page like asv's."""
    folder = tmp_path / "html"
    folder.mkdir()
    good = base64.b64encode(hashlib.sha256(CONTENT).digest()).decode()
    (folder / "index.html").write_text(HTML.replace("{good}", good))
    return folder


NPM = f"""
import json, pathlib, sys
assert sys.argv[1] == "install" and "--ignore-scripts" in sys.argv
with open("calls", "a") as calls:
    calls.write("npm\\n")
for word in sys.argv:
    if "@" in word:
        name, _, version = word.partition("@")
        folder = pathlib.Path("node_modules", name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(json.dumps({{"version": version}}))
for library in {[(lib.package, lib.path) for lib in vendor.LIBRARIES]}:
    path = pathlib.Path("node_modules", *library)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes({CONTENT!r})
"""


def test_pages_without_a_network(html, tmp_path, monkeypatch):
    program(tmp_path / "bin" / "npm", NPM)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    before = (html / "index.html").read_text()
    for _ in range(2):
        (html / "index.html").write_text(before)
        assert vendor.vendor(html, tmp_path / "npm") == ""
    page = (html / "index.html").read_text()
    assert page.count("https://") == 1  # the link that a person may click
    assert "//host.example/flot" not in page
    assert 'src="vendor/jquery.min.js" integrity="sha256-' in page
    assert '<script src="vendor/jquery.flot.js"></script>' in page
    assert '<link rel="stylesheet" href="vendor/bootstrap.min.css">' in page
    assert 'onerror="failed()"></script>' in page
    assert "crossorigin" not in page
    assert (html / "vendor" / "bootstrap.min.css").read_bytes() == CONTENT
    assert (tmp_path / "npm" / "calls").read_text() == "npm\n"  # once: the second time all is there


def test_pages_that_need_a_network(html, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    before = (html / "index.html").read_text()
    sentence = vendor.vendor(html, tmp_path / "npm")
    assert "3 scripts and styles: npm is not installed" in sentence
    assert (html / "index.html").read_text() == before
    program(tmp_path / "bin" / "npm", "import sys; sys.exit('no such host')")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert "npm failed (no such host)" in vendor.vendor(html, tmp_path / "packages")


def test_other_versions_are_left_alone(html, tmp_path, monkeypatch):
    program(tmp_path / "bin" / "npm", NPM)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    page = html / "index.html"
    page.write_text(page.read_text().replace("3.3.1", "9.9.9"))
    assert "1 scripts and styles" in vendor.vendor(html, tmp_path / "npm")
    assert "https://host.example/jquery-9.9.9.min.js" in page.read_text()
