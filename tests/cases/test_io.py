"""Files of pretrained vectors that are damaged, ambiguous, or something else than they seem."""

import gzip
import pickle
import struct

import numpy as np
import pytest
import safetensors.numpy
from strategies import exactly

import fastemb
from fastemb.io import load_vectors, save_vectors


@pytest.fixture
def write(tmp_path):
    def write_bytes(data, name="v.txt"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write_bytes


def binary(*rows, header=None):
    head = header or b"%d %d\n" % (len(rows), len(rows[0]) - 1)
    return head + b"".join(word + struct.pack(f"<{len(values)}f", *values) for word, *values in rows)


def refuses(path, text, error=ValueError, **options):
    with pytest.raises(error, match=exactly(f"{path}{text}")):
        load_vectors(path, **options)


# Widths


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"2 3\na 1 2 3\nb 0.5\n", ", line 3: expected 3 values, found 1"),
        (b"2 3\na 1 2 3\nb 0.5 0.5\n", ", line 3: expected 3 values, found 2"),
        (b"2 3\na 1 2 3\nb 1 2 3 4\n", ", line 3: expected 3 values, found 4"),
        (b"2 3\na 1 2 3\nb 1 2 3 4 5 6\n", ", line 3: expected 3 values, found 6"),
        (b"2 3\na 1 2 3\nb 1 2 3\t4\n", ", line 3: expected 3 values, found 4"),
        (b"2 3\na 1 2 3\nb\t1 2 3 4\n", ", line 3: expected 3 values, found 4"),
        (b"2 3\na 1 2 3\nb 1  2 3 4\n", ", line 3: expected 3 values, found 4"),
        (b"2 3\na 1 2 3\nb\t1\t2\n", ", line 3: expected 3 values, found 2"),
        (b"2 3\na 1 2 3\nb\n", ", line 3: expected 3 values, found 0"),
        (b"2 3\na 1 2 3\nb c 0.5\n", ", line 3: expected 3 values, found 1"),
        (b"2 3\na 1 2 3\nb c d 0.5\n", ", line 3: expected 3 values, found 1 after 'd'"),
        (b"2 3\na 1 2 3\nb 1 x 3\n", ", line 3: expected 3 values, found 1 after 'x'"),
        (b"2 3\na 1 2 3\nb x 2 3\n", ", line 3: expected 3 values, found 2 after 'x'"),
        (b"2 3\na 1 2 3\nb 1 2 3,5\n", ", line 3: expected 3 values, found 0 after '3,5'"),
        (b"2 3\na 1 2 3\nb 1 2 1_0\n", ", line 3: expected 3 values, found 0 after '1_0'"),
        (b"2 3\na 1 2 3\nb 1 2 0x1\n", ", line 3: expected 3 values, found 0 after '0x1'"),
        (b"2 3\na 1 2 3\nb 1 2-3 4\n", ", line 3: expected 3 values, found 1 after '2-3'"),
        (b"2 3\na 1 2 3\n\nb 1 2 3\n", ", line 3: expected 3 values, found 0"),
        (b"2 3\na nan nan nan nan\n", ", line 2: expected 3 values, found 4"),
        (b"2 3\n 1 1 2 3\n", ", line 2: expected 3 values, found 4"),
        (b"a 1 2 3\nb 0.5\n", ", line 2: expected 3 values, found 1"),
        (b"a 1 2 3\nb 1 2 3 4\n", ", line 2: expected 3 values, found 4"),
        (b"a 1 2 3\n\n\nb 1 2 3\n", ", line 2: expected 3 values, found 0"),
        (b"a\nb 1\n", ", line 1: expected a word and its values, found none"),
        (b"\na 1\n", ", line 1: expected a word and its values, found none"),
        (b"1 0\na\n", ", line 1: the width must be at least 1, got 0"),
        (b"3 1\na 1\nb 2\n", ": truncated: the header says 3 rows, there are 2"),
        (b"1 1\na 1\nb 2\n", ", line 3: the header says 1 rows, and here is one more"),
        (b"0 1\na 1\n", ", line 2: the header says 0 rows, and here is one more"),
        (b"1 1\na 1\n\n\nx\n", ", line 5: the header says 1 rows, and here is one more"),
        (b"999999999999999 999999999\na 1\n", ", line 2: expected 999999999 values, found 1"),
        (b"1" * 16 + b" 3\na 1 2 3\n", ", line 2: expected 1 values, found 3"),
    ],
)
def test_every_line_has_the_width_of_the_table(write, data, text):
    """https://github.com/piskvorky/gensim/issues/388: lines of another width.

    As of commit 37f90ec1 a line with one value filled its row with it, and others gave an error without the line.
    """
    refuses(write(data), text)
    for options in ({"dtype": "float64"}, {"vocab": ["a", "b", "b 1", "zz"]}):
        refuses(write(data), text, **options)


