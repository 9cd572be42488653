"""`headwater prune`: heads or neurons removed by relevance, and the accuracy that is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.errors import UnknownName, UsageError
from headwater.names import split_names

from . import options
from .models import load_chosen_model
from .screen import say, waiting

if TYPE_CHECKING:
    from torch import nn

    from headwater.evaluation.unit_scores import Examples

EXAMPLES = (
    "headwater prune --data reviews.parquet --share .3",
    "headwater prune --data reviews.csv --share .2,.4 --parts neurons --out small",
)
BY = "unshared,relevance,taylor,magnitude,random"


def command(
    data: Annotated[Path, typer.Option(help="Labelled texts that units are scored on: .parquet, .csv, .tsv, .jsonl.")],
    test: Annotated[
        Path | None, typer.Option(help="Labelled texts that accuracy is measured on. Default: half of --data.")
    ] = None,
    share: Annotated[str, typer.Option(help="Shares that are removed, separated by commas.")] = ".3",
    parts: Annotated[str, typer.Option(help="What is removed: heads or neurons.")] = "heads",
    by: Annotated[
        str | None, typer.Option(help=f"Scores, separated by commas; the first is that of --out. Default: {BY}.")
    ] = None,
    refit: Annotated[
        bool,
        typer.Option("--refit/--zeros", help="Whether units that are kept are fitted to say what those that go said."),
    ] = True,
    out: Annotated[
        Path | None, typer.Option(help="Save the model here, as transformers reads it, without the first share.")
    ] = None,
    model: options.Model = None,
    task: options.Task = None,
    text_column: options.TextColumn = "text",
    label_column: options.LabelColumn = "label",
    limit: Annotated[
        int | None, typer.Option(min=1, max=options.MOST, help="Draw this many rows that units are scored on.")
    ] = 256,
    seed: options.Seed = 0,
    device: options.Device = None,
    as_json: options.JsonObject = False,
    allow_pickle: options.AllowPickle = False,
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Remove the heads or neurons with the least relevance over a dataset, and report accuracy beside other scores."""
    shares = [read_share(one) for one in split_names(share)]
    names = split_names((BY if refit else BY.removeprefix("unshared,")) if by is None else by)
    if not shares or not names:
        raise UsageError(f"--{'by' if shares else 'share'} is empty: name at least one.")
    if out is not None and out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file: a model is saved as a directory of files. Name another --out.")
    loaded, tokenizer = load_chosen_model(
        model, options.LoadOptions(task, device, None, allow_pickle, trust_remote_code)
    )
    with waiting("pruning"):
        from headwater.evaluation.pruning import KINDS, Pruner, measure_pruning

        if parts not in KINDS:
            raise UnknownName("parts", parts, KINDS)
        given, measured = read_examples(loaded, tokenizer, data, test, (text_column, label_column))
        scored = given.draw(limit, seed)
        pruner = Pruner.open(loaded, tokenizer, parts, scored, refit)
        found = measure_pruning(pruner, measured, shares, names, seed)
    typer.echo(json.dumps(found.to_dict()) if as_json else str(found))
    if out is not None:
        made = pruner.cut(pruner.choose(names[0], shares[:1], seed)[0])
        save_smaller(made, tokenizer, out)
        say(
            f"without {shares[0] * 100:g}% of its {parts} by {names[0]}: {out}. transformers has no way to say that "
            f"single {parts} are missing, so the weights that read them are zeros: the files are as large as before."
        )


def read_share(said: str) -> float:
    try:
        found = float(said)
    except ValueError as error:
        raise UsageError(f"a share is a number such as .3, not {said!r}.") from error
    if not 0 < found < 1:
        raise UsageError(f"a share lies between 0 and 1, and {said} does not.")
    return found


def read_examples(
    model: nn.Module,
    tokenizer: object,
    data: Path,
    test: Path | None,
    columns: tuple[str, str],
) -> tuple[Examples, Examples]:
    """Rows that units are scored on, and others that accuracy is measured on."""
    from headwater.evaluation.sources import read_labelled
    from headwater.evaluation.unit_scores import Examples
    from headwater.inputs.classes import class_names

    config = getattr(model, "config", None)
    names = class_names(config, getattr(config, "num_labels", 0))
    read = [read_labelled(path, *columns, names, True, tokenizer) for path in (data, *([] if test is None else [test]))]
    found = [Examples(one.texts, one.labels or []) for one in read]
    if test is None:
        found = [Examples(found[0].texts[start::2], found[0].labels[start::2]) for start in (0, 1)]
    if not all(one.texts for one in found):
        raise UsageError("--data has one row: name other rows with --test, on which accuracy is measured.")
    return found[0], found[1]


def save_smaller(model: nn.Module, tokenizer: object, out: Path) -> None:
    """As `from_pretrained` reads it."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    for part in (model, tokenizer):
        save = getattr(part, "save_pretrained", None)
        if save is None:
            raise UsageError("only a model of transformers can be saved; leave out --out.")
        save(out)
