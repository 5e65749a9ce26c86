"""Pretrained vectors are read: every format, what of a file is wanted, and how much memory that takes."""

import bz2
import contextlib
import errno
import gzip
import lzma
import re
import struct
import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from strategies import BFLOAT16, exactly, run_python, same_bits

import fastemb
from fastemb.io import Vectors, files, load, load_vectors, save_vectors

WORDS = ["the", "naïve", "at home"]
WEIGHT = np.array([[0.5, -0.25], [1e-3, 2.0], [-0.0, 3e38]], np.float32)
LINES = b"the 0.5 -0.25\nna\xc3\xafve 1e-3 2\nat home -0.0 3e38\n"
PACKED = ((b"the ", 0.5, -0.25), (b"na\xc3\xafve ", 1e-3, 2.0), (b"x ", -0.0, 3e38))
PACK = {
    ".gz": partial(gzip.compress, compresslevel=1),
    ".bz2": partial(bz2.compress, compresslevel=1),
    ".xz": partial(lzma.compress, preset=0),
    "": bytes,
}


def binary(rows, end=b"", header=None):
    count, width = len(rows), len(rows[0]) - 1
    head = b"%d %d\n" % (header or (count, width))
    return head + b"".join(word + struct.pack(f"<{width}f", *values) + end for word, *values in rows)


@pytest.fixture
def write(tmp_path):
    def write_bytes(data, name="vectors.txt"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write_bytes


def holds(vectors, words, weight):
    """Whether these are the words and, bit for bit, the table, which is its own and as kernels like it."""
    table = vectors.weight
    assert table.flags.owndata
    assert table.flags.c_contiguous
    assert table.flags.writeable
    assert table.dtype.isnative
    return vectors.words == words and same_bits(table, np.asarray(weight))


# Reading


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("asked", [True, False])
def test_every_format_of_words(write, suffix, asked):
    cases = [
        ("word2vec", "v.txt", b"3 2\n" + LINES, WORDS),
        ("fasttext", "v.vec", b"3 2\n" + LINES.replace(b"\n", b" \n"), WORDS),
        ("glove", "v.txt", LINES, WORDS),
        ("word2vec-binary", "v.bin", binary(PACKED), [*WORDS[:2], "x"]),
        ("word2vec-binary", "V.BIN", binary(PACKED, b"\n"), [*WORDS[:2], "x"]),
    ]
    for kind, name, data, words in cases:
        path = write(PACK[suffix](data), name + suffix)
        for given_path in (path, str(path)):
            assert holds(load_vectors(given_path, format=kind if asked else None), words, WEIGHT)


@pytest.mark.parametrize("layout", ["C", "F", ">f4", "f8", "f2", "<f4 2.0"])
def test_npy(tmp_path, layout):
    weight = np.arange(6, dtype=layout if layout[0] in "f>" else "f4").reshape(3, 2)
    path = tmp_path / "v.npy"
    with path.open("wb") as file:
        version = (2, 0) if "2.0" in layout else None
        np.lib.format.write_array(file, np.asfortranarray(weight) if layout == "F" else weight, version=version)
    assert holds(load_vectors(path), None, weight.astype(np.float32))
    assert holds(load_vectors(path, dtype=None), None, weight.astype(weight.dtype.newbyteorder("=")))
    assert holds(load_vectors(path, limit=2), None, weight[:2].astype(np.float32))
    renamed = path.rename(tmp_path / "anything")
    assert holds(load_vectors(renamed), None, weight.astype(np.float32))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", BFLOAT16], ids=str)
@pytest.mark.parametrize("name", ["weight", "embeddings.word.weight"])
def test_safetensors_of_others(tmp_path, dtype, name):
    weight = np.arange(6).reshape(3, 2).astype(dtype)
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file({name: weight}, path)
    assert holds(load_vectors(path), None, weight.astype(np.float32))
    assert holds(load_vectors(path, dtype=None, limit=2), None, weight[:2])
    joined = np.frombuffer("the\nnaïve\nat home".encode(), np.uint8)
    safetensors.numpy.save_file({name: weight, "words": joined}, path)
    renamed = path.rename(tmp_path / "anything")
    assert holds(load_vectors(renamed, vocab=["at home", "the"]), ["the", "at home"], weight[[0, 2]].astype("f4"))
    safetensors.numpy.save_file({name: weight, "words": np.zeros(7)}, path)
    if name == "weight":
        assert load_vectors(path).words is None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"2 2\r\na 1 2\r\nb 3 4\r\n", ["a", "b"]),
        (b"\xef\xbb\xbf2 2\na 1 2\nb 3 4", ["a", "b"]),
        (b"2\t2\na\t1\t2\nb\t3\t4\n\n\r\n", ["a", "b"]),
        (b"a 1   2\nx y  3  4\n", ["a", "x y"]),
        (b"a  1 2\nx y   3 4\n", ["a ", "x y  "]),  # one space is between word and values
        (b"x y\t1 2\na b c 3\t4 \t\n", ["x y", "a b c"]),
        (b" 1 2\n\xe2\x80\xa8 3 4\n", ["", "\u2028"]),
        (b"\xc2\xa0 1 2\n1 3 4\n", ["\xa0", "1"]),
        (b"7 1 2\n8 3 4\n", ["7", "8"]),
        (b"1.5 +1. 2E0\n_ 3 .4e1\n", ["1.5", "_"]),
    ],
)
def test_how_lines_are_split(write, data, words):
    assert holds(load_vectors(write(data)), words, np.array([[1, 2], [3, 4]], np.float32))


