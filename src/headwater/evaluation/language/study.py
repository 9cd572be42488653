"""`measure_faithfulness`: every method on every prompt of the protocols, kept as it goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from ... import plugins
from ...api.token_scores import SCORES
from ...defaults import LANGUAGE_OUTPUT
from ...engine.kind import default_method
from ...engine.model import describe_model, where_it_is
from ...errors import DataError, HeadwaterError, UnknownName, UsageError, check_least
from ...inputs.restoring import restores
from ...methods import resolve_method
from ..cost import time_job
from ..kept_lines import KeptLines, read_lines
from ..progress import show_progress
from ..provenance import machine, model_sha256, versions
from .asking import LATER, SCORE_MARK, AnsweringModel
from .catalogue import DEFAULT_PROTOCOLS, protocol_of_rows, resolve_language_protocol
from .faithfulness import Faithfulness, FaithfulnessRow
from .flashtrace import FLASHTRACE
from .prompts import HALVES, OWN, PromptCase, seed_of
from .protocols import CaseSet, LanguageProtocol, PosedCase

__all__ = ["measure_faithfulness", "read_faithfulness"]

ROWS = (
    "random",
    LATER,
    "a-mean",
    "gi",
    "integrated-gradients",
    "ifr",
    "leave-one-out@logprob",
    "contextcite(32)@logprob",
    "attnlrp",
    f"attnlrp@{LANGUAGE_OUTPUT}",
    "lxt-attnlrp",
)  # and the default for the model's kind
COUNT = 70
QUICK_COUNT, QUICK_SETS = 4, ("known1000", "ioi", "agreement_nounpp", "needles_srt", "hotpot")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Task:
    """One set of prompts under one protocol."""

    rule: LanguageProtocol
    cases: CaseSet


@restores
def measure_faithfulness(
    model: nn.Module,
    tokenizer: Any,
    protocols: Iterable[str | LanguageProtocol] = DEFAULT_PROTOCOLS,
    *,
    sets: Iterable[str] | None = None,
    prompts: str | Path | None = None,
    half: str = "choose",
    methods: Iterable[str] | None = None,
    count: int = COUNT,
    seed: int = 0,
    out: str | Path | None = None,
    progress: bool | None = None,
    say: Say = lambda line: None,
) -> Faithfulness:
    """How faithful methods are to a language model, on the prompts of public protocols or on your own.

    Args:
        model: the language model.
        tokenizer: its tokenizer.
        protocols: names, with choices in brackets, or protocols.
        sets: some of the protocols' sets of prompts; None is all.
        prompts: a file of JSON lines with a prompt and an answer, in place of the sets.
        half: "choose", to try settings on, or "report", to be looked at once. Your own prompts have no halves.
        methods: None is the rows that a table always has; those of them that are not known here are left out, and `say`
            hears it.
        count: prompts that are kept of each set.
        seed: of all that is drawn.
        out: a file of JSON lines; what stands there is not computed again.
        progress: shows a bar; None does so on a terminal.
        say: hears a line about each method and set that is left out.

    Returns:
        A `Faithfulness`: its rows, and tables of them.

    Raises:
        UsageError: an option is wrong.
        DataError: a set is missing, or no prompt is kept.

    Example:
        >>> import json
        >>> from headwater.evaluation.language.study import measure_faithfulness
        >>> capitals = {"France": "Paris", "Italy": "Rome"}
        >>> lines = [{"prompt": f"The capital of {land} is", "answer": f" {city}"} for land, city in capitals.items()]
        >>> with open("mine.jsonl", "w") as file:
        ...     print(*map(json.dumps, lines), sep=chr(10), file=file)
        >>> model, tokenizer = hw.load("smollm2")
        >>> asked = {"prompts": "mine.jsonl", "methods": ["random"], "count": 1, "progress": False}
        >>> found = measure_faithfulness(model, tokenizer, **asked)
        >>> [row.method for row in found.rows]
        ['random']
    """
    check_least("count", count)
    rules = [resolve_language_protocol(protocol) for protocol in protocols]
    names = resolve_rows(methods, say, model)
    own = None if prompts is None else Path(prompts)
    tasks = list(read_tasks(rules, None if sets is None else list(sets), half, tokenizer, own))
    asked = AnsweringModel(model, tokenizer)
    about = describe_study(model, tokenizer, half if own is None else OWN, seed)
    kept = KeptLines.open(None if out is None else Path(out), about, describe_tools(model))
    rows: list[FaithfulnessRow] = []
    with show_progress(len(tasks) * count * len(names), 0, progress, "explaining", "rows") as tick:
        study = Study(asked, names, count, seed, kept, say if tick.shown is None else tick.say)
        for task in tasks:
            before = len(rows)
            for row in study.rows(task):
                rows.append(row)
                tick(1)
            tick(count * len(names) - (len(rows) - before))
    if not rows:
        raise DataError(" ".join(study.refused))
    return Faithfulness(tuple(rows), tuple(rules), about, describe_tools(model), tuple(study.refused))


def read_faithfulness(
    path: str | Path,
    *,
    sets: Iterable[str] | None = None,
    methods: Iterable[str] | None = None,
    count: int | None = None,
) -> Faithfulness:
    """The table of a file that `measure_faithfulness` kept, without the model.

    Args:
        path: the file, plain or packed by gzip.
        sets: some of the sets of prompts that it has; None is all.
        methods: some of its rows; None is all.
        count: the first prompts of each set that have a row of every method; None is all of them.

    Returns:
        A `Faithfulness`: its rows, and tables of them.

    Raises:
        DataError: the file is none of `measure_faithfulness`, or no prompt has a row of every method.

    Example:
        >>> from headwater.evaluation.language.study import measure_faithfulness, read_faithfulness
        >>> asked = {"prompts": "mine.jsonl", "methods": ["random"], "progress": False, "out": "kept.jsonl"}
        >>> with open("mine.jsonl", "w") as file:
        ...     print('{"prompt": "The capital of France is", "answer": " Paris"}', file=file)
        ...     print('{"prompt": "The capital of Italy is", "answer": " Rome"}', file=file)
        >>> model, tokenizer = hw.load("smollm2")
        >>> found = measure_faithfulness(model, tokenizer, **asked)
        >>> read_faithfulness("kept.jsonl").rows == found.rows
        True
    """
    first, *lines = read_lines(Path(path)) or [{}]
    if "study" not in first:
        raise DataError(f"{path} was not kept by `headwater faithfulness --out`.")
    rows = [FaithfulnessRow(**line) for line in lines if "method" in line]
    rules = {name: protocol_of_rows(name) for name in dict.fromkeys(row.protocol for row in rows)}
    rows = [replace(row, protocol=str(rules[row.protocol])) for row in rows]
    names = None if methods is None else resolve_rows(methods)
    wanted = None if sets is None else list(sets)
    has_sets, has_methods = ({getattr(row, name): None for row in rows} for name in ("data", "method"))
    for kind, asked, known in (("set of prompts", wanted, has_sets), ("row", names, has_methods)):
        for name in asked or ():
            if name not in known:
                raise UnknownName(f"{kind} in {path}", name, known)
    tasks = dict.fromkeys((row.protocol, row.data) for row in rows if wanted is None or row.data in wanted)
    parts = [[row for row in rows if (row.protocol, row.data) == task] for task in tasks]
    kept = [row for part in parts for row in complete_rows(part, names, count)]
    if not kept:
        raise DataError(f"{path} has no prompt with a row of every method that is asked for.")
    used = {row.protocol for row in kept}
    return Faithfulness(
        tuple(kept), tuple(rule for rule in rules.values() if str(rule) in used), first["study"], first["made_with"]
    )


def complete_rows(
    rows: Sequence[FaithfulnessRow], methods: Sequence[str] | None, count: int | None
) -> list[FaithfulnessRow]:
    """Of one set: the rows of the first prompts that have one of every method."""
    at = {(row.prompt, row.method): row for row in rows}
    names = methods or list(dict.fromkeys(row.method for row in rows))
    prompts = [one for one in dict.fromkeys(row.prompt for row in rows) if all((one, name) in at for name in names)]
    return [at[prompt, name] for prompt in prompts[:count] for name in names]


def resolve_rows(methods: Iterable[str] | None, say: Say = lambda line: None, model: Any = None) -> list[str]:
    """Methods by their full names. Of the usual rows of a model, those that are not known are left out."""
    found = []
    for name in (*ROWS, default_method(model)) if methods is None else methods:
        try:
            plain = name in (LATER, FLASHTRACE, *plugins.load_all(plugins.PEERS))
            found.append(name if plain else resolve_row(name))
        except UnknownName:
            if methods is not None:
                raise
            say(f"{name} is left out: no method of that name is installed.")
    if not found:
        raise UsageError("no methods to compare.")
    return list(dict.fromkeys(found))


def resolve_row(name: str) -> str:
    """A method's full name, with the score where one is named."""
    method, mark, score = name.partition(SCORE_MARK)
    if mark and score not in SCORES:
        raise UnknownName("score", score, SCORES)
    return f"{resolve_method(method).name}{mark}{score}"


