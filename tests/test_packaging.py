"""What a release is made with: bills of materials, the check before it, the recipe for conda, forms and workflows."""

from __future__ import annotations

import importlib.util
import re
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
ON_CONDA = {"pytorch": "torch", "huggingface_hub": "huggingface-hub", "typing_extensions": "typing-extensions"}
METADATA = """Metadata-Version: 2.4
Name: headwater
Version: 0.1.0
License-Expression: Apache-2.0
Requires-Dist: torch>=2.11
Requires-Dist: scipy>=1.11; extra == 'flow'
Requires-Dist: headwater[data]; extra == 'cluster'
"""


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "packaging" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_a_bill_of_materials_names_what_is_asked_for_and_what_is_inside(tmp_path):
    inside = "headwater/bias/lists/ordinary.txt"
    file = tmp_path / "headwater-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr("headwater-0.1.0.dist-info/METADATA", METADATA)
        wheel.writestr(inside, "word\n")
    sbom = script("sbom")
    found = sbom.describe_wheel(file)
    parts = {one["name"]: one for one in found["components"]}
    assert parts["torch"]["scope"] == "required"
    assert parts["torch"]["properties"][0]["value"] == ">=2.11"
    assert parts["scipy"]["scope"] == "optional"
    assert "headwater" not in parts
    assert parts["SCOWL word list"]["licenses"] == [{"expression": "LicenseRef-SCOWL"}]
    assert found["dependencies"][0]["dependsOn"] == ["pkg:pypi/scipy", "pkg:pypi/torch"]
    sbom.main(tmp_path)
    first = (tmp_path / "headwater.cdx.json").read_bytes()
    sbom.main(tmp_path)
    assert (tmp_path / "headwater.cdx.json").read_bytes() == first


def test_all_that_has_terms_of_its_own_is_in_the_bill():
    weights = (ROOT / "src" / "headwater" / "models" / "weights").glob("*/model.safetensors")
    inside = {path.relative_to(ROOT / "src").as_posix() for path in weights}
    assert {path for path in script("sbom").INSIDE if path.endswith(".safetensors")} == inside
    assert all((ROOT / "src" / path).is_file() for path in script("sbom").INSIDE)


def prepare(root: Path, version: str, tag: str, address: str) -> list[str]:
    check = script("check_release")
    for name in (*check.WITH_ADDRESSES, "src/headwater/version.py", "CHANGELOG.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"\nversion: {version}\n{address}\n", encoding="utf-8")
    (root / "src/headwater/version.py").write_text(f'__version__ = "{version}"\n', encoding="utf-8")
    (root / "CHANGELOG.md").write_text(f"# Changes\n\n## {version} (2027-01-31)\n", encoding="utf-8")
    return list(check.find_obstacles(root, tag))


def test_a_release_that_is_ready_has_nothing_in_its_way(tmp_path):
    assert prepare(tmp_path, "1.2.3", "v1.2.3", "https://somewhere.org") == []


def test_another_tag_and_placeholders_stand_in_the_way(tmp_path):
    found = prepare(tmp_path, "1.2.3", "v1.2.4", "https://headwater.example/docs")
    assert found[0] == "the tag is v1.2.4, and the sources have version 1.2.3"
    assert len(found) == 5
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n## Unreleased\n", encoding="utf-8")
    assert any("no heading" in one for one in script("check_release").find_obstacles(tmp_path, "v1.2.3"))


def test_the_recipe_for_conda_asks_for_what_the_library_asks_for():
    recipe = read("packaging/conda/recipe.yaml")
    run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    asked = dict(re.findall(r"- (\w+) >=([\d.]+)", run))
    assert asked.pop("python") == "3.11"
    lines = tomllib.loads(read("pyproject.toml"))["project"]["dependencies"]
    assert {ON_CONDA.get(name, name): least for name, least in asked.items()} == dict(
        line.split(">=") for line in lines
    )


def test_the_version_is_the_same_everywhere():
    version = script("check_release").read_version(ROOT)
    assert f"\nversion: {version}\n" in read("CITATION.cff")
    assert f"\n  version: {version}\n" in read("packaging/conda/recipe.yaml")


def test_tools_of_pre_commit_are_those_of_lint():
    pinned = dict(line.split("==") for line in read("constraints.txt").splitlines() if "==" in line)
    assert {*re.findall(r'"ruff==([\d.]+)"', read(".pre-commit-config.yaml"))} == {pinned["ruff"]}


FORMS = [*(ROOT / ".github").rglob("*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff",
         ROOT / "packaging" / "conda" / "recipe.yaml"]  # fmt: skip


@pytest.mark.parametrize("file", FORMS, ids=lambda file: file.name)
def test_forms_and_workflows_can_be_read(file):
    yaml = pytest.importorskip("yaml")
    assert isinstance(yaml.safe_load(file.read_text(encoding="utf-8")), dict)


def test_files_that_workflows_name_are_there():
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        for name in re.findall(r"run: (?:python )?((?:packaging|tests|\.ci)/[\w.]+)", file.read_text(encoding="utf-8")):
            assert (ROOT / name).is_file(), f"{file.name} names {name}"


CITED = re.compile(r"@([a-z]+\d{4})")


def test_the_paper_cites_what_is_in_its_list_and_names_the_authors_of_the_citation():
    paper, listed = read("paper/paper.md"), re.findall(r"^@\w+\{(\w+),", read("paper/paper.bib"), re.MULTILINE)
    assert {*CITED.findall(paper)} == {*listed}
    assert len(listed) == len({*listed})
    (author,) = re.findall(r"^  - name: (.+)$", read("CITATION.cff"), re.MULTILINE)
    assert f"  - name: {author}\n    affiliation: 1\n" in paper.partition("\n---\n")[0]


def test_the_paper_has_the_parts_that_the_journal_asks_for():
    headings = re.findall(r"^# (.+)$", read("paper/paper.md"), re.MULTILINE)
    wanted = ["Summary", "Statement of need", "State of the field", "Software design", "Research impact", "References"]
    assert [name for name in headings if name in wanted] == wanted
    assert all((ROOT / "paper" / name).is_file() for name in re.findall(r"\]\((\S+?)\)", read("paper/paper.md")))
