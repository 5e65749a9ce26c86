"""What indices, tables and gradients may be, and what is said of those that may not: the same for every operation."""

import collections
import itertools
import re

import ml_dtypes
import numpy as np
import pytest
from strategies import BFLOAT16, FLOATS, INTEGERS, NOTE, big_endian, read_only, strided, unchanged

import fastemb


def operations(dtype=np.float32, rows=5, width=2):
    """name -> (written arrays, callable of the indices): every operation that takes indices."""
    table = np.full((rows, width), 3.0, dtype)
    state = np.zeros((rows, width), np.result_type(dtype, np.float32)) + 1
    sgd, adam = fastemb.optim.SGD(), fastemb.optim.Adam()
    adam_state = adam.init(table)
    adam_state.m, adam_state.v = state.copy(), state.copy()
    layer = fastemb.Embedding.from_pretrained(table, freeze=True, max_norm=1.0)
    trained = fastemb.Embedding.from_pretrained(table, freeze=False)

    def ones(i):
        return np.ones((*np.shape(i), width), np.float32)

    return {
        "gather": ((table,), lambda i: fastemb.gather(table, i)),
        "one_hot": ((), lambda i: fastemb.one_hot(i, rows)),
        "scatter_add": ((table,), lambda i: fastemb.scatter_add(table, i, ones(i))),
        "embedding_grad": ((), lambda i: fastemb.embedding_grad(i, ones(i), rows)),
        "renorm_": ((table,), lambda i: fastemb.renorm_(table, i, 1.0)),
        "SGD.step": ((table,), lambda i: sgd.step(table, sgd.init(table), i, ones(i))),
        "Adam.step": (
            (table, adam_state.m, adam_state.v),
            lambda i: adam.step(table, adam_state, i, ones(i)),
        ),
        "Embedding": ((table,), layer),
        "Embedding.backward": ((trained.weight,), lambda i: trained.backward(i, ones(i))),
    }


OPERATIONS = sorted(operations())


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32], ids=str)
@pytest.mark.parametrize(
    ("indices", "text"),
    [
        (np.array([0, -1, 2]), "[-1, 2] (first at position 1)." + NOTE),
        (np.array([0, 5]), "[0, 5] (first at position 1)."),
        (np.array([[1, 2], [5, 7]], np.int32), "[1, 7] (first at position 2)."),
        (np.array([[1, 5], [7, 2]]).T, "[1, 7] (first at position 1)."),
        (np.array(9, np.uint8), "[9, 9] (first at position 0)."),
        (np.array([0, 2**64 - 1], np.uint64), f"[0, {2**64 - 1}] (first at position 1)."),
        (np.array([3, -128], np.int8), "[-128, 3] (first at position 1)." + NOTE),
        (big_endian(np.array([4, 6])), "[4, 6] (first at position 1)."),
        ([2, 5], "[2, 5] (first at position 1)."),
        (5, "[5, 5] (first at position 0)."),
        ([0, 2**70], f"[0, {2**70}] (first at position 1)."),
        ([-(2**64), 1], f"[{-(2**64)}, 1] (first at position 0)." + NOTE),
        ([np.int64(-1), np.uint64(2**63)], f"[-1, {2**63}] (first at position 0)." + NOTE),
        ([2**63, -1], f"[-1, {2**63}] (first at position 0)." + NOTE),
    ],
    ids=repr,
)
def test_out_of_range(name, dtype, indices, text):
    written, call = operations(dtype)[name]
    with (
        unchanged(*written, *([indices] if isinstance(indices, np.ndarray) else [])),
        pytest.raises(
            IndexError, match="^" + re.escape("Embedding indices must be in [0, 5), but got values in " + text)
        ),
    ):
        call(indices)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(
    ("indices", "text"),
    [
        (np.array([True, False]), "indices must be integers, got bool"),
        ([True, False], "indices must be integers, got bool"),
        ([[0, True]], "indices must be integers, got a list that holds bool"),
        (collections.deque([1, True]), "indices must be integers, got a list that holds bool"),
        ([np.array([True, False]), [1, 0]], "indices must be integers, got a list that holds bool"),
        (np.array([0.0, 1.9]), "indices must be integers, got float64"),
        ([0.0, 1.0], "indices must be integers, got float64"),
        (np.array([], np.float64), "indices must be integers, got float64"),
        (np.array([1 + 0j]), "indices must be integers, got complex128"),
        (np.array([1, 2], object), "indices must be integers, got object"),
        (np.array(["1"]), "indices must be integers, got <U1"),
        (np.array([1], "m8[s]"), "indices must be integers, got timedelta64[s]"),
        (None, "indices must be integers, got object"),
        (
            np.eye(4, 5),
            "indices must be integers, got float64: this looks like a one-hot array; pass the integer ids, "
            "for example indices.argmax(axis=-1)",
        ),
    ],
    ids=repr,
)
def test_not_integers(name, indices, text):
    written, call = operations()[name]
    with unchanged(*written), pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        call(indices)


