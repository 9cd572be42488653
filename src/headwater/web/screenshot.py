"""A picture of the explorer, made by the explorer: `headwater app --screenshot out.png`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

from ..defaults import TEXT_METHOD
from ..errors import MissingExtra
from .browsers import browser_arguments, chromium
from .server import serve_in_thread
from .state import AppState

SIZE = {"width": 1280, "height": 1330}
SHOWN = {
    "text": "The plot is thin, but the cast is wonderful.",
    "methods": f"gi|{TEXT_METHOD}",
    "mask": "10",
}


def check_driver() -> None:
    """Refuses where no browser could be driven, before models are loaded for it."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError as error:
        raise MissingExtra("a screenshot", "screenshot") from error
    chromium()


def take(state: AppState, path: Path) -> None:
    """One picture of a text with a word masked, and the ledger below it."""
    from playwright.sync_api import sync_playwright

    with serve_in_thread(state) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=browser_arguments())
        page = browser.new_page(viewport=SIZE, device_scale_factor=1.5, color_scheme="light")
        page.goto(f"{address}#{urlencode(SHOWN)}")
        page.get_by_text("Got it").click()  # what a first visit is told would push the ledger out of the picture
        page.locator(".test h3").wait_for()
        page.mouse.move(0, 0)
        page.evaluate("() => { document.activeElement.blur(); scrollTo(0, 0); }")
        page.screenshot(path=str(path))
        browser.close()
