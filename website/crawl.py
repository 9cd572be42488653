"""Walks a built site and names what leads nowhere: pages, anchors, pictures, and anything asked of another server."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}


@dataclass
class Page(HTMLParser):
    """What one page links to, what it loads, and the anchors that it has."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    wordless: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag in LOADED and LOADED[tag] in found:
            self.loads.append(found[LOADED[tag]])
        if tag == "img" and not found.get("alt"):
            self.wordless.append(found.get("src", ""))


def read_page(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def find_faults(site: Path) -> list[str]:
    """One line per fault, as `page: what is wrong`. Links to other servers are not followed."""
    pages = {path.resolve(): read_page(path) for path in sorted(site.rglob("*.html"))}
    faults = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        faults += [f"{name}: picture without words: {source}" for source in page.wordless]
        faults += [f"{name}: loads {one} from elsewhere" for one in page.loads if is_outside(one)]
        for address in {*page.links, *page.loads}:
            if not is_outside(address) and leads_nowhere(address, path, pages):
                faults.append(f"{name}: leads nowhere: {address}")
    return faults


def is_outside(address: str) -> bool:
    found = urlsplit(address)
    return bool(found.netloc) or found.scheme in {"http", "https", "mailto"}


def leads_nowhere(address: str, path: Path, pages: dict[Path, Page]) -> bool:
    found = urlsplit(address)
    if found.scheme == "data":
        return False
    target = (path.parent / unquote(found.path)).resolve() if found.path else path
    if not target.is_file():
        return True
    anchor = unquote(found.fragment)
    return bool(anchor) and target in pages and anchor not in pages[target].anchors


if __name__ == "__main__":
    found = find_faults(Path(sys.argv[1]))
    print("\n".join([*found, f"{len(found)} faults"]))  # noqa: T201
    sys.exit(bool(found))
