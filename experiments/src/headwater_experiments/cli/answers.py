"""`headwater answers`: which explanation of a language model's answers can be believed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli import options
from headwater.cli.models import load_chosen_model
from headwater.cli.screen import print_json, say, waiting
from headwater.names import split_names

EXAMPLES = (
    "headwater answers",
    "headwater answers --kinds fact,copy --limit 5",
)


def command(
    half: Annotated[
        str, typer.Option(help="Which prompts: choose, to try settings on; report, to be looked at once.")
    ] = "choose",
    settings: Annotated[
        str | None,
        typer.Option(
            help="What is compared, separated by commas: method@score or method@score+aside. Default: a list."
        ),
    ] = None,
    kinds: Annotated[str | None, typer.Option(help="Of fact, sentiment, copy, arithmetic. Default: all.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, max=options.MOST, help="The first prompts of each kind.")] = None,
    draws: Annotated[
        int, typer.Option(min=1, max=options.MOST, help="How often words are drawn to stand in for others.")
    ] = 4,
    out: Annotated[
        Path | None, typer.Option(help="A file of JSON lines; an interrupted study goes on from there.")
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="A language model, as for `headwater generate`.")] = (
        "smollm2"
    ),
    device: options.Device = None,
    dtype: options.Dtype = None,
    seed: options.Seed = 0,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output: one object a row.")] = False,
) -> None:
    """Ask, on two hundred prompts, whether explanations find the words that an answer hangs on.

    Every word is replaced by words of other prompts. Found is the decisive word if the first in relevance is the one
    whose replacement takes most from the answer's log-probability; activation and pruning put words back and replace
    them in the order of relevance.
    """
    loaded, tokenizer = load_chosen_model(model, options.LoadOptions("text-generation", device, dtype))
    with waiting("reading the prompts"):
        from headwater_experiments.answers.settings import DEFAULT
        from headwater_experiments.answers.study import study, study_page
        from headwater_experiments.prompts import KINDS, choose_prompts
    asked = choose_prompts(half, split_names(kinds) if kinds else KINDS, limit)
    names = split_names(settings) if settings else list(DEFAULT)
    rows = []
    for row in study(loaded, tokenizer, asked, names, pool=choose_prompts(half), draws=draws, seed=seed, out=out):
        rows.append(row)
        if len(rows) % len(names) == 0:
            say(f"{len(rows) // len(names)} of {len(asked)}: {row.prompt}, {row.answer!r} hangs on {row.decisive!r}")
    if as_json:
        for row in rows:
            print_json(asdict(row))
        return
    typer.echo(study_page(rows))
