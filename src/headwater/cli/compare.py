"""`headwater compare`: what several methods say of the same prediction."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.errors import ModelError

from . import options
from .models import chosen_model
from .screen import save, say, show, theme, waiting

if TYPE_CHECKING:
    from headwater.comparison import Comparison

WIDTH = 110  # of the image, in characters: a short sentence beside its numbers on one line


def command(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text to explain.")],
    pair: Annotated[str | None, typer.Option(help="The second text of a pair.", metavar="TEXT")] = None,
    model: options.Model = None,
    task: options.Task = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods, separated by commas; see `headwater methods`. Default: the paper's.")
    ] = None,
    target: options.Target = None,
    output: options.Output = "logit",
    at: options.At = "embeddings",
    words: Annotated[bool, typer.Option("--words", help="Sum sub-words to words.")] = False,
    truncate: options.Truncate = False,
    window: options.Window = False,
    device: options.Device = None,
    dtype: options.Dtype = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    plain: options.Plain = False,
    html: options.Html = None,
    svg: options.Svg = None,
    allow_pickle: options.AllowPickle = False,
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Show what several methods say of the same prediction: one row of coloured tokens for each."""
    loaded, tokenizer = chosen_model(model, task, device, dtype, allow_pickle, trust_remote_code)
    settings: dict[str, Any] = {} if methods is None else {"methods": split(methods)}
    with waiting("comparing"):
        import headwater

        found = headwater.compare(
            loaded,
            text if pair is None else (text, pair),
            tokenizer=tokenizer,
            target=target,
            output=output,
            at=at,
            truncate=truncate,
            window=window,
            dtype=dtype,
            seed=seed,
            **settings,
        )
    for name, reason in found.refused:
        say(f"{name} gave no explanation: {reason}")
    if not found.explanations:
        raise ModelError("no method gave an explanation.")
    put(found, as_json, plain, words)
    if html is not None:
        from headwater.viz.comparison import page

        save(html, page(found, words=words))
    if svg is not None:
        save(svg, drawn(found, words))


def split(methods: str) -> list[str]:
    """Names between commas; a comma inside brackets belongs to its name."""
    names, depth = [""], 0
    for character in methods:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            names.append("")
        else:
            names[-1] += character
    return [name.strip() for name in names if name.strip()]


def put(comparison: Comparison, as_json: bool, plain: bool, words: bool) -> None:
    """The comparison on standard output."""
    if as_json:
        typer.echo(json.dumps(comparison.to_dict(), ensure_ascii=False))
        return
    from headwater.viz import comparison as viz

    show(
        lambda ground: viz.render(comparison, words=words, theme=ground),
        lambda: viz.plain(comparison, words=words),
        plain,
    )


def drawn(comparison: Comparison, words: bool) -> str:
    from headwater.viz.comparison import render
    from headwater.viz.svg import picture

    ground = theme()
    return picture(render(comparison, words=words, theme=ground), width=WIDTH, title="headwater compare", theme=ground)
