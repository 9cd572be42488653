"""What the tests of the explorer share: a server on this machine, a real Chromium that reaches nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from missing import skip_without

from headwater.errors import UsageError
from headwater.web.limits import Limits
from headwater.web.models import LazyModel, Models, models_of
from headwater.web.screenshot import browser_arguments, chromium
from headwater.web.state import AppState

ABSENT = "not in this test"


def browser_path() -> str:
    """Chromium; without it a test is skipped, but not in continuous integration, where it must be."""
    try:
        return chromium()
    except UsageError as error:
        skip_without("Chromium", str(error))


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = browser_path()
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=browser_arguments())
        try:
            yield opened
        finally:
            opened.close()


def make_state(limits: Limits | None = None, language: Any = None, sentence: Any = None, **stores: Any) -> AppState:
    """The small models of the project; no language model and no sentence encoder unless one is given."""
    found = models_of()
    model = LazyModel("language", "tiny", language) if language is not None else LazyModel("language", "", None, ABSENT)
    models = Models(found.text, found.image, found.molecule, model)
    if sentence is not None:
        models = replace(models, sentence=LazyModel("sentence", "tiny", sentence))
    made = AppState(models, limits, **stores)
    made.warm()
    return made


class Watched:
    """A page, and everything that went wrong on it or left this machine."""

    def __init__(self, context: Any, home: str) -> None:
        self.page = context.new_page()
        self.page.set_default_timeout(60_000)  # of a busy machine
        self.trouble: list[str] = []
        self.page.on("pageerror", lambda error: self.trouble.append(f"error: {error}"))
        self.page.on("console", lambda m: self.trouble.append(f"console: {m.text}") if m.type == "error" else None)
        self.page.on("dialog", lambda d: (self.trouble.append(f"dialog: {d.message}"), d.dismiss()))
        self.page.on("request", lambda r: self._check(r.url, home))

    def _check(self, url: str, home: str) -> None:
        if not url.startswith((home, "data:", "blob:", "file:")):
            self.trouble.append(f"request to {url}")


def saved(page: Any, button: Any, to: Path) -> Path:
    """What a button saves, on disk."""
    with page.expect_download() as waiting:
        button.click()
    path = to / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path