@pytest.mark.parametrize(
    ("text", "dtype", "wanted"),
    [
        ("1.000000059604644775390625", "f4", 1.0),  # halfway: to even
        ("1.000000059604644775390626", "f4", 1 + 2**-23),  # the same in float64, and above halfway
        ("1.000000178813934326171874", "f4", 1 + 2**-23),
        ("1.000000178813934326171875", "f4", 1 + 2**-22),
        ("-1.000000059604644775390626", "f4", -1 - 2**-23),
        ("7.006492321624085e-46", "f4", 0.0),
        (
            "7.00649232162408535461864791644958065640130970938257885878534141944895541342930300743319095e-46",
            "f4",
            2**-149,
        ),
        ("1.00048828125000000000001", "f2", 1 + 2**-10),
        ("0.1", "f8", 0.1),
        ("1e39", "f4", np.inf),
        ("5e39", "f4", np.inf),
        ("-5e39", "f4", -np.inf),
        ("-Infinity", "f4", -np.inf),
        ("nan", "f8", np.nan),
    ],
)
def test_numbers_are_rounded_once(write, text, dtype, wanted):
    vectors = load_vectors(write(f"a 1 {text} 0\n".encode()), dtype=dtype)
    assert same_bits(vectors.weight, np.array([[1, wanted, 0]], dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", ">f4"])
@pytest.mark.parametrize("kind", ["glove", "word2vec-binary", "npy", "safetensors"])
def test_dtypes(tmp_path, dtype, kind):
    weight = np.array([[0.1, -3.0], [1e4, 0.0]], np.float32)
    save_vectors(tmp_path / "v", weight, None if kind == "npy" else ["a", "b"], format=kind)
    native = np.dtype(BFLOAT16 if dtype == "bfloat16" else dtype).newbyteorder("=")
    read = load_vectors(tmp_path / "v", format=kind, dtype=dtype).weight
    wanted = weight.astype(native)
    if kind == "glove":
        wanted[0, 0] = 0.1  # the text is nearer to it than float32 is
    assert same_bits(read, wanted)
    assert load_vectors(tmp_path / "v", format=kind, dtype=None).weight.dtype == np.float32


def test_what_is_returned(write):
    path = write(LINES)
    vectors = load_vectors(path)
    assert vectors.index == {"the": 0, "naïve": 1, "at home": 2}
    assert vectors.index is vectors.index
    assert repr(vectors) == "Vectors(3 rows, width 2, float32)"
    layer = fastemb.Embedding.from_pretrained(vectors.weight)
    assert layer.weight is vectors.weight
    assert np.array_equal(layer([2, 0]), WEIGHT[[2, 0]])
    bare = Vectors(None, WEIGHT)
    assert repr(bare) == "Vectors(3 rows, width 2, float32, no words)"
    with pytest.raises(ValueError, match=exactly("these vectors have no words")):
        _ = bare.index


def test_empty_tables(write, tmp_path):
    for data, name in ((b"0 300", "v.txt"), (b"0 300\n", "v.bin"), (b"0 300\n\n", "v.vec")):
        assert holds(load_vectors(write(data, name)), [], np.empty((0, 300), np.float32))
    np.save(tmp_path / "v.npy", np.empty((0, 4)))
    assert holds(load_vectors(tmp_path / "v.npy"), None, np.empty((0, 4), np.float32))
    for shape in ((0, 3), (2, 0), (0, 0)):
        words, weight = ["", "b"][: shape[0]], np.empty(shape, np.float32)
        for name, kept in (("v.safetensors", words), ("v.npy", None)):
            save_vectors(tmp_path / name, weight, kept)
            assert holds(load_vectors(tmp_path / name), kept, weight)


# Choosing rows

FILES = {
    "word2vec": b"4 1\na 1\nb 2\nc 3\nd 4\n",
    "glove": b"a 1\nb 2\nc 3\nd 4\n",
    "word2vec-binary": binary([(b"a ", 1.0), (b"b ", 2.0), (b"c ", 3.0), (b"d ", 4.0)], b"\n"),
}


@pytest.mark.parametrize("kind", [*FILES, "safetensors"])
def test_vocab_and_limit(write, kind):
    path = write(FILES.get(kind, b""))
    if kind == "safetensors":
        save_vectors(path, np.array([[1], [2], [3], [4]], np.float32), list("abcd"), format=kind)
    load = partial(load_vectors, path, format=kind)
    every = "abcd"
    for vocab in (None, [], ["a"], ["d", "b", "b"], {"c": 1, "zz": 2}, iter("dcba"), {"zz"}):
        wanted = vocab if vocab is None else list(vocab)
        for limit in (None, 0, 1, np.int64(3), 4, 5):
            words = [w for w in every[: None if limit is None else int(limit)] if wanted is None or w in wanted]
            read = load(vocab=wanted, limit=limit)
            assert holds(read, words, np.array([[every.index(w) + 1] for w in words], np.float32).reshape(-1, 1))


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"3 1\na 1\nb 2\nbad\n", "v.txt"),
        (b"9 1\na 1\nb 2\n", "v.txt"),
        (b"2 1\na 1\nb 2\nc 3\n", "v.txt"),
        (b"a 1\nb 2\n\xff x y\n", "v.txt"),
        (binary([(b"a ", 1.0), (b"b ", 2.0), (b"\xff ", 2.0)]), "v.bin"),
        (binary([(b"a ", 1.0), (b"b ", 2.0)], header=(9, 1)), "v.bin"),
        (binary([(b"a ", 1.0), (b"b ", 2.0), (b"c ", 2.0)], header=(2, 1)), "v.bin"),
    ],
)
def test_what_follows_is_not_looked_at(write, data, name):
    path = write(data, name)
    for options in ({"limit": 2}, {"vocab": ["b", "a"]}, {"vocab": ["b", "zz"], "limit": 2}):
        read = load_vectors(path, **options)
        assert read.weight[:, 0].tolist() == [1, 2][-len(read.words) :]
        assert read.words == ["a", "b"][-len(read.words) :]
    for options in ({}, {"vocab": ["zz"]}, {"vocab": ["a", "b"], "duplicates": "last"}, {"limit": 4}):
        with pytest.raises(ValueError, match=r"^\S+(, (line|row) \d)?: "):
            load_vectors(path, **options)


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("kind", ["glove", "word2vec-binary"])
def test_little_more_is_read_than_asked_for(write, rng, monkeypatch, kind, suffix):
    rows = [(b"w%d " % i, *rng.standard_normal(50).tolist()) for i in range(4000)]
    text = b"".join(word + b" ".join(b"%.9g" % value for value in values) + b"\n" for word, *values in rows)
    path = write(PACK[suffix](text if kind == "glove" else binary(rows)))
    size = path.stat().st_size
    read = []
    monkeypatch.setattr(
        files, "progress_bar", lambda *told, of_bytes: contextlib.nullcontext(lambda count: read.append((*told, count)))
    )
    for limit, least, most in ((10, 0, size * 0.7), (None, size, size)):
        del read[:]
        assert load_vectors(path, format=kind, limit=limit).words == [f"w{i}" for i in range(limit or 4000)]
        assert {told[:3] for told in read} == {(path.name, size, False), (path.name, size, None)}  # a look, then all
        assert least <= sum(count for *_, progress, count in read if progress is None) <= most


