"""`headwater faithfulness`: which explanation of a language model can be believed, by public protocols."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.errors import UsageError
from headwater.names import split_names

from . import options
from .models import load_chosen_model
from .screen import interruptions, save_file, say, waiting
from .tables import print_tables

if TYPE_CHECKING:
    from headwater.evaluation.language.faithfulness import Faithfulness
    from headwater.viz.tables import Table

MODEL, PROTOCOL, HALF = "smollm2", "single-token", "choose"
EXAMPLES = (
    "headwater faithfulness --model smollm2 --quick",
    "headwater faithfulness -m smollm2 --methods lrp-language,gi --out study",
)


@options.takes_groups
def command(
    model: Annotated[str, typer.Option("--model", "-m", help="A language model, as for `headwater generate`.")] = MODEL,
    protocol: Annotated[
        str, typer.Option(help="How it is measured, separated by commas: single-token, agreement, needles, hotpot.")
    ] = PROTOCOL,
    data: Annotated[
        str | None, typer.Option(help="Sets of prompts, separated by commas: known1000, ioi, … Default: all.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="Your own prompts: JSON lines with a prompt and an answer.")
    ] = None,
    half: Annotated[
        str, typer.Option(help="Which half of the prompts: choose, to try settings on; report, to be looked at once.")
    ] = HALF,
    methods: Annotated[
        str | None, typer.Option(help="Methods, separated by commas; see `headwater methods`. Default: a list.")
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, max=options.MOST, help="Prompts of each set. Default: 70.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Four prompts of the sets with short ones: a first look.")] = (
        False
    ),
    out: Annotated[
        Path | None, typer.Option(help="A file of JSON lines; an interrupted study goes on from there.")
    ] = None,
    read: Annotated[
        Path | None, typer.Option(help="A file of --out: make its table, or picture, again without the model.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Also draw faithfulness against cost here, as SVG.", metavar="FILE.svg")
    ] = None,
    loading: options.LoadOptions = options.LOADING,
    seed: options.Seed = 0,
    as_json: options.JsonObject = False,
    plain: options.Plain = False,
) -> None:
    """Measure which explanation of a language model is faithful to it, and say which one to use.

    Words are taken out of prompts, or put back, in the order of relevance. The table has the methods that matter beside
    the order of the words alone, with intervals and with their cost in forward passes. It ends in one sentence.
    """
    if picture is not None and picture.suffix.lower() != ".svg":
        raise UsageError(f"the picture is written as SVG: name a file that ends in .svg, not {picture.name}.")
    if read is not None:
        new = {"--out": out, "--prompts": prompts, "--quick": quick, "--seed": seed}
        new |= {"--protocol": protocol != PROTOCOL, "--half": half != HALF, "--model": model != MODEL}
        new |= {f"--{name.replace('_', '-')}": given for name, given in vars(loading).items()}
        given = [name for name, one in new.items() if one]
        if given:
            raise UsageError(f"--read makes the table of a file that is there: leave out {', '.join(given)}.")
    names = split_names(methods) if methods else None
    if read is not None:
        found = read_study(read, data, names, count)
    else:
        loaded, tokenizer = load_writer(model, loading)
        with waiting("reading the prompts"):
            from headwater.evaluation.language import study
        rules = split_names(protocol)
        usual = list(study.QUICK_SETS) if quick and prompts is None else None
        with interruptions(out):
            found = study.measure_faithfulness(
                loaded,
                tokenizer,
                rules,
                sets=split_names(data) if data else study.sets_within(rules, usual),
                prompts=prompts,
                half=half,
                methods=names,
                count=count or (study.QUICK_COUNT if quick else study.COUNT),
                seed=seed,
                out=out,
                say=say,
            )
    print_tables(found, lambda: summarise_faithfulness(found), as_json, plain)
    if not as_json:
        typer.echo(f"\n{found.sentence}")
    if picture is not None:
        from headwater.evaluation.language.picture import draw_costs

        save_file(picture, draw_costs(found))


def load_writer(model: str, loading: options.LoadOptions) -> tuple[Any, Any]:
    """A model that writes text, with its tokenizer. Of a classifier it is said what measures it."""
    loaded, tokenizer = load_chosen_model(model, loading)
    from headwater.inputs.text import can_generate

    if not can_generate(loaded):
        raise UsageError(
            f"{model} does not write text: it is a {type(loaded).__name__}. Explanations of a classifier are measured "
            f"on labelled texts: `headwater evaluate --model {model} --data FILE --methods gi,lrp,attnlrp`."
        )
    return loaded, tokenizer


def read_study(path: Path, data: str | None, methods: list[str] | None, count: int | None) -> Faithfulness:
    """What an earlier run kept, of all its sets or of some."""
    if not path.is_file():
        raise UsageError(f"--read names a file that --out has written; there is no {path}.")
    from headwater.evaluation.language.study import read_faithfulness

    return read_faithfulness(path, sets=split_names(data) if data else None, methods=methods, count=count)


def summarise_faithfulness(found: Faithfulness) -> tuple[list[str], list[Table]]:
    from headwater.evaluation.language.tables import faithfulness_headline, faithfulness_tables

    return [faithfulness_headline(found)], faithfulness_tables(found)
