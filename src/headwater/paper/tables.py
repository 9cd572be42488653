"""Tables 1 and 2 of the paper beside our numbers, as Markdown and CSV, and what they say about who leads."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.measures.curves import Difference, Estimate
from headwater.measures.results import BETTER, Evaluation

from .graph_data import TEST_DIGITS, samples
from .published import ACCURACY, OURS, ROC_AUC, ROWS, TABLES
from .trials import FLOW, Trial

NAMES = {"auac": "AUAC", "aumse": "AU-MSE"}
DIGITS = {"auac": 3, "aumse": 2}
TITLES = {
    "random": "Random",
    "a-last": "A-Last",
    "a-flow": "A-Flow",
    "rollout": "Rollout",
    "gae": "GAE",
    "gi": "GI",
    "lrp(ah)": "LRP(AH)",
    "lrp(ln)": "LRP(LN)",
    "lrp(ah+ln)": "LRP(AH+LN)",
}


@dataclass(frozen=True)
class Cell:
    """One method on one dataset in one measure. `rows` is given where it is not the whole dataset."""

    ours: Estimate
    paper: float | None
    rows: int | None = None


def cell(trial: Trial, method: str, measure: str) -> Cell | None:
    """What was measured, beside what the paper printed; None where nothing was measured."""
    paper = TABLES[measure].get(method, {}).get(trial.dataset)
    if method == FLOW:
        if trial.flow is None:
            return None
        part = len(trial.flow) if len(trial.flow) < len(trial.main) else None
        return Cell(trial.flow[FLOW].estimates[measure], paper, part)
    return Cell(trial.main[method].estimates[measure], paper) if method in trial.main.methods else None


def methods_of(trials: Sequence[Trial]) -> list[str]:
    """The paper's rows, then ours, then whatever else was measured."""
    measured = {name for trial in trials for name in trial.main.methods}
    measured |= {FLOW for trial in trials if trial.flow is not None}
    known = [name for name in (*ROWS, *OURS) if name in measured]
    return [*known, *sorted(measured - set(known))]


def best(trial: Trial, measure: str, methods: Sequence[str] | None = None) -> str:
    """The leading method among those measured on all samples."""
    sign = 1 if BETTER[measure] == "higher" else -1
    chosen = [m for m in trial.main.methods if methods is None or m in methods]
    return max(chosen, key=lambda m: sign * trial.main[m].estimates[measure].value)


