"""Files of tensors: read by the safetensors package and read from it, and headers that are nonsense."""

import json
import re

import numpy as np
import pytest
from strategies import BFLOAT16, LAYOUTS, exactly, laid_out, same_bits, unchanged

from fastemb.io import open_table, tensors

KINDS = ["?", "u1", "i1", "u2", "i2", "f2", BFLOAT16, "u4", "i4", "f4", "u8", "i8", "f8"]


def arrays_of_every_kind():
    return {f"a{np.dtype(kind).name}": (np.arange(15) % 2).reshape(3, 5).astype(kind) for kind in KINDS}


def write(path, arrays, metadata=None):
    with path.open("wb+") as file:
        return tensors.write(file, arrays, metadata or {}, lambda _: None)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_package_reads_them(tmp_path, layout):
    package = pytest.importorskip("safetensors")
    path = tmp_path / "many"
    arrays = {name: laid_out(array, layout) for name, array in arrays_of_every_kind().items()}
    arrays["empty"] = np.zeros((0, 3), np.float32)
    with unchanged(*arrays.values()):
        checksum = write(path, arrays, {"a": '"é\n'})
    header = tensors.read_header(path)
    assert header.checksum == checksum == tensors.verify(header, lambda _: None)
    assert len(header.raw) % 4096 == 0
    with package.safe_open(path, framework="np") as file:
        assert file.metadata() == {"checksum": checksum, "a": '"é\n'}
        assert set(file.keys()) == set(arrays)
        for name, array in arrays.items():
            assert same_bits(file.get_tensor(name), array.astype(array.dtype.newbyteorder("=")))
            assert open_table(path, name=name).flags.aligned


def test_the_package_s_files_are_read(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    arrays = arrays_of_every_kind()
    numpy.save_file(arrays, tmp_path / "many", {"a": "b"})
    header = tensors.read_header(tmp_path / "many")
    assert (header.checksum, header.metadata) == (None, {"a": "b"})
    for name, array in arrays.items():
        assert same_bits(np.asarray(open_table(tmp_path / "many", name=name)), array)
    with pytest.raises(ValueError, match=exactly(f"{tmp_path / 'many'} has no checksum: it was not saved by fastemb")):
        tensors.verify(header, lambda _: None)


def test_chosen_rows(tmp_path):
    array = np.arange(12.0).reshape(6, 2)
    chosen = tensors.Chosen(array, np.array([5, 0, 2]))
    write(tmp_path / "some", {"x": chosen, "y": tensors.Chosen(array[:, 0], np.array([1]))})
    assert same_bits(np.asarray(open_table(tmp_path / "some", name="x")), array[[5, 0, 2]])
    assert open_table(tmp_path / "some", name="y").tolist() == [2.0]


def test_many_blocks_and_their_progress(tmp_path):
    array, told = np.random.default_rng(0).standard_normal((5000, 60)), []
    with (tmp_path / "large").open("wb+") as file:
        tensors.write(file, {"x": array.T}, {}, told.append)
    assert len(told) > 10
    assert sum(told) == array.nbytes
    assert same_bits(np.asarray(open_table(tmp_path / "large")), np.ascontiguousarray(array.T))
    told.clear()
    tensors.verify(tensors.read_header(tmp_path / "large"), told.append)
    assert sum(told) == array.nbytes


def file_of(entries, data=b"", length=None):
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(kind="F32", shape=(1, 1), offsets=(0, 4)):
    return {"dtype": kind, "shape": list(shape), "data_offsets": list(offsets)}


ALTERED = "its header is not that of a safetensors file"


@pytest.mark.parametrize(
    ("content", "how"),
    [
        (b"", "there are 0 bytes, and no header of a safetensors file in them"),
        (b"1234567", "there are 7 bytes, and no header of a safetensors file in them"),
        (file_of({}, length=3), "there are 10 bytes, and no header of a safetensors file in them"),
        (file_of({}, length=2**64 - 1), "there are 10 bytes, and no header of a safetensors file in them"),
        (file_of(b"["), ALTERED),
        (file_of(b"[" * 100_000), ALTERED),
        (file_of(b"[]"), ALTERED),
        (file_of(b"\xff\xff"), ALTERED),
        (file_of({"a": 1}), ALTERED),
        (file_of({"a": {}}), ALTERED),
        (file_of({"__metadata__": {"a": 1}}), ALTERED),
        (file_of({"__metadata__": []}), ALTERED),
        (file_of({"a": entry(shape=(2, 1))}, b"1234"), ALTERED),
        (file_of({"a": entry(shape=(-1, -1))}, b"1234"), ALTERED),
        (file_of({"a": entry(shape=(1.0, 1))}, b"1234"), ALTERED),
        (file_of({"a": entry(shape=(True, 1))}, b"1234"), ALTERED),
        (file_of({"a": entry(offsets=(4, 0))}, b"1234"), ALTERED),
        (file_of({"a": entry(offsets=(0, 4, 8))}, b"1234"), ALTERED),
        (file_of({"a": entry(kind=None)}, b"1234"), ALTERED),
        (file_of({"a": entry(offsets=(4, 8))}, b"12345678"), "tensor 'a' begins at byte {4}, not {0}"),
        (file_of({"a": entry(), "b": entry()}, b"1234"), "tensor 'b' begins at byte {0}, not {4}"),
        (file_of({"a": entry()}, b"12345"), "there are {5} bytes, and {4} in its header"),
        (file_of({"a": entry()}, b"123"), "there are {3} bytes, and {4} in its header"),
    ],
)
def test_headers(tmp_path, content, how):
    path = tmp_path / "file"
    path.write_bytes(content)
    start = 8 + int.from_bytes(content[:8], "little")
    how = re.sub(r"\{(\d)\}", lambda match: str(start + int(match[1])), how)
    with pytest.raises(ValueError, match=exactly(f"{path} is truncated or altered: {how}")):
        tensors.read_header(path)


def test_numbers_that_numpy_has_not(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(file_of({"a": entry(kind="F8_E4M3", shape=(4, 1)), "b": entry(offsets=(4, 8))}, bytes(8)))
    assert open_table(path, name="b").tolist() == [[0.0]]
    with pytest.raises(ValueError, match=exactly(f"{path}: tensor 'a' has dtype F8_E4M3, which NumPy has not")):
        open_table(path, name="a")