@pytest.mark.parametrize("bad", [b"b 0.5\n", b"b x 2 3\n", b"b c d 0.5\n", b"b 1 2 3 4\n", b"b\n"])
def test_rows_that_are_left_out_have_the_width_too(write, bad):
    """https://github.com/piskvorky/gensim/issues/388, where another row was wanted."""
    with pytest.raises(ValueError, match=r", line 3: expected 3 values, found \d"):
        load_vectors(write(b"2 3\na 1 2 3\n" + bad), vocab=["a", "zz"])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (binary((b"a ", 1, 2), (b"b ", 3, 4))[:-1], ": truncated: the header says 2 rows, the file ends in row 2"),
        (binary((b"a ", 1, 2), (b"b", 3)), ": truncated: the header says 2 rows, the file ends in row 2"),
        (binary((b"a ", 1, 2), header=b"3 2\n"), ": truncated: the header says 3 rows, the file ends in row 2"),
        (b"3 2\n", ": truncated: the header says 3 rows, the file ends in row 1"),
        (b"999999999999999 999999999\na ", ": truncated: the header says 999999999999999 rows, the file ends in row 1"),
        (binary((b"a ", 1, 2)) + b"\n\nb", ": the header says 1 rows, and the file goes on after them"),
        (binary((b"a ", 1, 2)) + b"\n" * 200_000 + b"b", ": the header says 1 rows, and the file goes on after them"),
        (b"1 2\n" + b"x" * (1 << 17), ", row 1: no space in 65536 bytes; this is not word2vec's binary form"),
        (b"a 0.5 0.5\n", ", line 1: expected a header of two integers, N and D, found b'a 0.5 0.5\\n'"),
    ],
)
def test_binary_files_hold_what_their_header_says(write, data, text):
    """https://github.com/piskvorky/gensim/issues/388: the same for the binary form, whose rows have no line."""
    refuses(write(data, "v.bin"), text)
    refuses(write(data), text, format="word2vec-binary")


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n", b"\r\n"])
def test_binary_files_may_end_in_newlines(write, end):
    """The other side of it: what original and other programs leave at the end is no row."""
    assert load_vectors(write(binary((b"a ", 1, 2)) + end, "v.bin")).weight.tolist() == [[1, 2]]


def test_rows_wider_than_what_is_read_at_a_time(write, rng):
    """Binary rows, words and lines lie across the blocks in which a file is read."""
    for width in (16_383, 16_384, 40_000):
        weight = rng.standard_normal((5, width), dtype=np.float32)
        words = [f"w{'x' * 999 * i}" for i in range(5)]
        for name in ("v.bin", "v.vec"):
            path = write(b"", name)
            save_vectors(path, weight, words)
            read = load_vectors(path)
            assert read.words == words
            assert np.array_equal(read.weight, weight)


@pytest.mark.parametrize("kind", ["word2vec", "fasttext", "word2vec-binary"])
def test_a_header_is_needed(write, kind):
    """A GloVe file that is taken for another is refused for its first line."""
    text = ", line 1: expected a header of two integers, N and D, found b'a 0.5 0.5\\n'"
    refuses(write(b"a 0.5 0.5\n"), text, format=kind)
    refuses(write(b"2 2\na 1 2\nb 3 4\n"), ", line 2: expected 1 values, found 2", format="glove")


