"""`python -m headwater_experiments.inside.cuts`: does every cut close on every architecture of the zoo?

Each is built small at random and explained with heads, neurons and layers, one kind after another. Casts to float32 are
lifted, so that what is missing was lost and not rounded away.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import headwater as hw
from headwater.cli.screen import say
from headwater.errors import HeadwaterError, NotApplicable
from headwater_experiments.zoo.entries import Entry, entries
from headwater_experiments.zoo.judging import Best, Exact, build_specimen

KINDS = ("heads", "neurons", "layers")
CLOSED, CAST = 1e-10, 1e-5  # of the absolute sum of what a cut adds up: in float64, and where less is forced inside
SECONDS = 40


@dataclass(frozen=True)
class CutFinding:
    """What was found of one kind in one architecture: how many groups, and the worst error of a cut through them."""

    map: str
    name: str
    kind: str
    verdict: str  # closed, open, none (the model says so), refused, crashed, not built
    groups: int = 0
    error: float | None = None
    ledger: float | None = None  # of the explanation itself
    why: str = ""


def judge_entry(entry: Entry) -> list[CutFinding]:
    before = torch.get_default_dtype()
    try:
        return list(judge_kinds(entry))
    finally:
        torch.set_default_dtype(before)  # building sets it to that of the model


def judge_kinds(entry: Entry) -> Iterator[CutFinding]:
    try:
        with limit_time():
            specimen, score, _ = build_specimen(entry)
    except Exception as error:
        yield CutFinding(entry.map, entry.name, "", "not built", why=str(error)[:200])
        return
    for kind in KINDS:
        try:
            with limit_time():
                yield judge_kind(entry, specimen, score, kind)
        except Exception as error:
            verdict = "none" if isinstance(error, NotApplicable) else "crashed"
            verdict = "refused" if isinstance(error, HeadwaterError) and verdict == "crashed" else verdict
            yield CutFinding(entry.map, entry.name, kind, verdict, why=f"{type(error).__name__}: {error}"[:200])


def judge_kind(entry: Entry, specimen: Any, score: Best, kind: str) -> CutFinding:
    e = explain_exactly(specimen, score, kind)
    assert e.inside is not None
    errors = [group.ledger.error for group in e.inside.groups if group.ledger is not None]
    closed = max(errors) <= (CLOSED if e.ledger.dtype == "float64" else CAST)
    where = "" if closed else e.inside.groups[errors.index(max(errors))].place
    verdict = "closed" if closed else "open"
    return CutFinding(entry.map, entry.name, kind, verdict, len(errors), max(errors), e.ledger.error, where)


def explain_exactly(specimen: Any, score: Best, kind: str) -> hw.Explanation:
    """With casts lifted where the model has any and bears it; else as the model computes."""

    def explain() -> hw.Explanation:
        torch.manual_seed(0)
        options = {"method": "lrp", "score": score, "inputs": specimen.explained, "plans": False, "inside": [kind]}
        found: hw.Explanation = hw.explain(specimen.model, specimen.arguments, **options)[0]
        return found

    plain = explain()
    if plain.ledger.dtype == "float64":
        return plain
    try:
        with Exact():
            return explain()
    except (RuntimeError, HeadwaterError):
        return plain


@contextmanager
def limit_time() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} seconds")

    if not hasattr(signal, "SIGALRM"):  # Windows has no alarm: there is no limit
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def make_table(found: list[CutFinding]) -> str:
    """How many of each kind closed, and what did not."""
    lines = ["| kind | " + " | ".join(VERDICTS) + " |", "|" + "---|" * (len(VERDICTS) + 1)]
    for kind in KINDS:
        counts = [sum(one.kind == kind and one.verdict == verdict for one in found) for verdict in VERDICTS]
        lines.append(f"| {kind} | " + " | ".join(map(str, counts)) + " |")
    lines.append(f"\nnot built: {sum(one.verdict == 'not built' for one in found)}")
    for one in found:
        if one.verdict in ("open", "crashed", "refused"):
            error = "" if one.error is None else f"{one.error:.1e}, the explanation's ledger {one.ledger:.1e}"
            lines.append(f"- {one.map} {one.name}, {one.kind}: {one.verdict} {error} {one.why}")
    return "\n".join(lines)


VERDICTS = ("closed", "open", "none", "refused", "crashed")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--maps", default="causal-lm,sequence-classification,image-classification,seq2seq")
    asked.add_argument("--names", default="", help="architectures by name; all without it")
    asked.add_argument("--out", type=Path, help="a file for every finding, as JSON")
    given = asked.parse_args()
    found: list[CutFinding] = []
    for entry in entries(given.maps.split(","), [name for name in given.names.split(",") if name]):
        found += judge_entry(entry)
        say(
            f"{entry.map} {entry.name}: "
            + ", ".join(f"{one.kind} {one.verdict}" for one in found if one.name == entry.name)
        )
        if given.out is not None:
            given.out.write_text(json.dumps([asdict(one) for one in found]))
    sys.stdout.write(make_table(found) + "\n")


if __name__ == "__main__":
    main()
