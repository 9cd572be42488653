"""`headwater bench`: what explanations cost on this machine beside the prediction alone, and what evaluating saves."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.errors import UsageError

from . import options
from .models import chosen_model
from .names import separated
from .screen import say, waiting

if TYPE_CHECKING:
    from headwater.viz.tables import Table

ONLY_COST = ("batch", "tokens", "layers")
ONLY_EVALUATION = ("data", "limit", "measures")
NOISE = "rounds after a first one to warm up; what else runs on this machine moves the figures"


def command(
    context: typer.Context,
    evaluation: Annotated[
        bool, typer.Option("--evaluation", help="Time `evaluate` against a loop over single sentences instead.")
    ] = False,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, separated by commas. Default: gi,lrp(ah+ln),lrp; with --evaluation also lrp(ah),lrp(ln)."
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="How often all is timed, in turn. Default: 7; with --evaluation 3.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Samples in a batch.")] = 8,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens in a sample.")] = 128,
    layers: Annotated[int, typer.Option(min=1, help="Layers of the model; its width is BERT-base's.")] = 12,
    data: Annotated[
        Path | None, typer.Option(help="With --evaluation: labelled texts, as for `evaluate`. Default: SST-2 dev.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="With --evaluation: how many texts, drawn by a fixed seed.")] = 48,
    measures: Annotated[
        str, typer.Option(help="With --evaluation: the curves, as for `evaluate`.")
    ] = "activation,pruning",
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda.")] = "cpu",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of torch. Default: its own choice.")] = None,
    as_json: options.Json = False,
    plain: options.Plain = False,
) -> None:
    """Time explanations of a BERT-base-shaped model, as ratios to its forward pass; or the evaluation's gain."""
    refuse_what_has_no_place(context, evaluation)
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    names = None if methods is None else separated(methods)
    if evaluation:
        found, table = gain(data, limit, names, separated(measures), rounds or 3, device)
    else:
        found, table = costs((batch, tokens), layers, names, rounds or 7, device)
    typer.echo(json.dumps(found) if as_json else written(table, plain))


def refuse_what_has_no_place(context: typer.Context, evaluation: bool) -> None:
    """An option of the other benchmark would be read and not heeded."""
    for name in ONLY_COST if evaluation else ONLY_EVALUATION:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            where = "without" if evaluation else "with"
            raise UsageError(f"--{name} has a meaning only {where} --evaluation.")


def costs(size: tuple[int, int], layers: int, methods: list[str] | None, rounds: int, device: str) -> tuple[Any, Table]:
    """Each method's time over that of the forward pass, with random weights; for JSON and as a table."""
    import torch

    from headwater.measures.cost import METHODS, Shape, measure, random_bert, table

    model = random_bert(Shape(layers=layers)).to(device)
    ids = torch.randint(5, 30000, size, generator=torch.Generator().manual_seed(0)).to(device)
    say(f"{rounds} {NOISE}")
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with waiting("timing explanations"):
        found = measure(model, inputs, methods or METHODS, rounds)
    title = f"BERT-base shape, {layers} layers, float32, {device}, {size[0]} x {size[1]} tokens, {rounds} rounds"
    return [dataclasses.asdict(cost) for cost in found], table(found, title)


def gain(
    data: Path | None, limit: int, methods: list[str] | None, measures: list[str], rounds: int, device: str
) -> tuple[Any, Table]:
    """The evaluation's time under that of a loop over single sentences, for the same curves of the bundled model."""
    model, tokenizer = chosen_model(None, None, device, None, False, False)
    from headwater.data import load
    from headwater.measures.speed import METHODS, measure, rows_of, table

    rows = rows_of(model, tokenizer, load("sst2", "dev") if data is None else data, limit)
    say(f"{rounds} {NOISE}")
    with waiting(f"timing the evaluation of {len(rows)} texts"):
        found = measure(model, tokenizer, rows, methods or METHODS, measures, rounds)
    return dataclasses.asdict(found), table(found)


def written(table: Table, plain: bool) -> str:
    """Markdown, to be pasted; or columns of plain text."""
    from headwater.viz.plain import aligned
    from headwater.viz.tables import markdown

    return "\n".join([table.title, "", *(aligned(table) if plain else markdown(table))])