# Text that is not UTF-8, and files that are not vectors

CUT = "na\u00efve".encode()[:3]  # in the middle of a letter


@pytest.mark.parametrize("form", ["text", "glove", "binary", "safetensors"])
def test_words_that_are_not_utf8(write, form):
    """https://github.com/piskvorky/gensim/issues/496, /2569 and Embedding/Chinese-Word-Vectors/issues/8: cut tokens."""
    words = [b"a", b"b" + CUT, b"\xff\xfe", b"\xe4\xb8\xad"]
    values = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]
    lines = b"".join(b"%b %g %g\n" % (word, *row) for word, row in zip(words, values, strict=True))
    path = write(b"", "v.bin" if form == "binary" else "v.txt")
    if form == "safetensors":
        joined = np.frombuffer(b"\n".join(words), np.uint8)
        safetensors.numpy.save_file({"weight": np.array(values, np.float32), "words": joined}, path)
        data, where = joined.tobytes(), "row 2"
    else:
        rows = binary(*((word + b" ", *row) for word, row in zip(words, values, strict=True)))
        data = {"text": b"4 2\n" + lines, "glove": lines, "binary": rows}[form]
        path.write_bytes(data)
        where = {"text": "line 3", "glove": "line 2", "binary": "row 2"}[form]
    at = data.index(CUT) + 2
    text = f", {where}: byte 0xc3 at offset {at} is not UTF-8; errors= may be 'replace' or 'ignore'"
    refuses(path, text)
    refuses(path, text, vocab=["\u4e2d"])
    with pytest.warns(UserWarning, match=exactly(f"{path}: words that are not UTF-8, read with errors='replace': 2")):
        read = load_vectors(path, errors="replace")
    assert read.words == ["a", "bna\ufffd", "\ufffd\ufffd", "\u4e2d"]
    assert read.weight.tolist() == values
    with pytest.warns(
        UserWarning, match=exactly(f"{path}: words that are not UTF-8, read with errors='ignore': 2")
    ) as told:
        read = load_vectors(path, errors="ignore", vocab=["bna", "", "\u4e2d"])
    assert read.words == ["bna", "", "\u4e2d"]
    assert read.weight.tolist() == values[1:]
    assert [warning.filename for warning in told] == [__file__]


@pytest.mark.parametrize("name", ["v.txt", "v.bin"])
def test_where_in_a_large_file(write, name):
    """https://github.com/piskvorky/gensim/issues/496: the place of the letter, far behind the first block."""
    words = [f"w{i}".encode() for i in range(40_000)]
    words[39_000] = b"w" + CUT
    lines = b"40000 1\n" + b"".join(word + b" 0.5\n" for word in words)
    data = binary(*((word + b" ", 0.5) for word in words)) if name == "v.bin" else lines
    where, at = "row 39001" if name == "v.bin" else "line 39002", data.index(CUT) + 2
    text = f", {where}: byte 0xc3 at offset {at} is not UTF-8; errors= may be 'replace' or 'ignore'"
    refuses(write(data, name), text)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", [None, "word2vec", "word2vec-binary", "glove"])
def test_a_pickled_model(write, kind, protocol):
    """https://github.com/Kyubyong/wordvectors/issues/12: gensim's own files opened as word2vec's, "byte 0x80"."""
    text = " is a pickle, as gensim's save() writes it; load it with gensim and call its save_word2vec_format()"
    data = pickle.dumps({"vectors": np.ones((3, 2)), "index": ["a"] * 3}, protocol)
    for name in ("v.bin", "v.txt", "v.model"):
        refuses(write(data, name), text, format=kind)


