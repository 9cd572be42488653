"""`llms.txt`: the site's pages for programs that read, each with a line of what it is about (https://llmstxt.org)."""

from __future__ import annotations

import re
from pathlib import Path

HEAD = """# Headwater

> Explanations of transformer predictions that add up: how much each input contributed to a score, and a ledger in which
> inputs, biases and constants sum to that score, or say by how much they do not. A Python library, a command line and a
> web explorer.

The pages below are Markdown.
"""


def write_llms(source: Path, out: Path) -> None:
    """One section per part of the site, in the order of the contents."""
    lines = [HEAD]
    for caption, names in read_contents((source / "index.rst").read_text(encoding="utf-8")):
        lines.append(f"## {caption}\n")
        for name in names:
            text = (source / f"{name}.md").read_text(encoding="utf-8")
            lines.append(f"- [{first_heading(text)}](_sources/{name}.md.txt): {first_sentence(text)}")
        lines.append("")
    (out / "llms.txt").write_text("\n".join(lines), encoding="utf-8")


def read_contents(index: str) -> list[tuple[str, list[str]]]:
    """The captions of the contents, each with its pages."""
    found = []
    for block in index.split(".. toctree::")[1:]:
        caption = re.search(r":caption: (.+)", block)
        names = re.findall(r"^   ([a-z][a-z0-9/_.-]*)$", block, re.MULTILINE | re.IGNORECASE)
        found.append((caption[1] if caption else "Pages", names))
    return found


def first_heading(text: str) -> str:
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return "" if found is None else found[1].replace("`", "")


def first_sentence(text: str) -> str:
    """The first sentence below the heading, without links and marks, and without the word that opens a study."""
    body = re.sub(r"^# .+$", "", text, count=1, flags=re.MULTILINE)
    paragraph = next((part for part in body.split("\n\n") if re.match(r"\s*[\w*`\"“\[]", part)), "")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    return re.split(r"(?<=[.:?]) ", plain.removeprefix("**Question.** "), maxsplit=1)[0]
