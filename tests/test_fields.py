"""Several categorical fields of a sample, looked up side by side."""

import copy
import tracemalloc

import numpy as np
import pytest
from optim_formulas import RULES
from oracles import FIELDS, Once, ids_of, numeric_gradient, tables_of
from strategies import BFLOAT16, FLOATS, in_parallel, laid_out, read_only, same_bits, strided, unchanged

import fastemb
from fastemb._arrays import BLOCK
from fastemb.nn import FieldEmbedding
from fastemb.optim import SGD, Adam, Momentum

SHAPES = [(), (0,), (1,), (6,), (2, 3), (2, 0), (2, 1, 4)]
RECORD = np.dtype([("place", ">u8"), ("word", "u1"), ("unused", "V0"), ("tag", "i2")])[["place", "word", "tag"]]


def beside(layers, ids):
    """The oracle: lookups of their own, concatenated."""
    return np.concatenate([layers[name](ids[name]) for name in layers], axis=-1)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_kind_of_ids_gives_the_lookups_side_by_side(rng, dtype, shape):
    layer = FieldEmbedding(FIELDS, dtype=dtype, init="normal", seed=1)
    ids = ids_of(rng, shape)
    expected = beside(layer.fields, ids)
    assert expected.shape == (*shape, 25)
    records = np.zeros(shape, RECORD)
    for name in FIELDS:
        records[name] = ids[name]
    table = np.stack([ids[name] for name in FIELDS], axis=-1)
    kinds = [
        ids,
        dict(reversed(ids.items())),
        {"word": ids["word"].astype("u1"), "tag": ids["tag"].astype(">i2"), "place": laid_out(ids["place"], "strided")},
        {name: read_only(part.astype(np.int32)) for name, part in ids.items()},
        {name: part.tolist() for name, part in ids.items()},
        {name: Once(part.copy()) for name, part in ids.items()},
        records,
        laid_out(records, "strided"),
        records.view(np.recarray),
        table,
        table.astype(">u4"),
        np.asfortranarray(table.astype(np.uint8)),
        read_only(table),
        Once(table),
        table.tolist() if table.size else table,
    ]
    for given in kinds:
        arrays = [a for a in (given.values() if isinstance(given, dict) else [given]) if isinstance(a, np.ndarray)]
        with unchanged(*arrays, *tables_of(layer)):
            got = layer(given)
        assert same_bits(got, expected)
        assert got.flags.c_contiguous
        assert got.flags.writeable


def test_one_record_of_an_array():
    layer = FieldEmbedding(FIELDS, seed=1)
    records = np.array([(9, 3, 1), (8, 2, 0)], RECORD)
    assert same_bits(layer(records[1]), layer(records)[1])
    assert same_bits(layer(list(records)), layer(records))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_large_batches(rng, count, dtype):
    layer = FieldEmbedding({"a": (30_000, 16), "b": (3, 1), "c": (500, 70)}, dtype=dtype, seed=2)
    ids = ids_of(rng, (3, BLOCK + 7), {"a": (30_000, 16), "b": (3, 1), "c": (500, 70)})
    expected = beside(layer.fields, ids)
    table = np.stack([ids[name] for name in "abc"], axis=-1)
    fastemb.buffers.clear()
    with in_parallel(count):
        for given in (ids, table, table.astype(np.uint16), {k: np.asfortranarray(v) for k, v in ids.items()}):
            poison = fastemb.buffers.empty(expected.shape, expected.dtype)
            poison.fill(np.nan)
            del poison  # the memory of the next result
            got = layer(given)
            assert same_bits(got, expected)
            del got


@pytest.mark.parametrize("weight", ["big-endian", "F", "read-only", "reversed"])
def test_tables_of_every_layout(rng, weight):
    tables = [laid_out(rng.standard_normal((20, width), dtype=np.float32), weight) for width in (4, 3)]
    layer = FieldEmbedding({name: fastemb.Embedding.from_pretrained(w) for name, w in zip("ab", tables, strict=True)})
    assert layer.fields["a"].weight is tables[0]
    ids = rng.integers(0, 20, (9, 2))
    got = layer(ids)
    assert got.dtype.isnative
    assert np.array_equal(got, np.concatenate([tables[0][ids[:, 0]], tables[1][ids[:, 1]]], axis=1))


