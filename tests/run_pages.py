"""The pages of the docs, run as they stand: `python tests/run_pages.py` also stores the pictures that they draw.

A page's examples share one namespace, from top to bottom, in an empty folder. What they save there and the page shows
is a picture of the docs.
"""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS, IMAGES = ROOT / "docs", ROOT / "docs" / "images"
DRAWN = ("questions", "tutorials", "gallery.md")  # pages that draw their own pictures
FENCE = re.compile(r"(?:^ *<!-- ((?:not )?run[^>]*?) -->\n)?^( *)```(\w*)\n(.*?)^\2```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def run_page(page: Path) -> tuple[int, str]:
    """How many examples the page has, and what was said of those that failed."""
    name = page.relative_to(ROOT).as_posix()
    test = doctest.DocTestParser().get_doctest(page.read_text(encoding="utf-8"), {}, name, str(page), 0)
    said = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    with repeatable_pictures():
        runner.run(test, out=said.write)
    return len(test.examples), said.getvalue()


@contextlib.contextmanager
def repeatable_pictures() -> Iterator[None]:
    """Matplotlib draws without a screen, writes texts as texts and the same names every time, and no date."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    with mpl.rc_context({"svg.hashsalt": "headwater", "svg.fonttype": "none", "font.family": "sans-serif"}):
        yield
    pyplot.close("all")


@dataclass(frozen=True)
class Block:
    """A block of code of a page: its language, its text, the line where it begins, and what is said of it."""

    page: Path
    line: int
    language: str
    text: str
    mark: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT).as_posix()}:{self.line}"

    @property
    def is_doctest(self) -> bool:
        return self.language == "python" and ">>>" in self.text


def find_blocks(page: Path) -> list[Block]:
    """Every fenced block. A comment right above one says that it is not run, and why, or which test runs it."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text[: found.start(2)].count("\n") + 1, found[3], inspect.cleandoc(found[4]), found[1] or "")
        for found in FENCE.finditer(text)
    ]


def run_console(block: Block) -> tuple[str, str]:
    """What a block of `$ headwater …` and its output should say, and what it does."""
    from typer.testing import CliRunner

    from headwater.cli import app

    wanted, got = block.text.rstrip(), []
    for command in re.findall(r"^\$ ((?:.*\\\n)*.*)$", block.text, re.MULTILINE):
        words = shlex.split(command)[1:]
        if words == ["methods"]:  # tests register methods of their own
            done = subprocess.run([sys.executable, "-m", "headwater", *words], capture_output=True, text=True)
            got.append(f"$ {command}\n{done.stdout}".rstrip())
            continue
        shown = CliRunner().invoke(app, words, env={"COLUMNS": "80"})
        got.append(f"$ {command}\n{shown.stdout}{shown.stderr}".rstrip())
    return wanted, "\n".join(got)


def pages_with_pictures() -> list[Path]:
    found = [DOCS / name for name in DRAWN]
    return sorted(page for one in found for page in (one.rglob("*.md") if one.is_dir() else [one]))


def pictures_of(page: Path) -> list[str]:
    """The pictures that the page shows and draws itself."""
    text = page.read_text(encoding="utf-8")
    return [name for name in re.findall(r"\]\([./]*images/([\w.-]+)\)", text) if f'"{name}"' in text]


def words_in(picture: Path) -> list[str]:
    """The texts of a drawing without its numbers: what must not change by itself."""
    texts = re.findall(r"<(?:text|title|tspan)[^>]*>([^<]*)<", picture.read_text(encoding="utf-8"))
    return [re.sub(r"[-−+]?[\d.,]+", "0", text) for text in texts]


def main() -> int:
    """Run every page that draws, and store what it drew; gives the number of pages that failed."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    failed = 0
    for page in pages_with_pictures():
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            _, said = run_page(page)
            failed += bool(said)
            for name in pictures_of(page):
                if Path(name).is_file():
                    shutil.copy(name, IMAGES)
        print(page.relative_to(ROOT), said or "as it stands")  # noqa: T201
    return failed


if __name__ == "__main__":
    sys.exit(main())
