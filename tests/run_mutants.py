"""Whether the tests see faults in rules, engine and ledger: `python tests/run_mutants.py [--file F] [--sample N]`.

One process has torch, transformers and the tests loaded; each mutant is a fork of it, in which the code of one function
is exchanged, and which runs the tests that meet the changed lines until one fails: what killed its neighbours first,
then those that together soonest meet all lines. What acts on import takes a fork from before the package was loaded.
docs/mutants.md names the survivors and why each may live; any other is printed at the end, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import heapq
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
import types
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest
from mutating import DROPPED, Mutant, mutants_of, short

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "headwater"
STORE = ROOT / ".mutants"
PAGE = ROOT / "docs" / "mutants.md"
FILES = (
    "rules/*.py",
    "rules/attention/*.py",
    "results/ledger.py",
    "engine/forward.py",
    "engine/checks.py",
    "engine/propagate.py",
    "engine/backward.py",
    "engine/finite.py",
)
TESTS = """
closing norm_definitions activation_definitions kinds logs_and_distances softmax_by_hand ratios steps fused products
sums norms curves places weights_held operations ledger secant gamma asking linearised paper_rules capped beyond
review promises precision methods targets kept audit generation recording text adversarial cuts random_cuts maps
hidden spellings keywords pooling recurrent left_behind memory factors written_into summands attended choices origins
books waiting passes scopes propagation following attention_variants
""".split()
SLOW = 5.0  # seconds: longer tests say nothing that shorter ones do not
SPARE = 20.0  # seconds that a mutant may take beyond three times what its tests take without it
NARROW = 60  # tests that meet few lines beside those of a mutant: they are quick, and made for what stands there
ABOUT = {  # files of tests that were written for a module: they come first
    "results/ledger.py": "closing",
    "engine/backward.py": "propagation",
    "engine/checks.py": "passes propagation",
    "engine/finite.py": "propagation",
    "engine/forward.py": "passes propagation",
    "engine/propagate.py": "propagation",
    "rules/activation.py": "activation_definitions curves",
    "rules/attention/call.py": "attended attention_variants",
    "rules/attention/capped.py": "capped attended",
    "rules/attention/constant.py": "weights_held attended capped",
    "rules/attention/facts.py": "following softmax_by_hand",
    "rules/attention/fused.py": "attended attention_variants",
    "rules/attention/half.py": "attended capped",
    "rules/attention/query.py": "following asking",
    "rules/attention/registry.py": "attention_variants",
    "rules/attention/secant.py": "attended secant",
    "rules/attention/sinks.py": "capped attended",
    "rules/attention/softmax.py": "softmax_by_hand attended",
    "rules/attention/variant.py": "attention_variants",
    "rules/attention/weights.py": "following",
    "rules/call.py": "scopes",
    "rules/constants.py": "scopes",
    "rules/cuts.py": "origins",
    "rules/distance.py": "logs_and_distances",
    "rules/gamma.py": "summands gamma",
    "rules/gate.py": "factors kinds",
    "rules/gradients.py": "scopes books",
    "rules/handlers.py": "scopes",
    "rules/lineage.py": "waiting scopes",
    "rules/linear.py": "summands written_into",
    "rules/logarithm.py": "logs_and_distances",
    "rules/maps.py": "maps",
    "rules/modules.py": "fused hidden",
    "rules/norm.py": "norm_definitions softmax_by_hand norms",
    "rules/operands.py": "factors attention_variants",
    "rules/products.py": "logs_and_distances products",
    "rules/python_functions.py": "scopes",
    "rules/ratio.py": "ratios",
    "rules/recurrent.py": "steps recurrent",
    "rules/rule_set.py": "scopes",
    "rules/saved.py": "waiting",
    "rules/scope.py": "scopes origins",
    "rules/shape_ops.py": "choices written_into",
    "rules/sources.py": "books scopes",
    "rules/spelling.py": "scopes spellings keywords",
}
ROOM = 6 << 30  # bytes that a fork may take beyond what its parent has
QUIET = ["-p", "no:terminal", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-o", "addopts=--strict-markers"]
QUIET += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # transformers loads what pytest would watch


@dataclass
class Met:
    """What a test meets: its time, and the lines of each mutated file that it runs."""

    seconds: float
    lines: dict[str, list[int]]


def by_what_they_add(met: dict[str, Met]) -> Iterator[str]:
    """Tests in an order in which each meets lines that those before it do not, for little time; then so once more."""
    numbers: dict[tuple[str, int], int] = {}
    bits = {
        test: sum(1 << numbers.setdefault((f, n), len(numbers)) for f, lines in one.lines.items() for n in lines)
        for test, one in met.items()
    }
    left = dict.fromkeys(met)
    while left:
        fresh = (1 << len(numbers)) - 1
        worth = [(-bits[test].bit_count() / (met[test].seconds + 0.05), test) for test in left]
        heapq.heapify(worth)
        while worth:
            _, test = heapq.heappop(worth)
            new = (bits[test] & fresh).bit_count()
            if not new:
                continue
            now = -new / (met[test].seconds + 0.05)
            if worth and now > worth[0][0]:
                heapq.heappush(worth, (now, test))
                continue
            fresh &= ~bits[test]
            del left[test]
            yield test


@dataclass
class Judge:
    """Which tests are tried on a mutant, in which order; it learns from what they killed."""

    met: dict[str, Met]
    seconds: float
    kills: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def __post_init__(self) -> None:
        self.lines = {t: {f: set(lines) for f, lines in met.lines.items()} for t, met in self.met.items()}
        self.turn = {test: number for number, test in enumerate(by_what_they_add(self.met))}
        self.breadth = {test: sum(map(len, met.lines.values())) for test, met in self.met.items()}

    def tests_for(self, mutant: Mutant) -> list[str]:
        first, last = mutant.lines
        meet = [t for t, lines in self.lines.items() if any(first <= n <= last for n in lines.get(mutant.file, ()))]
        near, far = self.kills[f"{mutant.file} {mutant.where}"], self.kills[mutant.file]
        meet.sort(key=lambda t: (-min(near[t], 3), -min(far[t], 1), self.turn[t]))
        narrow = sorted(meet, key=self.breadth.__getitem__)[:NARROW]
        about = [f"/test_{name}.py:" for name in ABOUT.get(mutant.file, "").split()]
        own = [t for t in narrow + meet if self.met[t].seconds < 0.5 and any(name in t for name in about)]
        chosen, total = [], 0.0
        for test in dict.fromkeys([*(t for t in meet if near[t]), *own, *narrow, *meet]):
            if total <= self.seconds or not self.seconds:
                chosen.append(test)
                total += self.met[test].seconds
        return chosen

    def limit(self, tests: list[str]) -> float:
        return SPARE + 3 * sum(self.met[t].seconds for t in tests)

    def learn(self, mutant: Mutant, killer: str) -> None:
        self.kills[f"{mutant.file} {mutant.where}"][killer] += 1
        self.kills[mutant.file][killer] += 1


class Tests:
    """A plugin that takes pytest's collected tests and does something else with them than running all."""

    def __init__(self, work: Any) -> None:
        self.work = work
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self.work(self)
        return True

    def run(self, name: str, after: str | None = None) -> bool:
        """Whether a test passes. `after` is the one that comes next: fixtures that both use stay."""
        item, following = self.items[name], self.items.get(after or "")
        self.failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return not self.failed

    def first_failure(self, names: list[str]) -> str | None:
        names = [name for name in names if name in self.items]
        for name, after in zip(names, [*names[1:], None], strict=True):
            if not self.run(name, after):
                return name
        return None


