"""`--help`: options in groups, no word cut, two examples at the end. Plain text, and nothing heavy is loaded for it."""

from __future__ import annotations

import inspect
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

WIDEST = 100  # columns: longer lines are hard to read
FIRST_COLUMN = 26  # a longer name has its text below it
ARGUMENTS, OTHER = "Arguments", "Other options"

# The groups, in the order of the help, and what belongs to each: parameters of commands by their names in Python.
GROUPS = {
    "What is explained": "texts text pair smiles image images patch pixels prompt chat question documents answer data "
    "prompts directory columns text_column label_column part_column groups case limit count half quick results",
    "The model": "model models image_model molecule_model language_model sentence_model task allow_pickle "
    "trust_remote_code",
    "How it is explained": "method methods target output at inputs sinks special score contrast words sentences "
    "truncate window max_new_tokens max_tokens protocol measures permutations swaps calibrate paper runtime seed",
    "Memory and speed": "batch_size batch_tokens tokens_at_once keep recompute memory_limit dry_run device dtype "
    "workers threads engine address seconds shard_rows",
    "What is written": "out as_json plain full html svg png picture title resume strict screenshot",
    "The server": "port host token browser",
}
GROUP_OF = {name: group for group, names in GROUPS.items() for name in names.split()}
METAVARS = {"path": "PATH", "file": "PATH", "float": "X", "int": "N", "str": "TEXT", "text": "TEXT"}


class HelpCommand(TyperCommand):
    """A command whose help is written here."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write("\n".join(command_lines(self, ctx, line_width())) + "\n")


def line_width() -> int:
    return max(40, min(WIDEST, shutil.get_terminal_size((80, 24)).columns)) - 1


def with_help(found: typer.Typer) -> typer.Typer:
    """A plug-in's group of commands, each with the same kind of help."""
    for one in found.registered_commands:
        if one.cls in (None, TyperCommand):
            one.cls = HelpCommand
    return found


def examples_of(function: Callable[..., Any]) -> str | None:
    """What the module of a command names as `EXAMPLES`, for the end of its help."""
    found: Sequence[str] = getattr(sys.modules.get(function.__module__), "EXAMPLES", ())
    return "\n".join(found) or None


def command_lines(command: Any, ctx: Any, width: int) -> list[str]:
    """The whole help of a command, line by line."""
    lines = [*usage_lines(command, ctx, width), "", *wrap(inspect.cleandoc(command.help or ""), width)]
    for group, params in sort_into_groups(command.get_params(ctx)).items():
        lines += ["", f"{group}:", *rows([describe_param(param, ctx) for param in params], width)]
    return [*lines, *example_lines(command.epilog)]


def group_lines(group: TyperGroup, ctx: Any, width: int) -> list[str]:
    """The help of a group of commands."""
    lines = [*usage_lines(group, ctx, width), "", *wrap(inspect.cleandoc(group.help or ""), width), "", "Commands:"]
    named = [(name, group.get_command(ctx, name)) for name in group.list_commands(ctx)]
    lines += rows([(name, one.get_short_help_str(1000)) for name, one in named if one is not None], width)
    lines += ["", "Options:", *rows([describe_param(param, ctx) for param in group.get_params(ctx)], width)]
    return [*lines, *example_lines(group.epilog)]


def usage_lines(command: Any, ctx: Any, width: int) -> list[str]:
    words = " ".join((ctx.command_path.replace("python -m ", ""), *command.collect_usage_pieces(ctx)))
    return textwrap.wrap(f"Usage: {words}", width, subsequent_indent="  ", break_on_hyphens=False)


def sort_into_groups(params: Iterable[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {name: [] for name in (ARGUMENTS, *GROUPS, OTHER)}
    for param in params:
        if not getattr(param, "hidden", False):
            rest = ARGUMENTS if param.param_type_name == "argument" else OTHER
            found[GROUP_OF.get(param.name, rest)].append(param)
    return {name: some for name, some in found.items() if some}


def describe_param(param: Any, ctx: Any) -> tuple[str, str]:
    """A parameter as its name on the command line, and what it says of itself."""
    said = [param.help or ""]
    default = param.get_default(ctx)
    if param.required:
        said.append("Required.")
    elif not (default is None or isinstance(default, bool) or default in ((), [])) and "efault" not in said[0]:
        said.append(f"Default: {default}.")
    return name_of_param(param, ctx), " ".join(filter(None, said))


def name_of_param(param: Any, ctx: Any) -> str:
    if param.param_type_name == "argument":
        return str(param.metavar or param.name.upper())
    names = ", ".join(sorted(param.opts, key=len))
    if param.secondary_opts:
        return f"{names} / {', '.join(param.secondary_opts)}"
    return names if param.is_flag or param.count else f"{names} {metavar(param, ctx)}"


def metavar(param: Any, ctx: Any) -> str:
    """What stands for the value: the parameter's own word, else one for its type. A range is named when it is left."""
    if param.metavar:
        return str(param.metavar)
    record = param.get_help_record(ctx) or ("", "")
    kind = record[0].lower().rpartition(max(param.opts, key=len))[2]
    return next((shown for part, shown in METAVARS.items() if part in kind), "VALUE")


def rows(named: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Names and texts in two columns; where a name is long, its text begins below it."""
    column = min(FIRST_COLUMN, max((len(name) for name, _ in named), default=0))
    lines: list[str] = []
    for name, said in named:
        text = wrap(said, width - column - 4)
        if len(name) > column:
            lines.append(f"  {name}")
        else:
            lines.append(f"  {name.ljust(column)}  {text.pop(0) if text else ''}".rstrip())
        lines += [" " * (column + 4) + line for line in text]
    return lines


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most this width, cut between words only."""
    paragraphs = text.partition("\f")[0].strip().split("\n\n")
    cut = [textwrap.wrap(part, width, break_long_words=False, break_on_hyphens=False) for part in paragraphs]
    return [line for i, lines in enumerate(cut) for line in ([""] if i else []) + lines]


def example_lines(epilog: str | None) -> list[str]:
    return ["", "Examples:", *(f"  {line}" for line in epilog.splitlines())] if epilog else []
