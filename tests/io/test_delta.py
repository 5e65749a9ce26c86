"""Checkpoints by the rows that changed: what is written, the same bits, files that do not belong together."""

import json
import re

import numpy as np
import pytest
from saved_layers import LAYERS, RULES, held, metadata, same, train
from strategies import exactly, same_bits

import fastemb
from fastemb import nn
from fastemb.io import Checkpointer, compact, load_layer, save_layer
from fastemb.optim import SGD, Adagrad, Adam, Momentum


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def rows_in(path):
    """The rows of each table, and the arrays that are whole, in a file of what changed."""
    header, told = metadata(path)
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    rows = {}
    for name in set(told["rows"].values()):
        lo, hi = header[name]["data_offsets"]
        rows[name] = np.frombuffer(raw[start + lo : start + hi], np.int64).tolist()
    return rows, set(header) - {"__metadata__", *rows, *told["rows"]}


# The same bits


@pytest.mark.parametrize("rule", ["none", "SGD", "Momentum-exact", "RMSprop", "Adam-exact"])
@pytest.mark.parametrize("kind", LAYERS)
def test_every_layer_after_every_save(tmp_path, kind, rule):
    layer = LAYERS[kind](RULES[rule])
    checkpointer = Checkpointer(layer, tmp_path / "run")
    for k in range(4):
        for seed in range(2 * k, 2 * k + 2) if RULES[rule] else ():
            train(layer, seed)
        if k == 2:
            layer.flush()
        before = held(layer)
        path = checkpointer.save()
        assert path.name == ("base.safetensors" if k == 0 else f"delta-0000000{k}.safetensors")
        assert same(held(layer), before)
        assert same(held(load_layer(tmp_path / "run")), before)
    checkpointer.compact()
    assert names(tmp_path / "run") == ["base.safetensors"]
    assert same(held(load_layer(tmp_path / "run")), before)
    resumed = Checkpointer.resume(tmp_path / "run")
    for seed in (9, 10) if RULES[rule] else ():
        for one in (layer, resumed.layer):
            train(one, seed)
    assert resumed.save().name == "delta-00000004.safetensors"
    assert same(held(load_layer(tmp_path / "run")), held(layer))
    compact(tmp_path / "run")
    assert same(held(type(layer).load(tmp_path / "run")), held(layer))


def test_only_rows_that_changed_are_written(tmp_path):
    layer = fastemb.Embedding(1000, 64, padding_idx=5, optimizer=Adam(), seed=0)
    checkpointer = Checkpointer(layer, tmp_path)
    checkpointer.save()
    layer([1, 2, 3])
    assert rows_in(checkpointer.save()) == ({}, set())
    layer.fused_step([7, 3, 7, 5], np.ones((4, 64), np.float32))
    layer.backward([900], np.ones((1, 64), np.float32))
    path = checkpointer.save()
    assert rows_in(path) == ({"rows": [3, 7]}, set())
    assert path.stat().st_size == 4096 + 2 * (3 * 256 + 8)
    layer.step()
    assert rows_in(checkpointer.save()) == ({"rows": [900]}, set())
    layer.optimizer.step(layer.weight, layer.state, [4], np.ones((1, 64), np.float32))  # not through the layer
    assert rows_in(checkpointer.save()) == ({"rows": [4]}, set())
    layer.optimizer = Adam(lr=0.5)
    assert rows_in(checkpointer.save()) == ({}, set())
    assert load_layer(tmp_path).optimizer == Adam(lr=0.5)
    layer.load_state_dict(fastemb.Embedding(1000, 64, optimizer=Adam(), seed=1).state_dict())
    assert rows_in(checkpointer.save()) == ({"rows": list(range(1000))}, set())
    assert same(held(load_layer(tmp_path)), held(layer))