def collect(files: Iterable[str], work: Any) -> None:
    code = pytest.main([*QUIET, *(str(ROOT / file) for file in files)], plugins=[Tests(work)])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(f"the tests could not be collected: {code!r}")


def in_fork(work: Any, limit: float | None = None) -> tuple[int, int]:
    """Starts `work` in a fork, whose answer can be read from a pipe: its process number and the pipe."""
    reader, writer = os.pipe()
    process = os.fork()
    if process:
        os.close(writer)
        return process, reader
    os.close(reader)
    os.setpgid(0, 0)
    signal.alarm(int(limit or 0))
    bound_memory()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        os.write(writer, json.dumps(work()).encode())
    except BaseException as error:  # a fault may do anything, and a fork must not go on as its parent
        os.write(writer, json.dumps(f"error: {type(error).__name__}: {error}"[:200]).encode())
    finally:
        os._exit(0)


def bound_memory() -> None:
    """A fault may ask for any amount; it gets so much, and then an exception."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + ROOM
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def answer(process: int, reader: int) -> Any:
    """What a fork said; None where it died first."""
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(process, 0)
    return json.loads(text) if text else f"died: {os.waitstatus_to_exitcode(status)}"


# Which test meets which line


def lines_met(test_file: Path, sources: dict[str, str]) -> dict[str, Any]:
    """Runs one file of tests with its lines watched."""
    found: dict[str, Any] = {}

    def work(tests: Tests) -> None:
        for name in tests.items:
            seen: dict[str, set[int]] = defaultdict(set)
            sys.settrace(watching(seen, sources))
            begun = time.perf_counter()
            passed = tests.run(name)
            sys.settrace(None)
            if seen and passed:
                lines = {file: sorted(numbers) for file, numbers in seen.items()}
                found[name] = {"seconds": round(time.perf_counter() - begun, 3), "lines": lines}

    collect([str(test_file)], work)
    return found


def watching(seen: dict[str, set[int]], sources: dict[str, str]) -> Any:
    def on_call(frame: Any, event: str, argument: Any) -> Any:
        name = sources.get(frame.f_code.co_filename)
        if name is None:
            return None
        lines = seen[name]

        def on_line(frame: Any, event: str, argument: Any) -> Any:
            lines.add(frame.f_lineno)
            return on_line

        return on_line

    return on_call


def all_lines_met(files: dict[str, Path], workers: int) -> dict[str, Met]:
    """Of every test; kept on disk until a source or the test's file changes."""
    sources = {str(path): name for name, path in files.items()}
    own = b"".join(path.read_bytes() for path in files.values())
    running: deque[tuple[int, int]] = deque()
    kept: list[Path] = []
    for test_file in (ROOT / "tests" / f"test_{name}.py" for name in TESTS):
        mark = hashlib.sha1(own + test_file.read_bytes()).hexdigest()[:12]
        kept.append(STORE / f"{test_file.stem}-{mark}.json")
        if not kept[-1].exists():
            say(f"which lines {test_file.name} meets", sys.stderr)
            if len(running) == workers:
                check_written(*running.popleft())
            running.append(in_fork(lambda at=kept[-1], of=test_file: write_lines_met(at, of, sources)))
    while running:
        check_written(*running.popleft())
    met = {test: Met(**told) for one in kept for test, told in json.loads(one.read_text()).items()}
    return {test: one for test, one in met.items() if one.seconds <= SLOW}


