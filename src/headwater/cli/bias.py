"""`headwater bias`: whether groups of words, people's names by default, push a model's score differently."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.defaults import METHOD_BY_KIND

from . import options
from .models import load_chosen_model
from .screen import say, waiting
from .tables import print_tables

if TYPE_CHECKING:
    from headwater.bias.results import BiasAudit
    from headwater.viz.tables import Table


PAPERS_MODEL = "distilbert/distilbert-base-uncased-finetuned-sst-2-english"

EXAMPLES = (
    "headwater bias --data reviews.csv --groups groups.json",
    "headwater bias --data reviews.csv --groups groups.json --out audit",
)


@options.takes_groups
def command(
    data: Annotated[
        str, typer.Option(help="Texts: a .parquet, .csv, .tsv or .jsonl file, what `headwater run` wrote, or sst2.")
    ] = "sst2",
    groups: Annotated[
        str,
        typer.Option(
            help="Phrases by group: a .json, .csv or .tsv file; gender-names (people's first names); entities (people "
            "that SST-2 names, by the paper's categories)."
        ),
    ] = "gender-names",
    model: options.Model = None,
    method: Annotated[
        str | None,
        typer.Option("--method", help=f"See `headwater methods`. Default: {METHOD_BY_KIND}; with --paper lrp(ah+ln)."),
    ] = None,
    paper: Annotated[
        bool,
        typer.Option("--paper", help="The paper's study: its DistilBERT from the hub, or --model; lrp(ah+ln); SST-2."),
    ] = False,
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", help="The score: a class, or 'a - b'. Default: positive - negative."),
    ] = None,
    output: options.Output = None,
    at: options.At = "embeddings",
    text_column: options.TextColumn = "text",
    part_column: Annotated[
        str | None, typer.Option(help="A column whose values are parts of the data, each reported on its own, too.")
    ] = None,
    case: Annotated[bool, typer.Option("--case", help="Phrases of a groups file must agree in capitals.")] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, max=options.MOST, help="Draw this many texts with the seed. Default: all.")
    ] = None,
    permutations: Annotated[int, typer.Option(min=1, max=options.MOST, help="Random labellings in the test.")] = 10_000,
    swaps: Annotated[
        int,
        typer.Option(
            min=0,
            max=options.MOST,
            help="Also put this many members of each group into every place, and compare scores.",
        ),
    ] = 0,
    calibrate: Annotated[
        int,
        typer.Option(
            min=0,
            max=options.MOST,
            help="Also check the test itself on this many random labellings, with and without a planted difference.",
        ),
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write a page (.html), results (.json) or all mentions (.csv), into a directory all three; or the "
            "histogram (.svg)."
        ),
    ] = None,
    truncate: options.Truncate = False,
    batch_size: Annotated[int, typer.Option(min=1, max=options.MOST, help="Texts explained at once.")] = 32,
    loading: options.LoadOptions = options.LOADING,
    seed: options.Seed = 0,
    as_json: options.JsonObject = False,
    plain: options.Plain = False,
) -> None:
    """Compare the relevance of groups of words over a whole dataset, with an effect size and a permutation test."""
    model = model or (PAPERS_MODEL if paper else None)
    method = method or ("lrp(ah+ln)" if paper else None)
    loaded, tokenizer = load_chosen_model(model, loading)
    with waiting("reading the data"):
        from headwater.bias.audit import audit_bias
        from headwater.bias.saving import check_path

        if out is not None:
            check_path(out, (data, groups))
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
        calibration=calibrate,
        batch_size=batch_size,
        dtype=loading.dtype,
        truncate=truncate,
    )
    for warning in found.warnings:
        say(f"warning: {warning}")
    print_tables(found, lambda: summarise_audit(found), as_json, plain)
    if out is not None:
        for file in found.save(out):
            say(f"wrote {file}")


def summarise_audit(found: BiasAudit) -> tuple[list[str], list[Table]]:
    from headwater.bias.summary import audit_headline, audit_tables, list_verdicts

    return [audit_headline(found), *list_verdicts(found.whole)], audit_tables(found)
