"""What asv's pages load from other hosts, put beside them: a dashboard has to open on a closed network."""

import base64
import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

TAG = re.compile(r"<(?:script|link)\b[^>]*?\b(?:src|href)=\"(?P<url>(?:https?:)?//[^\"]+)\"[^>]*>")
INTEGRITY = re.compile(r"\s+integrity=\"(?P<digests>[^\"]*)\"")
OF_OTHER_HOSTS = re.compile(r"\s+(?:crossorigin|referrerpolicy)=\"[^\"]*\"")


@dataclasses.dataclass(frozen=True)
class Library:
    """A file of an npm package; `asked` is the version in the page's URL where npm has another one."""

    package: str
    version: str
    path: str
    asked: str = ""


LIBRARIES = (
    Library("jquery", "3.3.1", "dist/jquery.min.js"),
    Library("flot", "0.8.3", "jquery.flot.js"),
    Library("flot", "0.8.3", "jquery.flot.time.js"),
    Library("flot", "0.8.3", "jquery.flot.selection.js"),
    Library("flot", "0.8.3", "jquery.flot.categories.js"),
    Library("flot-orderbars", "1.0.0", "js/jquery.flot.orderBars.js"),
    Library("stupid-table-plugin", "1.1.3", "stupidtable.min.js", asked="1.0.1"),
    Library("blueimp-md5", "2.19.0", "js/md5.min.js"),
    Library("bootstrap", "3.1.1", "dist/js/bootstrap.min.js"),
    Library("bootstrap", "3.1.1", "dist/css/bootstrap.min.css"),
)


def _plain(name):
    """A file's name without version and `min`: ``jquery-3.3.1.min.js`` is ``jquery.js``."""
    return re.sub(r"-\d+(\.\d+)*(?=\.)|\.min(?=\.)", "", name.rpartition("/")[2])


def _library(url):
    for library in LIBRARIES:
        if _plain(library.path) == _plain(url) and (library.asked or library.version) in url:
            return library
    return None


def _installed(modules, package, version):
    try:
        return json.loads((modules / package / "package.json").read_text())["version"] == version
    except (OSError, ValueError, KeyError):
        return False


def fetch(folder):
    """Install the packages of `LIBRARIES` with npm in `folder`, unless they are there.

    Returns
    -------
    modules : Path
        Where they are.
    reason : str
        Why they are not; empty when they are.
    """
    modules = folder / "node_modules"
    packages = dict.fromkeys((library.package, library.version) for library in LIBRARIES)
    if all(_installed(modules, name, version) for name, version in packages):
        return modules, ""
    npm = shutil.which("npm")
    if npm is None:
        return modules, "npm is not installed"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true}\n')  # npm looks for one in the folders above otherwise
    quiet = ("--no-audit", "--no-fund", "--no-package-lock", "--no-save", "--ignore-scripts")
    command = [npm, "install", *quiet, *(f"{name}@{version}" for name, version in packages)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return modules, f"npm failed ({lines[0]})"
    return modules, ""


def _digest_fits(path, integrity):
    content = path.read_bytes()
    for entry in integrity.split():
        algorithm, _, expected = entry.partition("-")
        if base64.b64encode(hashlib.new(algorithm, content).digest()).decode() == expected:
            return True
    return False


def rewrite(html, modules):
    """Let the pages in folder `html` load copies of the libraries in `modules`.

    Returns
    -------
    list of str
        What the pages still load from other hosts.
    """
    remote = []
    for page in sorted(Path(html).glob("*.html")):

        def local(tag, page=page):
            library = _library(tag["url"])
            source = library and modules / library.package / library.path
            if not (source and source.is_file()):
                remote.append(tag["url"])
                return tag[0]
            target = page.parent / "vendor" / source.name
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(source, target)
            text = OF_OTHER_HOSTS.sub("", tag[0]).replace(tag["url"], f"vendor/{target.name}")
            found = INTEGRITY.search(text)
            return text if found is None or _digest_fits(source, found["digests"]) else INTEGRITY.sub("", text)

        page.write_text(TAG.sub(local, page.read_text(encoding="utf-8")), encoding="utf-8")
    return remote


def vendor(html, folder):
    """Make the pages in `html` whole with what npm installs in `folder`; a sentence when they are not."""
    modules, reason = fetch(Path(folder))
    remote = rewrite(html, modules)
    if not remote:
        return ""
    return f"Viewing it needs a network, for {len(remote)} scripts and styles: {reason or 'asv asks for others'}."
