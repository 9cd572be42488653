"""`headwater explain`: how much each token, atom of a molecule or patch of an image contributed, and the ledger."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from headwater.errors import EmptyInput, HeadwaterError, InputError, UsageError
from headwater.inputs.lines import BOM
from headwater.models import bundled
from headwater.plurals import say_count

from . import options
from .images import check_alone, check_readable, write_pictures
from .models import load_chosen_model
from .molecules import check_takes_graphs, draw_molecule, parse_molecule
from .refusals import check_written
from .screen import print_json, save_file, say, show, theme, waiting

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headwater.results.explanation import Explanation
    from headwater.viz.colour import Theme

Text = str | tuple[str, str]

EXAMPLES = (
    'headwater explain "a gripping, beautifully acted film"',
    'headwater explain "It was not bad." --target positive --html page.html',
)


@options.takes_groups
def command(
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="The text, or several; - reads one a line.")
    ] = None,
    pair: Annotated[
        list[str] | None, typer.Option(help="The second text of a pair; once for every TEXT.", metavar="TEXT")
    ] = None,
    smiles: options.Smiles = None,
    image: Annotated[
        list[Path] | None,
        typer.Option(help="An image file, or several, in place of a text. Without --model, a small one for digits."),
    ] = None,
    patch: options.Patch = None,
    model: options.Model = None,
    method: options.Method = None,
    target: options.Target = None,
    output: options.Output = None,
    at: options.At = "embeddings",
    sinks: options.Sinks = None,
    words: options.Words = False,
    full: options.Full = False,
    truncate: options.Truncate = False,
    window: options.Window = False,
    batch_size: Annotated[int, typer.Option(min=1, max=options.MOST, help="Texts computed at once.")] = 16,
    memory: options.MemoryOptions = options.MEMORY,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Explain nothing: say how much memory it would take, and how.")
    ] = False,
    loading: options.LoadOptions = options.LOADING,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    plain: options.Plain = False,
    html: options.Html = None,
    svg: options.Svg = None,
    png: options.Png = None,
) -> None:
    """Say how much each token, atom or patch contributed to a prediction, with a ledger that adds up to the score."""
    shared = {
        "method": method,
        "target": target,
        "output": output,
        "batch_size": batch_size,
        "dtype": loading.dtype,
        "seed": seed,
        **memory.settings(),
    }
    if image:
        check_alone((texts, pair, smiles), (words, window, truncate, at != "embeddings" or sinks is not None))
        check_readable(image)
        loaded, processor = load_chosen_model(model, loading, bundled.DIGITS)
        settings = {"processor": processor, "patch": patch, **shared}
        if dry_run:
            put_estimate(loaded, image, settings, as_json)
            return
        write_pictures(
            print_all(explain_in_batches(loaded, image, settings), as_json, plain, full, False), image, png, svg, html
        )
        return
    if png is not None or patch is not None:
        raise UsageError("--png and --patch are for an --image.")
    given: list[Any] = (
        pairs(list(texts_or_stdin(texts)), pair) if smiles is None else [parse_molecule(smiles, texts, pair)]
    )
    own = bundled.NAME if smiles is None else bundled.MOLECULES
    loaded, tokenizer = load_chosen_model(model, loading, own)
    if smiles is not None:
        check_takes_graphs(loaded)
    settings = {"at": at, "sinks": sinks, "truncate": truncate, "window": window, "tokenizer": tokenizer, **shared}
    if dry_run:
        put_estimate(loaded, given, settings, as_json)
        return
    found = explain_in_batches(loaded, given, settings)
    named_so = found if smiles is None else (replace(made, text=smiles) for made in found)
    kept = print_all(named_so, as_json, plain, full, words)
    if html is not None:
        from headwater.viz.html import page

        save_file(html, page(kept, words=words))
    if svg is not None:
        save_file(svg, draw_explanations(kept, full, words) if smiles is None else draw_molecule(kept, smiles))


def put_estimate(model: Any, given: Sequence[Any], settings: dict[str, Any], as_json: bool) -> None:
    """How much memory the largest batch of all that was given would take."""
    import headwater

    with waiting("estimating"):
        found = headwater.estimate(model, list(given), **settings)
    typer.echo(json.dumps(found.to_dict()) if as_json else str(found))


def print_all(made: Iterable[Explanation], as_json: bool, plain: bool, full: bool, words: bool) -> list[Explanation]:
    """All of them, each put on standard output as it comes."""
    kept: list[Explanation] = []
    for explanation in made:
        if kept and not as_json:
            typer.echo()
        print_explanation(explanation, as_json, plain, full, words)
        kept.append(explanation)
    return kept


def texts_or_stdin(texts: Sequence[str] | None) -> Iterator[str]:
    """The texts as given, or those on standard input, one a line; blank lines are left out."""
    if not texts:
        raise UsageError("nothing to explain. Give a TEXT, a molecule with --smiles, or an image with --image.")
    if list(texts) != ["-"]:
        yield from texts
        return
    found = lines_of(sys.stdin)
    kept = [line for line in found if line.strip()]
    if not kept:
        raise EmptyInput("standard input holds no text.")
    if len(kept) < len(found):
        say(f"blank lines left out: {len(found) - len(kept)}")
    yield from kept


def lines_of(file: TextIO) -> list[str]:
    """Its lines, without their ends."""
    try:
        found = [line.rstrip("\r\n") for line in file]
    except UnicodeDecodeError as error:
        raise InputError(f"standard input is no text in {error.encoding}: {error.reason}. Convert it.") from error
    for number, line in enumerate(found, 1):
        check_written(f"line {number} of standard input", line)
    return [line.removeprefix(BOM) if number == 0 else line for number, line in enumerate(found)]


def pairs(texts: list[str], seconds: Sequence[str] | None) -> list[Text]:
    if not seconds:
        return list(texts)
    if len(seconds) != len(texts):
        raise UsageError(
            f"--pair was given {say_count(len(seconds), 'time')} for {say_count(len(texts), 'text')}; "
            "give it once for every text."
        )
    return list(zip(texts, seconds, strict=True))


def explain_in_batches(model: Any, texts: Sequence[Any], settings: dict[str, Any]) -> Iterator[Explanation]:
    """Explanations as they are made, a batch at a time, so that a long list shows that it moves."""
    size = settings["batch_size"]
    for start in range(0, len(texts), size):
        chunk = list(texts[start : start + size])
        try:
            with waiting(f"explaining {start + len(chunk)} of {len(texts)}"):
                done = explain_chunk(model, chunk, settings)
        except HeadwaterError:
            if len(texts) > size:
                say(f"stopped in texts {start + 1} to {start + len(chunk)} of {len(texts)}, counted from 0 below:")
            raise
        yield from done


def explain_chunk(model: Any, chunk: list[Any], settings: dict[str, Any]) -> list[Explanation]:
    """One explanation per text; of a token classifier, one per entity that it finds."""
    import headwater

    if settings.get("target") is not None or not type(model).__name__.endswith("ForTokenClassification"):
        made: list[Explanation] = headwater.explain(model, chunk, **settings)
        return made
    found = headwater.explain_entities(model, chunk, **settings)
    for text, entities in zip(chunk, found, strict=True):
        if not entities:
            say(f"no entity in {text!r:.60}")
    return [entity.explanation for entities in found for entity in entities]


def print_explanation(explanation: Explanation, as_json: bool, plain: bool, full: bool, words: bool) -> None:
    """One explanation on standard output."""
    if as_json:
        record = explanation.to_dict()
        if words:
            record["words"] = [vars(word) for word in explanation.words()]
        print_json(record)
        return

    def draw(ground: Theme) -> RenderableType:
        from headwater.viz.terminal import render

        return render(explanation, full=full, words=words, theme=ground)

    def write() -> str:
        from headwater.viz.plain import plain

        return plain(explanation, full=full, words=words)

    show(draw, write, plain)


def draw_explanations(explanations: Sequence[Explanation], full: bool, words: bool) -> str:
    from rich.console import Group
    from rich.padding import Padding

    from headwater.viz.svg import picture
    from headwater.viz.terminal import render

    ground = theme()
    stack = [Padding(render(e, full=full, words=words, theme=ground), (0, 0, 1, 0)) for e in explanations]
    return picture(Group(*stack), title="headwater explain", theme=ground)
