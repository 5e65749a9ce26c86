"""FieldEmbedding on every device: the ids that it takes, and tables on several devices."""

import numpy as np
import pytest

import fastemb
from fastemb import optim
from fastemb.nn import FieldEmbedding

from .results import GPUS, assert_same_state

IDS = {"a": np.array([3, 8, 3]), "b": np.array([0, 3, 1], np.int8), "c": np.array([1, 1, 0], np.uint64)}
SIZES = {"a": (9, 6), "b": (4, 2), "c": (2, 10)}


class Frame:
    """A data frame, as far as a layer asks."""

    def __init__(self, of):
        self.of, self.columns = of, list(of)

    def __getitem__(self, name):
        return self.of[name]


@pytest.fixture
def layers(device):
    """The same layer on the host and on the device."""
    return FieldEmbedding(SIZES, seed=1), FieldEmbedding(SIZES, seed=1, device=device.name)


def test_ids_of_all_kinds(device, layers):
    host, on_device = layers
    expected = host(IDS)
    put = {name: device.put(ids) for name, ids in IDS.items()}
    columns = np.stack([ids.astype(np.int64) for ids in IDS.values()], -1)
    for given in (
        put,
        Frame(put),
        {**put, "b": IDS["b"].tolist()},
        {name: ids.tolist() for name, ids in IDS.items()},
        device.put(columns),
        columns.tolist(),
    ):
        device.same_bits(on_device(given), expected)
    device.same_bits(on_device(device.put(columns[:0])), expected[:0])
    device.same_bits(on_device(device.put(columns[0])), expected[0])


def test_nothing_is_changed_by_an_id_out_of_range(device):
    tables = {name: fastemb.Embedding(*SIZES[name], max_norm=1e-3, device=device.name, seed=2) for name in SIZES}
    fields, before = FieldEmbedding(tables), fastemb.Embedding(*SIZES["a"], seed=2).weight
    bad = {name: device.put(ids) for name, ids in IDS.items()} | {"c": device.put(np.array([1, 2, 0]))}
    for call in (lambda: fields(bad), lambda: fields.backward(bad, device.put(np.ones((3, 18), np.float32)))):
        with pytest.raises(IndexError, match=r"\[0, 2\).*\(first at position 1\)") as raised:
            call()
        assert raised.value.__notes__ == ["in field 'c'"]
    device.same_bits(fields.fields["a"].weight, before)
    assert fields.fields["a"].grad is None


def test_a_limit_over_all_tables(device, rng):
    options = {"optimizer": optim.SGD(lr=1.0), "seed": 1}
    host, on_device = FieldEmbedding(SIZES, **options), FieldEmbedding(SIZES, device=device.name, **options)
    dy = rng.standard_normal((3, 18)).astype(np.float32)
    host.fused_step(IDS, dy, max_grad_norm=0.5)
    put = {name: device.put(ids) for name, ids in IDS.items()}
    on_device.fused_step(put, device.put(dy), max_grad_norm=0.5)
    assert_same_state(on_device, host, exact=False)


@pytest.mark.parametrize("device", GPUS, indirect=True)
def test_tables_on_two_devices(device):
    there = fastemb.Embedding(9, 4, device=device.name)
    text = r"tables of all fields must lie on one device, got \{'a': 'cuda:0', 'b': 'cpu'\}"
    with pytest.raises(TypeError, match=text):
        FieldEmbedding({"a": there, "b": (4, 3)})
    fields = FieldEmbedding({"a": (9, 4), "b": (4, 3)})
    fields.fields["a"].to(device.name)
    with pytest.raises(TypeError, match=text):
        fields([[1, 1]])
    assert fields.to(device.name)([[1, 1]]).shape == (1, 7)


@pytest.mark.parametrize("device", GPUS, indirect=True)
def test_structured_arrays_are_on_the_host(device, layers):
    records = np.array([(1, 2, 0), (3, 0, 1)], [(name, np.int64) for name in SIZES])
    with pytest.raises(TypeError, match=r"got weight on cuda:0 and ids\['a'\] on cpu"):
        layers[1](records)
