"""The command `headwater`: parses, calls the library, renders. Standard output is data, standard error is talk."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated

import typer

from headwater import plugins
from headwater.version import __version__

from . import audit, bias, compare, evaluate, explain, explorer, generate, methods, report, run
from .refusals import Commands
from .refusals import run_command as run_whole

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


def add_plugin_commands() -> None:
    """The commands that other packages add. One that has the name of a command of ours is left out."""
    ours = {command.name for command in app.registered_commands}
    for name, found in plugins.load_all(plugins.COMMANDS).items():
        if name in ours:
            warnings.warn(f"the plug-in command {name!r} is left out: headwater has one.", RuntimeWarning, stacklevel=2)
        elif isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)


add_plugin_commands()


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
