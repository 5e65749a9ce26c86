"""Pretrained vectors are written: what is read back, bytes, refusals, files that stay whole, and the progress bar."""

import bz2
import gzip
import itertools
import json
import lzma
import os
import re
import stat
import struct
import sys
import tempfile
import tracemalloc
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given
from strategies import BFLOAT16, LAYOUTS, exactly, laid_out, same_bits, unchanged

from fastemb import _progress
from fastemb.io import arrays, load_vectors, save, save_vectors

SUFFIXES = {".txt": "word2vec", ".vec": "fasttext", ".bin": "word2vec-binary", ".safetensors": "safetensors"}
UNPACK = {"": bytes, ".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
WEIGHT = np.array([[0.1, -0.0], [1e-45, 100.5]], np.float32)
WORDS = ["the", "naïve"]
LINES = b"the 0.1 -0.0\nna\xc3\xafve 1e-45 100.5\n"
PACKED = b"2 2\nthe " + struct.pack("<2f", 0.1, -0.0) + b"\nna\xc3\xafve " + struct.pack("<2f", 1e-45, 100.5) + b"\n"


# What is written


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("suffix", UNPACK)
def test_bytes(tmp_path, suffix, layout):
    weight = laid_out(WEIGHT, layout)
    cases = ((".vec", None, b"2 2\n" + LINES), (".txt", None, b"2 2\n" + LINES), (".bin", None, PACKED))
    for ending, kind, data in (*cases, (".txt", "glove", LINES), ("", "word2vec-binary", PACKED)):
        path = tmp_path / f"V{ending.upper()}{suffix}"
        with unchanged(weight):
            save_vectors(path if kind else str(path), weight, iter(WORDS), format=kind)
        assert UNPACK[suffix](path.read_bytes()) == data
        read = load_vectors(path, format=kind)
        assert read.words == WORDS
        assert same_bits(read.weight, WEIGHT)


def test_the_same_data_give_the_same_archive(tmp_path):
    for name in ("a.vec.gz", "b.vec.gz"):
        save_vectors(tmp_path / name, WEIGHT, WORDS)
    data = (tmp_path / "a.vec.gz").read_bytes()
    assert data == (tmp_path / "b.vec.gz").read_bytes()
    assert data[3:8] == bytes(5)  # no name, no time


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", BFLOAT16], ids=str)
def test_arrays_as_others_read_them(tmp_path, dtype, layout):
    weight = laid_out(np.arange(6).reshape(3, 2).astype(dtype), layout)
    path = tmp_path / "v.safetensors"
    with unchanged(weight):
        save_vectors(path, weight, ["b", "", "naïve c"])
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    assert set(header) - {"__metadata__"} == {"weight", "words"}
    start, stop = header["words"]["data_offsets"]
    assert data[8 + size :][start:stop].decode().split("\n") == ["b", "", "naïve c"]
    read = load_vectors(path, dtype=None)
    assert same_bits(read.weight, weight.astype(weight.dtype.newbyteorder("=")))
    if dtype != BFLOAT16:
        with unchanged(weight):
            save_vectors(tmp_path / "v.npy", weight)
        assert same_bits(np.load(tmp_path / "v.npy"), weight)
        assert same_bits(load_vectors(tmp_path / "v.npy", dtype=None).weight, read.weight)


@pytest.mark.parametrize("dtype", ["f2", BFLOAT16], ids=str)
def test_half_width_is_written_as_float32(tmp_path, dtype):
    weight = np.array([[0.1, -3.0]]).astype(dtype)
    for name, data in (("v.vec", None), ("v.bin", b"1 2\na " + weight.astype("<f4").tobytes() + b"\n")):
        save_vectors(tmp_path / name, weight, ["a"])
        assert data in {None, (tmp_path / name).read_bytes()}
        assert same_bits(load_vectors(tmp_path / name, dtype=dtype).weight, weight)
        assert same_bits(load_vectors(tmp_path / name).weight, weight.astype("f4"))


def test_digits_do_not_depend_on_how_numpy_prints(tmp_path):
    values = [1 / 3, 1.0000001, 2.0**-149, 123456.78]
    for dtype in (np.float32, np.float64):
        weight = np.array([values], dtype)
        with np.printoptions(legacy="1.13", precision=2, suppress=True):
            save_vectors(tmp_path / "v.vec", weight, ["a"])
        assert same_bits(load_vectors(tmp_path / "v.vec", dtype=dtype).weight, weight)
    assert (tmp_path / "v.vec").read_text().split()[2:] == [b"a".decode(), *map(repr, values)]


def test_memory(tmp_path):
    weight = np.random.default_rng(1).standard_normal((2500, 300), dtype=np.float32)
    words = [f"w{i}" for i in range(len(weight))]
    for name, most in (("v.vec", 2_000_000), ("v.bin", 700_000), ("v.npy", 300_000)):
        save_vectors(tmp_path / name, weight[:1], None if name == "v.npy" else words[:1])
        tracemalloc.start()
        try:
            save_vectors(tmp_path / name, weight, None if name == "v.npy" else words)
            assert tracemalloc.get_traced_memory()[1] < most < weight.nbytes
        finally:
            tracemalloc.stop()


# There and back

LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\n")
PLAIN = st.text(st.characters(categories=["L"]), min_size=1, max_size=5)
TRICKY = st.sampled_from([*"a1.-e_ \t\r\x0b\x1f\x85", "nan", "inf", " 1", " ", "\u2028", "\ufeff", "\0", "BZh"])


@st.composite
def named_tables(draw, dtype):
    any_word = st.text(LETTERS, max_size=5) | st.lists(TRICKY, max_size=5).map("".join)
    words = draw(st.lists(any_word, unique=True) | st.lists(PLAIN, unique=True))  # the plain are never refused
    width = draw(st.integers(1, 4))
    values = st.floats(width=8 * np.dtype(dtype).itemsize) | st.sampled_from([0.0, 5.0, 1e16, 0.1])
    values = draw(st.lists(values, min_size=len(words) * width, max_size=len(words) * width))
    return words, np.array(values, np.float64).astype(dtype).reshape(-1, width)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("kind", ["word2vec", "glove", "word2vec-binary", "safetensors"])
def test_exactly_what_was_saved_or_an_error(dtype, kind):
    """A word that does not survive is refused by name; all others do, with each bit of their rows."""
    written, refused = [], []

    @given(named_tables(dtype))
    @example((["naïve", "New York", " ", "\u2028 x"], np.array([[0.1], [2.5], [np.nan], [-0.0]], dtype)))
    @example((["naïve", "New-York"], np.array([[0.1, 2.5], [np.nan, -0.0]], dtype)))
    def check(table):
        words, weight = table
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "v")
            try:
                save_vectors(path, weight, words, format=kind)
            except (TypeError, ValueError) as error:
                refused.append((str(error), words))
                assert not list(Path(folder).iterdir())
                return
            read = load_vectors(path, format=kind, dtype=dtype)
            assert read.words == words
            assert same_bits(read.weight, weight)
            written.append(len(words))

    check()
    assert sum(written) > 50 or (kind, dtype) == ("word2vec-binary", "f8")
    for text, words in refused:
        assert any(f"got {word!r}" in text for word in words) or "float32, got float64" in text or "cannot hold" in text


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_format_is_found_again(suffix):
    @given(named_tables("f4"))
    def check(table):
        words, weight = table
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"v{suffix}")
            try:
                save_vectors(path, weight, words)
            except ValueError:
                return
            read = load_vectors(path)
            assert read.words == words
            assert same_bits(read.weight, weight)
            assert load_vectors(path, format=SUFFIXES[suffix]).words == words

    check()


