"""Links between pages lead to files and headings that are there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), ROOT / "experiments" / "README.md"]
LINK = re.compile(r"(?<!`)\[[^\]\[]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


@cache
def anchors(page: Path) -> set[str]:
    """Of headings, as they are made from their words on code hosts and in the explorer."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return {anchor(title) for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def anchor(title: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")


def dead_links(page: Path) -> list[str]:
    dead = []
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, heading = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (heading and target.suffix == ".md" and heading not in anchors(target)):
            dead.append(link)
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_link_is_dead(page):
    assert dead_links(page) == []


def test_a_dead_link_is_seen(tmp_path):
    (tmp_path / "b.md").write_text("# Where `it` is: here\n")
    page = tmp_path / "a.md"
    page.write_text("[1](b.md#where-it-is-here) [2](b.md#gone) [3](c.md) [4](#no) [5](https://example.org/x)\n")
    assert dead_links(page) == ["b.md#gone", "c.md", "#no"]
