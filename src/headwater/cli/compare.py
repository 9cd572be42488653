"""`headwater compare`: what several methods say of the same prediction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.errors import ModelError, UsageError
from headwater.models import bundled
from headwater.names import split_names

from . import options
from .images import check_alone, check_readable, draw_comparison
from .models import load_chosen_model
from .molecules import check_takes_graphs, draw_molecule, parse_molecule
from .screen import print_json, save_file, say, show, theme, waiting

if TYPE_CHECKING:
    from headwater.results.comparison import Comparison

WIDTH = 110  # of the image, in characters: a short sentence beside its numbers on one line

EXAMPLES = (
    'headwater compare "The plot is thin, but the cast is wonderful."',
    'headwater compare "It was not bad." --methods gi,lrp,ig --words',
)


@options.takes_groups
def command(
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The text to explain.")] = None,
    pair: options.Pair = None,
    smiles: options.Smiles = None,
    image: Annotated[
        Path | None, typer.Option(help="An image file, in place of a text. Without --model, a small one for digits.")
    ] = None,
    patch: options.Patch = None,
    pixels: Annotated[bool, typer.Option("--pixels", help="Draw an image's pixels, not its patches.")] = False,
    model: options.Model = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, separated by commas; see `headwater methods`. Default: the paper's, and the default for the "
            "kind of model."
        ),
    ] = None,
    target: options.Target = None,
    output: options.Output = None,
    at: options.At = "embeddings",
    sinks: options.Sinks = None,
    words: options.Words = False,
    truncate: options.Truncate = False,
    window: options.Window = False,
    loading: options.LoadOptions = options.LOADING,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    plain: options.Plain = False,
    html: options.Html = None,
    svg: options.Svg = None,
    png: options.Png = None,
) -> None:
    """Show what several methods say of the same prediction: one row of coloured tokens for each."""
    settings: dict[str, Any] = {} if methods is None else {"methods": split_names(methods)}
    if image is not None:
        check_alone((text, pair, smiles), (words, window, truncate, at != "embeddings" or sinks is not None))
        check_readable([image])
        loaded, processor = load_chosen_model(model, loading, bundled.DIGITS)
        settings |= {"processor": processor, "patch": patch, "target": target, "output": output}
        with waiting("comparing"):
            import headwater

            found = headwater.compare(loaded, image, dtype=loading.dtype, seed=seed, **settings)
        print_answer(found, as_json, plain, words)
        draw_comparison(found, image, pixels, png, svg, html)
        return
    if png is not None or patch is not None or pixels:
        raise UsageError("--png, --patch and --pixels are for an --image.")
    data = text_or_pair(text, pair) if smiles is None else parse_molecule(smiles, text, pair)
    own = bundled.NAME if smiles is None else bundled.MOLECULES
    loaded, tokenizer = load_chosen_model(model, loading, own)
    if smiles is not None:
        check_takes_graphs(loaded)
    with waiting("comparing"):
        import headwater

        found = headwater.compare(
            loaded,
            data,
            tokenizer=tokenizer,
            target=target,
            output=output,
            at=at,
            sinks=sinks,
            truncate=truncate,
            window=window,
            dtype=loading.dtype,
            seed=seed,
            **settings,
        )
    if smiles is not None:
        found = replace(found, explanations=tuple(replace(e, text=smiles) for e in found.explanations))
    print_answer(found, as_json, plain, words)
    if html is not None:
        from headwater.viz.comparison import page

        save_file(html, page(found, words=words))
    if svg is not None:
        save_file(
            svg, draw_comparison_svg(found, words) if smiles is None else draw_molecule(found.explanations, smiles)
        )


def print_answer(found: Comparison, as_json: bool, plain: bool, words: bool) -> None:
    """The comparison on standard output, and what gave none on standard error."""
    for name, reason in found.refused:
        say(f"{name} gave no explanation: {reason}")
    if not found.explanations:
        raise ModelError("no method gave an explanation.")
    print_comparison(found, as_json, plain, words)


def text_or_pair(text: str | None, pair: str | None) -> str | tuple[str, str]:
    if text is None:
        raise UsageError("nothing to explain. Give a TEXT, a molecule with --smiles, or an image with --image.")
    return text if pair is None else (text, pair)


def print_comparison(comparison: Comparison, as_json: bool, plain: bool, words: bool) -> None:
    """The comparison on standard output."""
    if as_json:
        print_json(comparison.to_dict())
        return
    from headwater.viz import comparison as viz

    show(
        lambda ground: viz.render(comparison, words=words, theme=ground),
        lambda: viz.plain(comparison, words=words),
        plain,
    )


def draw_comparison_svg(comparison: Comparison, words: bool) -> str:
    from headwater.viz.comparison import render
    from headwater.viz.svg import picture

    ground = theme()
    return picture(render(comparison, words=words, theme=ground), width=WIDTH, title="headwater compare", theme=ground)
