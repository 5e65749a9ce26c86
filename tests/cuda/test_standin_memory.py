"""Memory of the stand-in for CuPy: views, assignments, what the host waits for, devices, other libraries, kernels."""

import copy
import operator
import pickle
import sys

import ml_dtypes
import numpy as np
import pytest

from fastemb.kernels.cuda import launch
from fastemb.kernels.cuda.gather import gather

from . import standin
from .launched import cupy as cupy
from .launched import emulated as emulated
from .launched import emulator

xp = standin.cupy


@pytest.fixture
def x():
    return xp.arange(12, dtype=np.float32).reshape(3, 4)


# Views and copies

VIEWS = {
    "slice": lambda x: x[1:, ::2],
    "one": lambda x: x[1, 2],
    "row": lambda x: x[-1],
    "axis": lambda x: x[:, None],
    "reshape": lambda x: x.reshape(2, 6),
    "reshape to a tuple": lambda x: xp.reshape(x, (-1,)),
    "T": lambda x: x.T,
    "ravel": lambda x: x.ravel(),
    "view": lambda x: x.view(np.uint32),
    "halves": lambda x: x.view(np.uint16),
    "broadcast_to": lambda x: xp.broadcast_to(x, (2, 3, 4)),
    "diagonal": lambda x: x.diagonal(),
    "split": lambda x: xp.split(x, 3)[1],
    "iteration": lambda x: list(x)[2],
    "interface": lambda x: xp.asarray(Exporter(x.T)),
    "dlpack": lambda x: xp.from_dlpack(x),
}
COPIES = {
    "index array": lambda x: x[xp.arange(3)],
    "0-d index": lambda x: x[xp.asarray(1)],
    "list": lambda x: x[[0, 1]],
    "mask": lambda x: x[x > 0],
    "take": lambda x: x.take(0, axis=0),
    "astype": lambda x: x.astype(np.float32),
    "copy": lambda x: x.copy(),
    "copy.copy": lambda x: copy.copy(x),
    "deepcopy": lambda x: copy.deepcopy(x),
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "array": lambda x: xp.array(x),
    "nested": lambda x: xp.asarray([[x, x]]),
    "ravel": lambda x: x.T.ravel(),
    "flatten": lambda x: x.flatten(),
    "ascontiguousarray": lambda x: xp.ascontiguousarray(x.T),
    "positive": lambda x: +x,
}
ITSELF = {
    "asarray": lambda x: xp.asarray(x),
    "astype": lambda x: x.astype(np.float32, copy=False),
    "ascontiguousarray": lambda x: xp.ascontiguousarray(x),
    "+=": lambda x: operator.iadd(x, 0),
    "out": lambda x: xp.sqrt(x, out=x),
    "out of a sum": lambda x: xp.cumsum(x, axis=0, out=x),
}


class Exporter:
    """A tensor of another library."""

    def __init__(self, array):
        self.array = array

    @property
    def __cuda_array_interface__(self):
        return {**self.array.__cuda_array_interface__, "data": (self.array.data.ptr, True)}


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory(name, x):
    view = VIEWS[name](x)
    assert isinstance(view, xp.ndarray)
    assert xp.may_share_memory(view, x)
    assert xp.shares_memory(view, x)
    view[...] = 0
    assert not x.get().all()
    if name != "interface":
        assert view.base is x or view.base is x.base
        assert not view.flags.owndata


@pytest.mark.parametrize("name", COPIES)
def test_copies_do_not(name, x):
    made = COPIES[name](x)
    assert not xp.may_share_memory(made, x)
    assert made.base is None
    before = x.get()
    made[...] = 99
    np.testing.assert_array_equal(x.get(), before)


@pytest.mark.parametrize("name", ITSELF)
def test_no_new_array(name, x):
    assert ITSELF[name](x) is x


def test_arrays_of_the_host_are_copied():
    host = np.arange(3)
    made = xp.asarray(host)
    made[0] = 7
    assert host[0] == 0
    given = np.empty(3, np.int64)
    assert made.get(out=given) is given
    assert made.tolist() == given.tolist() == [7, 1, 2]
    made.set(host)
    assert xp.asnumpy(made).tolist() == [0, 1, 2]
    assert xp.asnumpy([1, 2]).tolist() == [1, 2]