# Refusals

ONE = np.zeros((1, 1), np.float32)
NUMBER = "words must not end in what looks like a value, got '{}': a text format cannot tell it from one"
LISTED = "'word2vec', 'word2vec-binary', 'glove', 'fasttext', 'npy', 'safetensors'"


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        (("v.vec", ONE, ["a\nb"]), {}, ValueError, r"words must be without newlines, got 'a\nb'"),
        (("v.safetensors", ONE, ["\n"]), {}, ValueError, r"words must be without newlines, got '\n'"),
        (("v.vec", ONE, ["\udc80"]), {}, ValueError, r"words must be text that UTF-8 can hold, got '\udc80'"),
        (("v.vec", ONE, [""]), {}, ValueError, "words must not be empty in this format, got ''"),
        (("v.bin", ONE, [""]), {}, ValueError, "words must be without spaces and not empty in this format, got ''"),
        (
            ("v.bin", ONE, ["a b"]),
            {},
            ValueError,
            "words must be without spaces and not empty in this format, got 'a b'",
        ),
        (("v.vec", ONE, ["win 95"]), {}, ValueError, NUMBER.format("win 95")),
        (("v.txt", ONE, [" 1e5 \t"]), {}, ValueError, NUMBER.format(r" 1e5 \t")),
        (("v.vec", ONE, ["a", "b"]), {}, ValueError, "words must be as many as rows, got 2 and 1"),
        (("v.vec", np.zeros((3, 1)), ["a", "b", "a"]), {}, ValueError, "words must be distinct, got 'a' twice"),
        (("v.vec", ONE, "a"), {}, TypeError, "words must be an iterable of words, got str"),
        (("v.vec", ONE, [b"a"]), {}, TypeError, "words must be str, got b'a'"),
        (("v.vec", ONE), {}, ValueError, "format 'fasttext' needs words"),
        (("v.npy", ONE, ["a"]), {}, ValueError, "format 'npy' has no words"),
        (("v.npy", ONE.astype(BFLOAT16)), {}, TypeError, "format 'npy' has no bfloat16; use safetensors"),
        (
            ("v.bin", np.zeros((1, 1)), ["a"]),
            {},
            TypeError,
            "format 'word2vec-binary' holds float32, got float64; convert it yourself: weight.astype(np.float32)",
        ),
        (("v.vec", np.zeros((1, 0)), ["a"]), {}, ValueError, "format 'fasttext' cannot hold a table of shape (1, 0)"),
        (
            ("v.txt", np.zeros((0, 2)), []),
            {"format": "glove"},
            ValueError,
            "format 'glove' cannot hold a table of shape (0, 2)",
        ),
        (("v.vec", [[1.0]], ["a"]), {}, TypeError, "weight must be an array, got list"),
        (("v.vec", np.ones(1), ["a"]), {}, ValueError, "weight must be 2-D (N, D), got shape (1,)"),
        (("v.vec", ONE, ["a"]), {"format": "text"}, ValueError, f"format must be one of {LISTED}, got 'text'"),
    ],
)
def test_what_is_refused(tmp_path, arguments, options, error, text):
    path = tmp_path / arguments[0]
    path.write_bytes(b"old")
    with pytest.raises(error, match=exactly(text)):
        save_vectors(path, *arguments[1:], **options)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_names_that_are_refused(tmp_path):
    listed = ".npy, .safetensors, .bin, .vec, .txt"
    for name in ("v", "v.gz", "v.csv"):
        text = f"format must be given for {tmp_path / name}: its suffix is none of {listed}"
        with pytest.raises(ValueError, match=exactly(text)):
            save_vectors(tmp_path / name, ONE, ["a"])
    with pytest.raises(
        ValueError, match=exactly(f"format 'npy' is not written compressed, got {tmp_path / 'v.npy.gz'}")
    ):
        save_vectors(tmp_path / "v.npy.gz", ONE)
    with pytest.raises(ValueError, match=exactly(f"{tmp_path} is not a file")):
        save_vectors(tmp_path, ONE, ["a"], format="glove")
    with pytest.raises(FileNotFoundError):
        save_vectors(tmp_path / "none" / "v.vec", ONE, ["a"])
    assert not list(tmp_path.iterdir())


