"""`headwater image`: the small vision transformer for digits, made again and measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli import options
from headwater.cli.screen import say, waiting
from headwater.names import split_names

app = typer.Typer(help="The small vision transformer for MNIST's digits.", no_args_is_help=True)


@app.command("train", epilog="headwater image train\nheadwater image train --out digits --seed 1")
def train(
    out: Annotated[Path | None, typer.Option(help="Directory for the model. Default: where it is looked for.")] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, max=options.MOST, help="Times through the training part.")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, max=options.MOST, help="Train on so many images only.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=options.LAST_SEED, help="Seed of the training.")] = 0,
    device: Annotated[
        str, typer.Option(callback=options.check_device, help="Where to compute: cpu, cuda, cuda:1, mps.")
    ] = "cpu",
    as_json: options.Json = False,
) -> None:
    """Train it on MNIST, in some minutes on a processor, and write it with its processor and card."""
    with waiting("reading MNIST"):
        from dataclasses import replace

        from headwater_experiments.digits.model import model_directory
        from headwater_experiments.digits.training import DigitsRecipe, accuracy_in_words
        from headwater_experiments.digits.training import train_digits as make
    recipe = DigitsRecipe() if rounds is None else replace(DigitsRecipe(), rounds=rounds)
    path = out or model_directory()
    found = make(path, recipe=recipe, seed=seed, device=device, rows=rows)
    typer.echo(json.dumps(found) if as_json else f"{path}: test accuracy {accuracy_in_words(found['test'])}")


@app.command("table", epilog="headwater image table\nheadwater image table --json")
def table(
    methods: Annotated[str | None, typer.Option(help="Methods, separated by commas.")] = None,
    model: options.Model = None,
    rows: Annotated[
        int, typer.Option(min=1, max=options.MOST, help="How many test digits, drawn with the seed.")
    ] = 300,
    out: Annotated[Path | None, typer.Option(help="Keep the results in this directory.")] = None,
    seed: options.Seed = 0,
    as_json: options.JsonObject = False,
) -> None:
    """Activation and pruning by patch on MNIST's test digits: a Markdown table on standard output."""
    with waiting("loading"):
        from headwater_experiments.digits.table import METHODS, measure_methods, table_markdown
    chosen = METHODS if methods is None else tuple(split_names(methods))
    found = measure_methods(chosen, model=model, rows=rows, seed=seed, out=out)
    say(f"{len(found)} digits, accuracy {found.accuracy:.1%}, {found.protocol.name}, {found.provenance['items']}")
    typer.echo(json.dumps(found.to_dict()) if as_json else table_markdown(found).rstrip())