def test_a_cut_archive(write):
    data = gzip.compress(b"".join(b"w%d 0.25\n" % i for i in range(200_000)))
    path = write(data[: len(data) // 2], "v.txt.gz")
    assert load_vectors(path, limit=1000).words == [f"w{i}" for i in range(1000)]
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: the compressed data are damaged: Compressed file"):
        load_vectors(path)
    for name, pack in (("v.bz2", bz2), ("v.xz", lzma)):
        data = bytearray(pack.compress(LINES * 100))
        data[len(data) // 2 :] = b"\xff" * (len(data) - len(data) // 2)
        path = write(data, name)
        with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: the compressed data are damaged: "):
            load_vectors(path)
    with pytest.raises(FileNotFoundError):
        load_vectors(path.with_name("none"))


def test_an_error_of_the_disk_is_no_damage(write, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(load.text, "read", fail)
    for suffix, pack in PACK.items():
        with pytest.raises(OSError, match=rf"^\[Errno {errno.EIO}\] Input/output error$"):
            load_vectors(write(pack(LINES), f"v.txt{suffix}"))


# Memory

RESIDENT = """
from pathlib import Path
import fastemb.io

def resident(name):
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) * 1024

fastemb.io.load_vectors({path!r}, limit=1000)
Path("/proc/self/clear_refs").write_text("5")  # the peak is what there is now
before = resident("VmRSS")
vectors = fastemb.io.load_vectors({path!r})
print(resident("VmHWM") - before, vectors.weight.nbytes)
"""


@pytest.mark.parametrize("header", [False, True])
def test_resident_memory(tmp_path, header):
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("no /proc here, which tells the peak of resident memory and forgets it")
    path, values = tmp_path / "v.txt", b" 0.25" * 256
    with path.open("wb") as file:
        file.write(b"12000 256\n" if header else b"")
        file.writelines(b"w%d%b\n" % (i, values) for i in range(12_000))
    grown, size = map(int, run_python(RESIDENT.format(path=str(path))).split())
    assert size == 12_000 * 256 * 4
    assert size / 2 < grown < 1.3 * size + (4 << 20)


ROWS, WIDTH = 2500, 300
LARGE_WORDS = [f"w{i}" for i in range(ROWS)]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    weight = np.random.default_rng(1).standard_normal((ROWS, WIDTH), dtype=np.float32)
    folder = tmp_path_factory.mktemp("large")
    names = {"v.vec": "fasttext", "v.txt": "glove", "v.vec.gz": "fasttext", "v.bin": None, "v.safetensors": None}
    for name, kind in names.items():
        save_vectors(folder / name, weight, LARGE_WORDS, format=kind)
    save_vectors(folder / "v.npy", weight)
    return folder, weight


def peak(call):
    call()
    tracemalloc.start()
    try:
        result = call()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["v.vec", "v.txt", "v.vec.gz", "v.bin", "v.npy", "v.safetensors"])
def test_memory(large, name):
    folder, weight = large
    read, most = peak(lambda: load_vectors(folder / name))
    assert np.array_equal(read.weight, weight)
    assert read.words == (None if name == "v.npy" else LARGE_WORDS)
    assert weight.nbytes <= most < 1.3 * weight.nbytes
    read, most = peak(lambda: load_vectors(folder / name, limit=100))
    assert np.array_equal(read.weight, weight[:100])
    assert most < weight[:100].nbytes + 700_000  # with the buffers of gzip
    if name != "v.npy":
        read, most = peak(lambda: load_vectors(folder / name, vocab=LARGE_WORDS[::50]))
        assert np.array_equal(read.weight, weight[::50])
        assert most < weight[::50].nbytes + 650_000 < weight.nbytes / 4


def test_memory_of_a_file_without_an_end(write):
    path = write(b"1 2\n" + b"x" * 4_000_000, "v.bin")

    def refused():
        with pytest.raises(ValueError, match="no space in 65536 bytes"):
            load_vectors(path)

    assert peak(refused)[1] < 1_000_000


def test_numba_is_not_needed(large):
    folder, _ = large
    code = f"import sys, fastemb.io; fastemb.io.load_vectors({str(folder / 'v.bin')!r}); print('numba' in sys.modules)"
    assert run_python(code) == "False\n"
