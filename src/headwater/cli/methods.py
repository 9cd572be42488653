"""`headwater methods`: what can be asked for by name."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from . import options
from .screen import show, waiting

Operations = Annotated[
    bool, typer.Option("--operations", help="List the operations that have a rule, and what acts on each.")
]


def command(as_json: options.Json = False, plain: options.Plain = False, operations: Operations = False) -> None:
    """List the methods, and the rules that can be combined."""
    if operations:
        print_operations(as_json, plain)
        return
    with waiting("looking"):
        from headwater import methods

        known, rules, variants = methods.available(), methods.rules(), methods.variants()
    if as_json:
        listed = [{"name": m.name, "summary": m.summary, "rules": list(m.rules)} for m in known]
        others = {"rules": rules, "variants": variants}
        said = {key: [{"name": n, "summary": s} for n, s in rows] for key, rows in others.items()}
        typer.echo(json.dumps({"methods": listed, **said}))
        return
    from headwater.viz.plain import plain_methods
    from headwater.viz.terminal import render_methods

    named = [(method.name, method.summary) for method in known]
    show(lambda _: render_methods(named, rules, variants), lambda: plain_methods(named, rules, variants), plain)


def print_operations(as_json: bool, plain: bool) -> None:
    """Operation, rules, function and its first line. Operations that are not listed keep their gradient."""
    with waiting("looking"):
        from headwater import methods
        from headwater.rules.table import list_operations

        methods.available()  # plug-ins register their rules
        found = list_operations()
    if as_json:
        typer.echo(json.dumps({"operations": [asdict(one) for one in found]}))
        return
    from headwater.viz.tables import Table

    from .tables import draw_tables, tables_as_text

    together: dict[tuple[str, str, str], list[str]] = {}
    for one in found:
        where = one.function.removeprefix("headwater.")
        together.setdefault((where, ", ".join(one.rules) or "always", one.summary), []).append(one.operation)
    rows = [(where, rules, said, " ".join(names)) for (where, rules, said), names in together.items()]
    note = "A function acts under methods that have one of its rules. What is not listed keeps its gradient."
    table = Table("operations", ("function", "rules", "what it does", "operations"), rows, note, left=4)
    show(lambda _: draw_tables([], [table]), lambda: tables_as_text([], [table]).lstrip(), plain)
