"""`python -m headwater_experiments.inside.circuits`: how good are circuits of a size, by the order of their nodes?

For each pair of inputs, methods order all heads and feed-forward layers. The first of them are kept, all others get
their values for the other input, and the score is read: faithfulness = (kept - empty) / (score - empty), where `empty`
has every part replaced. As in the MIB benchmark (Mueller et al. 2025), the circuit performance ratio CPR is the area
under it over shares of the parts, for parts ordered by signed estimates: higher is better. The circuit-model distance
CMD is the area between it and 1, for parts ordered by size: 0 is best. MIB's circuits are of edges, these of nodes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from headwater.api.keep_parts import PartsKeeper
from headwater.api.requests import make_request
from headwater.cli.screen import say
from headwater.engine.node_flows import UnitAddress
from headwater.evaluation.statistics import compare_pairs, percentile_interval, resample_means
from headwater.inputs.inside_demand import InsideDemand

from .pairs import InputPair, PairTask, make_task
from .truth import INTEGRATED, MEASURED, SAID, estimate_places

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of all parts
METHODS = ("gi", "attnlrp", "lrp", "lrp(gate=half)")
OURS = "lrp(gate=half)"  # chosen on pairs that no table reports on
RANDOM = "random order"
ALL = (*METHODS, INTEGRATED, MEASURED, RANDOM)
MEASURES = ("cpr", "cmd", "completeness")
HIGHER = {"cpr": True, "cmd": False, "completeness": True}


@dataclass(frozen=True)
class CircuitMeasures:
    """One method's circuits of one pair, by size: `faithfulness` of the parts ordered by signed estimates and by size.

    `completeness` is 1 - the same for the model without the tenth of all parts with the largest estimates.
    """

    task: str
    pair: int
    method: str
    parts: int
    signed: tuple[float, ...]
    by_size: tuple[float, ...]
    cpr: float
    cmd: float
    completeness: float


def measure_pair(
    task: PairTask, pair: InputPair, number: int, batch_size: int, methods: Sequence[str] = ALL
) -> Iterator[CircuitMeasures]:
    demand = InsideDemand(frozenset(["heads"]), (task.mlp,))
    options = {"tokenizer": task.tokenizer, "target": pair.target, "output": "logit", "batch_size": batch_size}
    keeper = PartsKeeper.open(make_request(task.model, pair.clean, **options), demand, frozenset(), pair.other)
    (empty,) = keeper.keep_only([()])
    for method in methods:
        estimates = draw_estimates(keeper, number) if method == RANDOM else estimate_places(task, pair, method)
        yield measure_order(keeper, empty, method, estimates, (task.name, number))


def draw_estimates(keeper: PartsKeeper, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = [keeper.count_units(place) for place in range(len(keeper.places))]
    return [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]


def measure_order(
    keeper: PartsKeeper, empty: float, method: str, estimates: Sequence[torch.Tensor], which: tuple[str, int]
) -> CircuitMeasures:
    """The circuits of one order, at all sizes in few passes."""
    amounts = {UnitAddress(p, u): float(a) for p, row in enumerate(estimates) for u, a in enumerate(row)}
    signed = sorted(amounts, key=lambda one: -amounts[one])
    by_size = sorted(amounts, key=lambda one: -abs(amounts[one]))
    sizes = [max(1, round(share * len(amounts))) for share in SHARES]
    tenth = by_size[: max(1, round(0.1 * len(amounts)))]
    kept = [*(signed[:size] for size in sizes), *(by_size[:size] for size in sizes), {*amounts} - {*tenth}]
    whole = keeper.score - empty
    shares = [(score - empty) / whole for score in keeper.keep_only(kept)]
    first, second = shares[: len(sizes)], shares[len(sizes) : 2 * len(sizes)]
    places = [size / len(amounts) for size in sizes]
    cpr, cmd = area(places, first), area(places, [abs(1 - one) for one in second], at_zero=1.0)
    return CircuitMeasures(*which, method, len(amounts), tuple(first), tuple(second), cpr, cmd, 1 - shares[-1])


def area(places: Sequence[float], values: Sequence[float], at_zero: float = 0.0) -> float:
    """The area under a line through these points over shares from 0 to 1. An empty circuit has a faithfulness of 0."""
    return float(np.trapezoid([at_zero, *values], [0.0, *places]))


def make_table(rows: Sequence[CircuitMeasures], ours: str = OURS) -> str:
    """A table in Markdown: means over pairs with intervals, and `ours` minus each other, paired."""
    lines = ["| task | method | CPR | CMD | completeness at a tenth | CPR: ours minus it | CMD: ours minus it |"]
    lines.append("|---|---|---|---|---|---|---|")
    for task in dict.fromkeys(row.task for row in rows):
        lines += lines_of_task([row for row in rows if row.task == task], ours)
    return "\n".join(lines)


def lines_of_task(rows: Sequence[CircuitMeasures], ours: str) -> Iterator[str]:
    methods = list(dict.fromkeys(row.method for row in rows))
    values = {(m, k): np.array([getattr(row, k) for row in rows if row.method == m]) for m in methods for k in MEASURES}
    means = {key: resample_means(one[:, None], 0)[:, 0] for key, one in values.items()}
    for m in methods:
        cells = [f"{values[m, k].mean():.2f} {say_interval(means[m, k])}" for k in MEASURES]
        for k in ("cpr", "cmd"):
            one, other = ((name, values[name, k], means[name, k]) for name in (ours, m))
            gap = compare_pairs(k, one, other, higher=HIGHER[k])
            cells.append("" if m == ours else f"{gap.value:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}]")
        yield f"| {rows[0].task} | {SAID.get(m, m)} | {' | '.join(cells)} |"


def say_interval(means: np.ndarray) -> str:
    low, high = percentile_interval(means)
    return f"[{low:.2f}, {high:.2f}]"


def study_task(
    task: PairTask, batch_size: int, out: Path | None, methods: Sequence[str] = ALL
) -> list[CircuitMeasures]:
    rows: list[CircuitMeasures] = []
    for number, pair in enumerate(task.pairs):
        rows += measure_pair(task, pair, number, batch_size, methods)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            write_rows(out / f"{task.name}.json", rows)
        say(f"{task.name}: {number + 1} of {len(task.pairs)}")
    return rows


def write_rows(path: Path, rows: Sequence[CircuitMeasures]) -> None:
    """What earlier calls measured of other methods stays."""
    new = {(row.pair, row.method) for row in rows}
    old = [row for row in (read_rows(path) if path.exists() else []) if (row.pair, row.method) not in new]
    path.write_text(json.dumps([asdict(row) for row in (*old, *rows)]))


def read_rows(path: Path) -> list[CircuitMeasures]:
    return [CircuitMeasures(**row) for row in json.loads(path.read_text())]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--tasks", default="agreement,sst2")
    asked.add_argument("--pairs", type=int, default=12, help="how many of each task")
    asked.add_argument("--skip", type=int, default=0, help="leave out the first pairs: settings are chosen on others")
    asked.add_argument("--batch-size", type=int, default=16, help="circuits in one pass")
    asked.add_argument("--ours", default=OURS, choices=ALL, help="the method that others are compared with")
    asked.add_argument("--methods", nargs="+", choices=ALL, default=list(ALL))
    asked.add_argument("--out", type=Path, help="a directory for every number, as JSON")
    asked.add_argument("--summary", action="store_true", help="only the table of what lies in --out")
    given = asked.parse_args()
    rows: list[CircuitMeasures] = []
    for name in given.tasks.split(","):
        if given.summary:
            rows += read_rows(given.out / f"{name}.json")
        else:
            rows += study_task(make_task(name, given.pairs, given.skip), given.batch_size, given.out, given.methods)
    sys.stdout.write(make_table(rows, given.ours) + "\n")


if __name__ == "__main__":
    main()