def write_lines_met(at: Path, test_file: Path, sources: dict[str, str]) -> None:
    at.with_suffix(".part").write_text(json.dumps(lines_met(test_file, sources)))
    at.with_suffix(".part").rename(at)


def check_written(process: int, reader: int) -> None:
    said = answer(process, reader)
    if said is not None:
        raise SystemExit(f"a run of the tests as they are ended with {said!r}")


# One mutant


def exchange(mutant: Mutant, file: Path) -> None:
    """Puts the mutant's code into the function that everybody holds; or takes a rule's operation off its register."""
    code = compile(mutant.put_into(file.read_bytes()), str(file), "exec", dont_inherit=True)
    module = sys.modules["headwater." + mutant.file.removesuffix(".py").replace("/", ".")]
    live: Any = module
    if mutant.operator == DROPPED:
        unregister(vars(module)[mutant.where], mutant.before)
        return
    for name in mutant.path:
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)
        live = vars(live)[name]
    function = getattr(unwrapped(live), "__func__", unwrapped(live))
    before, function.__code__ = function.__code__, code
    if mutant.where != ".".join(mutant.path):
        exchange_inside(before, code)


def exchange_inside(before: types.CodeType, after: types.CodeType) -> None:
    """Functions that a function made when the package was loaded have its inner code, and the fault with it."""
    inner = ([c for c in code.co_consts if isinstance(c, types.CodeType)] for code in (before, after))
    for was, now in zip(*inner, strict=True):
        for live in [one for one in gc.get_objects() if type(one) is types.FunctionType and one.__code__ is was]:
            live.__code__ = now
        exchange_inside(was, now)


