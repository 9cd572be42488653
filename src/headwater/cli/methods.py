"""`headwater methods`: what can be asked for by name."""

from __future__ import annotations

import json

import typer

from . import options
from .screen import show, waiting


def command(as_json: options.Json = False, plain: options.Plain = False) -> None:
    """List the methods, and the rules that can be combined."""
    with waiting("looking"):
        from headwater import methods

        known, rules = methods.available(), methods.rules()
    if as_json:
        listed = [{"name": m.name, "summary": m.summary, "rules": list(m.rules)} for m in known]
        typer.echo(json.dumps({"methods": listed, "rules": [{"name": n, "summary": s} for n, s in rules]}))
        return
    from headwater.viz.plain import plain_methods
    from headwater.viz.terminal import render_methods

    named = [(method.name, method.summary) for method in known]
    show(lambda _: render_methods(named, rules), lambda: plain_methods(named, rules), plain)
