"""What is public is listed, has `__all__`, and is all that pages and examples use; its parameters are explained."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import headwater as hw

ROOT = Path(__file__).parents[1]
PAGES = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "examples").rglob("*.py")]
USED = re.compile(r"from (headwater(?:\.\w+)*) import ([\w, ]+)")


def public_modules() -> list[str]:
    """As the page names them."""
    page = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    table = page.partition("## What is public")[2].partition("Public are, too")[0]
    return re.findall(r"`(headwater[\w.]*)`", table)


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


FUNCTIONS = [name for name in hw.__all__ if inspect.isfunction(getattr(hw, name))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_parameter_of_a_public_function_is_explained(name):
    function = inspect.unwrap(getattr(hw, name))
    said = inspect.getdoc(function) or ""
    given = [one for one in inspect.signature(function).parameters.values() if one.kind is not one.VAR_KEYWORD]
    missing = [one.name for one in given if not re.search(rf"\b{re.escape(one.name)}\b", said)]
    assert missing == []


def test_a_parameter_that_is_not_explained_would_be_seen():
    def function(first: int, second: int) -> None:
        """`first` is the first."""

    names = inspect.signature(function).parameters
    assert [name for name in names if f"`{name}`" not in (function.__doc__ or "")] == ["second"]
