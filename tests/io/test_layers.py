"""Layers are saved and loaded: every class, every optimizer, the same bits afterwards; and what is refused."""

import re

import numpy as np
import pytest
from saved_layers import LAYERS, RULES, held, metadata, same, train
from strategies import BFLOAT16, exactly, laid_out, same_bits, unchanged

import fastemb
from fastemb import _progress, nn
from fastemb._pages import mapping
from fastemb.io import checkpoint, load_layer, save_layer
from fastemb.io.layers import flatten, unflatten
from fastemb.optim import SGD, Adam, Momentum


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        *[("Embedding", rule) for rule in RULES],
        *[
            (kind, rule)
            for kind in LAYERS
            if kind != "Embedding"
            for rule in ("none", "Momentum-exact", "RMSprop", "Adam")
        ],
    ],
)
def test_training_goes_on_with_the_same_bits(tmp_path, kind, rule):
    layer = LAYERS[kind](RULES[rule])
    for seed in range(3 if rule != "none" else 0):
        train(layer, seed)
    before = held(layer)
    save_layer(layer, tmp_path / "layer")
    assert same(held(layer), before)
    again = load_layer(tmp_path / "layer")
    assert type(again) is type(layer)
    assert same(held(again), before)
    for seed in (7, 8, 9) if rule != "none" else ():
        train(layer, seed)
        train(again, seed)
        assert same(held(again), held(layer))
    assert not same(held(layer), before) or rule == "none"
    assert same(held(load_layer(tmp_path / "layer")), before)  # the file has not changed with either of them


@pytest.mark.parametrize("dtype", ["f2", BFLOAT16, "f4", "f8"], ids=str)
def test_dtypes(tmp_path, dtype):
    layer = fastemb.Embedding(5, 3, dtype=np.dtype(dtype), optimizer=Adam(), seed=0)
    layer.fused_step([1, 2], np.ones((2, 3), np.float32))
    save_layer(layer, tmp_path / "layer")
    again = load_layer(tmp_path / "layer")
    assert same(held(again), held(layer))
    assert again.weight.dtype == dtype
    assert mapping(again.state.m) is None


@pytest.mark.parametrize("layout", ["F", "strided", "reversed", "read-only", "unaligned", "big-endian"])
def test_a_frozen_layer_around_any_array(tmp_path, layout):
    weight = laid_out(np.arange(12.0).reshape(4, 3), layout)
    layer = fastemb.EmbeddingBag.from_pretrained(weight, mode="max", max_norm=None, padding_idx=-2)
    with unchanged(weight):
        save_layer(layer, tmp_path / "layer")
    again = fastemb.EmbeddingBag.load(tmp_path / "layer")
    assert same_bits(again.weight, np.arange(12.0).reshape(4, 3))
    assert (again.padding_idx, again.mode, again.parameters()) == (2, "max", [])
    assert again.weight.flags.writeable
    assert mapping(again.weight) is None  # in memory
    again.weight[:] = 0  # its own memory
    assert same_bits(load_layer(tmp_path / "layer").weight, np.arange(12.0).reshape(4, 3))


def test_options_that_no_lookup_shows(tmp_path):
    layer = nn.PointEmbedding.from_pretrained(np.ones((2, 3)), np.ones(2), optimizer=SGD(lr=0.5))
    save_layer(layer, tmp_path / "layer")
    again = load_layer(tmp_path / "layer")
    assert again.parameters() == []
    assert mapping(again.weight) is None
    assert {t.optimizer for t in again.tables().values()} == {SGD(lr=0.5)}
    words = nn.HashEmbedding(8, 2, weighted=True, optimizer=SGD(lr=1.0))
    words.tables()["importance"].optimizer = Adam(lr=0.25)
    save_layer(words, tmp_path / "layer")
    assert [t.optimizer for t in load_layer(tmp_path / "layer").tables().values()] == [SGD(lr=1.0), Adam(lr=0.25)]
    octaves = nn.FourierFeatures(2, 3, include_input=True, dtype="float16")
    octaves.save(tmp_path / "layer")
    again = nn.FourierFeatures.load(tmp_path / "layer")
    assert repr(again) == repr(octaves)
    assert same_bits(again([0.25, 0.5]), octaves([0.25, 0.5]))
    save_layer(LAYERS["RareTokenEmbedding"](None), tmp_path / "layer")
    again = load_layer(tmp_path / "layer")
    assert (again.unk_idx, again.min_freq, again.tables()["tokens"].padding_idx) == (2, 6, 0)
    fields = LAYERS["FieldEmbedding"](None)
    save_layer(fields, tmp_path / "layer")
    again = load_layer(tmp_path / "layer").fields
    assert again["from.a"] is again["to"]
    assert list(again) == list(fields.fields)
    assert again["%2E"].scale_by_sqrt_dim


def test_what_is_pending_is_not_saved(tmp_path):
    layer = LAYERS["Embedding"](SGD())
    layer.backward([1], np.ones((1, 3), np.float32))
    layer.save(tmp_path / "layer")
    assert fastemb.Embedding.load(tmp_path / "layer").grad is None
    assert layer.grad is not None