def test_ragged_lists():
    with pytest.raises(ValueError, match="inhomogeneous"):
        fastemb.gather(np.ones((3, 2)), [[0, 1], [2]])


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("indices", [[], [[]], (), np.empty((3, 0), np.uint8), np.empty(0, ">i8")], ids=repr)
def test_no_indices(name, indices):
    written, call = operations()[name]
    with unchanged(*written):
        call(indices)


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("width", [0, 2])
def test_tables_without_rows_or_columns(rows, width):
    table = np.ones((rows, width), np.float32)
    state = fastemb.optim.Adam().init(table)
    indices = np.arange(rows)
    assert fastemb.gather(table, indices).shape == (rows, width)
    fastemb.scatter_add(table, indices, np.ones((rows, width), np.float32))
    fastemb.optim.Adam().step(table, state, indices, np.ones((rows, width), np.float32))
    fastemb.renorm_(table, indices, 1.0)
    assert fastemb.embedding_grad(indices, table, rows).shape == (rows, width)
    assert fastemb.one_hot(indices, rows).shape == (rows, rows)
    with pytest.raises(IndexError, match=rf"in \[0, {rows}\)"):
        fastemb.gather(table, [rows])


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("layout", [np.asarray, strided, read_only, np.asfortranarray])
def test_indices_of_every_integer_dtype_and_layout(rng, dtype, layout):
    indices = layout(rng.integers(0, 100, (6, 7)).astype(dtype))
    plain = np.array(indices, np.int64)
    table = rng.integers(-9, 9, (100, 3)).astype(np.float32)
    grad = rng.integers(-9, 9, (6, 7, 3)).astype(np.float32)
    expected = table.copy()
    np.add.at(expected, plain, grad)
    with unchanged(indices):
        assert np.array_equal(fastemb.gather(table, indices), table[plain])
        assert np.array_equal(fastemb.one_hot(indices, 100).argmax(-1), plain)
        assert np.array_equal(fastemb.scatter_add(table, indices, grad), expected)


