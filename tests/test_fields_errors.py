"""What is not a batch of fields, not a step and not a state: errors, after which nothing has changed."""

import copy
import re

import numpy as np
import pytest
from oracles import FIELDS, tables_of
from strategies import exactly, out_of_range, read_only, unchanged

import fastemb
from fastemb import Embedding
from fastemb.nn import FieldEmbedding
from fastemb.optim import SGD, Adam, Ftrl, Momentum

GOOD = {"word": [1, 2], "tag": [0, 6], "place": [5, 199]}
BAD_IDS = [
    (
        {"word": [1, 2], "tag": [0, 6]},
        ValueError,
        "ids must have the fields ['place', 'tag', 'word'], got ['tag', 'word']",
    ),
    (
        GOOD | {1: [0, 0]},
        ValueError,
        "ids must have the fields ['place', 'tag', 'word'], got ['1', 'place', 'tag', 'word']",
    ),
    (np.zeros(2, "i4,i4"), ValueError, "ids must have the fields ['place', 'tag', 'word'], got ['f0', 'f1']"),
    (np.zeros((3, 2), int), ValueError, "ids must have a last axis of 3, one for each field, got shape (3, 2)"),
    (np.zeros((2, 4), int), ValueError, "ids must have a last axis of 3, one for each field, got shape (2, 4)"),
    (3, ValueError, "ids must have a last axis of 3, one for each field, got shape ()"),
    (GOOD | {"tag": [0, 6, 1]}, ValueError, "ids of all fields must have one shape, got [(2,), (3,)]"),
    (GOOD | {"tag": [0.0, 6.0]}, TypeError, "ids['tag'] must be integers, got float64"),
    (np.zeros((2, 3)), TypeError, "ids must be integers, got float64"),
    ([[1, 2, True], [0, 0, 0]], TypeError, "ids must be integers, got a list that holds bool"),
    (
        np.zeros(2, [("word", "i4"), ("tag", "f4"), ("place", "i4")]),
        TypeError,
        "ids['tag'] must be integers, got float32",
    ),
    (np.ma.zeros((2, 3), int), TypeError, "ids must be a NumPy array without a mask, got MaskedArray"),
]
OUT_OF_RANGE = [
    (GOOD | {"place": [5, 200]}, IndexError, out_of_range(200, 5, 200, 1), "place"),
    (GOOD | {"tag": np.array([-1, 0])}, IndexError, out_of_range(7, -1, 0, 0), "tag"),
    (np.array([[0, 0, 0], [40, 0, 0]], np.uint8), IndexError, out_of_range(40, 0, 40, 1), "word"),
    ([[0, 7, 0], [0, 2**70, 0]], IndexError, out_of_range(7, 7, 2**70, 0), "tag"),
]


@pytest.mark.parametrize(("ids", "error", "text", "field"), [(*bad, None) for bad in BAD_IDS] + OUT_OF_RANGE)
@pytest.mark.parametrize("pending", [False, True])
def test_nothing_changes_after_an_error_in_the_ids(ids, error, text, field, pending):
    options = {"max_norm": 0.1, "optimizer": Adam(mode="exact"), "init": "normal"}
    layer = FieldEmbedding({name: fastemb.Embedding(*size, **options) for name, size in FIELDS.items()})
    for row in (0, 1):
        layer.fused_step({name: [row] for name in FIELDS}, np.ones((1, 25), np.float32))  # rows 0 and 1 are behind
    dy = np.ones((2, 25), np.float32)
    if pending:
        layer.backward(GOOD, dy)
    grads = [table.grad for table in layer.tables().values()]
    for call in (layer, lambda ids: layer.backward(ids, dy), lambda ids: layer.fused_step(ids, dy)):
        with unchanged(*tables_of(layer)), pytest.raises(error) as caught:
            call(ids)
        assert re.search(text if field else exactly(text), str(caught.value))
        assert getattr(caught.value, "__notes__", []) == ([f"in field {field!r}"] if field else [])
    for table, grad in zip(layer.tables().values(), grads, strict=True):
        assert table.grad is grad
        assert (table.state.step, table.state.missed.now) == (2, 2)


