"""`headwater evaluate`: how faithful methods are to a model, measured on labelled texts or images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.errors import UsageError
from headwater.models import bundled
from headwater.names import split_names

from . import options
from .models import load_chosen_model
from .screen import interruptions, say, waiting
from .tables import print_tables

if TYPE_CHECKING:
    from headwater.evaluation.results import Evaluation
    from headwater.viz.tables import Table

EXAMPLES = (
    "headwater evaluate --data reviews.csv --methods random,gi,lrp",
    "headwater evaluate --data reviews.csv --limit 500 --out evaluation",
)


@options.takes_groups
def command(
    data: Annotated[
        Path, typer.Option(help="Labelled texts: .parquet, .csv, .tsv or .jsonl, or what `headwater run` wrote.")
    ],
    methods: Annotated[str, typer.Option(help="Methods, separated by commas; see `headwater methods`.")] = "gi,lrp",
    model: options.Model = None,
    protocol: Annotated[
        str, typer.Option(help="How it is measured: ali2022, or a variant such as 'ali2022(special_tokens=kept)'.")
    ] = "ali2022",
    measures: Annotated[
        str,
        typer.Option(
            help="What is measured: activation, pruning, insertion, deletion, comprehensiveness, sufficiency, "
            "randomisation, or all; infidelity, sensitivity; or what a plug-in adds."
        ),
    ] = "activation,pruning",
    images: Annotated[
        bool, typer.Option("--images", help="The texts are paths of images, counted from the file's directory.")
    ] = False,
    patch: options.Patch = None,
    text_column: options.TextColumn = "text",
    label_column: options.LabelColumn = "label",
    limit: Annotated[
        int | None, typer.Option(min=1, max=options.MOST, help="Draw this many rows with the seed. Default: all.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Keep the results in this directory; an interrupted run goes on from there.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume/--no-resume", help="Go on, or begin anew in --out.")] = True,
    runtime: Annotated[bool, typer.Option("--runtime/--no-runtime", help="Also measure what methods cost.")] = True,
    batch_size: Annotated[int, typer.Option(min=1, max=options.MOST, help="Texts explained at once.")] = 32,
    batch_tokens: Annotated[
        int | None,
        typer.Option(min=1, max=options.MOST, help="Tokens of perturbed inputs run at once. Default: by device."),
    ] = None,
    memory: options.MemoryOptions = options.MEMORY,
    workers: options.Workers = 1,
    loading: options.LoadOptions = options.LOADING,
    seed: options.Seed = 0,
    as_json: options.JsonObject = False,
    plain: options.Plain = False,
) -> None:
    """Measure how faithful methods are: activation and pruning curves, with intervals and paired differences."""
    if patch is not None and not images:
        raise UsageError("--patch is for --images.")
    loaded, reader = load_chosen_model(model, loading, bundled.DIGITS if images else bundled.NAME)
    with waiting("reading the data"):
        from headwater.evaluation.run import evaluate
    with interruptions(out):
        found = evaluate(
            loaded,
            data,
            methods=split_names(methods),
            tokenizer=None if images else reader,
            processor=reader if images else None,
            patch=patch,
            protocol=protocol,
            measures=split_names(measures),
            text_column=text_column,
            label_column=label_column,
            limit=limit,
            seed=seed,
            batch_size=batch_size,
            batch_tokens=batch_tokens,
            dtype=loading.dtype,
            out=out,
            resume=resume,
            runtime=runtime,
            workers=workers,
            **memory.settings(),
        )
    print_tables(found, lambda: summarise_evaluation(found), as_json, plain)
    if out is not None:
        say(f"kept in {out}; `headwater report {out} --out page.html` makes a page of it")


def summarise_evaluation(found: Evaluation) -> tuple[list[str], list[Table]]:
    from headwater.evaluation.summary import evaluation_headline, evaluation_tables

    return [evaluation_headline(found)], evaluation_tables(found)