def test_what_an_array_is(x):
    assert not isinstance(x, np.ndarray)
    assert (x.shape, x.ndim, x.size, x.itemsize, x.nbytes, x.strides, len(x)) == ((3, 4), 2, 12, 4, 48, (16, 4), 3)
    assert (x.T.flags.c_contiguous, x.T.flags.f_contiguous, x.T.flags["F_CONTIGUOUS"]) == (False, True, True)
    assert x.T.flags.fnc
    assert x.flags.forc
    assert x[1:].data.ptr - x.data.ptr == 16
    assert (x.device.id, x.data.device_id, x.device.compute_capability) == (0, 0, "90")
    assert isinstance(x.sum(), xp.ndarray)
    assert x.sum().shape == x.max().shape == xp.array_equal(x, x).shape == ()
    assert not hasattr(x.flags, "writeable")
    assert (xp.size(x), xp.size(x, 1), xp.ndim(x), xp.shape(x), xp.iscomplexobj(x)) == (12, 4, 2, (3, 4), False)
    assert xp.result_type(x, 1.0) == xp.promote_types("f2", "f4") == np.float32
    assert not xp.can_cast(x, np.float16)
    assert xp.get_array_module(1, x) is xp
    assert xp.get_array_module(1, np.ones(1)) is np
    assert f"{x[0, 1]:.1f}" == "1.0"


