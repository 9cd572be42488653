"""`headwater similar`: which words made two texts similar."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .screen import print_json, save_file, waiting

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
EXAMPLES = (
    'headwater similar "Who wrote Emma?" "Jane Austen published it in 1815."',
    'headwater similar "a good film" "a fine movie" --rank 16 --html page.html',
)
Encoder = Annotated[
    str, typer.Option("--model", "-m", help="A directory or hub name. Default: MiniLM, from its wheel or the hub.")
]
PoolingName = Annotated[
    str | None,
    typer.Option(help="mean, cls, max, last, mean-sqrt, weighted-mean or pooler. Default: what the model's files say."),
]
Dot = Annotated[bool, typer.Option("--dot", help="Compare by the dot product, not by the cosine.")]
Dimensions = Annotated[
    int | None, typer.Option(min=1, max=options.MOST, help="Compare the first dimensions alone (Matryoshka).")
]
RankNumber = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=options.MOST,
        help="Directions along which the vectors are explained. Default: all dimensions, exactly.",
    ),
]
PairTarget = Annotated[
    str | None,
    typer.Option("--target", "-t", help="Of a model that reads both texts at once: the class, by its name or index."),
]


def command(
    a: Annotated[str, typer.Argument(metavar="A", help="A text.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The text that it is compared with.")],
    model: Encoder = MINILM,
    pooling: PoolingName = None,
    dot: Dot = False,
    dimensions: Dimensions = None,
    prompt_a: Annotated[str | None, typer.Option(help="Stands in front of the first text.")] = None,
    prompt_b: Annotated[str | None, typer.Option(help="Stands in front of the second text.")] = None,
    rank: RankNumber = None,
    target: PairTarget = None,
    method: options.Method = None,
    truncate: options.Truncate = False,
    device: options.Device = None,
    dtype: options.Dtype = None,
    as_json: options.Json = False,
    html: options.Html = None,
    svg: Annotated[Path | None, typer.Option(help="Also write the texts with lines between their words here.")] = None,
) -> None:
    """Say which words of two texts made their vectors similar."""
    with waiting("explaining"):
        import headwater

        found = headwater.explain_similarity(
            model,
            a,
            b,
            rank=rank,
            pooling=pooling,
            normalise=not dot,
            dimensions=dimensions,
            prompts=None if prompt_a is None and prompt_b is None else (prompt_a, prompt_b),
            target=target,
            method=method,
            truncate=truncate,
            device=device,
            dtype=dtype,
        )
    from headwater.viz.two_texts import draw_similarity_page, draw_word_lines

    if html is not None:
        save_file(html, draw_similarity_page(found))
    if svg is not None:
        save_file(svg, draw_word_lines(found))
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo(str(found))
