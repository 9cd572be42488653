"""The examples in the documents are run, and give what the page says."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
from real_models import smollm2

DOCS = Path(__file__).parent.parent / "docs"


def test_guide() -> None:
    failed, tried = doctest.testfile(
        str(DOCS / "guide.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE, encoding="utf-8"
    )
    assert tried > 20
    assert failed == 0


def test_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = smollm2()
    monkeypatch.setattr("headwater.models.loading.load", lambda name: (model, tokenizer))
    failed, tried = doctest.testfile(
        str(DOCS / "generation.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE, encoding="utf-8"
    )
    assert tried > 15
    assert failed == 0