# Files stay whole


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("disk full")], ids=["interrupt", "disk"])
@pytest.mark.parametrize("name", ["v.vec", "v.vec.gz", "v.vec.xz", "v.bin", "v.safetensors"])
@pytest.mark.parametrize("old", [True, False])
def test_an_interrupted_file_is_not_there(tmp_path, monkeypatch, name, old, error):
    weight, words = np.ones((3, 1 << 15), np.float32), ["a", "b", "c"]
    path = tmp_path / name
    if old:
        save_vectors(path, WEIGHT, WORDS)
    before = path.read_bytes() if old else None
    blocks = []

    def encode(block, words):
        assert [p.name.startswith(".fastemb-") for p in tmp_path.iterdir() if p != path] == [True]
        blocks.append(block)
        if len(blocks) == 2:
            raise error
        return bytes(1 << 20)

    def encoded(array):
        assert [p.name.startswith(".fastemb-") for p in tmp_path.iterdir() if p != path] == [True]
        yield bytes(1 << 20)
        raise error

    monkeypatch.setattr(save.text, "encode", encode)
    monkeypatch.setattr(save.binary, "encode", encode)
    monkeypatch.setattr(save.tensors, "encoded", encoded)
    with pytest.raises(type(error) if isinstance(error, OSError) else error):
        save_vectors(path, weight, words)
    assert list(tmp_path.iterdir()) == ([path] if old else [])
    assert not old or path.read_bytes() == before


