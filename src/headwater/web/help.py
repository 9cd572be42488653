"""The documentation, served beside the explorer: the same pages as in `docs`, which the wheel holds, too.

Pages are read from markdown and escaped by the reader: HTML in them stays text. A page is found by its name among those
that are there, never by a path.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path as FilePath
from posixpath import dirname, join, normpath
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path
from fastapi.responses import FileResponse, HTMLResponse
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import escape

router: APIRouter = APIRouter(prefix="/help", include_in_schema=False)
PACKED = FilePath(__file__).parent / "documents"  # where the wheel has them
SOURCE = FilePath(__file__).parents[3] / "docs"  # and a checkout
FIRST = ("guide", "explorer", "glossary")
COMMENT = re.compile(r"^ *<!--.*?-->\n", re.MULTILINE)  # says which test runs a block of code, or why none does
PageName = Annotated[str, Path(pattern="^[a-z][a-z-]{1,40}$")]
PictureName = Annotated[str, Path(pattern=r"^[a-z][a-z0-9-]{1,60}\.(png|svg)$")]


def find_folder() -> FilePath:
    return PACKED if PACKED.is_dir() else SOURCE


@cache
def list_pages() -> dict[str, FilePath]:
    """The pages by name: what a newcomer reads first, then the other guides, then those in folders ("studies/bias")."""
    folder = find_folder()
    paths = sorted(folder.rglob("*.md"), key=lambda path: (path.parent, path.stem))
    found = {path.relative_to(folder).with_suffix("").as_posix(): path for path in paths}
    return {name: found[name] for name in (*FIRST, *found) if name in found}


@router.get("")
def first_page() -> HTMLResponse:
    return show_page(next(iter(list_pages()), "guide"))


@router.get("/{name}")
def show_page(name: PageName) -> HTMLResponse:
    if name not in list_pages():
        raise HTTPException(404, "no such page")
    return HTMLResponse(render_page(name))


@router.get("/images/{name}")
def send_picture(name: PictureName) -> FileResponse:
    found = find_folder() / "images" / name
    if not found.is_file():
        raise HTTPException(404, "no such picture")
    return FileResponse(found)


@router.get("/{folder}/{name}")
def show_page_in_folder(folder: PageName, name: PageName) -> HTMLResponse:
    return show_page(f"{folder}/{name}")


@cache
def render_page(name: str) -> str:
    """A page with the list of all pages beside it."""
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(COMMENT.sub("", list_pages()[name].read_text(encoding="utf-8")))
    set_anchors(tokens)
    for token in tokens:
        for inner in [token, *(token.children or [])]:
            turn_link(inner, dirname(name))
    body = reader.renderer.render(tokens, reader.options, {})
    body = re.sub(
        r"<table>.*?</table>",
        r'<div class="wide" tabindex="0" role="region" aria-label="table">\g<0></div>',
        body,
        flags=re.DOTALL,
    )
    return PAGE.format(title=escape(name), listed=list_beside(name), body=body)


def list_beside(name: str) -> str:
    """The list of all pages, those of each folder below its name."""
    parts = []
    for folder, pages in groupby(list_pages(), key=dirname):
        items = "".join(
            f'<li><a href="/help/{page}"{" aria-current=page" if page == name else ""}>'
            f"{escape(page.rpartition('/')[2])}</a></li>"
            for page in pages
        )
        parts.append(f"<li>{escape(folder)}<ul>{items}</ul></li>" if folder else items)
    return "".join(parts)


def set_anchors(tokens: list[Token]) -> None:
    """Every heading can be linked to, under the name that GitHub gives it."""
    for heading, inner in pairwise(tokens):
        if heading.type == "heading_open":
            plain = re.sub(r"[^\w\- ]", "", inner.content.lower())
            heading.attrSet("id", plain.strip().replace(" ", "-"))


def turn_link(token: Token, folder: str) -> None:
    """Links between pages stay here; what lies outside the documentation is not linked. `folder`: of the page."""
    name = {"link_open": "href", "image": "src"}.get(token.type)
    if name is None:
        return
    address = str(token.attrGet(name))
    page, _, place = address.partition("#")
    found = normpath(join(folder, page))  # names count from the page that they stand on
    if name == "src" and (find_folder() / found).is_file() and found.count("/") == 1:
        token.attrSet(name, f"/help/{found}")
    elif name == "src":
        token.type = "text"  # a picture that is not here: its description stands there
    elif found.endswith(".md") and found.removesuffix(".md") in list_pages():
        token.attrSet(name, f"/help/{found.removesuffix('.md')}" + (f"#{place}" if place else ""))
    elif page and not page.startswith("https://"):
        token.attrs.pop(name)
    elif page:
        token.attrSet("rel", "noreferrer")


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Headwater: {title}</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="/static/app.css"></head>
<body><header class="top"><p class="brand"><img src="/static/icon.svg" alt="" width="26" height="26">
<a href="/">Headwater</a></p><p class="links"><a href="#pages">All pages</a></p></header>
<div class="help"><main id="main" class="docs-page">{body}</main>
<nav id="pages" aria-label="Pages"><ul>{listed}</ul></nav></div>
</body></html>
"""