def test_order_of_the_columns():
    layer = FieldEmbedding({"b": (3, 2), "a": (4, 1), "c": (5, 3)}, share={"d": "a"}, init="zeros")
    assert list(layer.fields) == list(layer.columns) == ["b", "a", "c", "d"]
    assert [(c.start, c.stop) for c in layer.columns.values()] == [(0, 2), (2, 3), (3, 6), (6, 7)]
    assert (layer.embedding_dim, layer.dtype) == (7, np.float32)
    for k, table in enumerate(layer.fields.values()):
        table.weight += k + 1
    assert layer(np.zeros((1, 4), int)).tolist() == [[1, 1, 6, 3, 3, 3, 6]]
    layer.fields.clear()
    assert len(layer.fields) == 4


def shared(kind, **options):
    """Two fields on one table, and another between them: by `share`, or by one and the same layer."""
    if kind == "share":
        layer = FieldEmbedding({"home": (6, 2), "tag": (3, 1)}, share={"work": "home"}, **options)
    else:
        home, tag = fastemb.Embedding(6, 2, **options), fastemb.Embedding(3, 1, **options)
        layer = FieldEmbedding({"home": home, "tag": tag, "work": home})
    assert layer.fields["work"] is layer.fields["home"]
    return layer


@pytest.mark.parametrize("kind", ["share", "layer"])
def test_shared_tables(rng, kind):
    layer = shared(kind, seed=3, optimizer=SGD(lr=1.0), dtype="float64")
    assert list(layer.tables()) == ["home", "tag"]
    assert [a is b.weight for a, b in zip(layer.parameters(), layer.tables().values(), strict=True)] == [True, True]
    assert list(layer.state_dict()) == ["home", "tag"]
    assert repr(layer) == "FieldEmbedding(home: 6 x 2, tag: 3 x 1, work: 6 x 2 of home, dtype=float64)"
    ids = {"home": rng.integers(0, 6, (4, 5)), "tag": rng.integers(0, 3, (4, 5)), "work": rng.integers(0, 6, (4, 5))}
    assert same_bits(layer(ids), beside(layer.fields, ids))
    dy = rng.integers(-9, 9, (4, 5, 5)).astype(np.float64)
    expected = np.zeros((6, 2))
    np.add.at(expected, ids["home"], dy[..., :2])
    np.add.at(expected, ids["work"], dy[..., 3:])
    before = layer.fields["home"].weight.copy()
    other = copy.deepcopy(layer)
    with unchanged(dy, *ids.values()):
        layer.backward(ids, dy)
        assert np.array_equal(layer.fields["home"].grad.to_dense(), expected)
        layer.step()
        other.fused_step(ids, dy)
    for one in (layer, other):
        assert same_bits(one.fields["home"].weight, before - expected)
        assert [table.state.step for table in one.tables().values()] == [1, 1]
        assert one.fields["home"].grad is None


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_backward_splits_the_gradient(rng, dtype):
    layer = FieldEmbedding(FIELDS, dtype=dtype)
    ids = ids_of(rng, (3, 50))
    wide = np.float64 if dtype == np.float64 else np.float32
    dy = rng.integers(-9, 9, (3, 50, 25)).astype(wide)
    for given in (dy, strided(dy), dy.astype(dtype), dy.astype(np.int8), dy.tolist(), Once(dy)):
        layer.zero_grad()
        arrays = [given] if isinstance(given, np.ndarray) else []
        with unchanged(*arrays, *tables_of(layer)):
            layer.backward(ids, given)
        for name, (rows, width) in FIELDS.items():
            expected = np.zeros((rows, width), wide)
            np.add.at(expected, ids[name], dy[..., layer.columns[name]])
            assert same_bits(layer.fields[name].grad.to_dense() + 0, expected + 0)
            assert layer.fields[name].grad.rows.tolist() == np.unique(ids[name]).tolist()
    layer.backward(ids, dy)
    assert np.array_equal(layer.fields["place"].grad.to_dense(), 2 * expected)
    layer.zero_grad()
    assert all(table.grad is None for table in layer.tables().values())


