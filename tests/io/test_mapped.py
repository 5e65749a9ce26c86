"""Tables and state in files: the same bits as in memory, what is on the disk, read ahead, and what is refused."""

import mmap
import os
import re

import numpy as np
import pytest
from strategies import BFLOAT16, exactly, same_bits, unchanged

import fastemb
from fastemb import _pages, _progress
from fastemb.io import create_table, flush, open_state, open_table, prefetch, save_layer, tensors
from fastemb.nn import FieldEmbedding
from fastemb.optim import SGD, Adagrad, Adam, Ftrl, Momentum, RMSprop, RowWiseAdagrad

FILES = ("v.npy", "v.safetensors")
N, D = 2000, 5


def saved(path, array, name="weight"):
    """The array in a file that other programs might have written."""
    if path.suffix == ".npy":
        np.save(path, array)
    else:
        with path.open("wb") as file:
            tensors.write_to_change(file, {name: array}, lambda _: None)
    return path


def read(path):
    """What other programs read from it."""
    if path.suffix == ".npy":
        return np.load(path)
    return pytest.importorskip("safetensors.numpy").load_file(path)["weight"]


needs_advice = pytest.mark.skipif(not hasattr(mmap, "MADV_WILLNEED"), reason="the system takes no advice")


@pytest.fixture
def advised(monkeypatch):
    """What is asked for, in pages of the file, and how many pages were looked for in memory."""
    ranges, sampled = [], []

    class File(mmap.mmap):
        def madvise(self, advice, start=0, length=None):
            super().madvise(advice, start, *(() if length is None else (length,)))
            if advice == mmap.MADV_WILLNEED:
                assert start % mmap.PAGESIZE == 0
                ranges.append((start // mmap.PAGESIZE, -(-length // mmap.PAGESIZE)))

    def is_in_memory(address):
        sampled.append(address)
        return False

    monkeypatch.setattr(mmap, "mmap", File)
    monkeypatch.setattr(_pages, "_page_is_in_memory", lambda: is_in_memory)
    return ranges, sampled


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", BFLOAT16, ">f4"], ids=str)
@pytest.mark.parametrize("name", FILES)
def test_lookups_and_bags(tmp_path, rng, name, dtype):
    weight = rng.integers(-9, 9, (N, D)).astype(dtype)
    if name == "v.npy" and weight.dtype == BFLOAT16:
        return
    table = open_table(saved(tmp_path / name, weight))
    native = weight.astype(weight.dtype.newbyteorder("=")) if weight.dtype != BFLOAT16 else weight
    ids = rng.integers(0, N, (6, 7))
    with unchanged(table, ids):
        assert same_bits(fastemb.gather(table, ids), native[ids])
        assert same_bits(fastemb.embedding_bag(table, ids, mode="max"), native[ids].max(axis=1))
        assert same_bits(fastemb.Embedding.from_pretrained(table)(ids), native[ids])
    with pytest.raises(ValueError, match="target is read-only and this operation writes into it"):
        fastemb.scatter_add(table, [0], np.ones((1, D), np.float32))


@pytest.mark.parametrize(
    "rule", [SGD(), Adagrad(), RowWiseAdagrad(), Adam(), Ftrl(), Momentum(), RMSprop(momentum=0.5)], ids=repr
)
@pytest.mark.parametrize("name", FILES)
def test_training_in_place_and_again_from_the_file(tmp_path, rng, name, rule):
    weight = rng.standard_normal((N, D), np.float32)
    path, beside = saved(tmp_path / name, weight), tmp_path / "state.safetensors"
    memory = fastemb.EmbeddingBag.from_pretrained(weight, freeze=False, mode="sum", optimizer=rule)
    for _ in range(3):
        table = open_table(path, "r+")
        state = open_state(beside, rule, table)
        layer = fastemb.EmbeddingBag.from_pretrained(
            table, freeze=False, copy=False, mode="sum", optimizer=rule, state=state
        )
        ids, dy = rng.integers(0, N, (20, 3)), rng.standard_normal((20, D), np.float32)
        for one in (memory, layer):
            one.fused_step(ids, None, dy)
        rule.step(table, state, ids[:, 0], dy)
        rule.step(memory.weight, memory.state, ids[:, 0], dy)
        assert layer.weight is table
        flush(table, state)
        del layer, table, state
    assert same_bits(read(path), memory.weight)
    again = open_state(beside, rule, memory.weight)
    assert again.step == memory.state.step == 6
    assert type(again) is type(memory.state)
    for found, wanted in zip(again.arrays().values(), memory.state.arrays().values(), strict=True):
        assert same_bits(np.asarray(found), wanted)


@pytest.mark.parametrize("name", FILES)
def test_new_tables_take_no_room(tmp_path, name):
    path = tmp_path / name
    table = create_table(path, 10**6, 256)
    assert path.stat().st_size > 10**9
    assert 512 * path.stat().st_blocks < 10**6
    assert (table.shape, table.dtype) == ((10**6, 256), np.float32)
    table[10**6 - 1] = 1
    flush(table[5:])
    assert fastemb.gather(open_table(path), [10**6 - 1, 5]).sum(axis=1).tolist() == [256, 0]
    state = open_state(tmp_path / "state", Adam(), table)
    assert 512 * (tmp_path / "state").stat().st_blocks < 10**6
    assert (state.m.shape, state.step) == ((10**6, 256), 0)
    filled = open_state(tmp_path / "filled", Adagrad(initial_accumulator=0.5), table[:7])
    assert same_bits(np.asarray(filled.S), np.full((7, 256), 0.5, np.float32))


def test_dtypes_of_new_tables(tmp_path):
    for dtype in ("float16", "float64", "bfloat16"):
        table = create_table(tmp_path / f"{dtype}.safetensors", 3, 2, dtype=dtype)
        assert (str(table.dtype), table.any()) == (dtype, False)
        state = open_state(tmp_path / f"{dtype}.state", Adam(), table)
        assert state.m.dtype == (np.float64 if dtype == "float64" else np.float32)
    for kind in ("state", "npy", "txt", "npy.gz"):
        with pytest.raises((TypeError, ValueError)):
            create_table(tmp_path / f"none.{kind}", 3, 2, dtype="bfloat16")
    with pytest.raises(FileExistsError):
        create_table(tmp_path / "float16.safetensors", 3, 2)
    with pytest.raises(ValueError, match=exactly("num_embeddings must be >= 1, got 0")):
        create_table(tmp_path / "none.npy", 0, 2)
    assert not list(tmp_path.glob("none*"))


def test_tensors_by_name_and_of_other_shapes(tmp_path):
    path = tmp_path / "many"
    arrays = {
        "b": np.arange(4, dtype=np.int64),
        "a": np.arange(6, dtype=np.float16).reshape(3, 2),
        "c": np.zeros((0, 3), np.float32),
        "d": np.array([True, False, True]),
    }
    with path.open("wb") as file:
        tensors.write_to_change(file, arrays, lambda _: None)
    for name, array in arrays.items():
        assert same_bits(np.asarray(open_table(path, name=name)), array)
    for name in (None, "weight"):
        text = f"{path}: name must be that of a tensor, got {name!r}; there are 'a', 'b', 'c', 'd'"
        with pytest.raises(ValueError, match=exactly(text)):
            open_table(path, name=name)
    assert open_table(saved(tmp_path / "one", np.ones((2, 2)), "x")).tolist() == [[1, 1], [1, 1]]
    with pytest.raises(ValueError, match=exactly("name is for safetensors files alone, got 'x'")):
        open_table(saved(tmp_path / "v.npy", np.ones((2, 2))), name="x")


@needs_advice
def test_arrays_in_columns(tmp_path, rng, advised):
    weight = np.asfortranarray(rng.standard_normal((9, 4)))
    table = open_table(saved(tmp_path / "v.npy", weight), "r+")
    assert table.flags.f_contiguous
    assert same_bits(fastemb.gather(table, [8, 1]), weight[[8, 1]])
    prefetch(table, [8, 1])
    assert advised[0] == []  # rows are all over the file
    with pytest.raises(ValueError, match="weight must have C-contiguous rows to be written in place"):
        SGD().step(table, SGD().init(table), [0], np.ones((1, 4)))


# Refusals


def test_files_that_are_refused(tmp_path):
    path = tmp_path / "v.npy"
    for content, text in (
        (b"", f"{path}: the file is empty"),
        (b"2 1\na 1\nb 2\n", f"{path} must be an .npy or safetensors file"),
        (b"\x80\x04N.........", f"{path}: the magic string is not correct"),
    ):
        path.write_bytes(content)
        named = path.rename(tmp_path / "v.txt") if b"2 1" in content else path
        with pytest.raises(ValueError, match=re.escape(text.replace(str(path), str(named)))):
            open_table(named)
    np.save(path, np.array([[object()]]), allow_pickle=True)
    with pytest.raises(ValueError, match=exactly(f"{path} holds Python objects, which are not read")):
        open_table(path)
    with pytest.raises(ValueError, match=exactly("mode must be one of 'r', 'r+', got 'w+'")):
        open_table(path, "w+")
    with pytest.raises(FileNotFoundError):
        open_table(tmp_path / "none.npy", "r+")


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("name", FILES)
def test_truncated_files_stay_as_they_are(tmp_path, name, mode):
    path = saved(tmp_path / name, np.ones((100, 3)))
    data = path.read_bytes()
    for size in [*range(1, 140), len(data) - 100 * 24, len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match=rf"\A{re.escape(str(path))}"):
            open_table(path, mode)
        assert path.read_bytes() == data[:size]


def test_a_saved_layer_is_read_but_not_changed(tmp_path):
    path, layer = tmp_path / "layer", fastemb.Embedding(20, 3, optimizer=Adam(), seed=0)
    save_layer(layer, path)
    assert same_bits(np.asarray(open_table(path)), layer.weight)
    assert open_table(path, name="optimizer.m").shape == (20, 3)
    text = f"{path} has a checksum, which changes in place would make wrong: open it in mode 'r', or load the layer"
    with pytest.raises(ValueError, match=exactly(text)):
        open_table(path, "r+")
    wanted = (
        f"{path} must hold the state of Adam for a table of shape (20, 3) and dtype float32, as open_state makes it"
    )
    with pytest.raises(ValueError, match=exactly(wanted)):
        open_state(path, Adam(), layer.weight)


def test_states_that_are_refused(tmp_path):
    path, weight = tmp_path / "state", np.zeros((20, 3), np.float32)
    open_state(path, Adam(), weight)
    data = path.read_bytes()
    for rule, table in (
        (Adagrad(), weight),
        (Adam(), weight[:19]),
        (Adam(), weight[:, :2].copy()),
        (Adam(), weight.astype(np.float64)),
        (Ftrl(), weight),
    ):
        with pytest.raises(ValueError, match="must hold the state of"):
            open_state(path, rule, table)
    text = "rule must be in mode 'lazy': in mode 'exact' a state has a log of steps, which grows"
    with pytest.raises(ValueError, match=exactly(text)):
        open_state(tmp_path / "none", Adam(mode="exact"), weight)
    with pytest.raises(TypeError, match=exactly("rule must be a fastemb.optim.Optimizer, got str")):
        open_state(tmp_path / "none", "adam", weight)
    assert path.read_bytes() == data
    assert list(tmp_path.iterdir()) == [path]
    state = open_state(path, Adam(lr=0.5), weight)  # hyper-parameters may change
    state.step = 3
    for wrong in (SGD().init(weight), weight):
        what = "a state must be made by open_state" if wrong is not weight else "an array must be in a mapped file"
        with pytest.raises(ValueError, match=exactly(f"{what} to be flushed")):
            flush(state, wrong)
    assert open_state(path, Adam(), weight).step == 0
    flush(state)
    assert open_state(path, Adam(), weight).step == 3


def test_layers_around_tables_and_states_that_do_not_fit(tmp_path):
    table = create_table(tmp_path / "v.npy", 20, 3)
    state = open_state(tmp_path / "state", Adam(), table)
    text = "state must be that of optimizer for weight, in a layer that is not frozen"
    for weight, options in (
        (table, {"freeze": True, "optimizer": Adam()}),
        (table, {"freeze": False}),
        (table, {"freeze": False, "optimizer": Adagrad()}),
        (table[:5], {"freeze": False, "optimizer": Adam()}),
        (table, {"freeze": False, "optimizer": Adam(), "dtype": "float64"}),
    ):
        with pytest.raises(ValueError, match=exactly(text)):
            fastemb.Embedding.from_pretrained(weight, state=state, **options)
    text = "dtype must be that of weight with copy=False, float32, got float64"
    with pytest.raises(ValueError, match=exactly(text)):
        fastemb.Embedding.from_pretrained(table, freeze=False, copy=False, dtype="float64")
    weight = np.ones((2, 2))
    layer = fastemb.Embedding.from_pretrained(weight, freeze=False, copy=False, optimizer=SGD(lr=1.0))
    layer.fused_step([1], np.ones((1, 2)))
    assert weight.tolist() == [[1, 1], [0, 0]]


# Read ahead


@needs_advice
def test_pages_of_a_batch_are_asked_for(tmp_path, advised, monkeypatch):
    ranges, sampled = advised
    page = mmap.PAGESIZE
    width = page // 4 // 4  # four rows a page
    with (tmp_path / "v.safetensors").open("wb") as file:
        tensors.write_to_change(file, {"weight": np.ones((400, width), np.float32)}, lambda _: None)
    table = open_table(tmp_path / "v.safetensors", "r+")
    prefetch(table, np.array([[399, 0, 1], [8, 9, 15]], np.int32))
    assert ranges == [(0, 1), (2, 2), (99, 1)]
    assert len(sampled) == 1  # the first one is not there
    calls = {
        "lookup": lambda ids: fastemb.gather(table, ids),
        "bag": lambda ids: fastemb.embedding_bag(table, [ids]),
        "step": lambda ids: SGD().step(table, SGD().init(table), ids, np.ones((len(ids), width), np.float32)),
        "sum": lambda ids: fastemb.scatter_add(table, ids, np.ones((len(ids), width), np.float32)),
        "norm": lambda ids: fastemb.renorm_(table, ids, 1.0),
        "columns": lambda ids: FieldEmbedding({"a": fastemb.Embedding.from_pretrained(table)})({"a": ids}),
        "view": lambda ids: fastemb.gather(table[:, :4], ids),
    }
    for name, call in calls.items():
        ranges.clear()
        call(np.array([5, 5, 201]))
        assert ranges == [(1, 1), (50, 1)], name
    ranges.clear()
    for wrong in ([400], [-1], [2**63]):
        with pytest.raises(IndexError):
            prefetch(table, wrong)
        with pytest.raises(IndexError):
            fastemb.gather(table, wrong)
    prefetch(table, [])
    prefetch(np.ones((400, 1)), [1])
    monkeypatch.setattr(_pages, "_page_is_in_memory", lambda: lambda address: True)
    prefetch(table, [1])
    assert ranges == []


@needs_advice
def test_rows_across_pages_and_at_the_end_of_the_file(tmp_path, advised):
    ranges, _ = advised
    width = mmap.PAGESIZE // 4 * 3 // 2  # one and a half pages
    table = open_table(saved(tmp_path / "v.safetensors", np.ones((3, width), np.float32)))
    prefetch(table, [0])
    prefetch(table, [2])
    prefetch(table[::-1], [0])
    assert ranges == [(0, 2), (3, 2), (3, 2)]


def test_what_the_system_says_is_in_memory(tmp_path):
    table = open_table(saved(tmp_path / "v.npy", np.ones((4, 3))))
    table.sum()
    start = table.__array_interface__["data"][0]
    if hasattr(mmap, "MADV_WILLNEED"):
        assert _pages._page_is_in_memory()(start // mmap.PAGESIZE * mmap.PAGESIZE)


def test_progress(tmp_path, capsys, monkeypatch):
    weight = np.zeros((100, 10), np.float32)
    open_state(tmp_path / "s", Ftrl(), weight, progress=True)
    assert "4.0/4.0 kB" in capsys.readouterr().err  # n, which begins with 0.1
    monkeypatch.setattr(_progress, "optional", lambda name: None)
    with pytest.raises(ImportError):
        open_state(tmp_path / "t", Ftrl(), weight, progress=True)
    assert list(tmp_path.iterdir()) == [tmp_path / "s"]


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="pages cannot be given up")
@pytest.mark.parametrize("name", FILES)
def test_only_pages_of_the_rows_are_read(tmp_path, name):
    path = saved(tmp_path / name, np.ones((1 << 14, 64), np.float32))
    pages = path.stat().st_size // mmap.PAGESIZE
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)

    table = open_table(path)
    start = table.__array_interface__["data"][0] // mmap.PAGESIZE * mmap.PAGESIZE

    def in_memory():
        return sum(_pages._page_is_in_memory()(start + k * mmap.PAGESIZE) for k in range(pages))

    before = in_memory()
    if before > pages // 2:
        pytest.skip("this file system keeps pages in memory")
    rows = np.array([4000, 7000, 12000])
    assert fastemb.gather(table, rows).all()
    assert before < in_memory() <= before + 6
    assert all(table[row].all() for row in rows + 1000)  # as of any array: nothing is asked for ahead
    assert before < in_memory() <= before + 12
