"""Imports go one way and never in a circle, and importing the library or asking for help loads no heavy stack."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from count_house import count, cycles, imports, modules, parse_module

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "headwater"
EXPERIMENTS = ROOT / "experiments" / "src" / "headwater_experiments"

# A module imports from its own stage or an earlier one; imports inside functions and for types count.
STAGES = (
    {"errors", "version", "defaults", "names", "plurals", "plugins", "deprecations", "moved"},
    {"results"},
    {"inputs"},
    {"models"},
    {"traces"},
    {"kernels"},
    {"rules"},
    {"engine", "memory", "methods"},
    {"api", "testing"},
    {"viz", "store"},
    {"evaluation"},
    {"bias"},
    {"jobs"},
    {"cli", "web", "__main__"},
)
STAGE = {name: number for number, names in enumerate(STAGES) for name in names}

# Narrower than their stage: results and pictures know only results, models know nothing of explanations.
ONLY = {
    "results": {"errors", "plurals", "results"},
    "traces": {"errors", "inputs", "traces"},
    "kernels": {"errors", "traces", "kernels"},
    "viz": {"errors", "plurals", "version", "results", "viz"},
    "models": {"errors", "plurals", "version", "plugins", "inputs", "models"},
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


def first_name(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]


KNOWN = modules(PACKAGE)
GRAPH = {name: imports(name, path, set(KNOWN)) for name, path in KNOWN.items()}
NAMES = [name for name in KNOWN if name != "headwater"]


def violations(module: str, imported: set[str]) -> list[str]:
    """What a module imports and must not."""
    name = first_name(module)
    return [
        f"{module} imports {other}"
        for other in sorted(imported)
        if other != "headwater" or STAGE[name] < STAGE["jobs"]  # the outermost use the library as its users do
        if STAGE.get(first_name(other), len(STAGES)) > STAGE[name] or first_name(other) not in ONLY.get(name, STAGE)
    ]


@pytest.mark.parametrize("module", NAMES)
def test_imports_go_one_way(module):
    assert first_name(module) in STAGE, f"{module} has no place in the architecture: give it one here and in docs"
    assert violations(module, GRAPH[module]) == []


@pytest.mark.parametrize("package", [PACKAGE, EXPERIMENTS], ids=lambda path: path.name)
def test_no_module_imports_itself_by_way_of_others(package):
    known = modules(package)
    assert cycles({name: imports(name, path, set(known)) for name, path in known.items()}) == []


def test_the_library_does_not_know_the_experiments():
    assert [name for name, path in KNOWN.items() if "import headwater_experiments" in path.read_text()] == []
    assert [name for name, path in KNOWN.items() if "from headwater_experiments" in path.read_text()] == []


SOURCES = [
    ("rules.linear", "from headwater.methods import lrp"),
    ("rules.linear", "from ..methods.lrp import rules"),
    ("rules.linear", "def f():\n    from ..api.explain import explain"),
    ("rules.linear", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..api.explain import explain"),
    ("viz.html", "from headwater.api.explain import explain"),
    ("viz.html", "import headwater.models.loading"),
    ("models.loading", "from headwater.results import explanation"),
    ("models.loading", "import headwater"),
    ("results.explanation", "from ..inputs.text import encode"),
]


@pytest.mark.parametrize(("module", "source"), SOURCES)
def test_an_import_against_the_flow_is_found(module, source, tmp_path):
    path = tmp_path / "module.py"
    path.write_text(source)
    name = f"headwater.{module}"
    assert len(violations(name, imports(name, path, set(KNOWN)))) == 1


def test_imports_with_the_flow_are_allowed(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("import headwater\nfrom headwater import methods\nimport torch")
    assert violations("headwater.cli.run", imports("headwater.cli.run", path, set(KNOWN))) == []
    path.write_text("from .colour import shade\nfrom ..results.ledger import Ledger")
    assert violations("headwater.viz.html", imports("headwater.viz.html", path, set(KNOWN))) == []


def test_a_circle_is_found():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert cycles({"a": {"b"}, "b": set(), "c": {"a", "b"}}) == []


def reached_into(tree: ast.Module) -> list[str]:
    """Private names of another module of headwater that `tree` imports, or reads off it."""
    ours = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and (n.level or "headwater" in (n.module or ""))]
    names = [alias for node in ours for alias in node.names]
    modules = {alias.asname or alias.name for alias in names}
    read = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    taken = [n.attr for n in read if n.value.id in modules] + [alias.name for alias in names]
    return [name for name in taken if name.startswith("_") and not name.startswith("__")]


@pytest.mark.parametrize("module", [*NAMES, *modules(EXPERIMENTS)])
def test_what_is_private_stays_in_its_module(module):
    path = KNOWN.get(module) or modules(EXPERIMENTS)[module]
    assert reached_into(parse_module(path)) == []


@pytest.mark.parametrize("code", ["from .html import _token", "from . import html\nhtml._token(1)"])
def test_reaching_into_a_module_is_found(code):
    assert reached_into(ast.parse(code)) == ["_token"]


def test_every_module_is_in_the_documented_table():
    documented = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    ours = {first_name(name) for name in NAMES} | {name.split(".")[1] for name in modules(EXPERIMENTS) if "." in name}
    assert {name for name in ours if f"`{name}" not in documented} == set()


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
        ["faithfulness", "--help"],
        ["app", "--help"],
        ["bundled", "train", "--help"],
        ["image", "train", "--help"],
        ["--version"],
    ],
)
def test_asking_for_help_is_light(words):
    assert loaded_after(f"from headwater.cli import app\ntry: app({words!r})\nexcept SystemExit: pass") == set()


@pytest.mark.slow
def test_a_heavy_import_would_be_seen():
    assert "torch" in loaded_after("import headwater; headwater.explain")


CALLED = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import headwater as hw
from tiny import tiny, tokenizer

package, found = Path(hw.__file__).parent, []


def note(frame, event, _):
    path = Path(frame.f_code.co_filename)
    if event == "call" and path.is_relative_to(package):
        hop = (".".join(path.relative_to(package).with_suffix("").parts), frame.f_code.co_name)
        if hop not in found[-1]:
            found[-1].append(hop)


for more in ({"plans": False}, {"keep": "disk"}):
    for watched in (False, True):  # modules are imported the first time
        found.append([])
        sys.setprofile(note if watched else None)
        hw.explain(tiny("bert"), "a good film", tokenizer=tokenizer(), **more)
        sys.setprofile(None)
print(json.dumps([found[1], found[3]]))
"""


