"""What needs an extra names it where it is missing. That each extra alone is enough, `make matrix` tries."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

import pytest
from extra_uses import USES, Use

ROOT = Path(__file__).parents[1]
HIDING = "import os, sys\nsys.modules.update(dict.fromkeys(os.environ['HIDDEN_MODULES'].split()))\n"


def test_every_extra_has_a_use():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {use.extra for use in USES} == {*project["optional-dependencies"]} - {"all"}


@pytest.mark.slow
@pytest.mark.parametrize("use", USES, ids=lambda use: use.extra)
def test_what_needs_an_extra_names_it_in_one_line(use: Use, tmp_path):
    """Modules of the extra are hidden before anything is imported, and no traceback is shown."""
    hiding, folder = tmp_path / "hiding", tmp_path / "here"
    hiding.mkdir()
    folder.mkdir()
    (hiding / "sitecustomize.py").write_text(HIDING, encoding="utf-8")
    path = [str(hiding), str(ROOT / "src"), str(ROOT / "experiments" / "src")]
    environment = {"HIDDEN_MODULES": " ".join(use.modules), "PYTHONPATH": os.pathsep.join(path)}
    code, said = use.run(sys.executable, folder, missing=True, **environment)
    assert code in (1, 2)
    assert said.strip().splitlines()[-1].endswith(f"pip install 'headwater[{use.extra}]'"), said
    assert "Traceback" not in said