@pytest.mark.parametrize("name", ["v.vec", "v.vec.gz", "v.npy", "v.safetensors"])
def test_a_file_is_on_the_disk_before_it_takes_its_name(tmp_path, monkeypatch, name):
    sizes = []

    def fsync(file):
        found = os.fstat(file)
        assert (tmp_path / name).exists() == stat.S_ISDIR(found.st_mode)  # then the folder, with the new name
        if not stat.S_ISDIR(found.st_mode):
            sizes.append(found.st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    save_vectors(tmp_path / name, WEIGHT, None if name == "v.npy" else WORDS)
    assert sizes == [(tmp_path / name).stat().st_size]


@pytest.mark.parametrize("name", ["v.vec", "v.npy", "v.safetensors"])
def test_modes_and_links_stay(tmp_path, name):
    real, link, plain = tmp_path / "real", tmp_path / name, tmp_path / "plain"
    real.write_bytes(b"old")
    plain.touch()
    default = plain.stat().st_mode
    link.symlink_to(real)
    for mode in (0o600, 0o640):
        real.chmod(mode)
        save_vectors(link, WEIGHT, None if name == "v.npy" else WORDS)
        assert link.is_symlink()
        assert real.stat().st_mode & 0o777 == mode
    assert same_bits(load_vectors(real, format={"v.vec": "fasttext"}.get(name)).weight, WEIGHT)
    link.unlink()
    save_vectors(link, WEIGHT, None if name == "v.npy" else WORDS)
    assert link.stat().st_mode == default


# Optional packages


def test_packages_that_are_missing(tmp_path, monkeypatch):
    path = tmp_path / "v.safetensors"
    save_vectors(path, WEIGHT, WORDS)
    before = path.read_bytes()
    monkeypatch.setattr(arrays, "optional", lambda name: None)
    text = "format 'safetensors' needs the package safetensors: pip install fastemb[io]"
    with pytest.raises(ImportError, match=exactly(text)):
        load_vectors(path)
    save_vectors(path, WEIGHT, WORDS)  # which needs none
    assert path.read_bytes() == before
    monkeypatch.setattr(_progress, "optional", lambda name: None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    save_vectors(tmp_path / "v.npy", WEIGHT)
    for call in (load_vectors, lambda path, **options: save_vectors(path, WEIGHT, **options)):
        assert call(tmp_path / "v.npy", progress=None) is None or call is load_vectors
        with pytest.raises(ImportError, match=exactly("progress=True needs the package rich: pip install fastemb[io]")):
            call(tmp_path / "v.npy", progress=True)


@pytest.mark.parametrize("name", ["v [red].vec.gz", "v [red].txt", "v [red].bin", "v [red].npy", "v [red].safetensors"])
def test_progress(tmp_path, capsys, monkeypatch, name):
    weight, path = np.ones((3000, 20), np.float32), tmp_path / name
    words = None if name.endswith("npy") else [f"w{i}" for i in range(3000)]
    calls = [
        lambda shown: load_vectors(path, progress=shown),
        lambda shown: save_vectors(path, weight, words, progress=shown),
    ]
    save_vectors(path, weight, words)
    for terminal, progress in itertools.product((False, True), (None, False, True)):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        for call in calls:
            call(progress)
            out, err = capsys.readouterr()
            assert out == ""
            if progress or (progress is None and terminal):
                last = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", err).splitlines()[-1]
                done, total = re.fullmatch(rf"{re.escape(name)} .* ([\d.]+)/([\d.]+) [kM]B .*", last).groups()
                assert done == total
            else:
                assert err == ""
