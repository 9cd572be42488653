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
# Names that the docs use and that `headwater` itself does not have.
MODULES = {
    "headwater.models.loading": ["load_image_model"],
    "headwater.models.molecules": ["from_smiles"],
    "headwater.methods.lrp": ["gamma", "lrp_with"],
    "headwater.methods.registry": ["method", "resolve_method"],
    "headwater.testing": ["check_method"],
    "headwater.viz.images": ["picture", "png"],
    "headwater.viz.molecules": ["picture"],
    "headwater.viz.two_texts": ["draw_word_lines"],
    "headwater.viz.sums": ["ledger_sum"],
}


def write_reference(source: Path) -> None:
    """A page for each group of names, and one for names of submodules."""
    examples = read_examples((source / "reference" / "examples.md").read_text(encoding="utf-8"))
    (source / "reference").mkdir(exist_ok=True)
    for page, (title, names) in PAGES.items():
        parts = [show_name(f"hw.{name}", getattr(headwater, name), examples.get(name, "")) for name in names.split()]
        text = f"# {title}\n\n`import headwater as hw`. Types are those of the source.\n\n" + "\n\n".join(parts)
        (source / "reference" / f"{page}.md").write_text(text + "\n", encoding="utf-8")
    (source / "reference" / "submodules.md").write_text(show_modules(), encoding="utf-8")


def read_examples(page: str) -> dict[str, str]:
    """The code below each heading of the page of examples."""
    parts = re.split(r"^## (\w+)\n", page, flags=re.MULTILINE)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def show_name(name: str, value: Any, example: str = "") -> str:
    """One name: a function with its arguments, or a class with its fields, properties and methods."""
    parts = [f"## `{name}`"]
    if not (inspect.isclass(value) and dataclasses.is_dataclass(value)):
        parts.append(show_signature(name, value))
    parts.append(show_docstring(value))
    if inspect.isclass(value):
        parts += [show_fields(value), show_members(value)]
    if example:
        parts.append(f"**Example**\n\n{example}")
    return "\n\n".join(part for part in parts if part)


def show_fields(kind: type) -> str:
    if not dataclasses.is_dataclass(kind):
        return ""
    rows = [
        f"| `{field.name}` | {as_code(annotation(field.type))} |"
        for field in dataclasses.fields(kind)
        if not field.name.startswith("_")
    ]
    return "\n".join(["| field | type |", "|---|---|", *rows]) if rows else ""


def as_code(words: str) -> str:
    return "`" + words.replace("|", "\\|") + "`"


def show_members(kind: type) -> str:
    """Properties and methods of its own, and those of our classes above it."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("headwater"):
            found |= {name: value for name, value in vars(base).items() if not name.startswith("_")}
    lines = [show_member(name, value) for name, value in found.items() if is_member(value)]
    return "\n".join(line for line in lines if line)


def is_member(value: Any) -> bool:
    return isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value)


def show_member(name: str, value: Any) -> str:
    if isinstance(value, property):
        result = inspect.signature(value.fget).return_annotation if value.fget else ""
        head = f"`{name}`: `{annotation(result)}`"
    else:
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        signature = show_signature(name, function).removeprefix("```python\n").removesuffix("\n```\n")
        head = f"`{' '.join(signature.split())}`".replace("( ", "(").replace(", )", ")")
    said = escape(" ".join((inspect.getdoc(value) or "").split()))
    return f"- {head}  \n  {said}" if said else f"- {head}"


def show_modules() -> str:
    parts = ["# Names of submodules\n\nWhat the guides use besides the names of `headwater` itself."]
    for module, names in MODULES.items():
        found = importlib.import_module(module)
        parts += [show_name(f"{module}.{name}", getattr(found, name)) for name in names]
    return "\n\n".join(parts) + "\n"
