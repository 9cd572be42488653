"""The command line as its own help says it, and the HTTP interface as its own OpenAPI document says it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from docstrings import escape


def write_commands(source: Path) -> None:
    """Every command's `--help`, at eighty columns."""
    from typer.main import get_command

    from headwater.cli import app

    os.environ["COLUMNS"] = "80"
    parts = [
        "# Commands\n\nWhat `headwater COMMAND --help` prints, made from the program itself. "
        "[The command line](../cli.md) has examples with their output.",
        f"## headwater\n\n```text\n{help_of([])}\n```",
    ]
    whole: Any = get_command(app)
    for name, command in whole.commands.items():
        inner = getattr(command, "commands", None)
        for words in [[name]] if inner is None else [[name, sub] for sub in inner]:
            parts.append(f"## headwater {' '.join(words)}\n\n```text\n{help_of(words)}\n```")
    (source / "reference" / "commands.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def help_of(words: list[str]) -> str:
    from typer.testing import CliRunner

    from headwater.cli import app

    done = CliRunner().invoke(app, [*words, "--help"])
    if done.exit_code:
        raise RuntimeError(f"headwater {' '.join(words)} --help failed: {done.output}")
    return done.stdout.rstrip()


def write_http(source: Path) -> None:
    """Every route with what it takes and gives."""
    found = openapi_document()
    parts = [
        "# The HTTP interface\n\nThe explorer's server, `headwater app`, answers these routes with JSON. The whole "
        "document is at `/api/openapi.json` of a running server; this page is made from it.",
        escape(found["info"]["description"]),
    ]
    for path, methods in found["paths"].items():
        parts += [show_route(method, path, route, found) for method, route in methods.items()]
    (source / "reference" / "http.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def openapi_document() -> dict[str, Any]:
    """Read off the routes: no model is loaded, and no thread started."""
    from headwater.web.app import create_app
    from headwater.web.limits import Limits

    class Unstarted:
        """Stands for the server's state, of which the routes' descriptions need the limits alone."""

        limits = Limits()

    state: Any = Unstarted()
    document: dict[str, Any] = create_app(state).openapi()
    return document


def show_route(method: str, path: str, route: dict[str, Any], document: dict[str, Any]) -> str:
    parts = [f"## {method.upper()} `{path}`", escape(route.get("description") or route.get("summary", ""))]
    rows = [show_parameter(one) for one in route.get("parameters", ())]
    body = route.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    rows += show_body(body, document)
    if rows:
        parts.append("\n".join(["| name | where | type | |", "|---|---|---|---|", *rows]))
    answers = ", ".join(f"{code} ({escape(answer['description'])})" for code, answer in route["responses"].items())
    parts.append(f"Answers: {answers}.")
    return "\n\n".join(parts)


def show_parameter(one: dict[str, Any]) -> str:
    schema = one.get("schema", {})
    said = one.get("description") or schema.get("description", "")
    return f"| `{one['name']}` | {one['in']} | {type_of(schema)} | {in_cell(said)} |"


def show_body(schema: dict[str, Any], document: dict[str, Any]) -> list[str]:
    name = schema.get("$ref", "").rpartition("/")[2]
    fields = document["components"]["schemas"].get(name, {}).get("properties", {})
    return [
        f"| `{key}` | body | {type_of(value)} | {in_cell(value.get('description', ''))} |"
        for key, value in fields.items()
    ]


def type_of(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(type_of(one) for one in schema["anyOf"]))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def in_cell(text: str) -> str:
    return escape(" ".join(text.split())).replace("|", "\\|")
