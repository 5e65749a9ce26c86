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


W = np.array([[0.5, -0.2, 0.1], [0.0, 0.3, 0.8], [-0.4, 0.6, 0.2], [0.7, 0.1, -0.5]])
B = np.array([0.1, 0.0, -0.2, 0.3])


def test_a_point_is_lifted():
    lift = fastemb.nn.PointEmbedding.from_pretrained(W, B)
    assert str(lift(np.array([1.0, 2.0, -1.0]))) == "[ 0.1 -0.2  0.4  1.7]"


def test_one_token_for_each_point(rng):
    """Each vector of the same size d is a token, whatever it is made of."""
    lift = fastemb.nn.PointEmbedding.from_pretrained(W, B)
    cloud = rng.standard_normal((2, 100, 3))
    tokens = lift(cloud)
    assert tokens.shape == (2, 100, 4)
    assert np.allclose(tokens, cloud @ W.T + B, rtol=1e-13)


def test_near_points_have_near_embeddings_unless_they_are_waves(rng):
    """A linear layer moves by at most its norm; Fourier features of high frequency tell close points apart."""
    p, step = rng.standard_normal((50, 3)), 1e-3
    q = p + step / np.sqrt(3)
    lift = fastemb.nn.PointEmbedding.from_pretrained(W, B)
    assert np.linalg.norm(lift(p) - lift(q), axis=1).max() <= np.linalg.norm(W, 2) * step * (1 + 1e-9)
    waves = fastemb.nn.FourierFeatures(3, 12, dtype="float64")
    assert np.linalg.norm(waves(p) - waves(q), axis=1).min() > 100 * step


def test_training_moves_what_took_part():
    """Items that the task treats alike drift together: cat and dog to one target, car and truck to another."""
    start = np.random.default_rng(0).uniform(-0.1, 0.1, (5, 2))
    emb = fastemb.Embedding.from_pretrained(start, freeze=False, optimizer=fastemb.optim.SGD(lr=0.1))
    goal = np.array([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])
    for _ in range(50):
        emb.fused_step([CAT, DOG, CAR, TRUCK], emb([CAT, DOG, CAR, TRUCK]) - goal)

    def distance(a, b):
        return np.linalg.norm(emb.weight[a] - emb.weight[b])

    assert distance(CAT, DOG) < 0.01 < 1.9 < distance(CAT, TRUCK)
    assert np.array_equal(emb.weight[4], start[4])