def test_padding_and_frozen_fields(rng):
    pretrained = rng.standard_normal((5, 2))
    padded = fastemb.Embedding(4, 3, padding_idx=1, dtype="float64", optimizer=SGD(lr=1.0), init="normal", seed=1)
    layer = FieldEmbedding({"a": padded, "b": fastemb.Embedding.from_pretrained(pretrained)})
    ids = np.array([[1, 0], [2, 4], [1, 4]])
    assert layer(ids)[:, :3].tolist() == [[0, 0, 0], padded.weight[2].tolist(), [0, 0, 0]]
    before = padded.weight.copy()
    with unchanged(pretrained):
        layer.backward(ids, np.ones((3, 5)))
        assert padded.grad.rows.tolist() == [2]
        assert layer.fields["b"].grad is None
        layer.step()
        layer.fused_step(ids, np.ones((3, 5)))
    assert same_bits(padded.weight, before - [[0], [0], [2], [0]])
    assert [array is padded.weight for array in layer.parameters()] == [True]


@pytest.mark.parametrize("share", [None, {"other": "word", "third": "word"}])
@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("name", [*RULES, "exact Adam", "exact Momentum"])
def test_fused_steps_have_the_bits_of_backward_and_step(rng, name, share, pending):
    exact = {"exact Adam": Adam(lr=0.1, mode="exact"), "exact Momentum": Momentum(lr=0.1, mode="exact")}
    rule = exact[name] if name in exact else RULES[name][0]
    one, two = (FieldEmbedding(FIELDS, share=share, optimizer=rule, seed=4) for _ in range(2))
    sizes = FIELDS | dict.fromkeys(share or (), FIELDS["word"])
    for lr in (None, 0.125, 0.25):
        ids = ids_of(rng, (4, 9), sizes)
        dy = rng.standard_normal((4, 9, one.embedding_dim), dtype=np.float32)
        if pending:
            for layer in (one, two):
                layer.backward(ids, dy)
        with unchanged(dy, *ids.values()):
            one.fused_step(ids, dy, lr=lr)
        two.backward(ids, dy)
        two.step(lr=lr)
        assert all(table.grad is None for layer in (one, two) for table in layer.tables().values())
    for a, b in zip(tables_of(one), tables_of(two), strict=True):
        assert same_bits(a, b)
    assert [table.state.step for table in one.tables().values()] == [3, 3, 3]
    assert [table.state.step for table in two.tables().values()] == [3, 3, 3]