@pytest.mark.parametrize(
    ("data", "name", "text"),
    [
        (b"", "v.txt", ": the file is empty"),
        (b"", "v.npy", ": the file is empty"),
        (b"PK\x03\x04" + bytes(90), "glove.zip", " is a zip archive; unpack it first"),
        (b"\xba\x16\x4f\x2f" + bytes(90), "v.bin", " is a fastText model; load its .vec file"),
    ],
)
def test_files_of_another_kind(write, data, name, text):
    """https://github.com/Kyubyong/wordvectors/issues/12, for what else is mistaken for vectors."""
    refuses(write(data, name), text)


def test_arrays_of_another_kind(write, tmp_path):
    """As above, for files of arrays."""
    path = tmp_path / "v.npy"
    np.save(path, np.ones((2, 2), np.int64))
    refuses(path, " must be float16, bfloat16, float32 or float64, got int64", TypeError)
    np.save(path, np.ones(3))
    refuses(path, " must be 2-D (N, D), got shape (3,)")
    np.save(path, np.ones((2, 2)))
    refuses(path, ": vocab needs words, and there are none in this file", vocab=["a"])
    for data in (path.read_bytes()[:-1], b"\x93NUMPY\x01", pickle.dumps(1), b"a 1 2\n"):
        with pytest.raises(ValueError, match=rf"^{path}: "):
            load_vectors(write(data, "v.npy"))
    np.save(path, np.array([["a"]], object), allow_pickle=True)
    with pytest.raises(ValueError, match=rf"^{path}: .*Python objects"):
        load_vectors(path)
    packed = tmp_path / "v.npy.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    refuses(packed, ": format 'npy' is not read compressed; unpack it first")

    path = tmp_path / "v.safetensors"
    w, words = np.ones((2, 2), np.float32), np.frombuffer(b"a\nb\nc", np.uint8)
    for tensors, text in (
        ({"a": w, "b": w}, f"{NAMED} 'a', 'b'"),
        ({f"t{i}": w for i in range(6)}, f"{NAMED} 't0', 't1', 't2', 't3', 't4', ..."),
        ({"words": words}, f"{NAMED} none"),
        ({"weight": w.astype(int)}, f": tensor 'weight' must be 2-D (N, D) of {FLOATS}, got I64 [2, 2]"),
        ({"table": w[0]}, f": tensor 'table' must be 2-D (N, D) of {FLOATS}, got F32 [2]"),
        ({"weight": w, "words": words}, ": there must be as many words as rows, got 3 and 2"),
    ):
        safetensors.numpy.save_file(tensors, path)
        refuses(path, text)
    safetensors.numpy.save_file({"weight": w}, path)
    refuses(path, ": vocab needs words, and there are none in this file", vocab=["a"])
    for data in (path.read_bytes()[:-1], b"a 1 2\n", b"\x90" * 90):
        with pytest.raises(ValueError, match=rf"^{path}: .*header"):
            load_vectors(write(data, "v.safetensors"))


NAMED = ": one tensor must be named 'weight', got"
FLOATS = "float16, bfloat16, float32 or float64"


# Words


@pytest.mark.parametrize("form", ["text", "glove", "binary", "safetensors"])
def test_words_that_are_there_several_times(write, form):
    """gensim keyedvectors.py, _add_word_to_kv at 37f90ec1: the first wins with a warning, and the table shrinks."""
    rows = [(b"a", 1.0), (b"b", 2.0), (b"a", 3.0), (b"c", 4.0), (b"a", 5.0)]
    path = write(b"", "v.bin" if form == "binary" else "v.txt")
    if form == "safetensors":
        table, joined = np.array([[value] for _, value in rows], np.float32), np.frombuffer(b"a\nb\na\nc\na", np.uint8)
        safetensors.numpy.save_file({"weight": table, "words": joined}, path)
    else:
        lines = b"".join(b"%b %g\n" % row for row in rows)
        packed = binary(*((word + b" ", value) for word, value in rows))
        path.write_bytes({"text": b"5 1\n" + lines, "glove": lines, "binary": packed}[form])
    for policy, kept in (("first", [1, 2, 4]), ("last", [5, 2, 4])):
        text = f"{path}: rows that repeat a word, of which the {policy} was kept: 2"
        with pytest.warns(UserWarning, match=exactly(text)) as told:
            read = load_vectors(path, duplicates=policy)
        assert [warning.filename for warning in told] == [__file__]
        assert read.words == ["a", "b", "c"]
        assert read.weight.tolist() == [[value] for value in kept]
        assert read.weight.shape == (3, 1)
        assert read.weight.flags.owndata
    where = {"text": "line 4", "glove": "line 3"}.get(form, "row 3")
    refuses(path, f", {where}: the word 'a' is there before", duplicates="error")
    for policy in ("first", "last", "error"):
        assert load_vectors(path, duplicates=policy, vocab=["b", "c"]).weight.tolist() == [[2], [4]]
        assert load_vectors(path, duplicates=policy, limit=2).weight.tolist() == [[1], [2]]
    with pytest.warns(UserWarning, match="of which the last was kept: 2$"):
        assert load_vectors(path, duplicates="last", vocab=["a"]).weight.tolist() == [[5]]
    refuses(path, f", {where}: the word 'a' is there before", duplicates="error", vocab=["a"])


