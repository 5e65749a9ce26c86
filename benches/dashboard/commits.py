"""Which commits make the points of the dashboard."""

import shutil
import subprocess

FOLDERS = ("kernels", "fastemb", "benches")
"""What a commit has to change to be of interest: asv times the first two with the third."""


def git(root, *arguments):
    """What ``git`` prints, by lines."""
    command = [shutil.which("git") or "git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def last(root, count):
    """Hashes of up to `count` commits, newest first: HEAD, then those that changed `FOLDERS`, then any.

    Side branches count as the merge that brought them: asv plots first parents alone.
    """
    walk = ("rev-list", "--first-parent", f"--max-count={count}", "HEAD")
    head = git(root, *walk, "--max-count=1")
    chosen = list(dict.fromkeys(head + git(root, *walk, "--", *FOLDERS) + git(root, *walk)))[:count]
    return [commit for commit in git(root, "rev-list", "--first-parent", "HEAD") if commit in chosen]


def branch(root):
    """The name of the branch that is checked out; HEAD where none is, as in most CI clones."""
    return git(root, "rev-parse", "--abbrev-ref", "HEAD")[0]


def remarks(root, found, wanted):
    """Sentences on what the points do not show."""
    if found < wanted:
        shallow = git(root, "rev-parse", "--is-shallow-repository")[0] == "true"
        cure = "this clone is shallow, `git fetch --unshallow` gets the rest" if shallow else "there are no more"
        yield f"{found} of {wanted} commits: {cure}."
    if changed := git(root, "status", "--porcelain", "--untracked-files=no", "--", "kernels", "fastemb"):
        yield f"asv builds commits: changes in {len(changed)} of the files in kernels/ and fastemb/ are not measured."