def test_gradients_by_differences(rng):
    layer = FieldEmbedding({"a": (3, 2), "b": (4, 3)}, share={"c": "a"}, dtype="float64", seed=1)
    ids = rng.integers(0, 3, (6, 3))
    c = rng.standard_normal((6, 7))
    layer.backward(ids, c * np.cos(layer(ids)))
    for table in layer.tables().values():
        numeric = numeric_gradient(table.weight, lambda: (c * np.sin(layer(ids))).sum())
        np.testing.assert_allclose(table.grad.to_dense(), numeric, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("rule", [Adam(lr=0.1, mode="exact"), Momentum(lr=0.1, mode="exact")], ids=["Adam", "Momentum"])
def test_rows_are_brought_up_to_date_and_shrunk_before_they_are_read(rng, rule):
    options = {"optimizer": rule, "max_norm": 0.5, "init": "normal", "seed": 1, "dtype": "float64"}
    layer = FieldEmbedding({name: fastemb.Embedding(*size, **options) for name, size in FIELDS.items()})
    for _ in range(4):
        layer.fused_step(ids_of(rng, 5), rng.standard_normal((5, 25)))
    alone = copy.deepcopy(layer)
    ids = ids_of(rng, (3, 4))
    before = layer.fields["place"].weight[ids["place"]]
    got = layer(ids)
    assert same_bits(got, beside(alone.fields, ids))
    for a, b in zip(tables_of(layer), tables_of(alone), strict=True):
        assert same_bits(a, b)
    assert not np.array_equal(got[..., layer.columns["place"]], before)
    for columns in layer.columns.values():
        assert np.linalg.norm(got[..., columns], axis=-1).max() <= 0.5 + 1e-12
    layer.flush()
    assert all(table.state.missed.now == 0 for table in layer.tables().values())


@pytest.mark.parametrize("make", [lambda: 7, lambda: np.random.SeedSequence(7), lambda: np.random.default_rng(7)])
def test_seeds(make):
    sizes = {"a": (30, 4), "b": (30, 4), "c": (30, 4)}
    seed = make()
    one, two = FieldEmbedding(sizes, seed=seed), FieldEmbedding(sizes, seed=make())
    other = FieldEmbedding(sizes, seed=8)
    for name in sizes:
        assert same_bits(one.fields[name].weight, two.fields[name].weight)
        assert not np.isin(one.fields[name].weight, other.fields[name].weight).any()
    weights = [table.weight for table in one.tables().values()]
    assert np.unique(weights).size > 350  # no two fields have the numbers of one another
    if not isinstance(seed, np.random.Generator):
        again = FieldEmbedding(sizes, seed=seed)
        assert same_bits(again.fields["c"].weight, one.fields["c"].weight)


def test_state_dict_resumes_with_the_same_bits(rng):
    layers = [FieldEmbedding(FIELDS, share={"d": "tag"}, optimizer=Adam(lr=0.1, mode="exact"), seed=s) for s in (1, 2)]
    sizes = FIELDS | {"d": FIELDS["tag"]}
    for t in range(12):
        ids, dy = ids_of(rng, 6, sizes), rng.standard_normal((6, 28), dtype=np.float32)
        layers[0].fused_step(ids, dy)
        if t == 5:
            saved = copy.deepcopy(layers[0].state_dict())
            layers[1].load_state_dict(saved)
            assert list(saved) == list(FIELDS)
        if t > 5:
            layers[1].fused_step(ids, dy)
    for layer in layers:
        layer.flush()
    for a, b in zip(*map(tables_of, layers), strict=True):
        assert same_bits(a, b)
    assert [table.state.step for table in layers[1].tables().values()] == [12, 12, 12]


def test_lookup_allocates_its_output(rng):
    sizes = {"a": (1000, 64), "b": (3, 16), "c": (50_000, 48)}
    layer = FieldEmbedding(sizes)
    ids = ids_of(rng, (4, 5000), sizes)
    table = np.stack([ids[name] for name in sizes], axis=-1)
    records = np.zeros((4, 5000), [("b", "u1"), ("a", "i4"), ("c", ">i8")])
    for name in sizes:
        records[name] = ids[name]
    before = fastemb.buffers.limit()
    fastemb.buffers.set_limit(0)
    try:
        for given in (ids, table, records):
            layer(given)
            tracemalloc.start()
            start = tracemalloc.get_traced_memory()[0]
            nbytes = layer(given).nbytes
            peak = tracemalloc.get_traced_memory()[1] - start
            tracemalloc.stop()
            assert nbytes == 20_000 * 128 * 4
            assert nbytes <= peak < nbytes + 3 * 8 * BLOCK + 20_000  # blocks of ids that have to be widened
    finally:
        tracemalloc.stop()
        fastemb.buffers.set_limit(before)


def test_repr_and_bfloat16():
    layer = FieldEmbedding({"a": (3, 2), "b": (40, 8)}, dtype="bfloat16")
    assert repr(layer) == "FieldEmbedding(a: 3 x 2, b: 40 x 8, dtype=bfloat16)"
    assert layer.dtype == layer([[0, 0]]).dtype == BFLOAT16