def test_a_newline_before_a_binary_word(write):
    """gensim keyedvectors.py, _add_bytes_to_kv at 37f90ec1: one leading newline is no part of the word."""
    path = write(binary((b"a ", 1.0), (b"\nb ", 2.0), (b"c ", 3.0), (b"\nd\r ", 4.0)) + b"\n", "v.bin")
    assert load_vectors(path).words == ["a", "b", "c", "d\r"]
    newlines = struct.unpack("<f", b"\n \n\n")[0]  # bytes of a value are neither word nor space
    path = write(binary((b"a ", newlines), (b"\nb ", newlines)), "v.bin")
    assert load_vectors(path, dtype=None).weight.tobytes() == b"\n \n\n" * 2


def test_words_with_spaces(write):
    """https://github.com/explosion/spaCy/issues/2914: GloVe's 840B has ". . ." and "at name@domain.com"."""
    data = b". . . 0.5 -1\nat name@domain.com 2 3\nthe 4 5\n. 6 7\n"
    words, weight = [". . .", "at name@domain.com", "the", "."], [[0.5, -1], [2, 3], [4, 5], [6, 7]]
    for read in (load_vectors(write(data)), load_vectors(write(b"4 2\n" + data)), load_vectors(write(data), limit=4)):
        assert read.words == words
        assert read.weight.tolist() == weight
    assert load_vectors(write(data), vocab=[". . .", "name@domain.com"]).words == [". . ."]
    assert load_vectors(write(data), vocab=["."]).weight.tolist() == [[6, 7]]


