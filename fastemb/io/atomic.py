"""A file that is the old one or the new one, whenever the writer is stopped."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from .._compat import optional

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""What file systems say that cannot lock files, as some of networks."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file, open for writing and reading, that takes the place of `path` if there was no error.

    It is written in the same folder under a name that belongs to `path`, put on the disk, and renamed. So a writer that
    was killed leaves at most one file of that name, which the next writer uses again. Two writers of one path take
    turns, where files can be locked.
    """
    target = Path(os.path.realpath(path))  # a link stays one
    if target.exists() and not target.is_file():
        msg = f"{path} is not a file"
        raise ValueError(msg)
    if not target.parent.exists():  # or the error would name a file that nobody asked for
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(target.parent))
    name = hashlib.blake2b(os.fsencode(target.name), digest_size=8).hexdigest()
    temporary = target.with_name(f".fastemb-{name}")
    locks = optional("fcntl")
    with _locked(temporary, locks) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if target.exists():
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            if locks is None:  # where an open file cannot be renamed, nothing is locked either
                file.close()
            temporary.replace(target)
        except BaseException:
            if locks is None:
                file.close()
            temporary.unlink(missing_ok=True)
            raise
    if locks is not None:
        sync_folder(target.parent)


def _locked(path: Path, locks: object) -> IO[bytes]:
    """The file of that name, made if there is none, empty, and in use by nobody else."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    while True:
        file = os.fdopen(os.open(path, flags, 0o666), "rb+")
        try:
            if locks is not None:
                _lock(file, locks)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):  # not renamed while we waited
                    file.truncate()
                    return file
        except BaseException:
            file.close()
            raise
        file.close()


def _lock(file: IO[bytes], locks: Any) -> None:
    """Wait until nobody else uses a file, where the file system can say so."""
    try:
        locks.flock(file, locks.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def sync_folder(folder: Path) -> None:
    """Put the names of a folder's files on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
