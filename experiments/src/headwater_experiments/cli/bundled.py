"""`headwater bundled`: the small model that comes with the package, measured and made again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli import options
from headwater.cli.screen import say, waiting

app = typer.Typer(help="The sentiment model that comes with the package.", no_args_is_help=True)

Where = Annotated[
    str, typer.Option("--device", callback=options.check_device, help="Where to compute: cpu, cuda, cuda:1, mps.")
]


@app.command("evaluate", epilog="headwater bundled evaluate\nheadwater bundled evaluate --json")
def evaluate(
    split: Annotated[str, typer.Option(help="dev, train, tune or train-without-tune.")] = "dev",
    model: Annotated[str | None, typer.Option(help="Another directory or hub name.")] = None,
    device: Where = "cpu",
    as_json: options.Json = False,
) -> None:
    """Print the accuracy on SST-2."""
    with waiting(f"reading SST-2 {split}"):
        from headwater_experiments.training.accuracy import evaluate_accuracy as accuracy_of

        found = accuracy_of(model, split=split, device=device)
    if as_json:
        low, high = found.interval
        record = {"split": split, "accuracy": found.value, "interval": [low, high]}
        typer.echo(json.dumps({**record, "correct": found.correct, "total": found.total}))
    else:
        typer.echo(f"SST-2 {split}: {found}")


@app.command("train", epilog="headwater bundled train --out sentiment\nheadwater bundled train --out new --device cuda")
def train(
    out: Annotated[Path, typer.Option(help="The directory to write the model to.")],
    teacher: Annotated[str | None, typer.Option(help="A directory or hub name. Default: MiniLM.")] = None,
    keep_teacher: Annotated[Path | None, typer.Option(help="Also write the fine-tuned teacher here.")] = None,
    device: Where = "cpu",
    seed: Annotated[int, typer.Option(min=0, max=options.LAST_SEED, help="Seed of the training.")] = 0,
) -> None:
    """Train the model again: fine-tune the teacher on SST-2, then let the small model learn from it."""
    from headwater_experiments.training.bundled import train_bundled as make

    say(f"training on {device}; a graphics card takes minutes, a processor many hours")
    report = make(out, teacher=teacher, seed=seed, device=device, keep_teacher=keep_teacher)
    typer.echo(json.dumps(dataclasses.asdict(report), indent=2, default=str))
