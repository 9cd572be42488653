"""`headwater audit`: where a method keeps relevance and where it loses it."""

from __future__ import annotations

from typing import Annotated

import typer

from . import options
from .models import load_chosen_model
from .screen import print_json, show, waiting

EXAMPLES = (
    'headwater audit "a gripping, beautifully acted film" --method gi',
    'headwater audit "a gripping, beautifully acted film" --full --json',
)


@options.takes_groups
def command(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text to explain.")],
    pair: options.Pair = None,
    model: options.Model = None,
    method: options.Method = None,
    target: options.Target = None,
    output: options.Output = None,
    at: options.At = "embeddings",
    sinks: options.Sinks = None,
    full: options.Full = False,
    truncate: options.Truncate = False,
    loading: options.LoadOptions = options.LOADING,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    plain: options.Plain = False,
) -> None:
    """Follow relevance through every module: what came in, what went out, and which operations leaked."""
    loaded, tokenizer = load_chosen_model(model, loading)
    with waiting("auditing"):
        import headwater

        report = headwater.audit(
            loaded,
            text if pair is None else (text, pair),
            tokenizer=tokenizer,
            method=method,
            target=target,
            output=output,
            at=at,
            sinks=sinks,
            truncate=truncate,
            dtype=loading.dtype,
            seed=seed,
        )
    if as_json:
        print_json(report.to_dict())
        return
    from headwater.viz.plain import plain_audit
    from headwater.viz.terminal import render_audit

    show(lambda _: render_audit(report, full=full), lambda: plain_audit(report, full=full), plain)