@pytest.fixture(scope="module")
def ways() -> list[list[tuple[str, str]]]:
    """The functions of the package that one explanation calls, as (module, function), in the order of their first call:
    plain, and with memory saved."""
    done = subprocess.run(
        [sys.executable, "-c", CALLED, str(ROOT / "tests")], capture_output=True, text=True, check=True
    )
    return [[tuple(hop) for hop in way] for way in json.loads(done.stdout.splitlines()[-1])]


@pytest.mark.slow
def test_a_plain_explanation_passes_through_nothing_that_saves_memory_or_records(ways):
    through = [[name for name in way if name[0].startswith("memory.")] for way in ways]
    assert through[0] == []
    assert through[1] != []


# The way of one text, as docs/architecture.md walks it.
WAY = [
    ("api.explain", "explain"),
    ("engine.options", "read_options"),
    ("engine.session", "answer_request"),
    ("engine.session", "open"),
    ("engine.plan", "make_plan"),
    ("engine.session", "explain_step"),
    ("engine.session", "run_method"),
    ("methods.lrp", "run"),
    ("engine.propagate", "propagate"),
    ("engine.forward", "forward"),
    ("engine.assemble", "make_explanations"),
    ("engine.attribution", "attribute"),
]


@pytest.mark.slow
def test_the_way_of_an_explanation_is_the_one_that_the_page_walks(ways):
    way = ways[0]
    places = [way.index(hop) for hop in WAY]
    assert places == sorted(places)
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    walked = [f"`{module.replace('.', '/')}.py`" in page and f"`{function}`" in page for module, function in WAY]
    assert all(walked)
    assert len(WAY) <= 12


def test_names_are_plain():
    """What CONTRIBUTING asks of names, counted; the limits are those that the package keeps."""
    found = count(PACKAGE)
    assert found.classes_twice == {}
    assert len(found.twice) < 27
    assert len(found.participles) / found.functions < 0.02
    assert len(found.long_lists) < 15
