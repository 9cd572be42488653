"""The notebooks run from top to bottom, and what they end on shows itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from real_models import smollm2

pytest.importorskip("IPython")
EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(file.stem for file in EXAMPLES.glob("*.ipynb"))


def cells(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return found


def test_there_are_three():
    assert NOTEBOOKS == ["a-language-model-explained", "first-steps", "which-explanation-should-i-trust"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name, monkeypatch, tmp_path):
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    if name == "a-language-model-explained":
        found = smollm2()
        monkeypatch.setattr("headwater.models.loading.load", lambda _: found)
    shell = InteractiveShell()
    shown = []
    for cell in cells(name):
        if cell["cell_type"] == "code":
            result = shell.run_cell("".join(cell["source"]))
            result.raise_error()
            shown.append(getattr(result.result, "_repr_html_", lambda: "")())
    assert sum(text.startswith('<div class="hw">') for text in shown) >= 2


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_no_output_is_kept(name):
    assert all(cell["outputs"] == [] for cell in cells(name) if cell["cell_type"] == "code")
