"""`headwater bias`: whether groups of words, people's names by default, push a model's score differently."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .models import chosen_model
from .screen import say, show, waiting

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headwater.bias.results import BiasAudit


def command(
    data: Annotated[
        str, typer.Option(help="Texts: a .parquet, .csv, .tsv or .jsonl file, or sst2 (its whole sentences).")
    ] = "sst2",
    groups: Annotated[
        str, typer.Option(help="Phrases by group: a .json, .csv or .tsv file, or gender-names (people's first names).")
    ] = "gender-names",
    model: options.Model = None,
    task: options.Task = None,
    method: Annotated[str, typer.Option("--method", help="See `headwater methods`.")] = "lrp",
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", help="The score: a class, or 'a - b'. Default: positive - negative."),
    ] = None,
    output: options.Output = "logit",
    at: options.At = "embeddings",
    text_column: Annotated[str, typer.Option(help="The column of the texts.")] = "text",
    part_column: Annotated[
        str | None, typer.Option(help="A column whose values are parts of the data, each reported on its own, too.")
    ] = None,
    case: Annotated[bool, typer.Option("--case", help="Phrases of a groups file must agree in capitals.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Draw this many texts with the seed. Default: all.")] = None,
    permutations: Annotated[int, typer.Option(min=1, help="Random labellings in the test.")] = 10_000,
    swaps: Annotated[
        int, typer.Option(min=0, help="Also put this many members of each group into every place, and compare scores.")
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Write a page (.html), results (.json) or all mentions (.csv); into a directory: all three."),
    ] = None,
    truncate: options.Truncate = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts explained at once.")] = 32,
    device: options.Device = None,
    dtype: options.Dtype = None,
    seed: options.Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output: one object.")] = False,
    plain: options.Plain = False,
    allow_pickle: options.AllowPickle = False,
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Compare the relevance of groups of words over a whole dataset, with an effect size and a permutation test."""
    loaded, tokenizer = chosen_model(model, task, device, dtype, allow_pickle, trust_remote_code)
    with waiting("reading the data"):
        from headwater.bias.audit import audit_bias
        from headwater.bias.saving import checked_path

        if out is not None:
            checked_path(out)
    found = audit_bias(
        loaded,
        data,
        tokenizer=tokenizer,
        groups=groups,
        case=case,
        method=method,
        target=target,
        output=output,
        at=at,
        text_column=text_column,
        part_column=part_column,
        limit=limit,
        seed=seed,
        permutations=permutations,
        swaps=swaps,
        batch_size=batch_size,
        dtype=dtype,
        truncate=truncate,
    )
    put(found, as_json, plain)
    if out is not None:
        for file in found.save(out):
            say(f"wrote {file}")


def put(found: BiasAudit, as_json: bool, plain: bool) -> None:
    for warning in found.warnings:
        say(f"warning: {warning}")
    if as_json:
        from headwater.measures.saving import plain as plain_types

        typer.echo(json.dumps(plain_types(found.to_dict()), ensure_ascii=False))
        return
    show(lambda _: drawn(found), lambda: written(found), plain)


def written(found: BiasAudit) -> str:
    from headwater.bias.summary import headline, tables, verdicts
    from headwater.viz.plain import aligned

    lines = [headline(found), *verdicts(found.whole)]
    for table in tables(found):
        lines += ["", f"{table.title}:", *(f"  {line}" for line in aligned(table))]
        lines += [f"  ({table.note})"] if table.note else []
    return "\n".join(lines)


def drawn(found: BiasAudit) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table as Grid
    from rich.text import Text

    from headwater.bias.summary import headline, tables, verdicts

    parts: list[RenderableType] = [Text(f" {headline(found)}", style="dim")]
    parts += [Text(f" {line}", style="bold") for line in verdicts(found.whole)]
    for table in tables(found):
        grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
        for i, column in enumerate(table.columns):
            grid.add_column(
                column, justify="left" if i < table.left else "right", style="dim" if "95" in column else ""
            )
        for row in table.rows:
            grid.add_row(*map(Text, row))
        parts += [Text(f"\n {table.title}", style="bold"), grid]
        parts += [Text(f" {table.note}", style="dim")] if table.note else []
    return Group(*parts)