def unregister(rule: Any, text: str) -> None:
    from headwater.rules import OPERATIONS

    for name in [name for name, one in OPERATIONS.items() if one is rule]:
        if text.startswith("*") or name == text.strip("\"'"):
            del OPERATIONS[name]


def unwrapped(live: Any) -> Any:
    live = getattr(live, "fget", live)
    while hasattr(live, "__wrapped__"):
        live = live.__wrapped__
    return live


def judge_loaded(tests: Tests, mutant: Mutant, file: Path, names: list[str]) -> str | None:
    exchange(mutant, file)
    return tests.first_failure(names)


def judge_on_import(mutant: Mutant, file: Path, names: list[str]) -> str | None:
    """In a fork from before the package was loaded: it comes in with the fault."""
    source_of = SourceFileLoader.get_data

    def get_data(loader: SourceFileLoader, path: str) -> bytes:
        if path.endswith(".pyc") and "headwater" in path:
            raise OSError("compiled from the source alone")
        data: bytes = source_of(loader, path)
        return mutant.put_into(data) if Path(path) == file else data

    SourceFileLoader.get_data = get_data  # type: ignore[method-assign]
    sys.dont_write_bytecode = True
    found: list[str | None] = []
    try:
        collect(
            dict.fromkeys(name.split("::")[0] for name in names), lambda tests: found.append(tests.first_failure(names))
        )
    except SystemExit:
        return "import"
    return found[0]


# All of them


@dataclass
class Results:
    """One line of JSON a mutant, in the order in which they were judged."""

    path: Path
    known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def read(self) -> None:
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                one = json.loads(line)
                self.known[one["key"]] = one

    def add(self, mutant: Mutant, killer: str | None, seconds: float, tests: int) -> None:
        one = {
            "key": mutant.key,
            "file": mutant.file,
            "line": mutant.line,
            "where": mutant.where,
            "operator": mutant.operator,
            "before": short(mutant.before),
            "after": short(mutant.after),
            "killed": killer,
            "tests": tests,
            "seconds": round(seconds, 2),
        }
        self.known[mutant.key] = one
        with self.path.open("a") as out:
            out.write(json.dumps(one, ensure_ascii=False) + "\n")


@dataclass
class Runner:
    judge: Judge
    results: Results
    files: dict[str, Path]
    workers: int

    def run(self, mutants: list[Mutant], start: Any) -> None:
        """`start` gives what a fork is to do; so many at once as there are workers."""
        waiting = list(reversed(mutants))
        running: dict[int, tuple[Mutant, int, float, list[str]]] = {}
        while waiting or running:
            while waiting and len(running) < self.workers:
                mutant = waiting.pop()
                names = self.judge.tests_for(mutant)
                if not names:
                    self.results.add(mutant, None, 0.0, 0)
                    continue
                work = start(mutant, self.files[mutant.file], names)
                process, reader = in_fork(work, self.judge.limit(names))
                running[process] = (mutant, reader, time.monotonic(), names)
            if running:
                self.collect_one(running)

    def collect_one(self, running: dict[int, tuple[Mutant, int, float, list[str]]]) -> None:
        process, status = os.wait()
        if process not in running:
            return
        mutant, reader, begun, names = running.pop(process)
        with os.fdopen(reader, "rb") as pipe:
            text = pipe.read()
        killer = json.loads(text) if text else f"died: {os.waitstatus_to_exitcode(status)}"
        seconds = time.monotonic() - begun
        self.results.add(mutant, killer, seconds, len(names))
        if killer in self.judge.met:
            self.judge.learn(mutant, killer)
        sign = "·" if killer else "SURVIVED"
        say(f"{len(self.results.known):5d} {seconds:5.1f} s {sign} {mutant}", sys.stderr)


def acts_on_import(mutant: Mutant) -> bool:
    return not mutant.path and mutant.operator != DROPPED


