"""The command `headwater`: parses, calls the library, renders. Standard output is data, standard error is talk."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater import plugins
from headwater.version import __version__

from .help import HelpCommand, examples_of, with_help
from .refusals import Commands
from .refusals import run_command as run_whole

if TYPE_CHECKING:
    app: typer.Typer

# Our commands, in the order of the help, and the module of each.
OURS = {
    "app": "explorer",
    "explain": "explain",
    "compare": "compare",
    "generate": "generate",
    "answer": "answer",
    "similar": "similar",
    "rank": "rank",
    "audit": "audit",
    "methods": "methods",
    "evaluate": "evaluate",
    "report": "report",
    "faithfulness": "faithfulness",
    "run": "run",
    "prune": "prune",
    "bias": "bias",
}
EXAMPLES = (
    'headwater explain "a gripping, beautifully acted film"',
    "headwater app",
)


def build_app(only: str | None = None) -> typer.Typer:
    """The whole command, or what takes one command of ours: then nothing of the others is loaded."""
    built = typer.Typer(
        name="headwater",
        help="Explanations of transformer predictions that add up.",
        cls=Commands,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        epilog="\n".join(EXAMPLES),
    )
    built.callback()(_root)
    for name in OURS if only is None else (only,):
        add_command(built, name, import_module(f".{OURS[name]}", __name__).command)
    if only is None:
        add_plugin_commands(built)
    return built


def add_plugin_commands(built: typer.Typer) -> None:
    """The commands that other packages add. One that has the name of a command of ours is left out."""
    for name, found in plugins.load_all(plugins.COMMANDS).items():
        if name in OURS:
            warnings.warn(f"the plug-in command {name!r} is left out: headwater has one.", RuntimeWarning, stacklevel=2)
        elif isinstance(found, typer.Typer):
            built.add_typer(with_help(found), name=name, cls=Commands)
        else:
            add_command(built, name, found)


def add_command(built: typer.Typer, name: str, function: Callable[..., Any]) -> None:
    built.command(name, cls=HelpCommand, epilog=examples_of(function))(function)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"headwater {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Explanations of transformer predictions that add up."""


def __getattr__(name: str) -> Any:
    """`app`, the whole command, is built when first used."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = build_app()
    return globals()[name]


def main() -> None:
    """The entry point of the installed command."""
    words = sys.argv[1:]
    only = words[0] if words and words[0] in OURS else None
    sys.exit(run_whole(build_app(only), words))
