"""``python -m benches.train``: skip-gram with negative sampling on running text, words a second and loss.

fastemb and torch train on the same batches, gensim's word2vec on the same text; they take turns.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import matplotlib as mpl
import numpy as np
import rich.box
import rich.console
import rich.progress
import rich.table

from fastemb import optim

from . import comparison, machine, skipgram

mpl.use("Agg")

import matplotlib.pyplot as plt

VOCABULARY = 50_000
TURN = 8
"""Batches that one trains before it is the next one's turn."""

RULES = [
    (optim.Adam(lr=5e-3), "SparseAdam"),
    (optim.Adagrad(lr=0.05), "Adagrad"),
    (optim.RowWiseAdagrad(lr=0.05), None),
    (optim.Adam(lr=5e-3, mode="exact"), None),
]


class _Exact(skipgram.Fastemb):
    """Rows catch up before they are read."""

    def __init__(self, rule, num_rows):
        super().__init__(rule, num_rows)
        self.name += " exact"

    def step(self, batch):
        self.rule.catch_up(self.inner, self.inner_state, batch.centres)
        self.rule.catch_up(self.outer, self.outer_state, batch.others)
        super().step(batch)

    def flush(self):
        """Bring all rows up to date, before the tables are read."""
        self.rule.flush(self.inner, self.inner_state)
        self.rule.flush(self.outer, self.outer_state)


def models(made, threads):
    """One of each that is installed."""
    for rule, name in RULES:
        exact = getattr(rule, "mode", "lazy") == "exact"
        yield (_Exact if exact else skipgram.Fastemb)(rule, VOCABULARY)
        if name and comparison.has("torch"):
            yield skipgram.Torch(name, rule.lr, VOCABULARY)
    if comparison.has("gensim"):
        yield skipgram.Gensim(made, VOCABULARY, threads)


def trained(model, part):
    """Seconds that a model takes to train on some batches."""
    if isinstance(model, skipgram.Gensim):
        sentences = model.words(part)
        start = time.perf_counter()
        model.train(sentences)
        return time.perf_counter() - start
    start = time.perf_counter()
    for batch in part:
        model.step(batch)
    if isinstance(model, _Exact):
        model.flush()
    return time.perf_counter() - start


def held_out(model, batch):
    """A model's loss on a batch that none has trained on."""
    if isinstance(model, skipgram.Gensim):
        model.fetch()
    return skipgram.loss(model.inner, model.outer, batch)


def race(contestants, made, test, advance):
    """Train all on the batches, in turn; for each its seconds and its losses after every turn."""
    seconds = {model.name: [0.0] for model in contestants}
    losses = {model.name: [held_out(model, test)] for model in contestants}
    for turn, start in enumerate(range(0, len(made), TURN)):
        part = made[start : start + TURN]
        for k in np.roll(np.arange(len(contestants)), turn):
            model = contestants[k]
            advance(model.name)
            seconds[model.name].append(trained(model, part))
            losses[model.name].append(held_out(model, test))
    return seconds, losses


def records_of(seconds, losses, made):
    """A record for each contestant."""
    words = sum(batch.words for batch in made)
    fastest = next(iter(seconds))
    records = []
    for name, taken in seconds.items():
        ratio = np.median(np.array(taken[1:]) / np.array(seconds[fastest][1:]))
        records.append(
            {
                "model": name,
                "words_per_s": words / sum(taken),
                "times_first": float(ratio),
                "loss": losses[name],
                "seconds": np.cumsum(taken).tolist(),
            }
        )
    return records


def table(records, title):
    """A rich table: a line for each contestant."""
    grid = rich.table.Table(title=title, box=rich.box.SIMPLE_HEAD, title_justify="left")
    grid.add_column("", no_wrap=True)
    for name in ("words a second", "times as long as the first", "loss before", "loss after"):
        grid.add_column(name, justify="right", no_wrap=True)
    for r in records:
        grid.add_row(
            r["model"],
            f"{r['words_per_s']:,.0f}",
            f"{r['times_first']:.3g}",
            f"{r['loss'][0]:.4f}",
            f"{r['loss'][-1]:.4f}",
        )
    return grid


def plot(path, records, title):
    """Loss over seconds of training, a line for each; readable in grey."""
    figure, axis = plt.subplots(figsize=(9, 5))
    styles = ["-", "--", "-.", ":"]
    for k, r in enumerate(records):
        axis.plot(r["seconds"], r["loss"], styles[k % 4], color=f"{0.55 * (k % 3) / 2:.2f}", label=r["model"])
    axis.set_xscale("symlog", linthresh=min(r["seconds"][1] for r in records))
    axis.set_xlabel("seconds of training")
    axis.set_ylabel("loss of text not trained on, nats a pair")
    axis.grid(visible=True, color="0.9")
    axis.legend(fontsize=8)
    axis.set_title(title, fontsize=8, wrap=True)
    figure.tight_layout()
    figure.savefig(path, dpi=130, metadata={"Description": title})
    plt.close(figure)


def main(arguments=None):
    """Run the race; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benches.train", description=__doc__)
    parser.add_argument("--batches", type=int, default=96, help="of 4,096 words each (96)")
    parser.add_argument("--threads", type=int, default=2, help="of each (2)")
    parser.add_argument("--output", type=Path, default=Path("build"), help="folder of train.json and .png (build)")
    options = parser.parse_args(arguments)
    if options.batches < 2 * TURN:
        parser.error(f"--batches must be >= {2 * TURN}")

    console = rich.console.Console(width=None if sys.stdout.isatty() else 120)
    comparison.set_threads(options.threads)
    for peer, remedy in comparison.PEERS.items():
        if peer in ("torch", "gensim") and not comparison.has(peer):
            console.print(f"[bold]Missing:[/bold] {peer} is not installed, it is left out ({remedy}).")
    *made, test = skipgram.batches(VOCABULARY, options.batches + 1)
    for model in models(made, options.threads):
        trained(model, made[:2])  # compiles, and starts threads
    contestants = list(models(made, options.threads))
    turns = len(contestants) * -(-len(made) // TURN)
    with rich.progress.Progress(console=rich.console.Console(stderr=True)) as progress:
        task = progress.add_task("training", total=turns)
        race_ = race(contestants, made, test, lambda name: progress.update(task, advance=1, description=name))
    records = records_of(*race_, made)
    about = machine.machine()
    pairs = sum(batch.centres.size for batch in made)
    title = (
        f"Skip-gram, {sum(batch.words for batch in made):,} words of text, {pairs:,} pairs, vocabulary {VOCABULARY:,}, "
        f"window {skipgram.WINDOW}, {skipgram.NEGATIVES} negatives, D {skipgram.WIDTH}, {options.threads} threads each"
    )
    console.print(table(records, title))
    console.print(machine.one_line(about), highlight=False)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "train.json").write_text(json.dumps({"machine": about, "records": records}, indent=1) + "\n")
    plot(options.output / "train.png", records, f"{title}\n{machine.one_line(about)}")
    console.print(f"Written: {options.output / 'train.json'}, {options.output / 'train.png'}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
