"""`headwater evaluate`: how faithful methods are to a model, measured on labelled texts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .models import chosen_model
from .screen import say, show, waiting

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headwater.measures.results import Evaluation


def command(
    data: Annotated[Path, typer.Option(help="Labelled texts: .parquet, .csv, .tsv or .jsonl.")],
    methods: Annotated[str, typer.Option(help="Methods, separated by commas; see `headwater methods`.")] = "gi,lrp",
    model: options.Model = None,
    task: options.Task = None,
    protocol: Annotated[
        str, typer.Option(help="How it is measured: ali2022, or a variant such as 'ali2022(special_tokens=kept)'.")
    ] = "ali2022",
    measures: Annotated[
        str,
        typer.Option(
            help="What is measured: activation, pruning, insertion, deletion, comprehensiveness, sufficiency, "
            "randomisation, or all; infidelity, sensitivity."
        ),
    ] = "activation,pruning",
    text_column: Annotated[str, typer.Option(help="The column of the texts.")] = "text",
    label_column: Annotated[str, typer.Option(help="The column of the labels: class indices or names.")] = "label",
    limit: Annotated[int | None, typer.Option(min=1, help="Draw this many rows with the seed. Default: all.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Keep the results in this directory; an interrupted run goes on from there.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume/--no-resume", help="Go on, or begin anew in --out.")] = True,
    runtime: Annotated[bool, typer.Option("--runtime/--no-runtime", help="Also measure what methods cost.")] = True,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts explained at once.")] = 32,
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of perturbed inputs run at once. Default: by device.")
    ] = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    seed: options.Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output: one object.")] = False,
    plain: options.Plain = False,
    allow_pickle: options.AllowPickle = False,
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Measure how faithful methods are: activation and pruning curves, with intervals and paired differences."""
    loaded, tokenizer = chosen_model(model, task, device, dtype, allow_pickle, trust_remote_code)
    with waiting("reading the data"):
        from headwater.measures.evaluation import evaluate
    found = evaluate(
        loaded,
        data,
        methods=separated(methods),
        tokenizer=tokenizer,
        protocol=protocol,
        measures=separated(measures),
        text_column=text_column,
        label_column=label_column,
        limit=limit,
        seed=seed,
        batch_size=batch_size,
        batch_tokens=batch_tokens,
        dtype=dtype,
        out=out,
        resume=resume,
        runtime=runtime,
    )
    put(found, as_json, plain)
    if out is not None:
        say(f"kept in {out}; `headwater report {out} --out page.html` makes a page of it")


def separated(names: str) -> list[str]:
    """Names between commas, except for commas inside brackets."""
    return [name.strip() for name in re.split(r",(?![^(]*\))", names) if name.strip()]


def put(found: Evaluation, as_json: bool, plain: bool) -> None:
    if as_json:
        from headwater.measures.saving import plain as plain_types

        typer.echo(json.dumps(plain_types(found.to_dict()), ensure_ascii=False))
        return
    show(lambda _: drawn(found), lambda: written(found), plain)


def written(found: Evaluation) -> str:
    from headwater.measures.summary import headline, tables
    from headwater.viz.plain import aligned

    lines = [headline(found)]
    for table in tables(found):
        lines += ["", f"{table.title}:", *(f"  {line}" for line in aligned(table))]
        lines += [f"  ({table.note})"] if table.note else []
    return "\n".join(lines)


def drawn(found: Evaluation) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table as Grid
    from rich.text import Text

    from headwater.measures.summary import headline, tables

    parts: list[RenderableType] = [Text(f" {headline(found)}", style="dim")]
    for table in tables(found):
        grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
        for i, column in enumerate(table.columns):
            grid.add_column(column, justify="right" if i else "left", style="dim" if column == "95 %" else "")
        for row in table.rows:
            grid.add_row(*map(Text, row), style="bold" if "best" in row else "")
        parts += [Text(f"\n {table.title}", style="bold"), grid]
        parts += [Text(f" {table.note}", style="dim")] if table.note else []
    return Group(*parts)
