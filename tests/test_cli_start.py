"""`headwater explain` loads what one explanation needs, and no more: each heavy module costs time at every start."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# What explaining a text with the bundled model does not need. torch and transformers bring some others themselves.
NEEDLESS = (
    "captum",
    "datasets",
    "fastapi",
    "headwater.api.audit",
    "headwater.api.generate",
    "headwater.bias",
    "headwater.cli.bias",
    "headwater.cli.evaluate",
    "headwater.cli.run",
    "headwater.evaluation",
    "headwater.jobs",
    "headwater.memory.cuda_graphs",
    "headwater.store",
    "headwater.viz.html",
    "headwater.viz.notebook",
    "headwater.viz.terminal",
    "headwater_experiments.cli",
    "matplotlib",
    "networkx",
    "nltk",
    "pandas",
    "peft",
    "polars",
    "pyarrow",
    "ray",
    "rdkit",
    "rich.console",
    "skimage",
    "sklearn",
    "torch_geometric",
    "torchvision",
)
# Loaded with transformers' models where they are installed; then Headwater adds nothing to it.
WITH_MODELS = ("scipy", "jinja2", "sympy", "torch._dynamo", "torch._inductor", "triton")
ONCE_LOADED = """
import json, sys
{code}
print(json.dumps([sorted(sys.modules), sys.argv]), file=sys.stderr)
"""
COMMAND = """
sys.argv = ["headwater", *{words!r}]
from headwater.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
MODELS = "import torch, transformers; transformers.BertForSequenceClassification"


def run(code: str) -> tuple[set[str], str, str]:
    """The modules that a fresh interpreter holds after running `code`, and what it wrote."""
    words = [sys.executable, "-c", ONCE_LOADED.format(code=code)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    *said, last = done.stderr.strip().splitlines()
    return set(json.loads(last)[0]), done.stdout, "\n".join(said)


@pytest.fixture(scope="module")
def explained() -> tuple[set[str], str, str]:
    return run(COMMAND.format(words=["explain", "a wonderful film"]))


@pytest.mark.slow
def test_an_explanation_loads_no_needless_module(explained):
    modules, shown, _ = explained
    assert "wonderful" in shown
    assert {"torch", "headwater.rules"} <= modules
    assert [name for name in NEEDLESS if name in modules] == []


@pytest.mark.slow
def test_an_explanation_adds_no_heavy_module_to_those_of_transformers(explained):
    models, _, _ = run(MODELS)
    assert [name for name in WITH_MODELS if name in explained[0] - models] == []


@pytest.mark.slow
def test_nothing_is_said_when_the_command_ends(explained):
    """Objects kept from Python's search for garbage to the very end would be reported as leaks by triton."""
    assert explained[2] == ""


def test_a_needless_module_would_be_seen():
    modules, _, _ = run("import rich.console, headwater.viz.notebook")
    assert {name for name in NEEDLESS if name in modules} >= {
        "headwater.viz.notebook",
        "rich.console",
    }


COLLECTOR = """
import gc
{before}
from headwater.cli.models import import_libraries
import_libraries()
print(gc.isenabled(), gc.get_freeze_count() > 100_000)
gc.unfreeze()
import_libraries()  # they are loaded by now: nothing is left out of the search
print(gc.isenabled(), gc.get_freeze_count() > 100_000)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("before", "on"), [("", True), ("gc.disable()", False)], ids=["plain", "switched off"])
def test_the_search_for_garbage_goes_on_after_the_libraries_are_loaded(before, on):
    assert run(COLLECTOR.format(before=before))[1].split() == [str(on), "True", str(on), "False"]


@pytest.mark.slow
def test_a_result_is_drawn_in_a_notebook_by_a_module_that_is_loaded_then():
    code = """
import headwater
from headwater.models.bundled import load_bundled
model, tokenizer = load_bundled()
made = headwater.explain(model, "a film", tokenizer=tokenizer)
before = "headwater.viz.notebook" in sys.modules
print(before, made._repr_html_()[:16])
"""
    assert run(code)[1].strip() == 'False <div class="hw">'


def test_methods_are_listed_without_torch():
    modules, shown, _ = run(COMMAND.format(words=["methods"]))
    assert "lrp-gamma" in shown
    assert "torch" not in modules


@pytest.mark.slow
def test_the_file_of_methods_holds_those_that_are_registered():
    """Write it anew with `json.dumps(list_registered(), indent=1, ensure_ascii=False)` in a fresh interpreter."""
    code = "from headwater.cli.methods import LISTED, list_registered\n"
    code += "print(list_registered() == json.loads(LISTED.read_text(encoding='utf-8')))"
    assert run(code)[1].strip() == "True"
