"""What the theme leaves out for those who read with a keyboard or a screen reader, put into the finished pages."""

from __future__ import annotations

import re
from pathlib import Path

MENDED = (
    # a heading without a level
    (re.compile(r'(<p class="caption" role="heading")>'), r'\1 aria-level="2">'),
    # an empty line below every example
    (re.compile(r"\n\n</pre>"), "\n</pre>"),
    # what scrolls can be reached by keyboard
    (re.compile(r"<pre>"), '<pre tabindex="0">'),
    (re.compile(r'(<div class="table-wrapper[^"]*")>'), r'\1 tabindex="0">'),
)


def mend_pages(site: Path) -> None:
    for page in site.rglob("*.html"):
        page.write_text(mend(page.read_text(encoding="utf-8")), encoding="utf-8")


def mend(page: str) -> str:
    for found, replaced in MENDED:
        page = found.sub(replaced, page)
    return page
