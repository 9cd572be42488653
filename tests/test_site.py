"""The site is built without a warning, leads nowhere that is not there, and asks nothing of another server."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from browsing import Watched
from missing import skip_without

ROOT = Path(__file__).parents[1]
# Ten pages that are looked at in light, dark and on a phone: HEADWATER_SHOTS=DIR leaves pictures of them.
LOOKED_AT = (
    "index start gallery questions/which-words methods answers theory/ledger reference/results compare changelog"
)
WEBSITE = ROOT / "website"
sys.path.insert(0, str(WEBSITE))

from crawl import find_faults  # noqa: E402
from docstrings import escape, show_docstring, show_signature  # noqa: E402
from errors_page import CURES, collect_messages, error_classes  # noqa: E402
from interfaces import write_http  # noqa: E402
from llms import first_sentence, read_contents  # noqa: E402
from public_names import public_modules  # noqa: E402
from reference_pages import MODULE_PAGES, PAGES, show_fields, show_members, show_module  # noqa: E402
from sources import show_marks, turn_links  # noqa: E402

import headwater as hw  # noqa: E402


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if any(importlib.util.find_spec(name) is None for name in ("sphinx", "furo", "myst_parser", "sphinx_copybutton")):
        skip_without("Sphinx", "the site is built by it")
    out = tmp_path_factory.mktemp("site") / "site"
    done = subprocess.run(
        [sys.executable, str(WEBSITE / "build.py"), str(out)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
def test_the_site_has_no_dead_link_and_loads_nothing_from_elsewhere(site: Path) -> None:
    assert len(list(site.rglob("*.html"))) > 30
    assert find_faults(site) == []


def is_of_axe(message: str) -> bool:
    """axe asks for style sheets, which a page on the disk may not; its messages may come when the next page is there.

    A file that a page itself lacks is another error: `net::ERR_FILE_NOT_FOUND`.
    """
    return "blocked by CORS policy" in message or message == "console: Failed to load resource: net::ERR_FAILED"


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_axe_finds_no_serious_fault_and_nothing_scrolls_sideways(
    site: Path, chrome: Any, scheme: Any, width: int
) -> None:
    from test_explorer import serious, shot

    context = chrome.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    found = Watched(context, "file:")
    for name in LOOKED_AT.split():
        found.page.goto((site / f"{name}.html").as_uri())
        shot(found.page, f"site-{name.replace('/', '-')}-{width}-{scheme}")
        assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        assert [one for one in found.trouble if not is_of_axe(one)] == [], name
        assert serious(found.page) == [], name
    context.close()


@pytest.mark.slow
def test_axe_would_find_what_the_theme_leaves_out(site: Path, chrome: Any) -> None:
    from test_explorer import serious

    page = chrome.new_page()
    page.goto((site / "start.html").as_uri())
    page.evaluate("document.querySelectorAll('pre').forEach(one => one.removeAttribute('tabindex'))")
    page.evaluate("document.querySelector('h1').style.color = '#eee'")
    assert serious(page)
    page.close()


@pytest.mark.slow
def test_search_has_an_index_that_a_script_tag_loads(site: Path) -> None:
    """A page on the disk may load scripts, and may not fetch files."""
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert index.startswith("Search.setIndex(")
    assert '"ledger"' in index or "ledger:" in index
    assert 'src="searchindex.js"' in (site / "search.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_llms_txt_names_every_page(site: Path) -> None:
    listed = (site / "llms.txt").read_text(encoding="utf-8")
    for page in (site / "_sources").rglob("*.md.txt"):
        assert f"](_sources/{page.relative_to(site / '_sources').as_posix()})" in listed


def test_a_block_that_is_not_run_says_so_on_the_site() -> None:
    block = "```sh\n<!-- not run: as text -->\n```"
    assert show_marks(f"Text.\n\n<!-- not run: needs a card -->\n{block}") == (
        f"Text.\n\n*Not run by the tests: needs a card.*\n\n{block}"
    )


def test_the_crawler_sees_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top"><a href="b.html#here">b</a><a href="gone.html">c</a><a href="#none">d</a><a href="#top">e</a>'
        '<img src="https://example.org/x.png" alt="x"><img src="b.html">',
        encoding="utf-8",
    )
    (tmp_path / "b.html").write_text('<p id="here">', encoding="utf-8")
    assert sorted(find_faults(tmp_path)) == [
        "a.html: leads nowhere: #none",
        "a.html: leads nowhere: gone.html",
        "a.html: loads https://example.org/x.png from elsewhere",
        "a.html: picture without words: b.html",
    ]


def test_links_out_of_the_docs_lead_to_pages_of_the_site() -> None:
    def turn(text: str, place: str) -> str:
        return turn_links(text, PurePosixPath(place))

    assert turn("[a](../CHANGELOG.md#x)", "docs/guide.md") == "[a](changelog.md#x)"
    assert turn("[a](docs/guide.md)", "CHANGELOG.md") == "[a](guide.md)"
    assert turn("[n](../examples/first-steps.ipynb)", "docs/guide.md") == "[n](tutorials/first-steps.md)"
    assert turn("[s](../Makefile)", "docs/guide.md") == "s (`Makefile`)"
    assert turn("```\n[a](nowhere.md)\n```", "docs/guide.md") == "```\n[a](nowhere.md)\n```"
    with pytest.raises(FileNotFoundError, match=r"nowhere\.md"):
        turn("[a](nowhere.md)", "docs/guide.md")


def test_every_page_of_the_docs_has_its_place_in_the_contents() -> None:
    listed = [name for _, names in read_contents((WEBSITE / "index.rst").read_text(encoding="utf-8")) for name in names]
    assert len(listed) == len(set(listed))
    pages = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= set(listed)


def test_the_glossary_is_in_alphabetical_order() -> None:
    words = re.findall(r"^\| \*\*(.+?)\*\*", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(words) > 40
    assert words == sorted(words, key=str.lower)


def test_the_first_sentence_of_a_page_has_no_links() -> None:
    assert first_sentence("# Title\n\n![x](y.png)\n\nA [page](x.md) of\nwords. More.") == "A page of words."
    assert first_sentence("# Title\n\n**Question.** Which one?\n\n**Finding.** None.") == "Which one?"


def test_every_public_name_is_on_one_page_of_the_reference() -> None:
    listed = [name for _, names in PAGES.values() for name in names.split()]
    assert len(listed) == len(set(listed))
    assert {*hw.__all__} - {"__version__"} <= set(listed)
    assert all(hasattr(hw, name) for name in listed)


def test_every_public_module_is_on_one_page_of_the_reference() -> None:
    """Errors have a page of their own."""
    listed = [f"headwater.{name}" for _, names in MODULE_PAGES.values() for name in names.split()]
    assert len(listed) == len(set(listed))
    assert {*listed} == {*public_modules()} - {"headwater", "headwater.errors"}
    seen: set[int] = set()
    assert "## `headwater.viz.sums`\n\n### `ledger_parts`" in show_module("headwater.viz.sums", seen)
    assert show_module("headwater.viz.sums", seen) == ""


def test_every_field_and_method_of_a_public_class_says_what_it_is() -> None:
    modules = [importlib.import_module(name) for name in public_modules()]
    classes = {
        value for module in modules for name in module.__all__ if inspect.isclass(value := getattr(module, name))
    }
    assert len(classes) > 40
    for kind in classes:
        rows = show_fields(kind).splitlines()
        assert not rows or rows[0] == "| field | type | what it is |", kind
        assert [row for row in rows if row.endswith("|  |")] == [], kind
        members = show_members(kind).split("\n- ")
        assert [one for one in members if one and "\n  " not in one] == [], kind


def test_everything_that_the_http_interface_takes_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "reference").mkdir()
    write_http(tmp_path)
    rows = [line for line in (tmp_path / "reference" / "http.md").read_text().splitlines() if line.startswith("| `")]
    assert len(rows) > 200
    assert [row for row in rows if row.endswith("|  |")] == []


def test_every_error_has_a_cause_and_a_cure() -> None:
    assert set(CURES) == set(error_classes())
    assert all(kind.__doc__ for kind in error_classes().values())
    assert "a comparison is of one input, not of {len(ask.data)}." in collect_messages()["UsageError"]


def documented(size: int, *, name: str = "x") -> list[int]:
    """Numbers up to [size].

    Args:
        size: how many, at least 1
        name: what they are called

    Example:
        >>> documented(1)
        [0]
    """
    return list(range(size))


def test_a_page_that_a_docstring_names_is_a_link() -> None:
    assert (
        escape("See docs/inside.md; [x], `docs/guide.md`.") == "See [inside](../inside.md); \\[x\\], `docs/guide.md`."
    )
    assert escape("(docs/studies/pruning.md)") == "([studies/pruning](../studies/pruning.md))"


def test_a_docstring_becomes_markdown() -> None:
    assert show_signature("hw.documented", documented) == (
        "```python\nhw.documented(size: int, *, name: str = 'x') -> list[int]\n```\n"
    )
    assert show_docstring(documented) == (
        "Numbers up to \\[size\\].\n\n**Args**\n\n- `size`: how many, at least 1\n- `name`: what they are called\n\n"
        "**Example**\n\n```python\n>>> documented(1)\n[0]\n```"
    )