@pytest.mark.parametrize(
    ("dy", "error", "text"),
    [
        (np.ones((2, 29), "f4"), ValueError, "dy must have shape (2, 30), got (2, 29)"),
        (np.ones((1, 2, 30), "f4"), ValueError, "dy must have shape (2, 30), got (1, 2, 30)"),
        (np.ones((2, 30)), TypeError, "dy must be real numbers that cast safely to float32, got float64"),
        (np.ma.ones((2, 30)), TypeError, "dy must be a NumPy array without a mask, got MaskedArray"),
    ],
)
def test_nothing_changes_after_an_error_in_the_gradient(dy, error, text):
    layer = FieldEmbedding(FIELDS, share={"other": "word"}, optimizer=Adam())
    for call in (layer.backward, layer.fused_step):
        with unchanged(*tables_of(layer)), pytest.raises(error, match=rf"\A{re.escape(text)}"):
            call(GOOD | {"other": [1, 1]}, dy)
        assert [(table.grad, table.state.step) for table in layer.tables().values()] == [(None, 0)] * 3


@pytest.mark.parametrize(
    ("rule", "lr", "error", "text"),
    [
        (None, None, RuntimeError, r"^this layer has no optimizer: pass one, as in Embedding\(N, D"),
        (None, 0.5, RuntimeError, r"^this layer has no optimizer: pass one, as in Embedding\(N, D"),
        (SGD(), -1, ValueError, "^lr must be >= 0, got -1$"),
        (Ftrl(), 0, ValueError, "^lr must be > 0, got 0$"),
        (SGD(), "1", TypeError, "^lr must be a real number, got '1'$"),
    ],
)
def test_nothing_changes_before_a_step_that_cannot_be_taken(rule, lr, error, text):
    layer = FieldEmbedding(FIELDS, share={"other": "word"}, optimizer=SGD(lr=1.0))
    layer.fields["place"].optimizer = rule
    ids, dy = GOOD | {"other": [1, 1]}, np.ones((2, 30), np.float32)
    with unchanged(*tables_of(layer)), pytest.raises(error, match=text):
        layer.fused_step(ids, dy, lr=lr)
    assert [table.grad for table in layer.tables().values()] == [None] * 3
    layer.backward(ids, dy)
    grads = [table.grad for table in layer.tables().values()]
    with unchanged(*tables_of(layer)), pytest.raises(error, match=text):
        layer.step(lr=lr)
    assert [table.grad for table in layer.tables().values()] == grads
    assert layer.fields["word"].state.step == layer.fields["tag"].state.step == 0


def test_a_read_only_table_that_would_have_to_shrink():
    first = fastemb.Embedding(3, 2, max_norm=0.1, init="normal")
    frozen = fastemb.Embedding.from_pretrained(read_only(np.ones((3, 2), np.float32)), max_norm=0.1)
    layer = FieldEmbedding({"a": first, "b": frozen})
    with (
        unchanged(first.weight),
        pytest.raises(ValueError, match="^weight is read-only and this operation writes into"),
    ):
        layer([[0, 0]])


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        (({},), {}, ValueError, "fields must be a mapping with at least one field, got {}"),
        (([("a", (3, 2))],), {}, TypeError, "fields must be a mapping with at least one field, got [('a', (3, 2))]"),
        (({"a": 3},), {}, TypeError, "field 'a' must be (num_embeddings, embedding_dim) or an Embedding, got 3"),
        (({"a": (3,)},), {}, TypeError, "field 'a' must be (num_embeddings, embedding_dim) or an Embedding, got (3,)"),
        (({"a": (0, 2)},), {}, ValueError, "num_embeddings must be >= 1, got 0"),
        (({"a": (3, 2.0)},), {}, TypeError, "embedding_dim must be an integer, got 2.0"),
        (({1: (3, 2), "a": (3, 2)},), {}, TypeError, "names of fields must be strings, got [1, 'a']"),
        (
            ({"a": (3, 2)},),
            {"share": {"b": "c"}},
            ValueError,
            "field 'b' cannot share the table of 'c': there is no such field",
        ),
        (({"a": (3, 2)},), {"share": {"a": "a"}}, ValueError, "field 'a' is given twice"),
        (
            ({"a": (3, 2)},),
            {"share": [("b", "a")]},
            TypeError,
            "share must be a mapping of fields to fields, got [('b', 'a')]",
        ),
        (
            ({"a": (3, 2), "b": fastemb.Embedding(3, 2, dtype="float64")},),
            {},
            ValueError,
            "tables must have one dtype, got ['float32', 'float64']",
        ),
        (
            ({"a": (3, 2)},),
            {"dtype": "int8"},
            TypeError,
            "dtype must be float16, bfloat16, float32 or float64, got int8",
        ),
    ],
)
def test_options_that_do_not_fit(arguments, options, error, text):
    with pytest.raises(error, match=exactly(text)):
        FieldEmbedding(*arguments, **options)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (
            lambda s: s.pop("place"),
            ValueError,
            "state_dict must have the entries ['place', 'tag', 'word'], got ['tag', 'word']",
        ),
        (lambda s: s.update(place=None), TypeError, "state_dict must be a mapping, got NoneType"),
        (lambda s: s["place"].pop("optimizer"), ValueError, "state_dict must have the entries ['optimizer', 'weight']"),
        (lambda s: s["place"].update(weight=np.ones((200, 16), "f4")), ValueError, "weight must have shape (200, 17)"),
        (
            lambda s: s["place"]["optimizer"].update(v=np.ones((200, 17))),
            ValueError,
            "state 'v' must have shape (200, 17)",
        ),
        (lambda s: s["place"]["optimizer"].update(step=-1), ValueError, "step must be >= 0, got -1"),
    ],
)
def test_state_dicts_that_do_not_fit(change, error, text):
    layer = FieldEmbedding(FIELDS, optimizer=Adam())
    saved = copy.deepcopy(layer.state_dict())
    for entry in saved.values():
        entry["weight"] += 1
        entry["optimizer"].update(step=5, m=entry["optimizer"]["m"] + 1)
    change(saved)
    with unchanged(*tables_of(layer)), pytest.raises(error, match=rf"\A{re.escape(text)}"):
        layer.load_state_dict(saved)
    assert [table.state.step for table in layer.tables().values()] == [0, 0, 0]
    with unchanged(*tables_of(layer)), pytest.raises(TypeError, match="^state_dict must be a mapping, got list$"):
        layer.load_state_dict([])


