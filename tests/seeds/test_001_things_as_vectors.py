"""Seed 001, things as vectors: what its embed.py prints about the table of four items."""

import numpy as np
import pytest

import fastemb

E = np.array(
    [
        [0.9, 0.2],  # cat
        [0.8, 0.3],  # dog
        [-0.7, 0.6],  # car
        [-0.8, 0.5],  # truck
    ]
)
CAT, DOG, CAR, TRUCK = range(4)

LOOKUPS = {
    "gather": lambda item: fastemb.gather(E, item),
    "one_hot": lambda item: fastemb.one_hot(item, len(E)) @ E,
    "layer": fastemb.Embedding.from_pretrained(E),
}
each_way = pytest.mark.parametrize("look_up", LOOKUPS.values(), ids=LOOKUPS.keys())


@each_way
def test_look_up_dog(look_up):
    assert str(look_up(DOG)) == "[0.8 0.3]"


def test_dog_as_one_hot():
    assert fastemb.one_hot(DOG, 4).tolist() == [0, 1, 0, 0]


@each_way
@pytest.mark.parametrize(("other", "printed"), [(DOG, 0.141), (TRUCK, 1.726)])
def test_distance_from_cat(look_up, other, printed):
    assert round(float(np.linalg.norm(look_up(CAT) - look_up(other))), 3) == printed


@pytest.mark.parametrize("item", [CAT, DOG, CAR, TRUCK])
def test_no_row_depends_on_another_item(item):
    grad = fastemb.embedding_grad([item], np.ones((1, 2)), len(E)).to_dense()
    assert np.array_equal(grad, np.repeat(np.arange(4)[:, np.newaxis] == item, 2, axis=1))
