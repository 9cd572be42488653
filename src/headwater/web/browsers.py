"""Finds a browser on this machine: ours are driven by playwright, which is never asked to download one."""

from __future__ import annotations

import os
import shutil

from ..errors import UsageError

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
