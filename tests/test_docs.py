"""The examples in the documents are run, and give what the page says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
from real_models import smollm2

import headwater as hw

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


@pytest.mark.slow
def test_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = smollm2()
    monkeypatch.setattr("headwater.models.loading.load", lambda name: (model, tokenizer))
    failed, tried = doctest.testfile(
        str(DOCS / "generation.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE, encoding="utf-8"
    )
    assert tried > 15
    assert failed == 0


@pytest.mark.slow
def test_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    language = smollm2()
    monkeypatch.setattr(hw, "load", lambda name: language)
    failed, tried = doctest.testfile(
        str(DOCS / "answers.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE, encoding="utf-8"
    )
    assert tried > 12
    assert failed == 0


def test_inside() -> None:
    failed, tried = doctest.testfile(
        str(DOCS / "inside.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE, encoding="utf-8"
    )
    assert tried > 15
    assert failed == 0


@pytest.mark.slow
def test_the_first_hour_has_ten_tasks_of_five_lines_that_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    pytest.importorskip("pyarrow")
    page = DOCS / "first-hour.md"
    tasks = re.split(r"^## \d+\. ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(tasks) == 10
    for task in tasks:
        assert 1 <= len(re.findall(r"^(?:>>>|\.\.\.)", task, re.MULTILINE)) <= 5, task
    plain, language = hw.load, smollm2()
    monkeypatch.setattr(hw, "load", lambda name: language if name == "smollm2" else plain(name))
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE, encoding="utf-8"
    )
    assert tried > 30
    assert failed == 0