def test_dlpack_objects():
    class Tensor:
        """An exporter that is nothing else."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    table = np.arange(6.0).reshape(3, 2)
    assert fastemb.gather(table, Tensor(np.array([2, 0]))).tolist() == [[4, 5], [0, 1]]
    fastemb.scatter_add(table, [1], Tensor(np.ones((1, 2))))
    assert table[1].tolist() == [3, 4]


@pytest.mark.parametrize("kind", [np.matrix, np.recarray, np.memmap])
def test_subclasses_of_arrays_are_taken_as_arrays(tmp_path, kind):
    files = itertools.count()

    def of(values, dtype=np.float64):
        values = np.array(values, dtype)
        if kind is not np.memmap:
            return values.view(kind)
        mapped = np.memmap(tmp_path / str(next(files)), dtype, "w+", shape=values.shape)
        mapped[:] = values
        return mapped

    table, ids, grad = of([[1, 2], [3, 4], [5, 6]]), of([[2, 0]], int), of([[[1, 1], [2, 2]]])
    out = of(np.zeros((1, 2, 2))) if kind is not np.matrix else np.zeros((1, 2, 2))
    grad = grad if kind is not np.matrix else np.asarray(grad).reshape(1, 2, 2)
    result = fastemb.gather(table, ids)
    assert type(result) is np.ndarray
    assert result.tolist() == [[[5, 6], [1, 2]]]
    assert fastemb.gather(table, ids, out=out) is out
    assert np.array_equal(out, result)
    assert fastemb.scatter_add(table, ids, grad) is table
    assert np.asarray(table).tolist() == [[3, 4], [3, 4], [6, 7]]
    assert fastemb.embedding_grad(ids, grad, 3).rows.tolist() == [0, 2]
    rule = fastemb.optim.SGD(lr=1.0)
    rule.step(table, rule.init(table), ids, grad)
    assert np.asarray(table).tolist() == [[1, 2], [3, 4], [5, 6]]


def test_masked_arrays_are_refused_everywhere():
    table, masked = np.ones((3, 2)), np.ma.array
    with unchanged(table):
        for call in (
            lambda: fastemb.gather(table, masked([0], mask=[1])),
            lambda: fastemb.gather(table, [0], out=masked(np.zeros((1, 2)))),
            lambda: fastemb.scatter_add(table, [0], masked(np.ones((1, 2)), mask=True)),
            lambda: fastemb.embedding_grad([0], masked(np.ones((1, 2)), mask=True), 3),
            lambda: fastemb.RowGrad(masked([0]), np.ones((1, 2)), 3),
            lambda: fastemb.RowGrad([0], masked(np.ones((1, 2))), 3),
        ):
            with pytest.raises(TypeError, match="must be a NumPy array without a mask, got MaskedArray"):
                call()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_inf_and_overflow_make_no_warnings(dtype):
    big = float(ml_dtypes.finfo(dtype).max)
    with np.errstate(all="raise"):
        for values in ([big, big], [np.inf, -np.inf], [np.nan, 1.0], [np.inf, 0.0]):
            table = np.array([values, [1.0, 1.0]]).astype(dtype)
            grad = np.array([values, values]).astype(dtype)
            fastemb.gather(table, [0, 0])
            fastemb.scatter_add(table, [0, 0], grad)
            row_grad = fastemb.embedding_grad([0, 0], grad, 2)
            total = row_grad + row_grad
            total.norm()
            total.clip_norm_(1.0)
            for rule in (fastemb.optim.SGD(lr=1e3), fastemb.optim.Adam(eps=0.0)):
                state = rule.init(table)
                rule.step(table, state, [0, 0], grad)
                rule.update(table, state, fastemb.embedding_grad([1], grad[:1], 2))
            fastemb.renorm_(table, [0, 1], 1.0)
            fastemb.scatter_add(table, [0], [[1e300, -1e300]])
            fastemb.Embedding.from_pretrained(np.full((1, 1), 1e300), dtype=dtype)


def test_tensors_that_cannot_be_exported():
    class Tensor:
        def __dlpack__(self, **options):
            raise BufferError("no such dtype")  # noqa: EM101

        def __dlpack_device__(self):
            return (1, 0)

    with pytest.raises(TypeError, match=r"^indices of type .*Tensor cannot be read through DLPack: no such dtype$"):
        fastemb.gather(np.ones((3, 2)), Tensor())


class OnGPU:
    """Memory on a GPU as other libraries show it; nothing may read it."""

    __cuda_array_interface__ = {"shape": (1,), "typestr": "<i8", "data": (0, False), "version": 3}


@pytest.mark.parametrize(
    ("call", "first", "second"),
    [
        (lambda x: fastemb.gather(np.ones((3, 2)), x), "weight", "indices"),
        (lambda x: fastemb.gather(np.ones((3, 2)), [0], out=x), "weight", "out"),
        (lambda x: fastemb.scatter_add(np.ones((3, 2)), [0], x), "target", "updates"),
        (lambda x: fastemb.renorm_(np.ones((3, 2)), x, 1.0), "weight", "indices"),
        (lambda x: fastemb.embedding_bag(np.ones((3, 2)), [0], x), "indices", "offsets"),
        (lambda x: fastemb.Embedding(3, 2)(x), "weight", "indices"),
        (lambda x: fastemb.Embedding(3, 2).backward([0], x), "weight", "dy"),
    ],
)
def test_memory_on_a_gpu_beside_a_table_on_the_host(call, first, second):
    text = f"all arrays of a call must lie on one device, got {first} on cpu and {second} on cuda"
    with pytest.raises(TypeError, match=f"^{text}$"):
        call(OnGPU())


WRITES = ["scatter_add", "renorm_", "SGD.step"]


def write(name, table):
    """Call an operation that writes into `table`."""
    ones = np.ones((1, *table.shape[1:]), np.float16)
    if name == "scatter_add":
        fastemb.scatter_add(table, [0], ones)
    elif name == "renorm_":
        fastemb.renorm_(table, [0], 1.0)
    else:
        fastemb.optim.SGD().step(table, fastemb.optim.State(), [0], ones)


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize(
    ("table", "text"),
    [
        (read_only(np.ones((3, 2))), "is read-only and this operation writes into it"),
        (np.ones((3, 2), ">f4"), "must be in native byte order to be written in place, got '>f4'"),
        (np.ones((2, 3)).T, r"must have C-contiguous rows to be written in place, got strides \(8, 24\)"),
        (np.ones((3, 4))[:, ::2], r"must have C-contiguous rows to be written in place, got strides \(32, 16\)"),
        (np.lib.stride_tricks.as_strided(np.ones(9), (4, 3), (16, 8)), r"must have C-contiguous rows .* \(16, 8\)"),
        (np.ones(3), r"must be 2-D \(N, D\), got shape \(3,\)"),
        (np.ones((3, 2, 1)), r"must be 2-D \(N, D\), got shape \(3, 2, 1\)"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value.strides),
)
def test_tables_that_cannot_be_written(name, table, text):
    argument = "target" if name == "scatter_add" else "weight"
    with unchanged(table), pytest.raises(ValueError, match=f"^{argument} {text}"):
        write(name, table)


@pytest.mark.parametrize("name", ["gather", *WRITES])
@pytest.mark.parametrize(
    ("table", "text"),
    [
        (np.ones((3, 2), int), "must be float16, bfloat16, float32 or float64, got int64"),
        (np.ones((3, 2), bool), "must be float16, bfloat16, float32 or float64, got bool"),
        (np.ones((3, 2), complex), "must be float16, bfloat16, float32 or float64, got complex128"),
        (np.ones((3, 2), np.longdouble), "must be float16, bfloat16, float32 or float64, got longdouble"),
        (np.ma.ones((3, 2)), "must be a NumPy array without a mask, got MaskedArray"),
    ],
    ids=repr,
)
def test_tables_of_another_kind(name, table, text):
    text = text.replace("longdouble", str(np.dtype(np.longdouble)))
    argument = "target" if name == "scatter_add" else "weight"
    with pytest.raises(TypeError, match=f"^{argument} {re.escape(text)}$"):
        fastemb.gather(table, [0]) if name == "gather" else write(name, table)


UNSAFE = [np.longdouble, np.complex64, np.bool, object, "U3"]


@pytest.mark.parametrize(
    ("dtype", "grad"),
    [*itertools.product(FLOATS, UNSAFE), *((d, g) for d in FLOATS[:3] for g in (np.float64, np.int32))],
    ids=str,
)
def test_gradients_that_do_not_cast_safely(dtype, grad):
    table = np.ones((3, 2), dtype)
    with unchanged(table), pytest.raises(TypeError, match="^updates must be real numbers that cast safely to float"):
        fastemb.scatter_add(table, [0], np.ones((1, 2)).astype(grad))


@pytest.mark.parametrize("values", [[[True, 2.5]], [[np.longdouble(1), 1.0]], [["1", "2"]], [[1j, 0]], [[None, 1.0]]])
def test_lists_that_are_not_numbers(values):
    table = np.ones((3, 2))
    with unchanged(table), pytest.raises(TypeError, match="^updates must be real numbers that cast safely to float64"):
        fastemb.scatter_add(table, [0], values)


def test_python_numbers_take_the_dtype_of_the_table():
    assert fastemb.scatter_add(np.zeros((2, 2), np.float32), [1], [[0.5, 2]]).tolist() == [[0, 0], [0.5, 2]]


@pytest.mark.parametrize("shape", [(2,), (1, 2), (2, 2, 2), (2, 3), (2, 1), (0, 2)])
def test_gradients_of_another_shape(shape):
    table = np.ones((3, 2))
    with unchanged(table), pytest.raises(ValueError, match=r"^updates must have shape \(2, 2\), got "):
        fastemb.scatter_add(table, [0, 1], np.ones(shape))


def test_gradients_must_not_overlap_what_is_written():
    table = np.ones((4, 2))
    rule = fastemb.optim.Adam()
    state = rule.init(table)
    with unchanged(table, state.m, state.v):
        with pytest.raises(ValueError, match="target must not overlap updates in memory"):
            fastemb.scatter_add(table, [0, 1], table[1:3])
        with pytest.raises(ValueError, match="weight must not overlap grad in memory"):
            rule.step(table, state, [0, 1], table[1:3])
        with pytest.raises(ValueError, match=r"state.m must not overlap grad in memory"):
            rule.step(table, state, [0, 1], state.m[1:3])
        state.v = state.m
        with pytest.raises(ValueError, match=r"state.m must not overlap state.v in memory"):
            rule.step(table, state, [0], np.ones((1, 2)))
        state.v = table
        with pytest.raises(ValueError, match=r"weight must not overlap state.v in memory"):
            rule.step(table, state, [0], np.ones((1, 2)))
    assert state.step == 0


def test_bfloat16_needs_ml_dtypes(monkeypatch):
    monkeypatch.setattr("fastemb._compat.optional", lambda name: None)
    with pytest.raises(ImportError, match="needs the package ml_dtypes"):
        fastemb.Embedding(3, 2, dtype="bfloat16")
    assert fastemb.Embedding(3, 2, dtype=BFLOAT16).weight.dtype == BFLOAT16
