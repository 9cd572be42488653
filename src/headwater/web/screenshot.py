"""A picture of the explorer, made by the explorer: `headwater app --screenshot out.png`.

The browser is one of this machine. It is driven by playwright, which is never asked to download one.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from urllib.parse import urlencode

from ..defaults import TEXT_METHOD
from ..errors import UsageError, require_extra
from .server import serve_in_thread
from .state import AppState

SIZE = {"width": 1280, "height": 1330}
SHOWN = {
    "text": "The plot is thin, but the cast is wonderful.",
    "methods": f"gi|{TEXT_METHOD}",
    "mask": "10",
}


VARIABLE = "HEADWATER_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
SAFE = ("--disable-background-networking", "--disable-component-update", "--no-first-run")


def chromium() -> str:
    """Where Chromium lies: as HEADWATER_CHROMIUM says, else by its usual names."""
    named = os.environ.get(VARIABLE)
    for name in [named] if named else NAMES:
        found = shutil.which(name)
        if found is not None:
            return found
    raise UsageError(
        f"no Chromium was found. Install it by your system's packages (`apt-get install chromium`), or name it in "
        f"{VARIABLE}."
    )


def browser_arguments() -> list[str]:
    """How it is started. As root, as in many containers, it runs only without its sandbox."""
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return [*SAFE, *(["--no-sandbox"] if root else [])]


def check_driver() -> None:
    """Refuses where no browser could be driven, before models are loaded for it."""
    with require_extra("a screenshot", "screenshot"):
        import playwright.sync_api  # noqa: F401
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