def test_what_is_in_a_file(tmp_path):
    layer = nn.HashEmbedding(8, 2, hash_seed=5, optimizer=Adam(lr=0.25, betas=(0.5, 0.75)))
    layer.fused_step([1], np.ones((1, 2), np.float32))
    save_layer(layer, tmp_path / "layer")
    header, told = metadata(tmp_path / "layer")
    rule = {"class": "Adam", "lr": 0.25, "betas": [0.5, 0.75], "eps": 1e-8, "weight_decay": 0.0, "mode": "lazy"}
    assert told["version"] == 1
    assert told["layer"]["optimizers"] == {"weight": rule}
    assert told["layer"]["options"]["hash_seed"] == 5
    assert told["numbers"] == {"weight.optimizer.step": 1, "num_hashes": 2, "hash_seed": 5}
    assert re.fullmatch("[0-9a-f]{64}", header.pop("__metadata__")["checksum"])
    assert set(header) == {"weight.weight", "weight.optimizer.m", "weight.optimizer.v"}


def test_names_of_any_kind():
    saved = {"a.b": {"%": np.ones(1), "": {"c": 3}}, "a": {"b": 2}, "%2E": 1}
    arrays, numbers = flatten(saved)
    assert list(arrays) == ["a%2Eb.%25"]
    assert numbers == {"a%2Eb..c": 3, "a.b": 2, "%252E": 1}
    assert unflatten({**arrays, **numbers}) == saved


# Refusals


class Own(fastemb.Embedding):
    """A class of somebody else's."""


class OwnRule(SGD):
    """Likewise."""


KNOWN = (
    "Embedding, EmbeddingBag, FieldEmbedding, FourierFeatures, HashEmbedding, LearnedPositions, PointEmbedding, "
    "PrunedEmbedding, RareTokenEmbedding, RelativePositions"
)
RULE_NAMES = "Adagrad, Adam, Ftrl, Momentum, RMSprop, RowWiseAdagrad, SGD"


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Own(2, 2), TypeError, f"layer must be one of {KNOWN}, got Own"),
        (lambda: nn.SinusoidalPositions(2), TypeError, f"layer must be one of {KNOWN}, got SinusoidalPositions"),
        (lambda: {"weight": 1}, TypeError, f"layer must be one of {KNOWN}, got dict"),
        (
            lambda: fastemb.Embedding(2, 2, optimizer=OwnRule()),
            TypeError,
            f"optimizer must be one of {RULE_NAMES} to be saved, got OwnRule",
        ),
        (
            lambda: fastemb.Embedding(2),
            RuntimeError,
            "embedding_dim of this layer is not known yet: pass it, or call bind(dim)",
        ),
    ],
)
def test_layers_that_are_refused(tmp_path, make, error, text):
    (tmp_path / "layer").write_bytes(b"old")
    with pytest.raises(error, match=exactly(text)):
        save_layer(make(), tmp_path / "layer")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("layer", b"old")]


def test_a_layer_of_another_class(tmp_path):
    path = tmp_path / "layer"
    save_layer(nn.RelativePositions(1, 2), path)
    assert isinstance(fastemb.Embedding.load(path), nn.RelativePositions)
    for kind in (fastemb.EmbeddingBag, nn.HashEmbedding, nn.LearnedPositions, nn.FourierFeatures):
        text = f"{path} holds a layer of class RelativePositions, not {kind.__name__}"
        with pytest.raises(TypeError, match=exactly(text)):
            kind.load(path)
    with pytest.raises(FileNotFoundError):
        load_layer(tmp_path / "none")


def test_files_of_other_versions_and_programs(tmp_path, monkeypatch):
    safetensors = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "layer"
    safetensors.save_file({"weight": np.ones((2, 2))}, path)
    with pytest.raises(ValueError, match=exactly(f"{path} was not saved by fastemb")):
        load_layer(path)
    safetensors.save_file({"weight": np.ones((2, 2))}, path, {"fastemb": '{"version": 1}'})
    with pytest.raises(ValueError, match=exactly(f"{path} has no checksum: it was not saved by fastemb")):
        load_layer(path)
    layer = fastemb.Embedding(2, 2)
    monkeypatch.setattr(checkpoint, "VERSION", 2)
    layer.save(path)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=exactly(f"{path} has format 2, and this version of fastemb reads format 1")):
        load_layer(path)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"layer": 1, "numbers": {}},
        {"layer": {"class": "os.system", "options": {}, "optimizers": {}}, "numbers": {}},
        {"layer": {"class": "Embedding", "options": {"freeze": False, "x": 1}, "optimizers": {}}, "numbers": {}},
        {"layer": {"class": "Embedding", "options": {"freeze": False}, "optimizers": {"a": None}}, "numbers": {}},
        {
            "layer": {"class": "Embedding", "options": {"freeze": False}, "optimizers": {"": {"class": "x"}}},
            "numbers": {},
        },
        {"layer": {"class": "EmbeddingBag", "options": {"freeze": True, "mode": "x"}, "optimizers": {}}, "numbers": {}},
        {"layer": {"class": "Embedding", "options": {"freeze": False}, "optimizers": {}}, "numbers": {"weight.x": 1}},
    ],
)
def test_right_checksums_of_nonsense(tmp_path, told):
    path = tmp_path / "layer"
    checkpoint.write(path, {"weight": np.ones((2, 2))}, told, None)
    text = f"{path} does not describe a layer of this version of fastemb: "
    with pytest.raises(ValueError, match=rf"\A{re.escape(text)}\w+\("):
        load_layer(path)


