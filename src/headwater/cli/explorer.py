"""`headwater app`: the explorer, in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.errors import MissingExtra

from . import options
from .screen import say, waiting

EXAMPLES = (
    "headwater app",
    "headwater app ./my-model --results runs",
)


def command(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="A text classifier: a directory or a hub name. Default: the bundled one."),
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="Another text classifier. May be given several times, as the other models may: the page has a choice.",
        ),
    ] = None,
    image_model: Annotated[
        list[str] | None, typer.Option(help="A model of images. Default: a small one for digits, where it is.")
    ] = None,
    molecule_model: Annotated[
        list[str] | None, typer.Option(help="A Graphormer for molecules. Default: the one for BACE, where it is.")
    ] = None,
    language_model: Annotated[
        list[str] | None,
        typer.Option(help="A model that generates text. Default: smollm2, where its wheel is installed."),
    ] = None,
    sentence_model: Annotated[
        list[str] | None,
        typer.Option(help="A sentence encoder, to compare texts. Default: MiniLM, where its wheel is installed."),
    ] = None,
    results: Annotated[
        list[Path] | None,
        typer.Option(
            help="What `run`, `evaluate` or `bias` wrote, or a directory of those; may be given several times."
        ),
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Default: 8765, or the next free one.")] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on. Any but this machine's own demands a token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None, typer.Option(envvar="HEADWATER_TOKEN", help="The token to demand. Default: a new one.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
    workers: Annotated[int, typer.Option(min=1, max=options.MANY, help="Requests computed at once.")] = 2,
    seconds: Annotated[
        float,
        typer.Option(
            min=1, max=options.LONGEST, callback=options.check_not_nan, help="How long one request may compute."
        ),
    ] = 60.0,
    screenshot: Annotated[
        Path | None, typer.Option(help="Write a picture of the explorer here, and stop. Needs playwright and Chromium.")
    ] = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    allow_pickle: options.AllowPickle = False,
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Open the explorer: type a text, see prediction and relevance, mask words, follow the ledger."""
    texts = [*([model] if model is not None else []), *(models or [])]
    with waiting(f"loading {texts[0] if texts else 'the bundled model'}"):
        try:
            from headwater.web.server import serve, share_cores
        except ModuleNotFoundError as error:
            raise MissingExtra("the explorer", "web") from error
        if screenshot is not None:
            from headwater.web.screenshot import check_driver, take

            check_driver()
        from headwater.web.limits import Limits
        from headwater.web.models import Loading, models_of
        from headwater.web.state import AppState
        from headwater.web.stores import stores_in

        share_cores(workers)
        how = Loading(device, dtype, allow_pickle, trust_remote_code)
        named = models_of(texts, image_model, molecule_model, language_model, how, sentence_model)
        state = AppState(named, Limits(workers=workers, seconds=seconds), stores_in(results or []))
        state.warm()
    if screenshot is not None:
        take(state, screenshot)
        say(f"wrote {screenshot}")
        return
    serve(state, host, port, token, browser, say)
