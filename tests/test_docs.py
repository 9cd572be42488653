"""The examples in the guide are run, and give what the page says."""

from __future__ import annotations

import doctest
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def test_guide() -> None:
    failed, tried = doctest.testfile(
        str(DOCS / "guide.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE, encoding="utf-8"
    )
    assert tried > 20
    assert failed == 0