def test_layouts(x):
    """New arrays are in C order, where NumPy keeps that of the operands."""
    assert x[0].T.base is x.base
    for made in (x.T * 2, x.T.sum(axis=0, keepdims=True), x[:, [1, 0]], x.T[x[0] > 0], x.T.copy(), xp.cumsum(x.T, 1)):
        assert made.flags.c_contiguous
    assert x.T.astype(np.int8).flags.f_contiguous
    assert xp.asarray(np.ones((3, 4), order="F")).flags.f_contiguous
    assert xp.asarray(np.ones((4, 3, 4))[::2].T).flags.c_contiguous
    assert not x.argsort(axis=0).flags.c_contiguous
    assert [places.strides for places in x.nonzero()] == [(16,), (16,)]


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "i8", "u8", "f2", "f4", "f8", "c8", ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), 3, (2, 0), (2, 3)])
def test_what_nobody_has_written_is_seen(dtype, shape):
    for made in (xp.empty(shape, dtype), xp.empty_like(xp.ones(shape, dtype)), xp.ndarray(shape, dtype)):
        host = made.get()
        assert host.dtype == np.dtype(dtype)
        bad = host % 2 == 1 if host.dtype.kind in "iu" else host if dtype == "?" else np.isnan(host)
        assert bad.all()
        assert host.dtype.kind not in "iu" or (host > np.iinfo(host.dtype).max // 4).all()


def test_byte_order_of_the_host_does_not_matter():
    made = xp.asarray(np.array([1, 2], ">i4"))
    assert made.dtype.str == "<i4"
    assert made.tolist() == [1, 2]


# Indices and assignments


def test_index_arrays_wrap_around(x):
    ids = xp.asarray([4, -5, 2**40])
    assert xp.arange(3)[ids].tolist() == [1, 1, 1]
    assert x.take(ids, axis=0)[:, 0].tolist() == [4, 4, 4]
    assert x.take(xp.asarray([2**63 + 1], np.uint64)).item() == (2**63 + 1) % 12
    assert xp.arange(300)[xp.asarray([200], np.uint8)].item() == xp.arange(300).take(xp.asarray(200, np.uint8)) == 200
    x[:, ids] = 0  # 0, 3 and 0
    assert x[0].tolist() == [0, 1, 2, 0]
    assert xp.arange(3)[np.array([3])].tolist() == [0]  # an array of the host is moved
    with pytest.raises(IndexError, match="non-empty take"):
        xp.zeros(0).take(ids)


def test_which_of_several_values_stays_is_not_what_numpy_does():
    made = xp.zeros(3)
    made[xp.asarray([1, 1, 2])] = xp.asarray([5.0, 6.0, 7.0])
    assert made.tolist() == [0, 5, 7]


def test_assignments(x):
    x[0] = 7
    x[1:] = xp.ones((2, 4))
    x[[2], 1:] = np.float32(3)
    x[xp.asarray([False, False, True]), 0] = [9.0]
    assert x.tolist() == [[7] * 4, [1] * 4, [9, 3, 3, 3]]
    x[x > 5] = 0
    x[..., 1] += xp.asarray([1, 2, 3], np.float32)
    assert x.tolist() == [[0, 1, 0, 0], [1, 3, 1, 1], [0, 6, 3, 3]]
    xp.add.at(x, xp.asarray([0, 0]), 1)
    assert x[0].tolist() == [2, 3, 2, 2]
    xp.copyto(x, 4, where=x > 2)
    xp.fill_diagonal(x, xp.asarray(8, np.float32))
    assert x[:2].tolist() == [[8, 4, 2, 2], [1, 8, 1, 1]]
    with pytest.raises(TypeError, match="at does not support int8"):
        xp.add.at(xp.zeros(2, np.int8), xp.asarray([0]), 1)


def test_comparisons(x):
    assert not (x == None).any()  # noqa: E711
    assert (x != object()).all()
    assert (x == np.array(0.0)).sum() == 1
    assert (xp.arange(3, dtype=np.int8) < 1000).all()
    assert xp.array_equal(x, x[:2]).shape == ()
    nan = xp.full(2, np.nan)
    assert [bool(xp.array_equal(nan, nan, equal_nan=equal)) for equal in (False, True)] == [False, True]


def test_an_operand_may_decide_for_itself(x):
    class Other:
        __array_ufunc__ = None

        def __radd__(self, other):
            return "added"

    assert x + Other() == "added"


# What the host waits for

WAITS = {
    "get": (1, lambda x: x.get()),
    "nothing": (0, lambda x: x[:0].get()),
    "not now": (0, lambda x: x.get(blocking=False)),
    "item": (1, lambda x: x[0, 0].item()),
    "int": (1, lambda x: int(x[0, 0])),
    "float": (1, lambda x: float(x[0, 0])),
    "bool": (1, lambda x: bool(x[0, 0])),
    "if": (1, lambda x: 1 if (x > 0).any() else 0),
    "tolist": (1, lambda x: x.tolist()),
    "repr": (1, lambda x: repr(x)),
    "str": (1, lambda x: f"{x}"),
    "asnumpy": (1, lambda x: xp.asnumpy(x)),
    "mask": (1, lambda x: x[x > 0]),
    "assignment to a mask": (1, lambda x: operator.setitem(x, x > 0, 0)),
    "nonzero": (1, lambda x: x.nonzero()),
    "where": (1, lambda x: xp.where(x)),
    "flatnonzero": (1, lambda x: xp.flatnonzero(x)),
    "unique": (2, lambda x: xp.unique(x, return_counts=True)),
    "bincount": (2, lambda x: xp.bincount(xp.arange(3))),
    "shares_memory": (1, lambda x: xp.shares_memory(x, x.copy())),
    "stream": (1, lambda x: xp.cuda.get_current_stream().synchronize()),
    "device": (1, lambda x: xp.cuda.Device().synchronize()),
    "work": (0, lambda x: (x * 2).sum(axis=0)[xp.asarray([1, 0])].repeat(2)),
    "sorts": (0, lambda x: xp.where(x > 1, x, 0)[xp.argsort(x[:, 0])]),
    "copies": (0, lambda x: xp.asarray(np.ones(3)).astype(np.int8).copy()),
}


@pytest.mark.parametrize("name", WAITS)
def test_waits(name, x):
    expected, call = WAITS[name]
    with standin.waits(expected):
        call(x)
    with pytest.raises(AssertionError, match="the host waited"), standin.waits(expected + 1):
        call(x)


def test_operations_are_counted(x):
    before = standin.counts.operations
    x.T[1:].reshape(9)
    assert standin.counts.operations == before + 1
    (x + 1).sum()
    assert standin.counts.operations == before + 3


# Devices

ACROSS = {
    "+": lambda x, other: x + other,
    "+=": lambda x, other: operator.iadd(x, other),
    "sum": lambda x, other: other.sum(),
    "out": lambda x, other: xp.add(x, 1, out=other),
    "concatenate": lambda x, other: xp.concatenate([x, other]),
    "astype": lambda x, other: other.astype(np.float64),
    "index": lambda x, other: x[other.view(np.int32)],
    "indexed": lambda x, other: other[[0]],
    "set": lambda x, other: operator.setitem(x, ..., other),
    "fill": lambda x, other: other.fill(1),
    "argsort": lambda x, other: other.argsort(),
    "copyto": lambda x, other: xp.copyto(x, other),
    "where": lambda x, other: xp.where(x > 0, x, other),
    "take": lambda x, other: x.take(other.view(np.int32)),
    "at": lambda x, other: xp.add.at(x, 0, other),
}


@pytest.mark.parametrize("name", ACROSS)
def test_devices_do_not_read_each_other(name, x):
    with xp.cuda.Device(1):
        other = xp.ones((3, 4), np.float32)
    before = x.get()
    with pytest.raises(ValueError, match="Peer access is unavailable"):
        ACROSS[name](x, other)
    assert (other.get() == 1).all()
    np.testing.assert_array_equal(x.get(), before)


def test_two_devices(x):
    assert xp.cuda.is_available()
    assert xp.cuda.runtime.getDeviceCount() == 2
    with xp.cuda.Device(1) as device:
        other, made = xp.asarray(x), x[1:].copy()
        assert device == xp.cuda.Device() == xp.cuda.Device(1) != xp.cuda.Device(0)
    assert xp.cuda.runtime.getDevice() == 0
    assert [y.device.id for y in (x, other, made, other[1:], other.T, copy.deepcopy(other))] == [0, 1, 1, 1, 1, 1]
    assert other.__dlpack_device__() == (2, 1)
    assert xp.from_dlpack(other).device.id == 1
    np.testing.assert_array_equal(other.get(), x.get())
    with xp.cuda.Device(1), pytest.raises(NotImplementedError, match="non-contiguous"):
        xp.asarray(x[:, ::2])
    xp.cuda.Device(1).use()
    assert (other + other).device.id == int(xp.cuda.Device()) == 1
    xp.cuda.runtime.setDevice(0)


def test_streams():
    with xp.cuda.Stream() as stream:
        assert xp.cuda.get_current_stream() is stream
        assert xp.ones(1).__cuda_array_interface__["stream"] == stream.ptr
    assert xp.cuda.get_current_stream() is xp.cuda.Stream.null


# Other libraries


def test_interface(x):
    said = x[1:, ::2].__cuda_array_interface__
    assert (said["shape"], said["typestr"], said["strides"], said["version"]) == ((2, 2), "<f4", (16, 8), 3)
    assert said["data"] == (x.data.ptr + 16, False)
    assert x.__cuda_array_interface__["strides"] is None
    assert x[:0].__cuda_array_interface__["data"] == (0, False)
    assert xp.asarray(Exporter(x[:0])).shape == (0, 4)


def test_the_host_gets_copies_alone(x):
    for consume in (lambda: np.from_dlpack(x), lambda: x.__dlpack__(), lambda: x.__dlpack__(stream=1, copy=True)):
        with pytest.raises(BufferError, match="host"):
            consume()
    with pytest.raises(TypeError, match="CPU arrays"):
        xp.from_dlpack(np.ones(3))
    with pytest.raises(ValueError, match="without copy"):
        np.from_dlpack(x, device="cpu", copy=False)
    with standin.waits(1):
        np.testing.assert_array_equal(np.from_dlpack(x, device="cpu"), np.arange(12).reshape(3, 4))


# In place of CuPy


def test_it_is_imported_in_place_of_cupy(monkeypatch):
    before = sys.modules.get("cupy")
    with standin.installed(monkeypatch) as module:
        import cupy
        from cupy.cuda import runtime

        assert cupy is module is xp
        assert runtime is xp.cuda.runtime
    assert sys.modules.get("cupy") is before


def test_kernels_write_its_memory(cupy):
    out, table = cupy.empty((3, 4), np.float32), cupy.asarray(np.arange(24, dtype=np.float32).reshape(6, 4))
    with standin.waits(1):
        assert gather(out, table, cupy.asarray([5, 0, 5])) == -1
    assert launch.namespace(out) is cupy
    np.testing.assert_array_equal(out.get(), table.get()[[5, 0, 5]])


def test_kernels_run_on_one_device(cupy):
    def kernel(arrays):
        arrays[0][0] = arrays[1][0]

    with cupy.cuda.Device(1):
        arrays = cupy.zeros(1), cupy.ones(1)
        launch.run(kernel, 1, (1, 1), arrays)
    assert arrays[0].item() == 1
    with pytest.raises(ValueError, match="Peer access"):
        launch.run(kernel, 1, (1, 1), arrays)
    assert launch.compiler is emulator
