"""The pages of the site, gathered: those of `docs`, and what lies elsewhere in the repository, with their links."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
# What lies outside `docs` and is a page of the site all the same.
OUTSIDE = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "examples": "tutorials.md"}
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
NOT_RUN = re.compile(r"^( *)<!-- not run: (.+?) -->$", re.MULTILINE)
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)


def gather(into: Path) -> None:
    """A folder that Sphinx reads: `docs` as it is, and what lies outside under its name on the site."""
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(ROOT / "docs", into)
    shutil.copy(Path(__file__).parent / "index.rst", into)
    for name, page in OUTSIDE.items():
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, into / page)
    places = {into / page: PurePosixPath(name) for name, page in OUTSIDE.items()}
    for page in into.rglob("*.md"):
        place = places.get(page, PurePosixPath("docs") / page.relative_to(into).as_posix())
        page.write_text(show_marks(turn_links(page.read_text(encoding="utf-8"), place)), encoding="utf-8")


def show_marks(text: str) -> str:
    """A block that the tests do not run says so, and why, where a reader sees it."""
    parts = FENCE.split(text)
    parts[::2] = [NOT_RUN.sub(r"\1*Not run by the tests: \2.*\n", part) for part in parts[::2]]
    return "".join(parts)


def turn_links(text: str, place: PurePosixPath) -> str:
    """The page at this place of the repository with links to pages of the site. Code is left as it is."""
    parts = FENCE.split(text)
    parts[::2] = [LINK.sub(lambda found: turn_link(found[1], found[2], place), part) for part in parts[::2]]
    return "".join(parts)


def turn_link(words: str, address: str, place: PurePosixPath) -> str:
    """One link. What is no page of the site (a checkpoint's card, a source file) is named, and not linked."""
    path, mark, anchor = address.partition("#")
    if not path or re.match(r"[a-z]+:", address):
        return f"[{words}]({address})"
    target = os.path.normpath(place.parent / path)
    if not (ROOT / target).exists():
        raise FileNotFoundError(f"{place} links to {address}, which is not there")
    page = page_of(target)
    if page is None:
        return f"{words} (`{target}`)"
    here = page_of(str(place))
    return f"[{words}]({os.path.relpath(page, PurePosixPath(str(here)).parent)}{mark}{anchor})"


def page_of(path: str) -> str | None:
    """The page of the site that a file of the repository becomes."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    if path.startswith("examples/") and path.endswith(".ipynb"):
        return f"tutorials/{PurePosixPath(path).stem}.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else None