def test_a_step_that_one_table_refuses_changes_none():
    fields = FieldEmbedding(
        {
            "a": Embedding(4, 2, optimizer=SGD(), init="zeros"),
            "b": Embedding(4, 2, optimizer=Adam(weight_decay=0.5, mode="exact"), init="zeros"),
        },
        share={"c": "a"},
    )
    ids, dy = {"a": [1], "b": [1], "c": [2]}, np.ones((1, 6), np.float32)
    text = r"^lr \* weight_decay must be < 1 in mode 'exact', got 1$"
    with pytest.raises(ValueError, match=text):
        fields.fused_step(ids, dy, lr=2.0)
    assert all(table.grad is None and table.state.step == 0 for table in fields.tables().values())
    fields.backward(ids, dy)
    with pytest.raises(ValueError, match=text):
        fields.step(lr=2.0)
    assert all(table.grad is not None and table.state.step == 0 for table in fields.tables().values())
    assert not any(array.any() for array in fields.parameters())


def test_a_lookup_that_one_table_refuses_changes_none():
    rule = Momentum(lr=1.0, momentum=0.5, mode="exact")
    layers = [Embedding(4, 1, optimizer=rule, init="zeros") for _ in range(2)]
    fields = FieldEmbedding(dict(zip("ab", layers, strict=True)))
    for row in (1, 2):
        fields.fused_step({"a": [row], "b": [row]}, np.ones((1, 2), np.float32))
    layers[1].weight.flags.writeable = False
    with unchanged(*fields.parameters()), pytest.raises(ValueError, match="read-only"):
        fields({"a": [1], "b": [1]})


def test_the_norm_of_a_step_is_over_all_tables():
    fields = FieldEmbedding({"a": (4, 1), "b": (4, 1)}, init="zeros", optimizer=SGD(lr=1.0))
    fields.backward({"a": [0], "b": [1]}, np.array([[3.0, 4.0]], np.float32))
    fields.step(max_grad_norm=2.5)
    assert fields({"a": [0], "b": [1]}).tolist() == [[-1.5, -2.0]]
    fields.backward({"a": [0], "b": [1]}, np.array([[1.5, 2.0]], np.float32))
    fields.step(max_grad_norm=2.5)
    assert fields({"a": [0], "b": [1]}).tolist() == [[-3.0, -4.0]]
    for bad in (-1, np.nan):
        with pytest.raises(ValueError, match="^max_grad_norm must be >= 0"):
            fields.step(max_grad_norm=bad)


def test_data_frames_are_read_by_name():
    class Frame(dict):
        """What a data frame has of a mapping: names, and columns by name; but it is iterated by ... names too."""

        @property
        def columns(self):
            return list(self)

    fields = FieldEmbedding({"a": (4, 1), "b": (4, 2)}, seed=0)
    other_order = Frame({"b": np.array([1, 2]), "a": np.array([0, 3])})
    assert np.array_equal(fields(other_order), fields({"a": [0, 3], "b": [1, 2]}))