@pytest.mark.parametrize("rule", [Adam(mode="exact"), Momentum(mode="exact")], ids=repr)
def test_rows_that_catch_up_when_they_are_read(tmp_path, rule):
    layer = fastemb.Embedding(10, 2, optimizer=rule, seed=0)
    checkpointer = Checkpointer(layer, tmp_path)
    for row in (1, 2):
        layer.fused_step([row], np.ones((1, 2), np.float32))
    checkpointer.save()
    layer([1, 8])
    assert rows_in(checkpointer.save()) == ({"rows": [1, 8]}, set())  # 8 has no movement, but is up to date
    layer.fused_step([3], np.ones((1, 2), np.float32))
    assert rows_in(checkpointer.save()) == ({"rows": [3]}, {"optimizer.history"})
    layer.flush()
    assert rows_in(checkpointer.save()) == ({"rows": list(range(10))}, {"optimizer.history"})
    assert same(held(load_layer(tmp_path)), held(layer))


@pytest.mark.parametrize("rule", [None, SGD()], ids=repr)
@pytest.mark.parametrize("kind", [fastemb.Embedding, fastemb.EmbeddingBag])
def test_rows_that_max_norm_shrinks(tmp_path, kind, rule):
    layer = kind(10, 2, max_norm=0.5, optimizer=rule, init=lambda rng, shape, dtype: np.ones(shape))
    checkpointer = Checkpointer(layer, tmp_path)
    checkpointer.save()
    layer(np.array([[1, 3]]))
    path = checkpointer.save()
    assert rows_in(path) == (({}, {"weight"}) if rule is None else ({"rows": [1, 3]}, set()))
    assert same(held(load_layer(tmp_path)), held(layer))
    assert layer.weight[1, 0] < 0.5
    with pytest.raises(IndexError, match=r"must be in \[0, 10\), but got values in \[-1, 10\]"):
        layer(np.array([[-1, 10]]))
    assert rows_in(checkpointer.save()) == ({}, set())


def test_frozen_tables_are_written_once(tmp_path):
    table = np.ones((50, 2))
    frozen = fastemb.Embedding.from_pretrained(table)
    layer = nn.FieldEmbedding({"a": frozen, "b": fastemb.Embedding(9, 2, optimizer=SGD(), dtype="f8", seed=0)})
    checkpointer = Checkpointer(layer, tmp_path)
    checkpointer.save()
    layer.fields["b"].fused_step([3], np.ones((1, 2)))
    assert rows_in(checkpointer.save()) == ({"b.rows": [3]}, set())
    assert same(held(load_layer(tmp_path)), held(layer))


def test_what_is_written_as_a_whole(tmp_path):
    layer = nn.PrunedEmbedding(12, 3, optimizer=Adagrad(), seed=8)
    checkpointer = Checkpointer(layer, tmp_path)
    saves = [checkpointer.save()]
    layer.fused_step([3], np.ones((1, 3), np.float32))
    saves.append(checkpointer.save())
    layer.prune(keep=6)
    saves.append(checkpointer.save())
    assert names(tmp_path) == ["base.safetensors"]
    layer.fused_step([0, 1, 2, 3], np.ones((4, 3), np.float32))
    saves.append(checkpointer.save())
    layer.weight[0] = 7  # nobody can see this
    saves += [checkpointer.save(full=True), checkpointer.save()]
    (table,) = layer.tables().values()
    table.optimizer = Adam()
    saves.append(checkpointer.save())
    expected = ["base", "delta-00000001", "base", "delta-00000002", "base", "delta-00000003", "base"]
    assert [path.stem for path in saves] == expected
    assert same(held(load_layer(tmp_path)), held(layer))
    table.weight = table.weight.copy()
    assert [checkpointer.save().stem for _ in range(2)] == ["base", "delta-00000004"]
    for rule in (None, SGD()):
        table.optimizer = rule
        assert checkpointer.save().stem == "base"
        assert checkpointer.save().stem != "base"