# Damage


def test_every_byte_counts(tmp_path):
    layer = fastemb.Embedding(7, 3, optimizer=Adam(), seed=0)
    path, other = tmp_path / "layer", tmp_path / "other"
    layer.save(path)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    places = np.union1d(np.arange(600), rng.integers(0, len(data), 300))
    for at in places.tolist():
        other.write_bytes(data[:at] + bytes([data[at] ^ (1 << int(rng.integers(8)))]) + data[at + 1 :])
        with pytest.raises(
            ValueError, match=rf"\A{re.escape(str(other))} (is truncated or altered|was not saved by|has)"
        ):
            load_layer(other)
    for size in [*range(20), 4095, 4096, *rng.integers(0, len(data), 50).tolist(), len(data) - 1]:
        other.write_bytes(data[:size])
        with pytest.raises(ValueError, match=rf"\A{re.escape(str(other))} is truncated or altered: there are {size} "):
            load_layer(other)
    other.write_bytes(data + b"\0")
    with pytest.raises(ValueError, match="is truncated or altered"):
        load_layer(other)
    other.write_bytes(data)
    assert same(held(load_layer(other)), held(layer))


def test_rows_that_are_exchanged(tmp_path):
    path = tmp_path / "layer"
    fastemb.Embedding(2, 4, seed=0).save(path)
    data = path.read_bytes()
    path.write_bytes(data[:-32] + data[-16:] + data[-32:-16])
    text = f"{path} is truncated or altered: its checksum is not that of its bytes"
    with pytest.raises(ValueError, match=exactly(text)):
        load_layer(path)


# Progress


def test_progress(tmp_path, capsys, monkeypatch):
    path, layer = tmp_path / "layer", fastemb.Embedding(3000, 20)
    for shown in (None, False, True):
        for call in (
            lambda shown=shown: layer.save(path, progress=shown),
            lambda shown=shown: fastemb.Embedding.load(path, progress=shown),
        ):
            call()
            out, err = capsys.readouterr()
            assert out == ""
            assert ("240.0/240.0 kB" in err) == bool(shown)
    monkeypatch.setattr(_progress, "optional", lambda name: None)
    data = path.read_bytes()
    with pytest.raises(ImportError, match=exactly("progress=True needs the package rich: pip install fastemb[io]")):
        layer.save(path, progress=True)
    assert path.read_bytes() == data
    assert list(tmp_path.iterdir()) == [path]


def test_a_state_of_another_table_is_refused():
    other = {
        "dtype": (np.ones((4, 3)), np.ones((4, 3), np.float32)),
        "half": (np.ones((4, 3)), np.ones((4, 3), np.float16)),
        "rows": (np.ones((4, 3)), np.ones((5, 3))),
    }
    for table, like in other.values():
        for rule in (Adam(), Adam(mode="exact"), Momentum(mode="exact")):
            assert not rule.serves(table, rule.init(like))
            text = "state must be that of optimizer for weight, in a layer that is not frozen"
            with pytest.raises(ValueError, match=exactly(text)):
                fastemb.Embedding.from_pretrained(
                    table, freeze=False, copy=False, optimizer=rule, state=rule.init(like)
                )
    followed = SGD().init(np.ones((5, 3)))
    followed.changed = np.zeros(5, np.bool)
    assert not SGD().serves(np.ones((4, 3)), followed)
    for dtype in ("f2", BFLOAT16, "f4", "f8"):
        layer = fastemb.Embedding(4, 3, dtype=dtype, optimizer=Adam())
        kept = layer.state
        layer.optimizer = Adam(lr=0.5)
        assert layer.state is kept


def test_a_pruned_layer_after_a_failed_load():
    layer = nn.PrunedEmbedding(6, 2, optimizer=Adam(mode="exact"), seed=0)
    for row in range(3):
        layer.fused_step([row], np.ones((1, 2), np.float32))
    before, saved = held(layer), layer.state_dict()
    for change in (
        {"weight": saved["weight"].astype(np.float64)},
        {"optimizer": {**saved["optimizer"], "step": -1}},
        {"row_of": np.zeros(5, int)},
    ):
        with pytest.raises(ValueError, match=r"must"):
            layer.load_state_dict({**saved, **change})
        assert same(held(layer), before)
