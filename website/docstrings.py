"""Docstrings and signatures as Markdown."""

from __future__ import annotations

import inspect
import re
from typing import Any

SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns|Result|Yields|Raises|Errors|Notes?|Examples?):$")
PAGE = re.compile(r"\bdocs/([\w-]+(?:/[\w-]+)*)\.md\b")
ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*):\s+(.*)$")


def show_signature(name: str, value: Any) -> str:
    """A call as it is written, an argument a line where it is long."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    kept = [p for p in found.parameters.values() if p.name not in ("self", "cls")]
    result = "" if found.return_annotation is inspect.Signature.empty else f" -> {annotation(found.return_annotation)}"
    parts = list_parameters(kept)
    line = f"{name}({', '.join(parts)}){result}"
    if len(line) > 100:
        line = f"{name}(\n    " + ",\n    ".join(parts) + f",\n){result}"
    return f"```python\n{line}\n```\n"


def list_parameters(kept: list[inspect.Parameter]) -> list[str]:
    parts: list[str] = []
    for one in kept:
        if one.kind is one.KEYWORD_ONLY and "*" not in parts and not any(p.startswith("*") for p in parts):
            parts.append("*")
        mark = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        kind = "" if one.annotation is one.empty else f": {annotation(one.annotation)}"
        default = "" if one.default is one.empty else f" = {default_of(one.default)}"
        parts.append(f"{mark}{one.name}{kind}{default}")
    return parts


def annotation(found: Any) -> str:
    return found if isinstance(found, str) else getattr(found, "__name__", str(found))


def default_of(value: Any) -> str:
    shown = repr(value)
    return "…" if " object at 0x" in shown or "<factory>" in shown or len(shown) > 60 else shown


def show_docstring(value: Any) -> str:
    """The docstring as Markdown: sections with their entries as lists, examples as code, brackets as they stand."""
    text = inspect.getdoc(value) or ""
    out: list[str] = []
    section = ""
    for block in re.split(r"\n{2,}", text):
        first, *rest = block.split("\n")
        if SECTION.match(first):
            section = first.rstrip(":")
            out.append(f"**{section}**")
            block = inspect.cleandoc("\n".join(rest)) if rest else ""
        if block:
            out.append(show_block(inspect.cleandoc(block) if section else block, section))
    return "\n\n".join(out)


def show_block(block: str, section: str) -> str:
    if block.lstrip().startswith(">>>"):
        return f"```python\n{inspect.cleandoc(block)}\n```"
    if ">>>" in block:
        words, _, code = block.partition(">>>")
        return f"{escape(words.strip())}\n\n```python\n>>>{code}\n```"
    if section and any(ENTRY.match(line) for line in block.split("\n")):
        return "\n".join(show_entry(line) for line in block.split("\n"))
    return escape(block)


def show_entry(line: str) -> str:
    found = ENTRY.match(line)
    return f"- `{found[1]}`: {escape(found[2])}" if found else f"  {escape(line.strip())}"


def escape(text: str) -> str:
    """What Markdown would read as a link, a formula or a tag, outside of code; a page that is named becomes a link."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([\[\]$<])", r"\\\1", part) for part in parts[::2]]
    parts[::2] = [PAGE.sub(r"[\1](../\1.md)", part) for part in parts[::2]]
    return "".join(parts)
