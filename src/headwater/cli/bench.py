"""`headwater bench`: what explanations cost on this machine, beside the prediction alone."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from . import options
from .screen import say


def command(
    batch: Annotated[int, typer.Option(help="Samples in a batch.")] = 8,
    tokens: Annotated[int, typer.Option(help="Tokens in a sample.")] = 128,
    methods: Annotated[str, typer.Option(help="Methods, separated by commas.")] = "gi,lrp(ah+ln),lrp",
    rounds: Annotated[int, typer.Option(help="How often everything is timed, in turn.")] = 7,
    layers: Annotated[int, typer.Option(help="Layers of the model; its width is BERT-base's.")] = 12,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda.")] = "cpu",
    threads: Annotated[int | None, typer.Option(help="Threads of torch. Default: its own choice.")] = None,
    as_json: options.Json = False,
) -> None:
    """Time explanations of a BERT-base-shaped model with random weights, as ratios to its forward pass."""
    import torch

    from headwater.measures.cost import Shape, measure, random_bert, table

    if threads is not None:
        torch.set_num_threads(threads)
    model = random_bert(Shape(layers=layers)).to(device)
    ids = torch.randint(5, 30000, (batch, tokens), generator=torch.Generator().manual_seed(0)).to(device)
    say(f"{rounds} rounds after a first one to warm up; what else runs on this machine moves the figures")
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    costs = measure(model, inputs, methods.split(","), rounds)
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(c) for c in costs]))
    else:
        title = f"BERT-base shape, {layers} layers, float32, {device}, {batch} x {tokens} tokens, {rounds} rounds"
        typer.echo("\n".join(table(costs, title)))