def test_which_ids_are_rare_is_written_where_it_changed(tmp_path):
    layer = LAYERS["RareTokenEmbedding"](SGD())
    checkpointer = Checkpointer(layer, tmp_path)
    checkpointer.save()
    saved = layer.state_dict()
    saved["known"] = np.arange(12) > 8
    layer.load_state_dict(saved)
    assert rows_in(checkpointer.save())[1] == {"known"}
    assert same(held(load_layer(tmp_path)), held(layer))


def test_many_rows_of_a_table(tmp_path, rng):
    """More than a block of rows, some of them saved again in later files."""
    layer = fastemb.Embedding(5000, 40, optimizer=Adagrad(), seed=0)
    checkpointer = Checkpointer(layer, tmp_path)
    checkpointer.save()
    for _ in range(3):
        layer.fused_step(rng.integers(0, 5000, 3000), rng.standard_normal((3000, 40), np.float32))
        checkpointer.save()
    compact(tmp_path)
    assert same(held(load_layer(tmp_path)), held(layer))


# Folders


def test_a_folder_that_is_used_again(tmp_path):
    first = fastemb.Embedding(10, 2, optimizer=SGD(), seed=0)
    checkpointer = Checkpointer(first, tmp_path / "a" / "b")
    for _ in range(3):
        checkpointer.save()
    second = fastemb.EmbeddingBag(4, 3, optimizer=Adam(), seed=1)
    other = Checkpointer(second, str(tmp_path / "a" / "b"))
    assert len(names(other.folder)) == 3  # nothing is lost before it is saved
    other.save()
    assert names(other.folder) == ["base.safetensors"]
    assert other.save().name == "delta-00000003.safetensors"
    assert same(held(load_layer(other.folder)), held(second))


def test_deltas_that_a_killed_compaction_left(tmp_path):
    layer = fastemb.Embedding(10, 2, optimizer=SGD(), seed=0)
    checkpointer = Checkpointer(layer, tmp_path)
    checkpointer.save()
    layer.fused_step([1], np.ones((1, 2), np.float32))
    path = checkpointer.save()
    data = path.read_bytes()
    checkpointer.compact()
    path.write_bytes(data)
    assert same(held(load_layer(tmp_path)), held(layer))
    layer.fused_step([2], np.ones((1, 2), np.float32))
    assert checkpointer.save().name == "delta-00000002.safetensors"
    assert same(held(load_layer(tmp_path)), held(layer))
    checkpointer.compact()
    assert names(tmp_path) == ["base.safetensors"]


@pytest.fixture
def chain(tmp_path):
    """A folder with a base and three files after it."""
    layer = fastemb.Embedding(10, 2, optimizer=Adam(mode="exact"), seed=0)
    checkpointer = Checkpointer(layer, tmp_path / "run")
    for row in range(4):
        layer.fused_step([row], np.ones((1, 2), np.float32))
        checkpointer.save()
    return tmp_path / "run"


def test_files_that_are_missing_or_of_others(chain, tmp_path):
    def wrong(text, error=ValueError):
        before = {path: path.read_bytes() for path in chain.iterdir()}
        for call in (load_layer, Checkpointer.resume, compact):
            with pytest.raises(error, match=text):
                call(chain)
        assert {path: path.read_bytes() for path in chain.iterdir()} == before

    base, one, two, three = sorted(chain.iterdir())
    kept = {path: path.read_bytes() for path in (base, one, two, three)}
    two.unlink()
    wrong(exactly(f"{two} is missing, and {three.name} is there"))
    two.write_bytes(kept[one])
    text = "{} does not go on after the file before it: they are of different checkpoints"
    wrong(exactly(text.format(two)))
    two.write_bytes(kept[two][:-1])
    wrong(rf"\A{re.escape(str(two))} is truncated or altered: there are \d+ bytes, and \d+ in its header\Z")
    two.write_bytes(kept[two][:-1] + bytes([kept[two][-1] ^ 1]))
    wrong(exactly(f"{two} is truncated or altered: its checksum is not that of its bytes"))
    two.write_bytes(kept[two])
    save_layer(fastemb.Embedding(10, 2, optimizer=Adam(mode="exact"), seed=0), base)
    wrong(exactly(text.format(one)))
    base.unlink()
    wrong("base.safetensors", FileNotFoundError)
    base.write_bytes(kept[base])
    assert load_layer(chain).state.step == 4
    with pytest.raises(ValueError, match=exactly(text.format(three))):
        load_layer(three)
    three.unlink()  # the last ones may be given up
    assert load_layer(chain).state.step == 3


