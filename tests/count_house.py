"""How large the package is and how its names read: modules, lines, cycles, names that are defined twice, participles.

`python tests/count_house.py [DIR …]` prints the counts and, with --names, what is behind them. Default: src/headwater.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
IRREGULAR = set(
    "made kept drawn shown given taken held said told written known seen left found done gone begun chosen spoken bent "
    "bound built bought cut fed felt heard hidden lent lost met paid run sent spent split spread stood thought torn "
    "understood won worn broken".split()
) - {"run", "cut", "split", "spread", "found", "left", "bound"}  # verbs or nouns just as well
VERBS = {"need", "feed", "seed", "embed", "speed", "exceed", "proceed", "shed", "red", "bed", "indeed"}
MOST_PARAMETERS = 6
PROGRAMS = tuple(f"headwater.kernels.{name}" for name in ("programs", "elementwise_programs"))


@dataclass(frozen=True)
class Definition:
    module: str
    name: str
    node: ast.AST
    inside: str = ""  # the class it is a method of


def modules(package: Path) -> dict[str, Path]:
    """Every module by its dotted name."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = (package.name, *path.relative_to(package).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def parse_module(path: Path) -> ast.Module:
    return parse_text(path.read_text(encoding="utf-8"))


parse_text = cache(ast.parse)


def imports(name: str, path: Path, known: set[str]) -> set[str]:
    """The modules of the same package that one imports: at the top, inside functions, or for types alone."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(parse_module(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = (
                ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])
                if node.level
                else (node.module or "")
            )
            found |= {full if (full := f"{base}.{alias.name}") in known else base for alias in node.names}
    return (found & known) - {name}


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, by way of others or not (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for node in graph:
        if node not in index:
            visit(node)
    return found


def definitions(known: dict[str, Path]) -> Iterator[Definition]:
    """Functions and classes at the top of modules, and the methods of classes."""
    for name, path in known.items():
        for node in parse_module(path).body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield Definition(name, node.name, node)
            if isinstance(node, ast.ClassDef):
                for part in node.body:
                    if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) and not is_property(part):
                        yield Definition(name, part.name, part, node.name)


def is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def is_participle(name: str) -> bool:
    """Whether a function's name reads as a value that something was done to: `explained`, `images_planned`."""
    words = name.strip("_").split("_")
    if words[0] in ("is", "has", "check", "find", "make", "read", "count", "get", "set", "with", "on", "test"):
        return False
    return any(
        (word.endswith("ed") and word not in VERBS and len(word) > 3) or word in IRREGULAR
        for word in (words[0], words[-1])
    )


def parameters(node: ast.AST) -> int:
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    every = node.args
    names = [a.arg for a in (*every.posonlyargs, *every.args, *every.kwonlyargs)]
    return len([n for n in names if n not in ("self", "cls")])


@dataclass(frozen=True)
class Counts:
    """The numbers, and the names behind them."""

    modules: int
    lines: int
    cycles: list[list[str]]
    twice: dict[str, list[str]]
    participles: list[str]
    functions: int
    classes_twice: dict[str, list[str]]
    long_lists: list[str]


def count(package: Path) -> Counts:
    known = modules(package)
    graph = {name: imports(name, path, set(known)) for name, path in known.items()}
    every = list(definitions(known))
    top: dict[str, dict[str, None]] = defaultdict(dict)  # an overload in one module is no second definition
    classes: dict[str, list[str]] = defaultdict(list)
    for one in every:
        if not one.inside:
            top[one.name][one.module] = None
            if isinstance(one.node, ast.ClassDef):
                classes[one.name].append(one.module)
    functions = [d for d in every if not isinstance(d.node, ast.ClassDef) and not d.name.startswith("__")]
    return Counts(
        len(known),
        sum(len(path.read_text(encoding="utf-8").splitlines()) for path in known.values()),
        cycles(graph),
        {name: list(where) for name, where in top.items() if len(where) > 1},
        [f"{d.module}: {d.inside + '.' if d.inside else ''}{d.name}" for d in functions if is_participle(d.name)],
        len(functions),
        {name: where for name, where in classes.items() if len(where) > 1},
        [f"{d.module}: {d.name}" for d in functions if parameters(d.node) > MOST_PARAMETERS and not takes_each(d)],
    )


def takes_each(definition: Definition) -> bool:
    """Whether a function has to take things one by one: a command its options, a Triton program its sizes."""
    return ".cli" in definition.module or definition.module in PROGRAMS


def report(package: Path, names: bool) -> str:
    found = count(package)
    lines = [
        f"{package}: {found.modules} modules, {found.lines} lines",
        f"import cycles: {len(found.cycles)}",
        f"top-level names defined twice: {len(found.twice)}",
        f"functions named by a participle: {len(found.participles)} of {found.functions} "
        f"({len(found.participles) / max(1, found.functions):.1%})",
        f"class names defined twice: {len(found.classes_twice)}",
        f"functions with more than {MOST_PARAMETERS} parameters, no commands and no programs: {len(found.long_lists)}",
    ]
    if names:
        lines += [f"  cycle: {', '.join(group)}" for group in found.cycles]
        lines += [f"  twice: {name}: {', '.join(where)}" for name, where in sorted(found.twice.items())]
        lines += [f"  participle: {one}" for one in found.participles]
        by_package = Counter(one.split(":")[0].rpartition(".")[0] for one in found.participles)
        lines += [f"  {number} in {name}" for name, number in by_package.most_common()]
        lines += [f"  parameters: {one}" for one in found.long_lists]
    return "\n".join(lines)


if __name__ == "__main__":
    given = [Path(word) for word in sys.argv[1:] if not word.startswith("-")] or [ROOT / "src" / "headwater"]
    for one in given:
        print(report(one, "--names" in sys.argv))  # noqa: T201
