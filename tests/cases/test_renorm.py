"""max_norm: once per distinct row, in place, only downwards."""

import numpy as np
import pytest
from strategies import exactly, unchanged

import fastemb


def renormed(weight, rows, max_norm, norm_type=2.0):
    """The rule, once per distinct row, with norms in float64."""
    wanted = weight.copy()
    for r in sorted(set(rows)):
        norm = np.linalg.norm(weight[r].astype(np.float64), norm_type)
        if norm > max_norm:
            wanted[r] *= weight.dtype.type(max_norm / (norm + 1e-7))
    return wanted


IDS = {
    "sorted": np.repeat([0, 1], 2000),
    "alternating": np.tile([0, 1], 2000),
    "reversed": np.tile([1, 0], 2000),
    "shuffled": np.random.default_rng(0).permutation(np.repeat([0, 1], 2000)),
}


@pytest.mark.parametrize("index_type", [np.int32, np.int64, np.uint8])
@pytest.mark.parametrize("ids", IDS.values(), ids=IDS.keys())
def test_repeated_ids_shrink_a_row_once(ids, index_type):
    """https://github.com/pytorch/pytorch/issues/44792, /4514: repeated unsorted ids gave other norms at each run."""
    weight = np.random.default_rng(3).integers(-1000, 1000, (2, 64)).astype(np.float32)
    wanted = renormed(weight, [0, 1], 1.0)
    # Rounding leaves both of these rows beyond the limit, so that shrinking them again would show.
    assert (renormed(wanted, [0, 1], 1.0) != wanted).any(axis=1).all()
    ids = ids.astype(index_type)
    layer = fastemb.Embedding.from_pretrained(weight.copy(), max_norm=1.0)
    with unchanged(ids):
        assert fastemb.renorm_(weight, ids, 1.0) is weight
        out = layer(ids)
    assert np.array_equal(weight, wanted)
    assert np.array_equal(layer.weight, wanted)
    assert np.array_equal(out, wanted[ids])


def test_a_lookup_edits_the_table():
    """https://github.com/pytorch/pytorch/issues/26596 and /28959: what was computed from the table before is stale."""
    layer = fastemb.Embedding(3, 5, max_norm=1.0, init=lambda _, shape, dtype: np.full(shape, 2.0, dtype))
    before = layer.weight.copy()
    out = layer([0, 2, 0])
    assert np.array_equal(layer.weight[1], before[1])
    assert np.array_equal(out, layer.weight[[0, 2, 0]])
    assert (layer.weight[[0, 2]] < before[[0, 2]]).all()
    fastemb.gather(before, [0])  # the plain lookup does not
    assert np.array_equal(before, np.full((3, 5), 2.0))


NORMS = [(1, 32.0), (2, 12.0), (2.0, 12.0), (3.0, 800 ** (1 / 3)), (np.inf, 8.0)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("norm_type", "norm"), NORMS)
def test_the_option_works_everywhere(norm_type, norm, dtype):
    """https://github.com/pytorch/pytorch/issues/1057, /7947, /3179: skipped on one device, norm_type had no default."""
    row = np.array([-8, 4, -4, 4, -4, 2, -2, 2, -2, 0], dtype)
    weight = np.zeros((5, 10), dtype)
    weight[1] = weight[2] = row
    layer = fastemb.Embedding.from_pretrained(weight.copy(), max_norm=1, norm_type=norm_type, freeze=False)
    out = layer([[1]])
    fastemb.renorm_(weight, [[1]], 1, norm_type)
    np.testing.assert_allclose(weight[1], row / (norm + 1e-7), rtol=2 * np.finfo(dtype).eps, atol=0)
    assert np.array_equal(weight[2], row)
    assert not weight[[0, 3, 4]].any()
    assert np.array_equal(layer.weight, weight)
    assert np.array_equal(out, weight[[[1]]])


def test_norm_type_is_2_by_default():
    """https://github.com/pytorch/pytorch/issues/3179: norm_type had no default."""
    row = np.full((1, 16), 2.0)  # its 2-norm is 8
    wanted = row * (1 / (8 + 1e-7))
    layer = fastemb.Embedding.from_pretrained(row, max_norm=1.0, freeze=False)
    assert np.array_equal(layer([0]), wanted)
    assert np.array_equal(fastemb.renorm_(row, [0], 1.0), wanted)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("max_norm", [1.0, 0.5, np.inf])
def test_short_rows_are_not_stretched(max_norm, dtype):
    """https://github.com/akanimax/pro_gan_pytorch/pull/37: max_norm=1 was read as normalising to 1."""
    weight = np.array([[0.3, 0.0], [0.0, -0.25], [0.0, 0.0], [0.5, 0.0]], dtype)  # the last is at the limit 0.5
    with unchanged(weight):
        fastemb.renorm_(weight, [0, 1, 2, 3, 0], max_norm)


def test_negative_max_norm_and_no_columns():
    """https://github.com/pytorch/pytorch/issues/115239: no columns, max_norm -0.87 and a bad id: a segfault."""
    weight = np.zeros((4, 0), np.float16)
    with pytest.raises(ValueError, match=exactly("max_norm must be >= 0, got -0.87")):
        fastemb.renorm_(weight, [[0, 51, 81]], -0.87)
    with pytest.raises(ValueError, match=exactly("max_norm must be >= 0, got -0.87")):
        fastemb.Embedding(4, 1, max_norm=-0.87)
    bad = exactly("Embedding indices must be in [0, 4), but got values in [0, 81] (first at position 1).")
    with pytest.raises(IndexError, match=bad):
        fastemb.renorm_(weight, [[0, 51, 81]], 0.87)
    with pytest.raises(IndexError, match=bad):
        fastemb.gather(weight, [[0, 51, 81]])
    assert fastemb.gather(fastemb.renorm_(weight, [[0, 3, 1]], 0.87), [[0, 3, 1]]).shape == (1, 3, 0)


def unwriteable():
    frozen = np.full((4, 3), 9.0, np.float32)
    frozen.flags.writeable = False
    return {
        # https://github.com/numba/numba/issues/1229: compiled code wrote into read-only arrays.
        "read_only": (frozen, "weight is read-only and this operation writes into it"),
        # https://github.com/numba/numba/issues/2243: big-endian arrays.
        "big_endian": (
            np.full((4, 3), 9.0, ">f4"),
            "weight must be in native byte order to be written in place, got '>f4'",
        ),
    }


@pytest.mark.parametrize(("weight", "message"), unwriteable().values(), ids=unwriteable().keys())
def test_tables_that_cannot_be_written(weight, message):
    layer = fastemb.Embedding.from_pretrained(weight, max_norm=1.0)
    with unchanged(weight), pytest.raises(ValueError, match=exactly(message)):
        fastemb.renorm_(weight, [0], 1.0)
    with unchanged(weight), pytest.raises(ValueError, match=exactly(message)):
        layer([0])
