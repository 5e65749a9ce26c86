"""Checkpoints whose writer is interrupted, or that others replace while they are read."""

import copy

import numpy as np
import pytest
from saved_layers import held, same

import fastemb
from fastemb.io import Checkpointer, atomic, compact, load_layer, tensors
from fastemb.optim import SGD, Adam


def filled(value):
    layer = fastemb.Embedding(10, 2, optimizer=SGD())
    layer.weight[:] = value
    return layer


def once(monkeypatch, module, name, before=None, after=None):
    """Do something before or after the first call of a function."""
    real, waiting = getattr(module, name), [True]

    def call(*arguments):
        first, waiting[:] = bool(waiting), []
        if first and before is not None:
            before()
        result = real(*arguments)
        if first and after is not None:
            after()
        return result

    monkeypatch.setattr(module, name, call)


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_file_that_is_replaced_while_it_is_read(tmp_path, monkeypatch, when):
    path = tmp_path / "layer"
    filled(1).save(path)
    once(monkeypatch, tensors, "verify", **{when: lambda: filled(2).save(path)})
    assert (load_layer(path).weight == 1).all()
    assert (load_layer(path).weight == 2).all()


@pytest.mark.parametrize("name", ["verify", "read_header"])
@pytest.mark.parametrize("how", ["full", "compact"])
def test_a_folder_that_is_replaced_while_it_is_read(tmp_path, monkeypatch, name, how):
    layer = filled(1)
    checkpointer = Checkpointer(layer, tmp_path)
    for row in range(3):
        checkpointer.save()
        layer.fused_step([row], np.ones((1, 2), np.float32))
    checkpointer.save()
    again = {"full": lambda: checkpointer.save(full=True), "compact": lambda: compact(tmp_path)}[how]
    once(monkeypatch, tensors, name, before=again)
    assert same(held(load_layer(tmp_path)), held(layer))


@pytest.mark.parametrize("name", ["full", "compact"])
@pytest.mark.parametrize("step", ["sync_folder", "fsync"])
def test_a_new_base_that_is_interrupted(tmp_path, monkeypatch, name, step):
    layer = filled(1)
    checkpointer = Checkpointer(layer, tmp_path)
    calls = {"full": lambda: checkpointer.save(full=True), "compact": checkpointer.compact}
    for row in range(2):
        checkpointer.save()
        layer.fused_step([row], np.ones((1, 2), np.float32))
    with monkeypatch.context() as patch:
        module = atomic if step == "sync_folder" else atomic.os
        once(patch, module, step, after=interrupt)
        with pytest.raises(KeyboardInterrupt):
            calls[name]()
    layer.fused_step([5], np.ones((1, 2), np.float32))
    replaced = step == "sync_folder"  # the base was; otherwise all is as before
    assert checkpointer.save().name == ("base.safetensors" if replaced else "delta-00000002.safetensors")
    assert same(held(load_layer(tmp_path)), held(layer))
    layer.fused_step([6], np.ones((1, 2), np.float32))
    assert checkpointer.save().name.startswith("delta")
    assert same(held(load_layer(tmp_path)), held(layer))


@pytest.mark.parametrize("freeze", [False, True])
def test_tables_without_a_state_are_followed(tmp_path, freeze):
    layer = fastemb.Embedding.from_pretrained(np.zeros((10, 2)), freeze=freeze)
    checkpointer = Checkpointer(layer, tmp_path)
    checkpointer.save()
    layer.load_state_dict({"weight": np.ones((10, 2))})
    assert checkpointer.save().name == "delta-00000001.safetensors"
    assert (load_layer(tmp_path).weight == 1).all()
    assert checkpointer.save().stat().st_size == 4096


@pytest.mark.parametrize("rules", [(SGD(), SGD()), (Adam(), None), (Adam(), Adam())], ids=repr)
def test_tables_that_share_memory(tmp_path, rules):
    table = np.zeros((12, 2))
    make = fastemb.Embedding.from_pretrained
    parts = [
        make(rows, freeze=rule is None, copy=False, optimizer=rule)
        for rows, rule in zip((table[:10], table[2:]), rules, strict=True)
    ]
    same_array = make(parts[0].weight, freeze=False, copy=False, optimizer=rules[0])
    layer = fastemb.nn.FieldEmbedding({"a.b": parts[0], "c": parts[1], "d": same_array})
    checkpointer = Checkpointer(layer, tmp_path)
    checkpointer.save()
    for part, row in ((parts[0], 5), (same_array, 7), (parts[1], 6)):
        if part.optimizer is not None:
            part.fused_step([row], np.ones((1, 2)))
        assert checkpointer.save().name.startswith("delta")
        assert same(held(load_layer(tmp_path)), held(layer))


def test_one_state_of_two_tables(tmp_path):
    table, rule = np.zeros((10, 2)), Adam()
    state = rule.init(table)
    make = fastemb.Embedding.from_pretrained
    parts = [make(table, freeze=False, copy=False, optimizer=rule, state=state) for _ in range(2)]
    layer = fastemb.nn.FieldEmbedding({"a": parts[0], "b": parts[1]})
    checkpointer = Checkpointer(layer, tmp_path)
    for row, part in ((1, parts[0]), (2, parts[1]), (3, parts[0])):
        part.fused_step([row], np.ones((1, 2)))
        checkpointer.save()
        assert same(held(load_layer(tmp_path)), held(copy.deepcopy(layer)))
