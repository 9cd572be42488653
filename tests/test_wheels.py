"""Both wheels and the sdist, as they are built: what is in them, what they say of themselves, the same bytes twice."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest
from matrix_page import FOLDERS, contents_table, kind_of
from missing import skip_without

ROOT = Path(__file__).parents[1]
EPOCH = "1767225600"
BUILD = "import sys; from hatchling import build; getattr(build, sys.argv[1])(sys.argv[2])"
LARGEST = 12_000_000  # bytes of the library's wheel; the weights of the three small models are most of it

pytestmark = pytest.mark.slow


def build(kind: str, source: Path, out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{kind}", str(out)],
        cwd=source,
        env={"SOURCE_DATE_EPOCH": EPOCH, "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> dict[str, Path]:
    for tool in ("hatchling", "hatch_fancy_pypi_readme"):
        try:
            __import__(tool)
        except ImportError:
            skip_without("tools that build wheels", tool)
    out = tmp_path_factory.mktemp("dist")
    return {
        "headwater": build("wheel", ROOT, out / "library"),
        "experiments": build("wheel", ROOT / "experiments", out / "experiments"),
        "sdist": build("sdist", ROOT, out / "sdist"),
    }


def names_in(wheel: Path) -> list[str]:
    return zipfile.ZipFile(wheel).namelist()


def metadata(wheel: Path) -> Message:
    (name,) = (name for name in names_in(wheel) if name.endswith(".dist-info/METADATA"))
    return message_from_string(zipfile.ZipFile(wheel).read(name).decode())


def files_under(folder: Path) -> set[str]:
    """Files of a folder, without what Python and editors leave there."""
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix() for path in found}


def test_the_wheel_has_the_package_its_pages_and_its_terms_and_no_more(built):
    found = {name for name in names_in(built["headwater"]) if not name.startswith("headwater-")}
    package = {f"headwater/{name}" for name in files_under(ROOT / "src" / "headwater")}
    pages = {f"headwater/web/documents/{name}" for name in files_under(ROOT / "docs")}
    assert found == package | {name for name in pages if "/images/paper/" not in name}


def test_what_is_no_code_is_of_a_known_kind(built):
    """A new kind of file in the wheel is looked at by somebody, who adds it here."""
    kinds = {
        "bias/lists": {".json", ".md", ".txt"},
        "cli": {".json"},
        "models/weights": {".json", ".md", ".safetensors"},
        "viz/templates": {".css", ".html"},
        "web/static": {".css", ".html", ".js", ".svg"},
        "web/documents": {".md", ".png", ".svg"},
    }
    assert set(kinds) == set(FOLDERS)
    for name in names_in(built["headwater"]):
        assert kind_of(name)
        inside = name.removeprefix("headwater/")
        if inside == name or name.endswith(".py") or inside == "py.typed":
            continue
        allowed = [kind for folder, kind in kinds.items() if inside.startswith(f"{folder}/")]
        assert allowed, name
        assert Path(name).suffix in allowed[0], name


def test_the_page_of_versions_lists_what_is_in_the_wheel(built):
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    for row in contents_table(built["headwater"])[2:]:
        assert row.rpartition(" | ")[0] in page  # its size changes with every word


def test_types_models_and_terms_are_in_the_wheel(built):
    names = names_in(built["headwater"])
    terms = {name.partition("/licenses/")[2] for name in names if "/licenses/" in name}
    assert "headwater/py.typed" in names
    assert {"LICENSE", "NOTICE", "src/headwater/bias/lists/ordinary-COPYRIGHT.txt"} <= terms
    for model in ("sentiment", "mnist", "bace"):
        assert f"headwater/models/weights/{model}/model.safetensors" in names
        assert f"src/headwater/models/weights/{model}/README.md" in terms
        card = zipfile.ZipFile(built["headwater"]).read(f"headwater/models/weights/{model}/README.md").decode()
        assert re.match(r"---\n(?:.*\n)*?license: apache-2\.0\n", card)
    assert {*metadata(built["headwater"]).get_all("License-File", [])} == terms


def test_nothing_that_trains_is_in_the_wheel_of_the_library(built):
    modules = [name for name in names_in(built["headwater"]) if name.endswith(".py")]
    assert not [name for name in modules if "training" in name or "experiments" in name]
    wheel = zipfile.ZipFile(built["headwater"])
    assert not [name for name in modules if re.search(r"torch\.optim|optim\.(Adam|SGD)", wheel.read(name).decode())]
    trains = zipfile.ZipFile(built["experiments"])
    assert any("AdamW" in trains.read(name).decode() for name in trains.namelist() if name.endswith(".py"))


def test_the_wheel_is_not_large(built):
    assert built["headwater"].stat().st_size < LARGEST
    assert built["experiments"].stat().st_size < 1_000_000


@pytest.mark.parametrize("which", ["headwater", "experiments"])
def test_metadata_say_who_where_and_under_which_terms(built, which):
    found = metadata(built[which])
    assert found["License-Expression"] == "Apache-2.0"
    assert found["Author"] or found["Author-email"]
    assert {"Homepage", "Source"} <= {line.partition(",")[0] for line in found.get_all("Project-URL", [])}
    assert found["Requires-Python"] == ">=3.11"


def test_links_on_the_registry_s_page_are_whole_addresses(built):
    page = metadata(built["headwater"]).get_payload()
    targets = re.findall(r"\]\(([^)]+)\)", str(page))
    assert len(targets) > 10
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def test_twine_finds_no_fault(built):
    pytest.importorskip("twine")
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *map(str, built.values())], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_the_sdist_has_what_it_names_and_no_checkpoints(built):
    with tarfile.open(built["sdist"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    top = {name.partition("/")[0] for name in names}
    assert "checkpoints" not in top
    assert {"src", "tests", "docs", "examples", "experiments", "LICENSE", "NOTICE", "Makefile", "weights.txt"} <= top
    assert {"tests/test_wheels.py", "experiments/pyproject.toml", "src/headwater/py.typed"} <= names


@pytest.mark.parametrize(("which", "kind", "folder"), [
    ("headwater", "wheel", ""), ("experiments", "wheel", "experiments"), ("sdist", "sdist", ""),
])  # fmt: skip
def test_built_twice_they_are_the_same_bytes(built, tmp_path, which, kind, folder):
    again = build(kind, ROOT / folder, tmp_path)
    assert hashlib.sha256(again.read_bytes()).hexdigest() == hashlib.sha256(built[which].read_bytes()).hexdigest()
