"""A package outside the repository adds one of each: it is seen wherever such a thing is seen."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browsing import Watched, browser

import headwater as hw
from headwater.models.bundled import load_bundled

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "plugin"
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The package as an installer leaves it: its modules, and its entry points beside them."""
    place = tmp_path_factory.mktemp("elsewhere") / "site"
    shutil.copytree(EXAMPLE / "src", place)
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    about = place / f"headwater_example-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()) for group, points in groups]
    (about / "entry_points.txt").write_text("\n".join(lines))
    return place


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("texts") / "texts.csv"
    lines = ["a gripping film,1", "dull,0", "not good at all,0", "a beautifully acted movie,1"]
    file.write_text("text,label\n" + "\n".join(lines) + "\n")
    return file


def environment(installed: Path) -> dict[str, str]:
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def python(installed: Path, *words: object) -> str:
    words = (sys.executable, *map(str, words))
    done = subprocess.run(words, capture_output=True, text=True, env=environment(installed))
    assert done.returncode == 0, done.stderr
    return done.stdout


def headwater(installed: Path, *words: object) -> str:
    return python(installed, "-m", "headwater", *words)


def test_the_page_shows_the_files_that_run():
    for file in (EXAMPLE / "src" / "headwater_example").glob("[a-z]*.py"):
        assert file.read_text(encoding="utf-8") in PAGE


@pytest.mark.slow
def test_a_method_is_listed_explains_and_runs_over_a_dataset(installed, texts, tmp_path):
    assert "grad-norm" in headwater(installed, "methods")
    found = json.loads(headwater(installed, "explain", "a gripping film", "--method", "grad-norm", "--json"))
    assert found["method"] == "grad-norm"
    assert min(found["relevance"]) > 0
    assert not any(found["ledger"]["biases"].values())  # what Gradient x Input gives to biases is not this method's
    run = ("run", "--data", texts, "--out", tmp_path / "out", "--method", "grad-norm", "--workers", 2)
    headwater(installed, *run)
    assert [e.method for e in hw.open_run(tmp_path / "out").explanations()] == ["grad-norm"] * 4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_method_runs_on_a_ray_cluster(installed, texts, tmp_path):
    pytest.importorskip("ray")
    run = ("run", "--data", texts, "--method", "grad-norm", "--engine", "ray", "--workers", 1)
    headwater(installed, *run, "--out", tmp_path / "out")
    stored = hw.open_run(tmp_path / "out")
    assert stored.manifest.sessions[-1]["engine"] == "ray"
    assert [e.method for e in stored.explanations()] == ["grad-norm"] * 4
    assert all(min(e.relevance) > 0 for e in stored.explanations())


@contextmanager
def explorer(installed: Path) -> Iterator[str]:
    """`headwater app` in a process of its own, with the package installed; gives its address."""
    words = [sys.executable, "-m", "headwater", "app", "--no-browser", "--port", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment(installed)) as server:
        try:
            assert server.stderr is not None
            said = next(line for line in server.stderr if "http://" in line)
            yield said.split()[said.split().index("at") + 1]
        finally:
            server.terminate()


@pytest.mark.slow
def test_a_method_is_chosen_and_shown_in_the_explorer(installed):
    pytest.importorskip("fastapi")
    with browser() as opened, explorer(installed) as home:
        watched = Watched(opened.new_context(), home)
        page = watched.page
        page.goto(f"{home}#text=a+gripping+film&methods=lrp")
        page.locator('.method[data-method="lrp"] .w').first.wait_for()
        page.locator("#methods summary").click()
        page.get_by_label(re.compile("^grad-norm")).check()
        words = page.locator('.method[data-method="grad-norm"] .w.can')
        words.first.wait_for()
        assert words.all_inner_texts() == ["a", "gripping", "film"]
        assert max(float(o) for o in words.evaluate_all("all => all.map(w => w.style.getPropertyValue('--o'))")) == 1
        assert watched.trouble == []


@pytest.mark.slow
def test_a_method_of_a_package_conforms(installed):
    code = """
from headwater.models.bundled import load_bundled
from headwater.testing import check_method
model, tokenizer = load_bundled()
print(len(check_method("grad-norm", model, ["a gripping film", "dull"], tokenizer=tokenizer)))
"""
    assert python(installed, "-c", code).strip() == "2"


@pytest.mark.slow
def test_a_rule_closes_the_ledger_that_was_open(installed):
    code = """
import torch, headwater as hw
from torch import nn
class Bessel(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 2)
    def forward(self, x):
        return self.last(torch.i0(self.first(x)))
torch.manual_seed(0)
model, x = Bessel().double().eval(), torch.randn(1, 4, dtype=torch.float64)
e = hw.explain(model, x, target=0)[0]
leaf = x.clone().requires_grad_(True)
gradient, = torch.autograd.grad(model(leaf)[0, 0], leaf)
gi = hw.explain(model, x, target=0, method="gi")[0]
print(e.ledger.closed, "i0(0)" in " ".join(e.ledger.constants), abs(e.ledger.unaccounted) < 1e-12)
print(torch.allclose(gi.relevance, (gradient * x)[0].detach()), gi.ledger.closed)
"""
    assert python(installed, "-c", code).split() == ["True", "True", "True", "True", "False"]  # gi has no rules
    assert python(ROOT / "tests", "-c", code).split()[0] == "False"  # without the package


@pytest.mark.slow
def test_a_variant_of_attention_has_a_name(installed):
    method = "lrp(ah=mostly-values+ln+act+gate)"
    found = json.loads(headwater(installed, "explain", "a gripping film", "--method", method, "--json"))
    model, tokenizer = load_bundled()
    plain = hw.explain(model, "a gripping film", tokenizer=tokenizer)
    assert found["method"] == method
    assert found["score"] == pytest.approx(plain.score, rel=1e-5)
    assert found["relevance"] != pytest.approx(plain.relevance.tolist(), rel=1e-2)


@pytest.mark.slow
def test_a_measure_is_computed_saved_and_shown(installed, texts, tmp_path):
    out = tmp_path / "judged"
    words = ("evaluate", "--data", texts, "--methods", "lrp,gi", "--measures", "auac,half", "--no-runtime")
    assert "tokens for half" in headwater(installed, *words, "--out", out, "--plain")
    page = tmp_path / "page.html"
    headwater(installed, "report", out, "--out", page)
    assert "tokens for half" in page.read_text(encoding="utf-8")


def test_a_command_is_among_the_others(installed, texts):
    assert "longest" in headwater(installed, "--help")
    assert headwater(installed, "longest", texts).strip() == "a beautifully acted movie,1"


@pytest.mark.slow
def test_a_picture_is_drawn(installed, tmp_path):
    code = """
import sys, headwater as hw
from headwater.models.bundled import load_bundled
from headwater_example.pictures import bars
model, tokenizer = load_bundled()
open(sys.argv[1], "w").write(bars(hw.explain(model, "a <gripping> film", tokenizer=tokenizer)))
"""
    from xml.etree import ElementTree

    python(installed, "-c", code, tmp_path / "bars.svg")
    drawn = ElementTree.parse(tmp_path / "bars.svg").getroot()
    assert len([one for one in drawn.iter() if one.tag.endswith("rect")]) > 3
