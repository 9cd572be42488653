"""Two distributions: the library stands alone, the experiments add their commands, old names still work."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterable
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from count_house import modules
from typer.testing import CliRunner

from headwater import moved, plugins
from headwater.cli import app, refusals
from headwater.errors import MissingExtra

ROOT = Path(__file__).parents[1]


def entry_points(path: Path) -> dict[str, dict[str, str]]:
    return tomllib.loads(path.read_text(encoding="utf-8"))["project"].get("entry-points", {})


def test_the_commands_of_the_experiments_are_the_ones_that_a_user_is_told_of():
    declared = entry_points(ROOT / "experiments" / "pyproject.toml")["headwater.commands"]
    assert sorted(declared) == sorted(refusals.EXPERIMENTS)
    assert set(declared) <= {command.name for command in app.registered_commands} | {
        group.name for group in app.registered_groups
    }


GROUPS = (
    *(plugins.METHODS, plugins.MEASURES, plugins.COMMANDS),
    *(plugins.MODELS, plugins.DATASETS, plugins.PEERS),
)


def test_every_entry_point_leads_somewhere():
    for group, points in entry_points(ROOT / "experiments" / "pyproject.toml").items():
        assert group in GROUPS
        for value in points.values():
            module, _, name = value.partition(":")
            assert callable(getattr(import_module(module), name))


WITHOUT = """
import sys
sys.modules["headwater_experiments"] = None  # an import of it fails
from headwater import plugins
plugins.find = lambda group: []
from headwater.cli import main
sys.argv = ["headwater", *sys.argv[1:]]
main()
"""


def alone(*words: str) -> subprocess.CompletedProcess[str]:
    """A command where the experiments are not installed."""
    return subprocess.run([sys.executable, "-c", WITHOUT, *words], capture_output=True, text=True)


def test_without_the_experiments_their_commands_say_how_to_have_them():
    done = alone("paper", "tables")
    assert done.returncode == 2
    assert done.stderr == "headwater: `headwater paper` needs: pip install 'headwater-experiments[all]'\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("explain", "a good film", "--plain"),
        ("explain", "--smiles", "CCO", "--plain"),
        ("explain", "--image", str(ROOT / "docs" / "images" / "digit.png"), "--plain"),
    ],
)
def test_without_the_experiments_texts_molecules_and_images_are_explained(words):
    done = alone(*words)
    assert done.returncode == 0, done.stderr
    assert "closed" in done.stdout


def test_without_the_experiments_a_dataset_by_name_says_where_it_is_known(monkeypatch):
    monkeypatch.setattr(plugins, "load_all", lambda group: {})
    from headwater.bias.texts import read_texts
    from headwater.errors import DataError

    with pytest.raises(DataError, match="pip install headwater-experiments"):
        read_texts("sst2")


def test_the_bundled_molecules_are_the_checkpoint_that_tables_speak_of():
    from headwater.models.bundled import MOLECULES, bundled_path

    kept = ROOT / "checkpoints" / "tuned" / "bace" / "1" / "model.safetensors"
    assert (bundled_path(MOLECULES) / "model.safetensors").read_bytes() == kept.read_bytes()


def test_texts_of_a_table_are_no_dataset_s_name():
    """A table compared with a name gives a table, not yes or no."""
    pandas = pytest.importorskip("pandas")
    from headwater.bias.texts import read_texts

    assert read_texts(pandas.DataFrame({"text": ["a film", "sst2"]})).texts == ["a film", "sst2"]


@pytest.mark.parametrize("old", sorted(moved.MOVED))
def test_a_module_that_moved_is_found_by_its_old_name(old):
    new = moved.new_name(f"headwater.{old}")
    assert new is not None
    known = {**modules(ROOT / "src" / "headwater"), **modules(ROOT / "experiments" / "src" / "headwater_experiments")}
    assert new in known
    if "cli" in old or "programs" in new:
        return
    sys.modules.pop(f"headwater.{old}", None)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = import_module(f"headwater.{old}")
    assert any(f"headwater.{old} is now {new}" in str(one.message) for one in heard)
    ours = {name: value for name, value in vars(import_module(new)).items() if not name.startswith("__")}
    assert all(getattr(found, name) is value for name, value in ours.items())


def test_a_module_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError, match=r"headwater\.nonsense"):
        import_module("headwater.nonsense")
    assert moved.new_name("headwater.errors") is None


def test_a_plug_in_that_cannot_be_loaded_is_named_and_left_out(monkeypatch):
    from importlib.metadata import EntryPoint

    monkeypatch.setattr(plugins, "find", lambda group: [EntryPoint("broken", "nowhere_at_all:thing", group)])
    plugins.load_all.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="'broken' of headwater.methods"):
            assert plugins.load_all(plugins.METHODS) == {}
    finally:
        plugins.load_all.cache_clear()


def test_a_missing_distribution_is_named():
    assert str(MissingExtra("a figure", "paper", "headwater-experiments")) == (
        "a figure needs: pip install 'headwater-experiments[paper]'"
    )
    assert CliRunner().invoke(app, ["nonsense"]).exit_code == 2


def project(folder: str = "") -> dict[str, Any]:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))


def names_of(lines: Iterable[str]) -> set[str]:
    requirement = pytest.importorskip("packaging.requirements").Requirement
    return {requirement(line).name.lower().replace("_", "-") for line in lines}


def declared(folder: str = "") -> set[str]:
    """What a distribution asks for, with and without extras."""
    made = project(folder)["project"]
    return names_of([*made["dependencies"], *chain(*made["optional-dependencies"].values())])


def test_all_that_setup_installs_is_pinned():
    """So that CI fails for a change here, not for a release elsewhere. Triton is torch's own to ask for."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = names_of(line for line in lines if line and not line.startswith("#"))
    groups = project()["dependency-groups"].values()
    tools = names_of(line for group in groups for line in group if isinstance(line, str))
    assert (declared() | declared("experiments") | tools) - pinned == {"headwater", "headwater-experiments", "triton"}


