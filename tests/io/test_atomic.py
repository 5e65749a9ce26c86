"""A file is the old one or the new one: errors, full disks, what killed writers leave, writers that take turns."""

import contextlib
import errno
import os
import stat
import sys
import threading

import pytest
from strategies import exactly, run_python

from fastemb.io import atomic

posix = pytest.mark.skipif(sys.platform == "win32", reason="files are not locked there, folders not synced")


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.is_symlink()}


def put(path, data, error=None):
    with atomic.replacing(path) as file:
        file.write(data)
        if error is not None:
            raise error


def temporary_of(path):
    """The name that a writer of `path` uses first."""
    with atomic.replacing(path):
        (found,) = (other for other in path.parent.iterdir() if other.name.startswith(".fastemb-"))
    return found


def test_a_file_takes_the_place_of_another(tmp_path):
    path = tmp_path / "a"
    with atomic.replacing(path) as file:
        file.write(b"12345")
        file.seek(1)
        file.write(b"_")
        assert file.read(1) == b"3"
        assert not path.exists()
    assert files(tmp_path) == {"a": b"1_345"}
    put(path, b"new")
    assert files(tmp_path) == {"a": b"new"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("disk full"), ValueError()], ids=repr)
@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("when", ["writing", "fsync", "replace"])
def test_errors(tmp_path, monkeypatch, old, error, when):
    path = tmp_path / "a"
    if old:
        put(path, b"old")

    def fail(*arguments):
        raise error

    if when == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    elif when == "replace":
        monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(type(error) if isinstance(error, Exception) else error):
        put(path, b"half", error if when == "writing" else None)
    monkeypatch.undo()
    assert files(tmp_path) == ({"a": b"old"} if old else {})
    put(path, b"new")
    assert files(tmp_path) == {"a": b"new"}


@posix
def test_order_of_what_reaches_the_disk(tmp_path, monkeypatch):
    done, path = [], tmp_path / "a"

    def fsync(descriptor):
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        done.append(("folder" if is_folder else os.fstat(descriptor).st_size, path.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    put(path, b"123")
    assert done == [(3, False), ("folder", True)]


def test_where_files_cannot_be_locked(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "optional", lambda name: None)
    put(tmp_path / "a", b"old")
    put(tmp_path / "a", b"new")
    with pytest.raises(KeyError):
        put(tmp_path / "a", b"half", KeyError())
    assert files(tmp_path) == {"a": b"new"}


def test_what_a_killed_writer_left(tmp_path):
    path = tmp_path / "a"
    left = temporary_of(path)
    left.write_bytes(b"longer than what follows")
    put(tmp_path / "b", b"b")
    assert left.exists()  # it may be in use
    put(path, b"new")
    assert files(tmp_path) == {"a": b"new", "b": b"b"}


@posix
def test_a_link_where_the_new_file_should_be_written_is_not_followed(tmp_path):
    (tmp_path / "folder").mkdir()
    path, other = tmp_path / "folder" / "a", tmp_path / "other"
    other.write_bytes(b"of others")
    temporary_of(path).symlink_to(other)
    with pytest.raises(OSError, match="symbolic links"):
        put(path, b"new")
    assert other.read_bytes() == b"of others"


@posix
@pytest.mark.parametrize("error", [None, KeyError()], ids=repr)
def test_two_writers_take_turns(tmp_path, error):
    path, begun = tmp_path / "a", threading.Event()

    def second():
        begun.set()
        put(path, b"second")

    thread = threading.Thread(target=second)
    with contextlib.suppress(KeyError), atomic.replacing(path) as file:
        thread.start()
        begun.wait(10)
        thread.join(0.2)
        assert thread.is_alive()
        file.write(b"first")
        if error is not None:
            raise error
    thread.join(10)
    assert not thread.is_alive()
    assert files(tmp_path) == {"a": b"second"}


@posix
def test_modes_links_and_folders(tmp_path):
    real, link, plain = tmp_path / "real", tmp_path / "link", tmp_path / "plain"
    plain.touch()
    put(real, b"old")
    assert real.stat().st_mode == plain.stat().st_mode
    link.symlink_to(real)
    for mode in (0o600, 0o640):
        real.chmod(mode)
        put(link, b"new")
        assert link.is_symlink()
        assert stat.S_IMODE(real.stat().st_mode) == mode
    assert real.read_bytes() == b"new"
    with pytest.raises(ValueError, match=exactly(f"{tmp_path} is not a file")):
        put(tmp_path, b"new")
    with pytest.raises(FileNotFoundError):
        put(tmp_path / "none" / "a", b"new")


FULL = """
import errno, pathlib, resource
import numpy as np
import fastemb
from fastemb import io
from fastemb.optim import Adagrad, Adam, Ftrl

folder = pathlib.Path(folder)
small = fastemb.Embedding(10, 4, optimizer=Adam())
large = fastemb.Embedding(1000, 64, optimizer=Adam())
small.save(folder / "layer")
checkpointer = io.Checkpointer(large, folder / "run")
checkpointer.save()
large.state.mark(slice(0, 900))
large.weight[:900] = 7
before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
calls = [
    lambda: large.save(folder / "layer"),
    lambda: large.save(folder / "other"),
    checkpointer.save,
    lambda: checkpointer.save(full=True),
    checkpointer.compact,
    lambda: io.open_state(folder / "zeros", Adagrad(), large.weight),
    lambda: io.open_state(folder / "others", Ftrl(), large.weight),
    lambda: io.create_table(folder / "table.npy", 1000, 64),
    lambda: io.create_table(folder / "table.safetensors", 1000, 64),
]
for k, call in enumerate(calls):
    try:
        call()
    except OSError as error:
        assert error.errno == errno.EFBIG
    else:
        raise AssertionError(k)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before, k
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
assert checkpointer.save().name == "delta-00000001.safetensors"
assert (io.load_layer(folder / "run").weight[:900] == 7).all()
"""


@posix
def test_a_full_disk(tmp_path):
    run_python(f"folder = {str(tmp_path)!r}\n{FULL}")


@posix
@pytest.mark.parametrize("name", ["ENOLCK", "ENOSYS", "EOPNOTSUPP"])
def test_a_file_system_without_locks(tmp_path, monkeypatch, name):
    import fcntl

    def flock(*arguments):
        raise OSError(getattr(errno, name), name)

    monkeypatch.setattr(fcntl, "flock", flock)
    put(tmp_path / "a", b"old")
    with pytest.raises(KeyError):
        put(tmp_path / "a", b"half", KeyError())
    put(tmp_path / "a", b"new")
    assert files(tmp_path) == {"a": b"new"}
    name = "EIO"
    with pytest.raises(OSError, match="EIO"):
        put(tmp_path / "a", b"other")
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, atomic.replacing(tmp_path / "missing" / "file"):
        pass
    assert caught.value.filename == str(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []
