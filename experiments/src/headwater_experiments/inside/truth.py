"""`python -m headwater_experiments.inside.truth`: does relevance inside a model say what patching does?

For each pair of inputs every head and every feed-forward layer's output gets its value of the other input, and the
score is read: the truth. Methods estimate all of it by one backward pass, or by ten. Their agreement is Pearson's and
Spearman's correlation over the nodes of one pair, averaged over pairs; intervals are those of a paired bootstrap over
pairs. With --out every pair is stored; --summary makes the table of what lies there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

import headwater as hw
from headwater.api.patch_estimates import HEADS_PART, PART, MovedPasses
from headwater.cli.screen import say
from headwater.evaluation.statistics import compare_pairs, percentile_interval, rank_correlation, resample_means
from headwater.inputs.inside_demand import InsideDemand
from headwater.methods.lrp import ALL, ATTNLRP, LANGUAGE
from headwater.results.inside import Inside
from headwater.rules import RuleSet

from .estimating import Estimator
from .pairs import InputPair, PairTask, make_task

Units = list[torch.Tensor]
RULES: dict[str, RuleSet] = {
    "gi": RuleSet(frozenset()),
    "attnlrp": ATTNLRP.rules,
    "lrp": RuleSet(frozenset(ALL)),
    "lrp-language": LANGUAGE.rules,
    "lrp(gate=half)": RuleSet(frozenset(ALL), gate="half"),
}
INTEGRATED, MOVED, SUBTRACTED = "integrated gradients", "gradients on the way", "difference of lrp"
METHODS = (*RULES, INTEGRATED, MOVED, SUBTRACTED)
WAYS = {"heads": MovedPasses(5, HEADS_PART), "modules": MovedPasses(5, PART)}  # ten passes: so many has the one above
OURS = MOVED  # its parts were chosen on pairs that no table reports on (--skip 60, of sst2 --skip 100)
SAID = {"gi": "Gradient x Input (attribution patching)", "attnlrp": "AttnLRP"}
PARTS = ("heads", "mlp")


@dataclass(frozen=True)
class PairAgreement:
    """How well one method agrees with patching on one pair, over the nodes of one kind."""

    task: str
    pair: int
    part: str
    method: str
    pearson: float
    spearman: float
    estimate: tuple[float, ...] = ()
    truth: tuple[float, ...] = ()


def measure_pair(
    task: PairTask, pair: InputPair, number: int, methods: Sequence[str] = METHODS
) -> Iterator[PairAgreement]:
    demand = InsideDemand(frozenset(["heads"]), (task.mlp,))
    shown = patch_truth(task, pair)
    estimator = Estimator.of(task, pair, demand)
    ways: dict[str, Callable[[], Units]] = {name: partial(estimator.estimate, rules) for name, rules in RULES.items()}
    ways[INTEGRATED] = partial(estimator.integrate, RULES["gi"])
    ways[MOVED] = partial(estimator.estimate_moved, WAYS)
    ways[SUBTRACTED] = partial(subtract_relevance, task, pair, "lrp")
    kinds = [group.kind for group in shown.groups]
    for method in methods:
        units = ways[method]()
        for part, kind in zip(PARTS, ("heads", "modules"), strict=True):
            true = np.concatenate([g.units.numpy() for g in shown.groups if g.kind == kind])
            said = np.concatenate([one.numpy() for one, other in zip(units, kinds, strict=True) if other == kind])
            pearson, spearman = float(np.corrcoef(said, true)[0, 1]), rank_correlation(said, true)
            yield PairAgreement(task.name, number, part, method, pearson, spearman, tuple(said), tuple(true))


def subtract_relevance(task: PairTask, pair: InputPair, method: str) -> Units:
    """`hw.difference`: relevance for one input minus relevance for the other."""
    options = {"tokenizer": task.tokenizer, "target": pair.target, "output": "logit", "sinks": "show"}
    found = hw.difference(task.model, pair.clean, pair.other, inside=["heads", task.mlp], method=method, **options)
    return [group.units.double() for group in found.inside.groups]


def patch_truth(task: PairTask, pair: InputPair) -> Inside:
    """By how much the score falls when each node gets its value of the other input, in the place of relevance."""
    options = {"tokenizer": task.tokenizer, "target": pair.target, "output": "logit"}
    e = hw.explain(task.model, pair.clean, inside=["heads", task.mlp], method="gi", plans=False, **options)
    assert e.inside is not None
    nodes = [node for group in e.inside.groups for node in e.inside._nodes(group)]
    effects = hw.patch_each(task.model, pair.clean, nodes, with_=pair.other, batch_size=32, **options)
    amounts, groups = iter(effects), []
    for group in e.inside.groups:
        units = torch.tensor([next(amounts).effect for _ in range(group.relevance.shape[1])], dtype=torch.float64)
        groups.append(type(group)(group.kind, group.module, units.unsqueeze(0), group.layer, group.stack, group.call))
    return Inside(tuple(groups))


def study_task(task: PairTask, out: Path | None, methods: Sequence[str], skip: int = 0) -> list[PairAgreement]:
    rows: list[PairAgreement] = []
    for number, pair in enumerate(task.pairs):
        rows += measure_pair(task, pair, skip + number, methods)
        if out is not None:
            out.write_text(json.dumps([asdict(row) for row in rows]))
        say(f"{task.name}: {number + 1} of {len(task.pairs)}")
    return rows


def make_table(rows: list[PairAgreement], ours: str = OURS) -> str:
    """A table in Markdown: means over pairs, and `ours` minus each other, paired."""
    lines = ["| task | nodes | method | Pearson | Spearman | ours minus it: Pearson | Spearman |"]
    lines.append("|---|---|---|---|---|---|---|")
    for task in dict.fromkeys(row.task for row in rows):
        for part in PARTS:
            lines += lines_of([row for row in rows if row.task == task and row.part == part], ours)
    return "\n".join(lines)


def lines_of(rows: list[PairAgreement], ours: str) -> Iterator[str]:
    for method in dict.fromkeys(row.method for row in rows):
        found, gaps = [], []
        for name in ("pearson", "spearman"):
            value, own = (np.array([getattr(row, name) for row in rows if row.method == m]) for m in (method, ours))
            means, own_means = (resample_means(one[:, None], 0)[:, 0] for one in (value, own))
            low, high = percentile_interval(means)
            found.append(f"{value.mean():.3f} [{low:.3f}, {high:.3f}]")
            gap = compare_pairs("", (ours, own, own_means), (method, value, means), higher=True)
            gaps.append("" if method == ours else f"{gap.value:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]")
        yield f"| {rows[0].task} | {rows[0].part} | {SAID.get(method, method)} | {' | '.join((*found, *gaps))} |"


def read_rows(out: Path) -> list[PairAgreement]:
    """What earlier calls stored, in the order of tasks and pairs."""
    found = [PairAgreement(**row) for file in sorted(out.glob("*.json")) for row in json.loads(file.read_text())]
    return sorted(found, key=lambda row: (row.task, row.pair))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--tasks", default="agreement,ioi,sst2")
    asked.add_argument("--pairs", type=int, default=24, help="how many of each task")
    asked.add_argument("--skip", type=int, default=0, help="leave out the first pairs: settings are chosen on others")
    asked.add_argument("--ours", default=OURS, help="the method that others are compared with")
    asked.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    asked.add_argument("--out", type=Path, help="a directory for every number, as JSON")
    asked.add_argument("--summary", action="store_true", help="only the table of what lies in --out")
    given = asked.parse_args()
    rows: list[PairAgreement] = []
    for name in [] if given.summary else given.tasks.split(","):
        file = None if given.out is None else given.out / f"{name}-{given.skip}.json"
        rows += study_task(make_task(name, given.pairs, given.skip), file, given.methods, given.skip)
    sys.stdout.write(make_table(read_rows(given.out) if given.summary else rows, given.ours) + "\n")


if __name__ == "__main__":
    main()
