"""A revision as a wheel in an environment of its own, kept by its tree."""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import os
import shutil
import sys
import sysconfig
import tarfile
import tempfile
import venv
from pathlib import Path

from .processes import CommandError, run_together

KEPT = 12
"""Environments that are not removed, the ones used last."""

DEPENDENCIES = ("numpy", "numba", "llvmlite", "scipy")


@dataclasses.dataclass(frozen=True)
class Revision:
    """A revision as it was asked for, its commit, and the hash of its files."""

    name: str
    commit: str
    tree: str

    def __str__(self):
        return self.commit[:9] if self.commit.startswith(self.name) else f"{self.name} ({self.commit[:9]})"


def git(repo, *arguments):
    """What git prints."""
    program = shutil.which("git")
    if program is None:
        msg = "git is not installed: revisions cannot be read"
        raise CommandError(msg)
    (out,) = run_together([[program, "-C", repo, *arguments]], [f"git {' '.join(map(str, arguments))}"])
    return out.strip()


def resolve(repo, name):
    """A `Revision`; CommandError if there is none of that name."""
    try:
        commit = git(repo, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    except CommandError:
        msg = f"{repo} has no revision {name!r}, or is no git repository; of a shallow clone, git fetch --unshallow"
        raise CommandError(msg) from None
    return Revision(name, commit, git(repo, "rev-parse", f"{commit}^{{tree}}"))


def default_base(repo, head):
    """Where `head` left the main branch; the commit before it if it has not."""
    commit = resolve(repo, head).commit
    for main in ("origin/main", "main"):
        with contextlib.suppress(CommandError):
            base = git(repo, "merge-base", main, commit)
            if base != commit:
                return base
    return f"{head}~1"


def uncommitted(repo):
    """Whether the working tree has changes that no revision holds."""
    return bool(git(repo, "status", "--porcelain"))


def environments(repo, revisions, folder, advance=lambda: None):
    """Pythons of environments with the wheels of revisions; those that are not there already are built at once.

    Both take NumPy, Numba and scipy from the running environment, through a path file: the very same files, so that
    nothing but fastemb differs. An environment gets its name when it is whole.
    """
    pinned = {name: importlib.metadata.version(name) for name in DEPENDENCIES}
    places = list(dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib")))
    context = hashlib.sha256(repr((sys.version, sorted(pinned.items()), places)).encode()).hexdigest()
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {revision.tree: folder / f"{revision.tree[:16]}-{context[:8]}" for revision in revisions}
    missing = {r.tree: r for r in revisions if not wanted[r.tree].exists()}.values()
    with tempfile.TemporaryDirectory(prefix="part-", dir=folder) as parts:
        made = [Path(parts, revision.tree[:16]) for revision in missing]
        _build(repo, list(missing), made, places, advance)
        for part, revision in zip(made, missing, strict=True):
            with contextlib.suppress(FileExistsError):  # another gate was faster
                _rename(part, wanted[revision.tree])
    for place in wanted.values():
        os.utime(place)
    _forget_oldest(folder)
    return [_python(wanted[revision.tree]) for revision in revisions]


def _rename(part, place):
    try:
        part.rename(place)
    except OSError:
        if not place.exists():
            raise


def _build(repo, revisions, made, places, advance):
    """Sources, wheels and environments, each step for all revisions at once."""
    for revision, part in zip(revisions, made, strict=True):
        part.mkdir()
        git(repo, "archive", "--format=tar", f"--output={part / 'source.tar'}", revision.commit)
        with tarfile.open(part / "source.tar") as archive:
            archive.extractall(part / "source", filter="data")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheels = [[*pip, "wheel", "--no-deps", "--wheel-dir", part / "dist", part / "source"] for part in made]
    run_together(wheels, [f"building a wheel of {revision}" for revision in revisions])
    advance()
    for part in made:
        venv.create(part / "env", symlinks=os.name != "nt")
        (site,) = (part / "env").glob("**/site-packages")
        (site / "dependencies.pth").write_text("\n".join(places) + "\n")
    install = [
        [*pip, "--python", _python(part), "install", "--no-deps", "--no-index", *(part / "dist").glob("*.whl")]
        for part in made
    ]
    run_together(install, [f"installing the wheel of {revision}" for revision in revisions])
    for part in made:
        shutil.rmtree(part / "source")
        (part / "source.tar").unlink()
    advance()


def _python(place):
    return place / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"


def _forget_oldest(folder):
    kept = sorted((p for p in folder.iterdir() if (p / "env").is_dir()), key=lambda p: p.stat().st_mtime, reverse=True)
    for place in kept[KEPT:]:
        shutil.rmtree(place, ignore_errors=True)
