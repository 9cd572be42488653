"""`headwater zoo`: does the ledger close on every architecture of transformers?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli import options
from headwater.cli.screen import save_file, say
from headwater.cli.tables import print_tables
from headwater.names import split_names

EXAMPLES = (
    "headwater zoo --names bert,causal-lm/gpt2",
    "headwater zoo --page docs/architectures.md",
)


def command(
    maps: Annotated[
        str, typer.Option(help="Maps, separated by commas: sequence-classification, causal-lm, … Default: all eight.")
    ] = "",
    names: Annotated[
        str, typer.Option(help="Architectures, separated by commas: bert, causal-lm/gpt2. Default: every one.")
    ] = "",
    method: Annotated[str, typer.Option(help="The method that explains them. The page is that of lrp.")] = "lrp",
    jobs: Annotated[
        int, typer.Option(min=1, max=options.MANY, help="How many are judged at a time, in a process each.")
    ] = 2,
    timeout: Annotated[
        float,
        typer.Option(
            min=1, max=options.LONGEST, callback=options.check_not_nan, help="Seconds after which one is given up."
        ),
    ] = 120.0,
    memory: Annotated[
        float,
        typer.Option(min=0.5, max=options.MOST_GIB, callback=options.check_not_nan, help="GiB that one may take."),
    ] = 6.0,
    out: Annotated[
        Path | None, typer.Option(help="Keep findings here, one a line; those of the same versions are not made again.")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Also write the page of all architectures here.")] = None,
    as_json: options.Json = False,
    plain: options.Plain = False,
) -> None:
    """Build every architecture small, with random weights, explain it, and say whether its ledger closes."""
    from headwater.methods import resolve_method
    from headwater_experiments.zoo.entries import entries
    from headwater_experiments.zoo.page import summarise_findings
    from headwater_experiments.zoo.page import zoo_page as written
    from headwater_experiments.zoo.running import run

    wanted = entries(split_names(maps), split_names(names), resolve_method(method).name)
    say(f"{len(wanted)} architectures, {jobs} at a time")
    found = run(wanted, out=out, jobs=jobs, timeout=timeout, memory=memory)
    print_tables(found, lambda: summarise_findings(found.findings), as_json, plain)
    if page is not None:
        save_file(page, written(found.findings))