@pytest.mark.parametrize("form", ["text", "glove", "binary", "npy", "safetensors"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(write, form, bad):
    """gensim keyedvectors.py at 37f90ec1: they pass unchecked, so a check can be asked for."""
    weight = np.array([[1.0, 2.0], [3.0, bad], [5.0, 6.0]], np.float32)
    suffix = {"binary": "bin", "npy": "npy", "safetensors": "safetensors"}.get(form, "txt")
    path = write(b"", f"v.{suffix}")
    kind = {"text": "word2vec", "glove": "glove"}.get(form)
    save_vectors(path, weight, None if form == "npy" else ["a", "b", "c"], format=kind)
    where = {"text": "line 3", "glove": "line 2"}.get(form, "row 2")
    refuses(path, f", {where}: value 2 of 2 is {bad}", finite=True)
    assert np.array_equal(load_vectors(path).weight, weight, equal_nan=True)
    assert load_vectors(path, finite=True, limit=1).weight.tolist() == [[1, 2]]
    if form != "npy":
        assert load_vectors(path, finite=True, vocab=["a", "c"]).weight.tolist() == [[1, 2], [5, 6]]
    if form == "safetensors":  # the row that is not kept in the end is read all the same
        words = np.frombuffer(b"a\nb\nb", np.uint8)
        safetensors.numpy.save_file({"weight": weight, "words": words}, path)
        refuses(path, f", row 2: value 2 of 2 is {bad}", finite=True, duplicates="last")
    save_vectors(path, np.full((1, 1), 65520, np.float32), None if form == "npy" else ["a"], format=kind)
    assert load_vectors(path, finite=True).weight.tolist() == [[65520]]
    where = {"text": "line 2", "glove": "line 1"}.get(form, "row 1")
    refuses(path, f", {where}: value 1 of 1 is inf", finite=True, dtype="float16")


@pytest.mark.parametrize("name", ["v.npy", "v.safetensors"])
def test_where_in_a_large_array(tmp_path, name):
    """gensim keyedvectors.py at 37f90ec1: values that are not finite, far behind the first block."""
    weight = np.ones((20_000, 4), np.float32)
    weight[19_000, 2] = np.nan
    save_vectors(tmp_path / name, weight)
    refuses(tmp_path / name, ", row 19001: value 3 of 4 is nan", finite=True)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"vocab": "the"}, TypeError, "vocab must be an iterable of words, got str"),
        ({"vocab": b"the"}, TypeError, "vocab must be an iterable of words, got bytes"),
        ({"vocab": ["the", b"a"]}, TypeError, "vocab must hold words, got b'a'"),
        ({"limit": -1}, ValueError, "limit must be >= 0, got -1"),
        ({"limit": 1.0}, TypeError, "limit must be an integer, got 1.0"),
        ({"dtype": "int32"}, TypeError, "dtype must be float16, bfloat16, float32 or float64, got int32"),
        (
            {"errors": "surrogateescape"},
            ValueError,
            "errors must be one of 'strict', 'replace', 'ignore', got 'surrogateescape'",
        ),
        ({"duplicates": "any"}, ValueError, "duplicates must be one of 'first', 'last', 'error', got 'any'"),
    ],
)
def test_options(write, options, error, text):
    """What an option may be, where gensim takes letters for words and a negative limit for none."""
    with pytest.raises(error, match=exactly(text)):
        load_vectors(write(b"a 1\n"), **options)


def test_rows_for_padding_and_the_unknown_word():
    """https://github.com/piskvorky/gensim/issues/1900: row 0 was a word, and padding with id 0 became that word."""
    table = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)
    vectors = fastemb.io.Vectors(["a", "b", "c"], table)
    shifted = vectors.with_reserved(["<pad>", "<unk>"])
    assert shifted.words == ["<pad>", "<unk>", "a", "b", "c"]
    assert shifted.index["a"] == 2
    assert np.array_equal(shifted.weight, [[0, 0], [0, 0], *table])
    assert shifted.weight.dtype == np.float32
    assert vectors.words == ["a", "b", "c"]
    for words, error, text in (
        (["b"], ValueError, "words must be new and distinct, got 'b' twice"),
        (["x", "x"], ValueError, "words must be new and distinct, got 'x' twice"),
        ("<pad>", TypeError, "words must be a sequence of str, got '<pad>'"),
        ([1], TypeError, r"words must be a sequence of str, got \[1\]"),
    ):
        with pytest.raises(error, match=text):
            vectors.with_reserved(words)
    with pytest.raises(ValueError, match="these vectors have no words"):
        fastemb.io.Vectors(None, table).with_reserved(["<pad>"])


def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path):
    for text, format_ in (("a 1 2\nb 3 4\n", "glove"), ("2 2\na 1 2\nb 3 4\n", "word2vec")):
        path = tmp_path / "vectors.txt"
        path.write_text("\ufeff" + text, encoding="utf-8")
        for asked in (None, format_):
            vectors = load_vectors(path, format=asked)
            assert (vectors.words, vectors.weight.tolist()) == (["a", "b"], [[1, 2], [3, 4]])


def test_words_and_rows_belong_together():
    for words, rows in ((["a", "b", "a"], 3), (["a"], 3)):
        with pytest.raises(ValueError, match=f"words must be distinct, one for each of {rows} rows, got {len(words)}"):
            fastemb.io.Vectors(words, np.ones((rows, 2)))