def test_files_that_do_not_fit_but_say_so(chain):
    from fastemb.io import checkpoint

    last = max(chain.iterdir())
    _, told = metadata(last)
    last.unlink()
    for arrays in ({"rows": np.array([99]), "weight": np.ones((1, 2), np.float32)}, {"weight": np.ones((1, 2))}):
        told["rows"] = {"weight": "rows"}
        checkpoint.write(last, arrays, told, None)
        with pytest.raises(ValueError, match=rf"\A{re.escape(str(last))} does not fit the file before it: "):
            load_layer(chain)


def test_compaction_beside_a_checkpointer(chain, tmp_path):
    checkpointer = Checkpointer.resume(chain)
    compact(chain)
    checkpointer.layer.fused_step([1], np.ones((1, 2), np.float32))
    checkpointer.save()
    with pytest.raises(ValueError, match="does not go on after the file before it"):
        load_layer(chain)
    checkpointer.save(full=True)
    assert same(held(load_layer(chain)), held(checkpointer.layer))


def test_what_a_failed_save_leaves(tmp_path, monkeypatch):
    layer = fastemb.Embedding(10, 2, optimizer=SGD(), seed=0)
    checkpointer = Checkpointer(layer, tmp_path)
    fail = [True]

    def write(*arguments):
        if fail[0]:
            raise OSError
        return real(*arguments)

    from fastemb.io import delta

    real = delta.write
    monkeypatch.setattr(delta, "write", write)
    for _ in range(2):  # a base, then a file after it
        layer.fused_step([3], np.ones((1, 2), np.float32))
        fail[0] = True
        for _ in range(2):
            with pytest.raises(OSError, match=r"\A\Z"):
                checkpointer.save()
        fail[0] = False
        layer.fused_step([4], np.ones((1, 2), np.float32))
        path = checkpointer.save()
        assert same(held(load_layer(tmp_path)), held(layer))
    assert rows_in(path) == ({"rows": [3, 4]}, set())


def test_layers_that_are_refused(tmp_path):
    with pytest.raises(TypeError, match="layer must be one of "):
        Checkpointer({}, tmp_path / "run")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        Checkpointer(fastemb.Embedding(2, 2), tmp_path / "file")
    with pytest.raises(RuntimeError, match="embedding_dim of this layer is not known yet"):
        Checkpointer(fastemb.Embedding(2), tmp_path / "run").save()


def test_progress(tmp_path, capsys):
    layer = fastemb.Embedding(1000, 60, optimizer=SGD())
    Checkpointer(layer, tmp_path, progress=True).save()
    assert re.search(r"base\.safetensors .* 240\.0/240\.0 kB", capsys.readouterr().err)
    compact(tmp_path, progress=True)
    assert "240.0/240.0 kB" in capsys.readouterr().err
    Checkpointer(layer, tmp_path).save()
    assert capsys.readouterr().err == ""


def test_the_base_is_a_file_like_any_other(chain):
    assert json.loads(json.dumps(metadata(chain / "base.safetensors")[1]))["sequence"] == 0
    assert load_layer(chain / "base.safetensors").state.step == 1
    assert same_bits(
        np.asarray(fastemb.io.open_table(chain / "base.safetensors")), load_layer(chain / "base.safetensors").weight
    )
