"""What a machine may lack: tests that need it are skipped, and one line says how to have it. In CI they fail."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from typing import NoReturn

import pytest

HOW = {
    "data": "set HEADWATER_DATA to a directory of datasets",
    "Chromium": "make browser",
    "weights of SmolLM2": "make setup",
    "weights of MiniLM": "make setup",
    "Sphinx": "make setup",
    "pyright": "make setup; it takes its own program from npm",
    "tools that build wheels": "make setup",
}
OTHER = "an optional package"


def skip_without(thing: str, detail: str) -> NoReturn:
    """Skip this test for want of a `thing` in `HOW`; where CI is set it fails, for there everything must be."""
    reason = f"no {thing}: {detail}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def describe_skips(reasons: Iterable[str]) -> str:
    """How many tests were skipped for want of what, and how to have it, in one line."""
    found = Counter(next((thing for thing in HOW if f"no {thing}: " in reason), OTHER) for reason in reasons)
    how = {thing: f" ({HOW[thing]})" if thing in HOW else "" for thing in found}
    return "skipped: " + ", ".join(f"{count} without {thing}{how[thing]}" for thing, count in found.items())
