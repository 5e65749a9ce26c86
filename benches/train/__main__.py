"""``python -m benches.train``: skip-gram with negative sampling on running text, words a second and loss.

fastemb and torch train on the same batches, gensim's word2vec on the same text; they take turns.
"""

import argparse
import json
import sys
from pathlib import Path

import matplotlib.figure
import rich.box
import rich.console
import rich.progress
import rich.table

from .. import machine, report
from ..peers import comparison
from . import race, skipgram


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


def figure(records, title="", size=(9, 5)):
    """Loss over seconds of training, a line for each; readable in grey."""
    drawn = matplotlib.figure.Figure(figsize=size)
    axis = drawn.subplots()
    styles = ["-", "--", "-.", ":"]
    for k, r in enumerate(records):
        axis.plot(r["seconds"], r["loss"], styles[k % 4], color=f"{0.55 * (k % 3) / 2:.2f}", label=r["model"])
    linear = min(r["seconds"][1] for r in records)
    axis.set_xscale("symlog", linthresh=linear)
    report.ticks(axis.xaxis, lambda value: "" if 0 < value < linear else f"{value:g}")
    axis.set_xlabel("seconds of training")
    axis.set_ylabel("loss of text not trained on, nats a pair")
    axis.grid(visible=True, color="0.9")
    axis.legend(fontsize=8)
    axis.set_title(title, fontsize=8, wrap=True)
    drawn.tight_layout()
    return drawn


def plot(path, records, title):
    """The figure as a file."""
    figure(records, title).savefig(path, dpi=130, metadata={"Description": title})


def main(arguments=None):
    """Run the race; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benches.train", description=__doc__)
    parser.add_argument("--batches", type=int, default=96, help="of 4,096 words each (96)")
    parser.add_argument("--threads", type=int, default=2, help="of each (2)")
    parser.add_argument("--output", type=Path, default=Path("build"), help="folder of train.json and .png (build)")
    options = parser.parse_args(arguments)
    if options.batches < 2 * race.TURN:
        parser.error(f"--batches must be >= {2 * race.TURN}")

    console = rich.console.Console(width=None if sys.stdout.isatty() else 120)
    comparison.set_threads(options.threads)
    for peer, remedy in comparison.PEERS.items():
        if peer in ("torch", "gensim") and not comparison.has(peer):
            console.print(f"[bold]Missing:[/bold] {peer} is not installed, it is left out ({remedy}).")
    *made, test = skipgram.batches(race.VOCABULARY, options.batches + 1)
    for model in race.models(made, options.threads):
        race.trained(model, made[:2])  # compiles, and starts threads
    contestants = list(race.models(made, options.threads))
    turns = len(contestants) * -(-len(made) // race.TURN)
    with rich.progress.Progress(console=rich.console.Console(stderr=True)) as progress:
        task = progress.add_task("training", total=turns)
        results = race.run(contestants, made, test, lambda name: progress.update(task, advance=1, description=name))
    records = race.records_of(*results, made)
    about = machine.machine()
    pairs = sum(batch.centres.size for batch in made)
    title = (
        f"Skip-gram, {sum(batch.words for batch in made):,} words of text, {pairs:,} pairs, "
        f"vocabulary {race.VOCABULARY:,}, window {skipgram.WINDOW}, {skipgram.NEGATIVES} negatives, "
        f"D {skipgram.WIDTH}, {options.threads} threads each"
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
