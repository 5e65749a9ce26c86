"""The skip-gram: its batches, its model against plain NumPy, and the race."""

import json

import numpy as np
import pytest
import scipy.special

from benches.train import __main__ as train
from benches.train import race, skipgram
from fastemb.optim import SGD


def test_pairs_are_neighbours():
    (batch,) = skipgram.batches(500, 1, words=640, seed=3)
    assert batch.words == 640
    assert batch.passages.shape == (10, 64)
    assert batch.others.shape == (batch.centres.size, 1 + skipgram.NEGATIVES)
    near = {
        (int(row[i]), int(row[j]))
        for row in batch.passages
        for i in range(64)
        for j in range(max(0, i - skipgram.WINDOW), min(64, i + skipgram.WINDOW + 1))
        if i != j
    }
    assert set(zip(batch.centres.tolist(), batch.others[:, 0].tolist(), strict=True)) <= near
    assert 5 < batch.centres.size / batch.words < 6.2  # windows of 1 to 5 words on either side, less at the ends
    assert batch.others.min() >= 0
    assert batch.others.max() < 500
    again = next(skipgram.batches(500, 1, words=640, seed=3))
    assert all(np.array_equal(a, b) for a, b in zip(batch, again, strict=True))


def test_a_step_goes_down_the_gradient_of_the_loss():
    (batch,) = skipgram.batches(300, 1, words=640)
    model = skipgram.Fastemb(SGD(lr=2.0**-12), 300)
    rng = np.random.default_rng(0)
    for table in (model.inner, model.outer):
        table[:] = rng.standard_normal(table.shape, dtype=np.float32) / 8
    inner, outer = model.inner.astype(np.float64), model.outer.astype(np.float64)
    start = skipgram.loss(model.inner, model.outer, batch)
    model.step(batch)
    centres, others = inner[batch.centres], outer[batch.others]
    scores = (others @ centres[:, :, np.newaxis])[:, :, 0]
    labels = np.arange(scores.shape[1]) == 0
    signs = np.where(labels, 1.0, -1.0)
    assert start == pytest.approx(-np.log(scipy.special.expit(signs * scores)).sum() / len(scores), rel=1e-6)
    errors = scipy.special.expit(scores) - labels
    np.add.at(inner, batch.centres, -(2.0**-12) * (errors[:, np.newaxis] @ others)[:, 0])
    np.add.at(outer, batch.others, -(2.0**-12) * errors[:, :, np.newaxis] * centres[:, np.newaxis])
    np.testing.assert_allclose(model.inner, inner, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model.outer, outer, rtol=1e-5, atol=1e-6)
    assert skipgram.loss(model.inner, model.outer, batch) < start


def test_the_race_is_recorded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(race, "TURN", 1)
    assert train.main(["--batches", "2", "--threads", "1", "--output", str(tmp_path)]) == 0
    records = json.loads((tmp_path / "train.json").read_text())["records"]
    assert {"fastemb Adam", "fastemb Adagrad", "fastemb RowWiseAdagrad", "fastemb Adam exact"} <= {
        r["model"] for r in records
    }
    for r in records:
        assert r["words_per_s"] > 0
        assert len(r["loss"]) == len(r["seconds"]) == 3
        assert r["loss"][0] == pytest.approx(6 * np.log(2))
        assert r["loss"][-1] < r["loss"][0]
    assert (tmp_path / "train.png").read_bytes().startswith(b"\x89PNG")
    assert "words a second" in capsys.readouterr().out


def test_too_few_batches(capsys):
    with pytest.raises(SystemExit) as stop:
        train.main(["--batches", "15"])
    assert stop.value.code == 2
    assert "--batches must be >= 16" in capsys.readouterr().err