def read_tasks(
    rules: Sequence[LanguageProtocol], sets: Sequence[str] | None, half: str, tokenizer: Any, own: Path | None
) -> Iterator[Task]:
    """Every set under its protocol; a set that no protocol has is an error."""
    if own is not None:
        if sets is not None or half != HALVES[0]:
            raise UsageError(
                "prompts of your own stand in the place of the sets and of their halves: leave out sets= (--data) and "
                "half=."
            )
        for rule in rules:
            if not rule.takes_own:
                raise UsageError(f"{rule.name} needs data of its own kind; prompts of your own go to single-token.")
            yield Task(rule, rule.read(OWN, half, tokenizer, own))
        return
    known = [name for rule in rules for name in rule.sets]
    for name in sets or ():
        if name not in known:
            raise UnknownName("set of prompts", name, known)
    for rule in rules:
        for name in rule.sets:
            if sets is None or name in sets:
                yield Task(rule, rule.read(name, half, tokenizer))


def sets_within(protocols: Iterable[str | LanguageProtocol], sets: Iterable[str] | None) -> list[str] | None:
    """Those of the sets that these protocols have."""
    known = {name for protocol in protocols for name in resolve_language_protocol(protocol).sets}
    return None if sets is None else [name for name in sets if name in known]


@dataclass
class Study:
    """Asks the model; what is known from an earlier run is not asked again."""

    model: AnsweringModel
    methods: Sequence[str]
    count: int
    seed: int
    kept: KeptLines
    say: Say
    refused: list[str] = field(default_factory=list)

    def rows(self, task: Task) -> Iterator[FaithfulnessRow]:
        """The rows of one set: of the first prompts that the protocol keeps."""
        known, left_out = self.recall(task)
        left, methods = self.count, list(self.methods)
        for case in task.cases.cases:
            if left == 0 or not methods:
                break
            if case.id in left_out:
                continue
            found = self.case_rows(task, case, methods, known)
            if found is None:
                self.kept.add({**self.key(task, case), "kept": False})
                continue
            yield from found
            left -= 1
        if left == self.count:
            rule = f"answers above a probability of {task.rule.least_probability}, of the protocol's length"
            self.refuse(f"{task.cases.name} is left out: of its {len(task.cases.cases)} prompts none is kept ({rule}).")

    def refuse(self, line: str) -> None:
        self.refused.append(line)
        self.say(line)

    def recall(self, task: Task) -> tuple[dict[tuple[str, str], FaithfulnessRow], set[str]]:
        """Rows of an earlier run by prompt and method, and the prompts that were left out."""
        here = {"protocol": str(task.rule), "data": task.cases.name, "digest": task.cases.digest}
        lines = [line for line in self.kept.lines if all(line.get(k) == v for k, v in here.items())]
        rows = [FaithfulnessRow(**line) for line in lines if "kept" not in line]
        return {(row.prompt, row.method): row for row in rows}, {line["prompt"] for line in lines if "kept" in line}

    def key(self, task: Task, case: PromptCase) -> dict[str, Any]:
        return {
            "protocol": str(task.rule),
            "data": task.cases.name,
            "digest": task.cases.digest,
            "prompt": case.id,
        }

    def case_rows(
        self, task: Task, case: PromptCase, methods: list[str], known: dict[tuple[str, str], FaithfulnessRow]
    ) -> Iterator[FaithfulnessRow] | None:
        """Of one prompt, a row per method; None where the protocol leaves it out."""
        have = {name: known[case.id, name] for name in methods if (case.id, name) in known}
        posed = None
        if len(have) < len(methods):
            posed = task.rule.pose(self.model, case, task.cases)
            if posed is None:
                return None
        return self.explain_case(task, case, posed, methods, have)

    def explain_case(
        self,
        task: Task,
        case: PromptCase,
        posed: PosedCase | None,
        methods: list[str],
        have: dict[str, FaithfulnessRow],
    ) -> Iterator[FaithfulnessRow]:
        """A method that refuses is said once, and not asked again for this set."""
        for name in list(methods):
            if name in have:
                yield have[name]
                continue
            assert posed is not None
            try:
                row = FaithfulnessRow(**self.key(task, case), method=name, **self.judge(posed, case, name))
            except HeadwaterError as error:
                methods.remove(name)
                self.refuse(f"{name} is left out of {task.cases.name}: {error}")
                continue
            self.kept.add(asdict(row))
            yield row

    def judge(self, posed: PosedCase, case: PromptCase, method: str) -> dict[str, Any]:
        """One method's explanation, timed beside a plain forward pass, and measured."""
        prompt, relevance = posed.prompt, []
        seed = seed_of(self.seed, case.id, method)

        def explain() -> None:
            relevance.append(self.model.relevance(prompt, method, seed, posed.reads_in))

        on_card = where_it_is(self.model.model)[0].type == "cuda"
        clock = time.perf_counter if on_card else time.process_time
        forward = time_job(lambda: self.model.score_answers([prompt.ids], prompt.answer), on_card, clock)
        seconds = 0.0 if method == LATER else time_job(explain, on_card, clock)
        if method == LATER:
            explain()
        return {
            "tokens": len(prompt.ids),
            "values": posed.measure(relevance[0]),
            "seconds": seconds,
            "forward_seconds": forward,
        }


def describe_study(model: nn.Module, tokenizer: Any, half: str, seed: int) -> dict[str, Any]:
    """What must be equal for rows to stand in one table: the padding token, too, which takes the place of others."""
    about = describe_model(model, *where_it_is(model), seed)
    padding = getattr(tokenizer, "pad_token", None)
    return {"model_sha256": model_sha256(model), "dtype": about.dtype, "padding": padding, "half": half, "seed": seed}


def describe_tools(model: nn.Module) -> dict[str, Any]:
    place = where_it_is(model)
    return {"model": describe_model(model, *place, 0).model, "versions": versions(), **machine(place[0])}
