"""Imports go one way, and importing the library or asking for help loads no heavy stack."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "headwater"

# A module imports from its own stage or an earlier one.
STAGES = (
    {"errors", "version", "samples", "ledger", "picture", "explanation", "generation", "flows"},
    {"inputs", "targets"},
    {"rules", "kernels"},
    {"methods"},
    {
        "relevance",
        "texts",
        "api",
        "attention",
        "memory",
        "comparison",
        "conversation",
        "generating",
        "taps",
        "heads",
        "audits",
        "testing",
    },
    {"measures", "viz", "store", "data", "prompts", "models", "bias"},
    {"jobs", "paper", "digits", "answers", "zoo"},
    {"cli", "web", "__main__"},
)
STAGE = {name: number for number, names in enumerate(STAGES) for name in names}

# Narrower than their stage: pictures know only results, models and data know nothing of explanations.
ONLY = {
    "viz": {"errors", "version", "ledger", "picture", "explanation", "generation", "flows", "viz"},
    "data": {"errors", "version", "data"},
    "prompts": {"errors", "prompts"},
    "models": {"errors", "version", "samples", "data", "models"},
}

# Looked up when they are called: what sums tokens to words, and how a result shows itself in a notebook.
LATE = {
    ("explanation", "inputs"),
    ("explanation", "viz"),
    ("generation", "viz"),
    ("flows", "viz"),
    ("comparison", "viz"),
}

HEAVY = (
    "torch",
    "transformers",
    "numpy",
    "ray",
    "matplotlib",
    "rdkit",
    "fastapi",
    "captum",
    "datasets",
    "pandas",
    "pyarrow",
    "PIL",
)


def imports(source: str, package: str) -> Iterator[tuple[str, bool]]:
    """Every module of headwater that `source` imports, by its first name ("" is headwater itself), and whether late."""
    tree = ast.parse(source)
    late = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, package)
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "headwater" else [base]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "headwater":
                yield name.partition(".")[2].partition(".")[0], id(node) in late


def absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def violations(name: str, source: str, package: str) -> list[str]:
    """What the module `name` (its first name inside headwater) imports and must not."""
    found = []
    for other, late in imports(source, package):
        if other == "" and STAGE[name] >= STAGE["jobs"]:
            continue  # the outermost stages use the library as its users do
        if late and (name, other) in LATE:
            continue
        if other not in STAGE or STAGE[other] > STAGE[name] or other not in ONLY.get(name, STAGE):
            found.append(f"{name} imports {other or 'headwater'}")
    return found


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def first_name(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    assert first_name(path) in STAGE, f"{path} has no place in the architecture: give it one here and in docs"
    package = ".".join(("headwater", *path.relative_to(PACKAGE).parent.parts))
    assert violations(first_name(path), path.read_text(encoding="utf-8"), package) == []


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("rules", "from headwater.methods import lrp"),
        ("rules", "from ..methods.lrp import rules"),
        ("rules", "def f():\n    from ..api import explain"),
        ("viz", "from headwater.api.explain import explain"),
        ("viz", "import headwater.models.loading"),
        ("models", "from headwater import explanation"),
        ("models", "import headwater"),
        ("explanation", "from ..inputs.words import words_of"),
    ],
)
def test_an_import_against_the_flow_is_found(name, line):
    assert len(violations(name, line, f"headwater.{name}")) == 1


def test_imports_with_the_flow_are_allowed():
    assert violations("cli", "import headwater\nfrom headwater import methods\nimport torch", "headwater.cli") == []
    assert violations("explanation", "def words():\n    from .inputs.words import words_of", "headwater") == []
    assert violations("viz", "from .colour import shade\nfrom ..ledger import Ledger", "headwater.viz") == []


def reached_into(source: str) -> list[str]:
    """Private names of another module of headwater that `source` imports, or reads off it."""
    tree = ast.parse(source)
    ours = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and (n.level or "headwater" in (n.module or ""))]
    names = [alias for node in ours for alias in node.names]
    modules = {alias.asname or alias.name for alias in names}
    read = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    taken = [n.attr for n in read if n.value.id in modules] + [alias.name for alias in names]
    return [name for name in taken if name.startswith("_") and not name.startswith("__")]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_what_is_private_stays_in_its_module(path):
    assert reached_into(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("code", ["from .html import _token", "from . import html\nhtml._token(1)"])
def test_reaching_into_a_module_is_found(code):
    assert reached_into(code) == ["_token"]


def test_every_module_is_in_the_documented_table():
    documented = (PACKAGE.parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert {name for name in map(first_name, modules()) if f"`{name}" not in documented} == set()


def loaded_after(code: str) -> set[str]:
    """Which of the heavy stacks a fresh interpreter holds after running `code`."""
    report = f"\nimport sys\nprint([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, check=True)
    return set(ast.literal_eval(done.stderr.strip().splitlines()[-1]))


def test_importing_the_library_is_light():
    assert loaded_after("import headwater; headwater.__version__") == set()


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["explain", "--help"],
        ["bias", "--help"],
        ["run", "--help"],
        ["generate", "--help"],
        ["app", "--help"],
        ["bundled", "train", "--help"],
        ["image", "train", "--help"],
        ["--version"],
    ],
)
def test_asking_for_help_is_light(words):
    assert loaded_after(f"from headwater.cli import app\ntry: app({words!r})\nexcept SystemExit: pass") == set()


def test_a_heavy_import_would_be_seen():
    assert "torch" in loaded_after("import headwater; headwater.explain")