def run_all(mutants: list[Mutant], runner: Runner) -> None:
    def loaded(tests: Tests) -> None:
        from tiny import BUILD, tiny

        for name in BUILD:
            tiny(name)  # before the forks, so that none has to
        runner.run([m for m in mutants if not acts_on_import(m)], lambda *one: lambda: judge_loaded(tests, *one))

    files = dict.fromkeys(name.split("::")[0] for name in runner.judge.met)
    process, reader = in_fork_loud(lambda: collect(files, loaded))
    answer(process, reader)
    runner.results.read()
    runner.run([m for m in mutants if acts_on_import(m)], lambda *one: lambda: judge_on_import(*one))


def in_fork_loud(work: Any) -> tuple[int, int]:
    """A fork that says what goes wrong, and may speak."""
    reader, writer = os.pipe()
    process = os.fork()
    if process:
        os.close(writer)
        return process, reader
    try:
        work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


def say(line: str, to: Any = sys.stdout) -> None:
    to.write(line + "\n")
    to.flush()


def reasons() -> dict[str, str]:
    """Survivors that the page names, each with its reason."""
    if not PAGE.exists():
        return {}
    rows = [line.strip("| \n").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return {key: row[-1] for row in rows for key in row[0].replace("`", "").split()}


def report(mutants: list[Mutant], results: Results) -> int:
    known, told = reasons(), Counter[str]()
    for name in dict.fromkeys(m.file for m in mutants):
        judged = [m for m in mutants if m.file == name and m.key in results.known]
        alive = [m for m in judged if results.known[m.key]["killed"] is None]
        named = [m for m in alive if m.key in known]
        told.update(judged=len(judged), killed=len(judged) - len(alive), named=len(named))
        say(f"{name}: {len(judged)} judged, {len(judged) - len(alive)} killed, {len(named)} of the rest explained")
    left = [m for m in mutants if results.known.get(m.key, {"killed": 0})["killed"] is None and m.key not in known]
    matter = told["judged"] - told["named"]
    say(
        f"{told['judged']} judged, {told['killed']} killed, {told['named']} explained: "
        f"{told['killed']} of {matter} that matter ({100 * told['killed'] / max(1, matter):.1f} %)"
    )
    for mutant in left:
        say(f"survived: {mutant}")
    return 1 if left else 0


def chosen_files(patterns: list[str]) -> dict[str, Path]:
    found = [path for pattern in patterns for path in sorted(PACKAGE.glob(pattern))]
    return {str(path.relative_to(PACKAGE)): path for path in found}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", action="append", help="below src/headwater, as rules/gate.py; again for another")
    parser.add_argument("--sample", type=int, help="so many mutants, chosen at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", metavar="KEY", help="these mutants alone")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=15.0, help="of tests for one mutant; 0: all that meet it")
    parser.add_argument("--resume", action="store_true", help="leave out what the results hold already")
    parser.add_argument("--survivors", action="store_true", help="with --resume: but judge survivors once more")
    parser.add_argument("--report", action="store_true", help="judge nothing: read the results")
    parser.add_argument("--results", type=Path, default=STORE / "results.jsonl")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    STORE.mkdir(exist_ok=True)
    every = chosen_files(list(FILES))
    files = chosen_files(options.file) if options.file else every
    mutants = [one for name, path in files.items() for one in mutants_of(path.read_bytes(), name)]
    if options.only:
        mutants = [one for one in mutants if one.key in options.only]
    if options.sample and options.sample < len(mutants):
        mutants = sorted(random.Random(options.seed).sample(mutants, options.sample), key=lambda m: (m.file, m.line))
    results = Results(options.results)
    if options.resume or options.report:
        results.read()
    elif options.results.exists():
        options.results.unlink()
    if options.report:
        return report(mutants, results)
    import torch  # noqa: F401
    import transformers  # noqa: F401

    old = {k for k, one in results.known.items() if one["killed"] is not None or not options.survivors}
    judge = Judge(all_lines_met(every, options.workers), options.seconds)
    run_all([one for one in mutants if one.key not in old], Runner(judge, results, files, options.workers))
    results.read()
    return report(mutants, results)


if __name__ == "__main__":
    sys.exit(main())