def markdown(trials: Sequence[Trial], measure: str) -> str:
    """One table: a row a method, a column a dataset; ours, the interval, the paper's in brackets, the best in bold."""
    leaders = {trial.dataset: best(trial, measure) for trial in trials}
    lines = [
        "| method | " + " | ".join(t.title for t in trials) + " |",
        "|---|" + "---|" * len(trials),
    ]
    for method in methods_of(trials):
        cells = [written(cell(trial, method, measure), measure, leaders[trial.dataset] == method) for trial in trials]
        lines.append(f"| {TITLES.get(method, f'`{method}`')} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def written(found: Cell | None, measure: str, leads: bool) -> str:
    if found is None:
        return "–"
    digits = DIGITS[measure]
    value = number(found.ours.value, digits)
    mark = f"<sup>{found.rows}</sup>" if found.rows else ""
    ours = f"**{value}**{mark}" if leads else f"{value}{mark}"
    spread = f"{number(found.ours.low, digits)}–{number(found.ours.high, digits)}"
    paper = f" ({number(found.paper, digits)})" if found.paper is not None else ""
    return f"{ours}{paper}<br><sub>{spread}</sub>"


def number(value: float, digits: int) -> str:
    """As the paper prints it: .939, 1.56."""
    text = f"{value:.{digits}f}"
    return text[1:] if text.startswith("0.") and digits == 3 else text


def as_csv(trials: Sequence[Trial]) -> str:
    """All numbers of all tables, one row a method, dataset and measure; of graphs, for both readings of removal."""
    page = io.StringIO()
    rows = csv.writer(page, lineterminator="\n")
    rows.writerow(["model", "dataset", "removal", "method", "measure", "value", "low", "high", "paper", "samples"])
    for trial in (*trials, *with_masks(trials)):
        removal = trial.main.protocol.removal or ""
        for measure in TABLES:
            for method in methods_of([trial]):
                found = cell(trial, method, measure)
                if found is not None:
                    e = found.ours
                    values = [f"{v:.6f}" for v in (e.value, e.low, e.high)]
                    paper = "" if found.paper is None else f"{found.paper:g}"
                    of = found.rows or len(trial.main)
                    rows.writerow([trial.kind, trial.dataset, removal, method, measure, *values, paper, of])
    return page.getvalue()


def with_masks(trials: Sequence[Trial]) -> list[Trial]:
    """The trials on graphs in the other reading: a node that is taken out is masked."""
    return [replace(t, main=t.masked, flow=None, masked=None) for t in trials if t.masked is not None]


def claims(trials: Sequence[Trial], measure: str) -> str:
    """Who leads: LRP(AH+LN) among the paper's rows, and `lrp` and `lrp-gamma` against it, with paired differences."""
    head = "| dataset | best of the paper's rows | LRP(AH+LN) − best other of them | best of all | `lrp` − LRP(AH+LN) "
    lines = [head + "| `lrp-gamma` − LRP(AH+LN) |", "|---|---|---|---|---|---|"]
    for trial in trials:
        rows = [m for m in ROWS if m in trial.main.methods]
        rival = best(trial, measure, [m for m in rows if m != "lrp(ah+ln)"])
        said = [
            title(best(trial, measure, rows)),
            difference(trial.main, "lrp(ah+ln)", rival, measure, f"{title(rival)}: "),
            title(best(trial, measure)),
            *(difference(trial.main, ours, "lrp(ah+ln)", measure) for ours in ("lrp", "lrp-gamma")),
        ]
        lines.append(f"| {trial.title} | " + " | ".join(said) + " |")
    return "\n".join(lines) + "\n"


def difference(found: Evaluation, first: str, second: str, measure: str, before: str = "") -> str:
    if first not in found.methods or second not in found.methods:
        return "–"
    return before + apart(found.compare(first, second, measure))


def apart(found: Difference) -> str:
    """A paired difference with its interval, in bold where it leaves out 0."""
    digits = DIGITS[found.measure] + 1
    value = f"{found.value:+.{digits}f}"
    text = f"{value} ({found.low:+.{digits}f} to {found.high:+.{digits}f})"
    return f"**{text}**" if found.better else text


def accuracies(trials: Sequence[Trial]) -> str:
    """Samples, accuracy and conservation of every dataset."""
    lines = [
        "| dataset | samples | accuracy (paper) | score vs. sum: GI | LRP(AH+LN) | `lrp` | largest ledger error |",
        "|---|---|---|---|---|---|---|",
    ]
    for trial in trials:
        found = trial.main
        kept = [
            f"{found[m].conservation.correlation:+.3f}" if m in found.methods else "–"
            for m in ("gi", "lrp(ah+ln)", "lrp")
        ]
        error = f"{largest_error(found):.1e}" if "lrp" in found.methods else "–"
        cells = [trial.title, f"{len(found):,}", quality(trial), *kept, error]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def quality(trial: Trial) -> str:
    """The accuracy on the samples that were measured; the ROC-AUC where the paper gives this of its model."""
    paper = ACCURACY.get(trial.dataset)
    said = f"{trial.main.accuracy:.1%}" + (f" ({paper:.1%})" if paper else "")
    return said if trial.roc_auc is None else f"{said}; ROC-AUC {trial.roc_auc:.1%} ({ROC_AUC[trial.dataset]:.1%})"


def largest_error(found: Evaluation, method: str = "lrp") -> float:
    """The worst sample: |unaccounted| relative to the absolute lines of its ledger."""
    return found[method].conservation.largest_unaccounted


def title(method: str) -> str:
    return TITLES.get(method, f"`{method}`")


def page(trials: Sequence[Trial]) -> str:
    """Everything `headwater paper tables` has to say, as Markdown."""
    parts = ["## Models\n", accuracies(trials)]
    for measure, name in NAMES.items():
        parts += [f"\n## {name}, {BETTER[measure]} is better\n", markdown(trials, measure)]
        parts += [f"\n### Who leads in {name}\n", claims(trials, measure)]
    return "\n".join(parts + other_reading(with_masks(trials))) + footnote(trials)


def other_reading(masked: Sequence[Trial]) -> list[str]:
    """The tables of graphs whose nodes are masked; nothing where there are no graphs."""
    if not masked:
        return []
    parts = [
        "\n## Graphs, the other reading\n",
        "Above, a node that is taken out is gone with its edges, and paths and degrees are found anew "
        "(`removal=induced`). Here its embedding is zero, and the graph stays (`removal=masked`). The paper does not "
        "say which it took.",
    ]
    for measure, name in NAMES.items():
        parts += [f"\n### {name} with masked nodes\n", markdown(masked, measure)]
    return parts


def footnote(trials: Sequence[Trial]) -> str:
    notes = [
        "\nOurs, in brackets the paper's; below, the 95 % bootstrap interval over samples. The best mean is bold. "
        "Differences are paired, sample by sample; those in bold have an interval that leaves out 0."
    ]
    parts: Mapping[str, str] = {
        t.title: f"{len(t.flow)} {samples(t.dataset)}"
        for t in trials
        if t.flow is not None and len(t.flow) < len(t.main)
    }
    if parts:
        said = ", ".join(f"{name} {rows}" for name, rows in parts.items())
        notes.append(f"A-Flow was measured on a part of the samples ({said}) and does not compete for bold.")
    for trial in trials:
        if trial.dataset == "mnist" and len(trial.main) < TEST_DIGITS:
            drawn = f"{len(trial.main):,} of the {TEST_DIGITS:,} test digits"
            notes.append(f"{trial.title} is measured on {drawn}, drawn with the seed.")
    return "\n".join(notes) + "\n"
