"""The command `headwater`: parses, calls the library, renders. Standard output is data, standard error is talk."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headwater.version import __version__

from . import (
    answers,
    audit,
    bench,
    bias,
    bundled,
    compare,
    evaluate,
    explain,
    explorer,
    generate,
    image,
    methods,
    paper,
    report,
    run,
    zoo,
)
from .refusals import Commands
from .refusals import run as run_whole

app = typer.Typer(
    name="headwater",
    help="Explanations of transformer predictions that add up.",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("app")(explorer.command)
app.command("explain")(explain.command)
app.command("compare")(compare.command)
app.command("generate")(generate.command)
app.command("audit")(audit.command)
app.command("methods")(methods.command)
app.command("evaluate")(evaluate.command)
app.command("report")(report.command)
app.command("run")(run.command)
app.command("bias")(bias.command)
app.command("bench")(bench.command)
app.command("answers")(answers.command)
app.command("zoo")(zoo.command)
app.add_typer(bundled.app, name="bundled")
app.add_typer(image.app, name="image")
app.add_typer(paper.app, name="paper")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"headwater {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Explanations of transformer predictions that add up."""


def main() -> None:
    """The entry point of the installed command."""
    sys.exit(run_whole(app, sys.argv[1:]))
