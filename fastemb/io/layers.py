"""Layers as plain values and arrays, and made again from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import optim
from ..nn import (
    Embedding,
    EmbeddingBag,
    FieldEmbedding,
    FourierFeatures,
    HashEmbedding,
    LearnedPositions,
    PointEmbedding,
    PrunedEmbedding,
    RareTokenEmbedding,
    RelativePositions,
)
from ..nn.composite import Composite
from ..nn.table import TableLayer
from ..optim import Optimizer

_RULES = {
    rule.__name__: rule
    for rule in (optim.SGD, optim.Momentum, optim.Adagrad, optim.RowWiseAdagrad, optim.RMSprop, optim.Adam, optim.Ftrl)
}


class Kind(NamedTuple):
    """How a class of layers is told apart: its options as plain values, and a layer from these and a `state_dict`."""

    layer: type
    options: Callable[[Any], dict[str, Any]]
    make: Callable[[type, dict[str, Any], dict[str, Any]], Any]


# What a layer is


def describe(layer: Any) -> dict[str, Any]:
    """Class, options and hyper-parameters, as JSON has them; TypeError for what is no layer of ours."""
    name = type(layer).__name__
    if name not in _KINDS or _KINDS[name].layer is not type(layer):
        msg = f"layer must be one of {', '.join(sorted(_KINDS))}, got {name}"
        raise TypeError(msg)
    rules = {} if isinstance(layer, FieldEmbedding) else {name: t.optimizer for name, t in tables_of(layer).items()}
    return {
        "class": name,
        "options": _KINDS[name].options(layer),
        "optimizers": {name: _describe_rule(rule) for name, rule in rules.items()},
    }


def rebuild(told: dict[str, Any], saved: dict[str, Any]) -> Any:
    """The layer that was described, with what its `state_dict` held; any of several errors if they do not fit."""
    kind = _KINDS[told["class"]]
    layer = kind.make(kind.layer, dict(told["options"]), saved)
    tables = tables_of(layer)
    for name, rule in told["optimizers"].items():
        tables[name].optimizer = _rebuild_rule(rule)
    if isinstance(layer, TableLayer):  # its table is there already
        if layer.state is not None:
            layer.state.load_state_dict(saved["optimizer"])
    elif not isinstance(layer, FieldEmbedding):
        layer.load_state_dict(saved)
    return layer


def class_of(told: dict[str, Any]) -> type:
    """The class of a layer that was described."""
    return _KINDS[told["class"]].layer


def tables_of(layer: Any) -> dict[str, TableLayer]:
    """The tables of a layer by name; that of a layer around one table has none."""
    if isinstance(layer, TableLayer):
        return {"": layer}
    return layer.tables() if isinstance(layer, Composite) else {}


def _describe_rule(rule: Optimizer | None) -> dict[str, Any] | None:
    if rule is None:
        return None
    name = type(rule).__name__
    if _RULES.get(name) is not type(rule):
        msg = f"optimizer must be one of {', '.join(sorted(_RULES))} to be saved, got {name}"
        raise TypeError(msg)
    return {"class": name, **dataclasses.asdict(rule)}


def _rebuild_rule(told: dict[str, Any] | None) -> Optimizer | None:
    if told is None:
        return None
    return _RULES[told["class"]](**{name: value for name, value in told.items() if name != "class"})


# What a layer holds


def flatten(saved: Mapping[str, Any], before: str = "") -> tuple[dict[str, NDArray[Any]], dict[str, int]]:
    """The arrays and the numbers of a `state_dict`, by the names of their places with dots between them."""
    arrays: dict[str, NDArray[Any]] = {}
    numbers: dict[str, int] = {}
    for key, value in saved.items():
        name = before + place_of(key)
        if isinstance(value, Mapping):
            inner = flatten(value, name + ".")
            arrays |= inner[0]
            numbers |= inner[1]
        elif isinstance(value, int):
            numbers[name] = value
        else:
            arrays[name] = value
    return arrays, numbers


def place_of(key: str) -> str:
    """A key of a `state_dict` as names have it, without a dot."""
    return key.replace("%", "%25").replace(".", "%2E")


def unflatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """The `state_dict` again."""
    saved: dict[str, Any] = {}
    for name, value in values.items():
        *parents, last = map(unquote, name.split("."))
        place = saved
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return saved


# Layers around one table


def _table_options(layer: TableLayer) -> dict[str, Any]:
    names = ("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq")
    return {"freeze": not layer.parameters(), **{name: getattr(layer, name) for name in names}}


def _bag_options(layer: EmbeddingBag) -> dict[str, Any]:
    return {**_table_options(layer), "mode": layer.mode, "include_last_offset": layer.include_last_offset}


def _positions_options(layer: LearnedPositions) -> dict[str, Any]:
    return {**_table_options(layer), "scale_by_sqrt_dim": layer.scale_by_sqrt_dim}


def _make_table(kind: Any, options: dict[str, Any], saved: dict[str, Any]) -> Any:
    """A table that is not frozen is a copy anyway."""
    scaled = options.pop("scale_by_sqrt_dim", None)
    weight = saved["weight"]
    layer = kind.from_pretrained(np.array(weight) if options["freeze"] else weight, **options)
    if scaled is not None:
        layer.scale_by_sqrt_dim = scaled
    return layer


# Layers made of several


def _fields_options(layer: FieldEmbedding) -> dict[str, Any]:
    name_of = {id(table): name for name, table in layer.tables().items()}
    return {
        "fields": {name: name_of[id(table)] for name, table in layer.fields.items()},
        "tables": {name: describe(table) for name, table in layer.tables().items()},
    }


def _make_fields(kind: Any, options: dict[str, Any], saved: dict[str, Any]) -> Any:
    tables = {name: rebuild(told, saved[name]) for name, told in options["tables"].items()}
    return kind({field: tables[name] for field, name in options["fields"].items()})


def _dtype_name(dtype: np.dtype[Any]) -> str:
    return dtype.newbyteorder("=").name


def _hash_options(layer: HashEmbedding) -> dict[str, Any]:
    factors = layer.importance
    return {
        "num_buckets": layer.num_buckets,
        "embedding_dim": layer.embedding_dim,
        "num_hashes": layer.num_hashes,
        "weighted": factors is not None,
        "num_weights": None if factors is None else len(factors),
        "hash_seed": layer.hash_seed,
        "dtype": _dtype_name(layer.weight.dtype),
    }


def _unset(_rng: np.random.Generator, shape: tuple[int, int], dtype: DTypeLike) -> NDArray[Any]:
    """An initialiser of what will be written."""
    return np.empty(shape, dtype)


def _make_unset(kind: Any, options: dict[str, Any], _saved: dict[str, Any]) -> Any:
    return kind(**options, init=_unset)


def _make_plain(kind: Any, options: dict[str, Any], _saved: dict[str, Any]) -> Any:
    return kind(**options)


def _pruned_options(layer: PrunedEmbedding) -> dict[str, Any]:
    (table,) = layer.tables().values()
    return {name: getattr(table, name) for name in ("max_norm", "norm_type", "scale_grad_by_freq")}


def _make_pruned(kind: Any, options: dict[str, Any], saved: dict[str, Any]) -> Any:
    return kind.from_pretrained(saved["weight"][:-1], row_of=saved["row_of"], **options)


def _rare_options(layer: RareTokenEmbedding) -> dict[str, Any]:
    return {
        "num_embeddings": layer.num_embeddings,
        "embedding_dim": layer.embedding_dim,
        "unk_idx": layer.unk_idx,
        "padding_idx": layer.tables()["tokens"].padding_idx,
        "min_freq": layer.min_freq,
        "dtype": _dtype_name(layer.weight.dtype),
    }


def _features_options(layer: FourierFeatures) -> dict[str, Any]:
    kind, scale = layer._kind, layer._scale  # noqa: SLF001
    return {
        "in_features": layer.in_features,
        "num_frequencies": len(layer.frequencies) // (layer.in_features if kind == "log" else 1),
        "kind": kind,
        "scale": scale,
        "include_input": layer.include_input,
        "dtype": _dtype_name(layer.dtype),
    }


def _points_options(layer: PointEmbedding) -> dict[str, Any]:
    features = layer.features
    return {"freeze": not layer.parameters(), "features": None if features is None else describe(features)}


def _make_points(kind: Any, options: dict[str, Any], saved: dict[str, Any]) -> Any:
    told = options.pop("features")
    features = None if told is None else rebuild(told, saved["features"])
    bias = saved["bias"]["weight"][:, 0].copy() if "bias" in saved else None
    return kind.from_pretrained(np.array(saved["weight"]["weight"]), bias, features=features, **options)


_KINDS = {
    kind.layer.__name__: kind
    for kind in (
        Kind(Embedding, _table_options, _make_table),
        Kind(EmbeddingBag, _bag_options, _make_table),
        Kind(FieldEmbedding, _fields_options, _make_fields),
        Kind(FourierFeatures, _features_options, _make_plain),
        Kind(HashEmbedding, _hash_options, _make_unset),
        Kind(LearnedPositions, _positions_options, _make_table),
        Kind(PointEmbedding, _points_options, _make_points),
        Kind(PrunedEmbedding, _pruned_options, _make_pruned),
        Kind(RareTokenEmbedding, _rare_options, _make_plain),
        Kind(RelativePositions, _table_options, _make_table),
    )
}
