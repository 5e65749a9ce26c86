"""Checkpoints: the same layer on the same ranks, on more and on fewer."""

import json
import shutil

import numpy as np
import pytest
from safetensors import safe_open

from fastemb import optim
from fastemb.io.tensors import write
from fastemb.sharded import ShardedEmbedding, ShardedEmbeddingBag, checkpoint


@pytest.fixture
def some_ranks(comm):
    """Makes the communicator of the first ranks; None on the others."""
    made = []

    def make(count):
        part = comm.Split(comm.rank < count, comm.rank)
        made.append(part)
        return part if comm.rank < count else None

    yield make
    for part in made:
        part.Free()


RULES = [optim.RMSprop(momentum=0.5), optim.Adam(betas=(0.5, 0.75), mode="exact")]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_another_number_of_ranks_goes_on_with_the_same_bits(comm, table, spread, rng, folder, some_ranks, rule):
    options = {"padding_idx": 3, "max_norm": 1e3, "optimizer": rule}
    ids = np.minimum(rng.zipf(1.3, (3, 24)) - 1, 199)
    dy = rng.integers(-4, 5, (3, 24, table.shape[1])).astype(np.float32)

    def train(emb, t):
        share = slice(emb.comm.rank * 24 // emb.comm.size, (emb.comm.rank + 1) * 24 // emb.comm.size)
        emb(ids[t, share])
        emb.fused_step(ids[t, share], dy[t, share])

    emb = ShardedEmbedding.from_pretrained(table, comm=comm, **spread, **options)
    for t in range(2):
        train(emb, t)
    emb.save(folder)
    train(emb, 2)
    emb.flush()
    expected = comm.bcast(emb.gather_table())
    for count in range(1, comm.size + 1):
        part = some_ranks(count)
        if part is not None:
            other = ShardedEmbedding.load(folder, comm=part)
            assert other.optimizer == rule
            assert (other.partition, other.padding_idx, other.shard.max_norm) == (spread["partition"], 3, 1e3)
            np.testing.assert_array_equal(other.hot_ids, emb.hot_ids)
            train(other, 2)
            other.flush()
            found = other.gather_table()
            assert part.rank or np.array_equal(found, expected)
            assert other.state.step == 3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(comm, table, spread, folder, dtype):
    made = ShardedEmbedding.from_pretrained(table, comm=comm, dtype=dtype, **spread)
    made.save(folder)
    loaded = ShardedEmbedding.load(folder, comm=comm)
    assert loaded.weight.dtype == made.weight.dtype
    assert loaded.weight.tobytes() == made.weight.tobytes()


def test_bags(comm, table, folder):
    bag = ShardedEmbeddingBag.from_pretrained(table, comm=comm, mode="sqrtn", include_last_offset=True)
    bag.save(folder)
    loaded = ShardedEmbeddingBag.load(folder, comm=comm)
    assert (loaded.mode, loaded.include_last_offset) == ("sqrtn", True)
    np.testing.assert_array_equal(loaded([1, 2], [0, 2]), bag([1, 2], [0, 2]))


def test_only_the_newest_files_stay(comm, table, folder):
    emb = ShardedEmbedding.from_pretrained(table, comm=comm, optimizer=optim.SGD())
    for t in range(2):
        emb.fused_step([t], np.ones((1, 6), np.float32))
        emb.save(folder)
    names = {entry["name"] for entry in json.loads((folder / "manifest.json").read_text())["files"]}
    comm.Barrier()
    assert {path.name for path in folder.iterdir()} == names | {"manifest.json"}
    assert ShardedEmbedding.load(folder, comm=comm).state.step == 2


@pytest.mark.parametrize("fails", ["_write", "_write_manifest"])
def test_a_rank_that_cannot_write_leaves_the_old_checkpoint(comm, table, folder, monkeypatch, raised_by_all, fails):
    emb = ShardedEmbedding.from_pretrained(table, comm=comm, optimizer=optim.SGD())
    emb.save(folder)
    emb.fused_step([1], np.ones((1, 6), np.float32))
    if comm.rank == (comm.size - 1 if fails == "_write" else 0):

        def fail(*_):
            msg = "no space"
            raise OSError(msg)

        monkeypatch.setattr(checkpoint, fails, fail)
    assert raised_by_all(OSError, emb.save, folder) == "no space"
    monkeypatch.undo()
    loaded = ShardedEmbedding.load(folder, comm=comm)
    assert loaded.state.step == 0
    np.testing.assert_array_equal(loaded(np.arange(200)), table)
    emb.save(folder)
    comm.Barrier()
    assert len(list(folder.iterdir())) == comm.size + 2
    assert ShardedEmbedding.load(folder, comm=comm).state.step == 1


def damaged(folder, **changes):
    """Change entries of the manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | changes))


DAMAGES = {
    "no folder": (lambda folder: shutil.rmtree(folder), OSError, "No such file"),
    "no JSON": (lambda folder: (folder / "manifest.json").write_text("{"), ValueError, "manifest.json: Expecting"),
    "not this": (lambda folder: (folder / "manifest.json").write_text("[]"), ValueError, "must be a checkpoint of"),
    "another version": (lambda folder: damaged(folder, version=99), ValueError, "must be a checkpoint of"),
    "another layer": (lambda folder: damaged(folder, layer="ShardedEmbeddingBag"), ValueError, "must be a checkpoint"),
    "another rule": (lambda folder: damaged(folder, optimizer={"rule": "os"}), ValueError, "one of fastemb.optim"),
    "no rule": (lambda folder: damaged(folder, optimizer={"rule": "State"}), ValueError, "one of fastemb.optim"),
    "a file is gone": (lambda folder: min(folder.glob("*-hot.*")).unlink(), OSError, "No such file"),
    "a file is cut": (lambda folder: min(folder.glob("*-00000.*")).write_bytes(b""), ValueError, "bytes, got 0"),
    "a file is garbage": (
        lambda folder: [p.write_bytes(b"\xff" * p.stat().st_size) for p in folder.glob("*-00000.*")],
        ValueError,
        "-00000.safetensors is truncated or altered",
    ),
    "a byte of a rank's rows": (lambda folder: flipped(folder, "00000"), ValueError, "-00000.safetensors is truncated"),
    "a byte of the hot rows": (lambda folder: flipped(folder, "hot"), ValueError, "-hot.safetensors is truncated"),
    "a file of another save": (
        lambda folder: exchanged(folder),
        ValueError,
        "-00000.safetensors must have the checksum",
    ),
    "a file without a checksum": (lambda folder: damaged(folder, files=[{}]), ValueError, "entries of a file are"),
    "another width": (lambda folder: widened(folder), ValueError, "rows must have shape"),
}


def flipped(folder, part):
    """Change the last byte of a file."""
    (path,) = folder.glob(f"*-{part}.*")
    *others, last = path.read_bytes()
    path.write_bytes(bytes([*others, last ^ 1]))


def exchanged(folder):
    """Put another file in the place of one, with as many bytes and a checksum of its own."""
    (path,) = folder.glob("*-00000.*")
    with safe_open(path, framework="np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    arrays["weight"] += 1
    with path.open("wb") as file:
        write(file, arrays, {}, lambda _: None)


def widened(folder):
    options = json.loads((folder / "manifest.json").read_text())["options"]
    damaged(folder, options=options | {"embedding_dim": 7})


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoints(comm, table, folder, raised_by_all, damage):
    hot = {"partition": "replicate-hot", "hot_ids": [0, 3]}
    ShardedEmbedding.from_pretrained(table, comm=comm, optimizer=optim.Adam(), **hot).save(folder)
    damages, error, text = DAMAGES[damage]
    if comm.rank == 0:
        damages(folder)
    comm.Barrier()
    with pytest.raises(error) as caught:
        ShardedEmbedding.load(folder, comm=comm)
    assert text in str(caught.value)
    comm.Barrier()
    if comm.rank == 0:
        folder.mkdir(exist_ok=True)
