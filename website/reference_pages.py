"""The reference of every public name: its signature, its docstring, its parts, and an example that the tests run."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from docstrings import annotation, escape, show_docstring, show_signature

import headwater

# Pages by what one wants to do; each public name stands on one of them.
PAGES = {
    "explain": ("Explaining predictions", "load explain compare audit session estimate explain_entities Token Span "
                "fast_attention recorded"),
    "results": ("Results", "Explanation Ledger Comparison Audit Entity Inside Estimate ExplainSession"),
    "generation": ("Language models and answers", "explain_generation Generation explain_answer AnswerExplainer "
                   "SpanExplanation AnswerReport WhoTold"),
    "inside": ("Inside the model, two texts", "patch patch_each PatchEffect difference circuit Circuit "
               "explain_similarity Similarity rank Ranking"),
    "data": ("Datasets: measures, groups, runs", "evaluate Evaluation audit_bias BiasAudit run open_run StoredRun"),
}  # fmt: skip
# The other public modules, by what they are for. What `headwater` itself has is not shown again.
MODULE_PAGES = {
    "models": ("Models and samples", "models.loading models.bundled models.molecules models.graphs inputs.protocol"),
    "extending": ("Methods, rules and measures of your own", "methods methods.registry methods.parameters methods.lrp "
                  "rules testing evaluation.measures evaluation.language.study"),
    "pictures": ("Pages and pictures", "results.explanation viz.html viz.colour viz.sums viz.images viz.molecules "
                 "viz.superpixels viz.two_texts"),
}  # fmt: skip


def write_reference(source: Path) -> None:
    """A page for each group of names, and for each group of modules."""
    examples = read_examples((source / "reference" / "examples.md").read_text(encoding="utf-8"))
    for page, (title, names) in PAGES.items():
        parts = [show_name(f"hw.{name}", getattr(headwater, name), examples.get(name, "")) for name in names.split()]
        text = f"# {title}\n\n`import headwater as hw`. Types are those of the source.\n\n" + "\n\n".join(parts)
        (source / "reference" / f"{page}.md").write_text(text + "\n", encoding="utf-8")
    seen = {id(getattr(headwater, name)) for name in headwater.__all__}
    for page, (title, modules) in MODULE_PAGES.items():
        parts = [show_module(f"headwater.{name}", seen) for name in modules.split()]
        text = f"# {title}\n\nExamples write `hw` for `headwater`. Types are those of the source.\n\n" + "\n\n".join(
            parts
        )
        (source / "reference" / f"{page}.md").write_text(text + "\n", encoding="utf-8")


def read_examples(page: str) -> dict[str, str]:
    """The code below each heading of the page of examples."""
    parts = re.split(r"^## (\w+)\n", page, flags=re.MULTILINE)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def show_name(name: str, value: Any, example: str = "", heading: str = "") -> str:
    """One name: a function with its arguments, or a class with its fields, properties and methods."""
    parts = [heading or f"## `{name}`"]
    if not (inspect.isclass(value) and dataclasses.is_dataclass(value)):
        parts.append(show_signature(name, value))
    parts.append(show_docstring(value))
    if inspect.isclass(value):
        parts += [show_fields(value), show_members(value)]
    if example and "\nExample:\n" not in (inspect.getdoc(value) or ""):
        parts.append(f"**Example**\n\n{example}")
    return "\n\n".join(part for part in parts if part)


FIELD = re.compile(r"^    (\w+): [^\n#]*(?:\n        [^\n]*\n    \))?  # (.+)$", re.MULTILINE)  # in one line or three


def show_fields(kind: type) -> str:
    """A line for each field, with the comment that stands beside it in the source."""
    if not dataclasses.is_dataclass(kind):
        return ""
    said = read_comments(kind)
    shown = [field for field in dataclasses.fields(kind) if not field.name.startswith("_")]
    rows = [[f"`{field.name}`", as_code(annotation(field.type)), escape(said.get(field.name, ""))] for field in shown]
    wide = 3 if any(row[2] for row in rows) else 2
    lines = [f"| {' | '.join(row[:wide])} |" for row in [["field", "type", "what it is"], ["---"] * 3, *rows]]
    return "\n".join(lines) if rows else ""


def read_comments(kind: type) -> dict[str, str]:
    """What stands behind a field, by the field's name."""
    sources = [inspect.getsource(base) for base in reversed(kind.__mro__) if base.__module__.startswith("headwater")]
    return dict(FIELD.findall("\n".join(sources)))


def as_code(words: str) -> str:
    return "`" + words.replace("|", "\\|") + "`"


def show_members(kind: type) -> str:
    """Properties and methods of its own, and those of our classes above it."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("headwater"):
            found |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    lines = [
        show_member(name, value, inspect.getdoc(getattr(kind, name)))
        for name, value in found.items()
        if is_member(value) and name not in fields
    ]
    return "\n".join(line for line in lines if line)


def is_member(value: Any) -> bool:
    return isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value)


def show_member(name: str, value: Any, doc: str | None) -> str:
    if isinstance(value, property):
        result = inspect.signature(value.fget).return_annotation if value.fget else ""
        head = f"`{name}`: `{annotation(result)}`"
    else:
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        signature = show_signature(name, function).removeprefix("```python\n").removesuffix("\n```\n")
        head = f"`{' '.join(signature.split())}`".replace("( ", "(").replace(", )", ")")
    said = escape(" ".join((doc or "").split()))
    return f"- {head}  \n  {said}" if said else f"- {head}"


def show_module(name: str, seen: set[int]) -> str:
    """The public names of a module that stand on no page before; what is shown is added to `seen`."""
    module = importlib.import_module(name)
    parts = []
    for one in module.__all__:
        value = getattr(module, one)
        if id(value) not in seen:
            seen.add(id(value))
            is_code = inspect.isclass(value) or inspect.isfunction(value)
            heading = f"### `{one}`"
            parts.append(show_name(f"{name}.{one}", value, heading=heading) if is_code else show_value(heading, value))
    return "\n\n".join([f"## `{name}`", *parts] if parts else [])


def show_value(heading: str, value: Any) -> str:
    """A constant: what it is, and, of a table, the names in it."""
    if isinstance(value, dict):
        return f"{heading}\n\nA table by name: " + ", ".join(f"`{key}`" for key in value) + "."
    return f"{heading}\n\n`{value!r}`"