PACKAGES = {"PIL": "pillow", "markdown_it": "markdown-it-py"}  # a package's name, where it is not the module's
# Looked for where somebody has it, never needed: a notebook, a list of names, what torch brings along on Linux.
GUESTS = {"ipython", "nltk", "triton"}
# Needed by what is asked for, and imported by name at run time (gguf, accelerate) or inside captum (scikit-learn).
INDIRECT = {"accelerate", "gguf", "scikit-learn"}


IMPORT = re.compile(r"^ *(?:import (\w+)|from (\w+)[\w.]* import )", re.MULTILINE)


def imported(folder: Path) -> set[str]:
    lines = chain(*(IMPORT.findall(file.read_text(encoding="utf-8")) for file in folder.rglob("*.py")))
    found = {first or second for first, second in lines} - {"headwater", "headwater_experiments"}
    return {PACKAGES.get(name, name).lower().replace("_", "-") for name in found - sys.stdlib_module_names}


def test_what_the_library_imports_is_what_it_declares():
    assert imported(ROOT / "src") - GUESTS == declared() - INDIRECT - {"headwater"}


def test_what_the_experiments_import_is_declared():
    used = imported(ROOT / "experiments" / "src") - {"skimage"} | {"scikit-image"}
    assert used <= declared("experiments") | declared()
    assert declared("experiments") - used == {"headwater", "headwater-experiments"}


def test_no_weights_are_a_dependency_and_those_of_tests_have_a_version_and_a_hash():
    from headwater.models.pretrained import WHEELS

    lines = (ROOT / "weights.txt").read_text(encoding="utf-8").splitlines()
    found = [line for line in lines if not line.startswith("#")]
    assert [line.partition(" --hash=sha256:")[0] for line in found] == [
        f"{wheel.project}=={wheel.version}" for wheel in WHEELS.values()
    ]
    assert all(len(line.partition(" --hash=sha256:")[2]) == 64 for line in found)
    assert not {wheel.project for wheel in WHEELS.values()} & (declared() | declared("experiments"))


def test_both_distributions_ask_for_the_same_pythons():
    first, second = project()["project"], project("experiments")["project"]
    assert first["requires-python"] == second["requires-python"]
    least = first["requires-python"].removeprefix(">=")
    assert project()["tool"]["ruff"]["target-version"] == f"py{least.replace('.', '')}"
