"""`headwater methods`: what can be asked for by name."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater import plugins

from . import options
from .screen import show, waiting

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headwater.methods import Method
    from headwater.viz.colour import Theme

LISTED = Path(__file__).with_name("methods.json")

Operations = Annotated[
    bool, typer.Option("--operations", help="List the operations that have a rule, and what acts on each.")
]

EXAMPLES = (
    "headwater methods",
    "headwater methods --operations",
)


def command(as_json: options.Json = False, plain: options.Plain = False, operations: Operations = False) -> None:
    """List the methods, and the rules that can be combined."""
    if operations:
        print_operations(as_json, plain)
        return
    with waiting("looking"):
        listed = list_methods()
    if as_json:
        typer.echo(json.dumps(listed))
        return
    named, rules, variants = (
        [(one["name"], one["summary"]) for one in listed[key]] for key in ("methods", "rules", "variants")
    )
    parameters = list_parameters(listed["methods"])

    def draw(_: Theme) -> RenderableType:
        from headwater.viz.terminal import render_methods

        return render_methods(named, rules, variants, parameters)

    from headwater.viz.plain import plain_methods

    show(draw, lambda: plain_methods(named, rules, variants, parameters), plain)


def list_methods() -> dict[str, list[dict[str, Any]]]:
    """Methods, rules and variants. Where no plug-in adds any, they are read from a file, and torch is not loaded."""
    added = plugins.find(plugins.METHODS) or plugins.find(plugins.RULES)
    if added or "headwater.methods" in sys.modules:
        return list_registered()
    found: dict[str, list[dict[str, Any]]] = json.loads(LISTED.read_text(encoding="utf-8"))
    return found


def list_registered() -> dict[str, list[dict[str, Any]]]:
    """What is registered in this process. Without plug-ins it is what methods.json holds."""
    from headwater import methods

    known = [describe_method(one) for one in methods.available()]
    others = {"rules": methods.rules(), "variants": methods.variants()}
    return {"methods": known, **{key: [{"name": n, "summary": s} for n, s in rows] for key, rows in others.items()}}


def describe_method(one: Method) -> dict[str, Any]:
    from headwater.methods.aliases import ALIASES

    aliases = [alias for alias, name in ALIASES.items() if name == one.name]
    parameters = [parameter.describe() for parameter in one.parameters]
    about = {"name": one.name, "summary": one.summary, "rules": list(one.rules)}
    return {**about, "parameters": parameters, "aliases": aliases}


def list_parameters(methods: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Each parameter with what it is. One that several methods have in the same sense stands there once, at the end."""
    owners: dict[tuple[str, str], list[str]] = {}
    for one in methods:
        for p in one.get("parameters", ()):
            owners.setdefault((p["name"], f"{p['summary']}; default {p['default']}"), []).append(one["name"])
    own = [(f"{names[0]}({p}=…)", said) for (p, said), names in owners.items() if len(names) == 1]
    shared = [(f"{p}=…", f"{said}; of {', '.join(names)}") for (p, said), names in owners.items() if len(names) > 1]
    return own + shared


def print_operations(as_json: bool, plain: bool) -> None:
    """Operation, rules, function and its first line. Operations that are not listed keep their gradient."""
    with waiting("looking"):
        from headwater import methods
        from headwater.rules.handlers import list_operations

        methods.available()  # plug-ins register their rules
        found = list_operations()
    if as_json:
        typer.echo(json.dumps({"operations": [asdict(one) for one in found]}))
        return
    from headwater.viz.plain import tables_as_text
    from headwater.viz.tables import Table

    from .tables import draw_tables

    together: dict[tuple[str, str, str], list[str]] = {}
    for one in found:
        where = one.function.removeprefix("headwater.")
        together.setdefault((where, ", ".join(one.rules) or "always", one.summary), []).append(one.operation)
    rows = [(where, rules, said, " ".join(names)) for (where, rules, said), names in together.items()]
    note = "A function acts under methods that have one of its rules. What is not listed keeps its gradient."
    table = Table("operations", ("function", "rules", "what it does", "operations"), rows, note, left=4)
    show(lambda _: draw_tables([], [table]), lambda: tables_as_text([], [table]).lstrip(), plain)
