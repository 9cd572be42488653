"""The examples in the documents are run, and give what the page says."""

from __future__ import annotations

import doctest
import re
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


def test_the_first_snippet_of_the_readme_runs_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(snippet, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert said.startswith("positive 4.09")
    assert "True" in said.splitlines()[0]
    assert "('beautifully', 3.1" in said


def test_the_readme_says_how_to_install_and_which_python() -> None:
    page = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    project = (DOCS.parent / "pyproject.toml").read_text(encoding="utf-8")
    versions = re.findall(r"Python :: (3\.\d+)", project)
    assert f"Python {versions[0]} to {versions[-1]}" in page
    assert f'requires-python = ">={versions[0]}"' in project
    for package in ("torch", "transformers"):
        (least,) = re.findall(rf'"{package}>=([\d.]+)"', project)
        assert f"{package} {least}" in page
    assert "pip install headwater" in page


def test_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = smollm2()
    monkeypatch.setattr("headwater.models.loading.load", lambda name: (model, tokenizer))
    failed, tried = doctest.testfile(
        str(DOCS / "generation.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE, encoding="utf-8"
    )
    assert tried > 15
    assert failed == 0
