"""What is public is listed, has `__all__`, and is all that pages and examples use."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
from public_names import ROOT, public_modules

PAGES = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "examples").rglob("*.py")]
USED = re.compile(r"from (headwater(?:\.\w+)*) import ([\w, ]+)")


@pytest.mark.parametrize("name", public_modules())
def test_a_public_module_says_what_is_public(name):
    module = import_module(name)
    assert len(module.__all__) > 0
    assert [one for one in module.__all__ if not hasattr(module, one)] == []


def test_pages_and_examples_use_public_names_alone():
    known = {name: {*import_module(name).__all__} for name in public_modules()}
    private = []
    for page in PAGES:
        for module, names in USED.findall(page.read_text(encoding="utf-8")):
            for name in re.split(r",\s*", names.strip()):
                is_module = f"{module}.{name}" in known
                if name not in known.get(module, ()) and not is_module:
                    private.append(f"{page.name}: {module}.{name}")
    assert private == []
