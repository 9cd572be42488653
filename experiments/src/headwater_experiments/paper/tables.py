"""Tables 1 and 2 of the paper beside our numbers, as Markdown and CSV, and what they say about who leads."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.evaluation.measures import ACTIVATION, PRUNING
from headwater.evaluation.results import Evaluation
from headwater.viz.tables import markdown_rows

from .graph_data import TEST_DIGITS, samples
from .published import ACCURACY, GRAPHS, OURS, ROC_AUC, ROWS, TABLES
from .trainings import Pooled, best, pooled_difference, pooled_score, relative, same_order
from .trials import FLOW, Trial

MEASURES = (ACTIVATION, PRUNING)
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


# What each rule adds, and what our methods add to the paper's.
ATTENTION = ("a-last", "rollout", "gae")
PAIRS = (("lrp(ah)", "gi"), ("lrp(ah+ln)", "gi"), ("lrp", "lrp(ah+ln)"), ("lrp-gamma(0.05)", "lrp(ah+ln)"))


@dataclass(frozen=True)
class TableCell:
    """One method on one dataset in one measure. `rows` is given where it is not the whole dataset."""

    ours: Pooled
    paper: float | None
    rows: int | None = None


def paper_cell(trial: Trial, method: str, measure: str) -> TableCell | None:
    """What was measured, beside what the paper printed; None where nothing was measured."""
    paper = TABLES[measure].get(method, {}).get(trial.dataset)
    if method == FLOW:
        if trial.flow is None:
            return None
        part = len(trial.flow) if len(trial.flow) < len(trial.main) else None
        return TableCell(pooled_score([trial.flow], FLOW, measure), paper, part)
    return TableCell(pooled_score(trial.mains, method, measure), paper) if method in trial.main.methods else None


def methods_of(trials: Sequence[Trial]) -> list[str]:
    """The paper's rows, then ours, then whatever else was measured."""
    measured = {name for trial in trials for name in trial.main.methods}
    measured |= {FLOW for trial in trials if trial.flow is not None}
    known = [name for name in (*ROWS, *OURS) if name in measured]
    return [*known, *sorted(measured - set(known))]


def measure_markdown(trials: Sequence[Trial], measure: str) -> str:
    """A row per method, a column per dataset: ours, its intervals, in brackets the paper's; the best is bold."""
    leaders = {trial.dataset: best(trial.mains, measure) for trial in trials}
    rows = []
    for method in methods_of(trials):
        cells = [
            format_cell(paper_cell(trial, method, measure), measure, leaders[trial.dataset] == method)
            for trial in trials
        ]
        rows.append([method_title(method), *cells])
    return write_table(["method", *(trial.title for trial in trials)], rows)


def write_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(markdown_rows(columns, rows)) + "\n"


def format_cell(found: TableCell | None, measure: str, leads: bool) -> str:
    if found is None:
        return "–"
    digits = DIGITS[measure]
    value = format_number(found.ours.value, digits)
    mark = f"<sup>{found.rows}</sup>" if found.rows else ""
    ours = f"**{value}**{mark}" if leads else f"{value}{mark}"
    paper = f" ({format_number(found.paper, digits)})" if found.paper is not None else ""
    return f"{ours}{paper}<br><sub>{intervals(found.ours, digits)}</sub>"


def intervals(found: Pooled, digits: int) -> str:
    """Over samples; then, behind a stroke, over trainings."""
    both = [found.samples, *([found.trainings] if found.trainings is not None else [])]
    return " / ".join(f"{format_number(one.low, digits)}–{format_number(one.high, digits)}" for one in both)


def against_random(trials: Sequence[Trial], measure: str = "aumse") -> str:
    """The measure as a share of what a random order gets."""
    measured = [trial for trial in trials if "random" in trial.main.methods]
    rows = []
    for method in (m for m in methods_of(measured) if m not in (FLOW, "random")):
        cells = []
        for trial in measured:
            if method not in trial.main.methods:
                cells.append("–")
                continue
            ours, paper = relative(trial.mains, method, measure), share_in_paper(trial.dataset, method, measure)
            said = f" ({format_number(paper, 2)})" if paper is not None else ""
            cells.append(f"{format_number(ours.value, 2)}{said}<br><sub>{intervals(ours, 2)}</sub>")
        rows.append([method_title(method), *cells])
    return write_table(["method", *(trial.title for trial in measured)], rows)


def share_in_paper(dataset: str, method: str, measure: str) -> float | None:
    theirs = TABLES[measure].get(method, {}).get(dataset)
    return None if theirs is None else theirs / TABLES[measure]["random"][dataset]


def format_number(value: float, digits: int) -> str:
    """As the paper prints it: .939, 1.56."""
    text = f"{value:.{digits}f}"
    return text[1:] if text.startswith("0.") and digits == 3 else text


def as_csv(trials: Sequence[Trial]) -> str:
    """All numbers of all tables, a row for each method, dataset and measure: the mean, then every training alone.

    Of graphs, for both readings of removal.
    """
    page = io.StringIO()
    rows = csv.writer(page, lineterminator="\n")
    head = ["recipe", "dataset", "seed", "removal", "method", "measure", "value", "low", "high", "paper", "samples"]
    rows.writerow(head)
    for trial in (*trials, *with_masks(trials)):
        removal = trial.main.protocol.removal or ""
        alone = [replace(trial, runs=(run,)) for run in trial.runs] if len(trial.runs) > 1 else []
        for one, seed in ((trial, "mean" if alone else str(trial.runs[0].seed)), *((a, a.runs[0].seed) for a in alone)):
            for measure in TABLES:
                for method in methods_of([one]):
                    found = paper_cell(one, method, measure)
                    if found is not None:
                        e = found.ours.samples
                        values = [f"{v:.6f}" for v in (e.value, e.low, e.high)]
                        paper = "" if found.paper is None else f"{found.paper:g}"
                        of = found.rows or len(one.main)
                        rows.writerow([one.kind, one.dataset, seed, removal, method, measure, *values, paper, of])
    return page.getvalue()


def with_masks(trials: Sequence[Trial]) -> list[Trial]:
    """The trials on graphs in the other reading: a node that is taken out is masked."""
    found = []
    for trial in trials:
        runs = [replace(run, main=run.masked, flow=None, masked=None) for run in trial.runs if run.masked is not None]
        found += [replace(trial, runs=tuple(runs))] if runs else []
    return found


def claims(trials: Sequence[Trial], measure: str) -> str:
    """Who leads, with paired differences, and how far the order of the paper's rows is the paper's."""
    head = ["dataset", "best of the paper's rows", "LRP(AH+LN) − best other of them", "best of all"]
    head += [f"{method_title(a)} − {method_title(b)}" for a, b in PAIRS]
    graphs = any(trial.dataset in GRAPHS for trial in trials)
    head += ["LRP(AH+LN) − best of attention"] * graphs
    lines = []
    for trial in trials:
        rows = [m for m in ROWS if m in trial.main.methods]
        rival = best(trial.mains, measure, [m for m in rows if m != "lrp(ah+ln)"])
        said = [
            trial.title,
            method_title(best(trial.mains, measure, rows)),
            format_difference(trial, "lrp(ah+ln)", rival, measure, f"{method_title(rival)}: "),
            method_title(best(trial.mains, measure)),
            *(format_difference(trial, *pair, measure) for pair in PAIRS),
            *([against_attention(trial, measure)] * graphs),
            order(trial, measure),
        ]
        lines.append(said)
    return write_table([*head, "order as in the paper"], lines)


def against_attention(trial: Trial, measure: str) -> str:
    """LRP(AH+LN) minus the best of the methods that look at attention."""
    measured = [m for m in ATTENTION if m in trial.main.methods]
    if not measured:
        return "–"
    rival = best(trial.mains, measure, measured)
    return format_difference(trial, "lrp(ah+ln)", rival, measure, f"{method_title(rival)}: ")


def order(trial: Trial, measure: str) -> str:
    found = same_order(trial.mains, trial.dataset, measure)
    return "–" if found is None else f"{format_number(found.value, 2)}<br><sub>{intervals(found, 2)}</sub>"


def format_difference(trial: Trial, first: str, second: str, measure: str, before: str = "") -> str:
    """A paired difference with both intervals, in bold where both leave out 0."""
    if first not in trial.main.methods or second not in trial.main.methods:
        return "–"
    found = pooled_difference(trial.mains, first, second, measure)
    digits = DIGITS[measure] + 1
    both = [found.samples, *([found.trainings] if found.trainings is not None else [])]
    ranges = " / ".join(f"{one.low:+.{digits}f} to {one.high:+.{digits}f}" for one in both)
    text = f"{found.value:+.{digits}f}"
    return before + (f"**{text}**" if found.sure else text) + f"<br><sub>{ranges}</sub>"


def accuracies(trials: Sequence[Trial]) -> str:
    """Samples, accuracy and conservation of every dataset, in the mean over trainings."""
    head = ["dataset", "samples", "trainings", "accuracy (paper)", "score vs. sum: GI", "LRP(AH+LN)", "`lrp`"]
    rows = []
    for trial in trials:
        kept = [write_correlation(trial, m) for m in ("gi", "lrp(ah+ln)", "lrp")]
        error = f"{max(map(largest_error, trial.mains)):.1e}" if "lrp" in trial.main.methods else "–"
        rows.append([trial.title, f"{len(trial.main):,}", str(len(trial.runs)), quality(trial), *kept, error])
    return write_table([*head, "largest ledger error"], rows)


def write_correlation(trial: Trial, method: str) -> str:
    """The correlation of score and summed relevance: the mean over trainings, the lowest and the highest."""
    if method not in trial.main.methods:
        return "–"
    found = [main[method].conservation.correlation for main in trial.mains]
    return write_range(found, "+.3f")


def write_range(values: Sequence[float], form: str) -> str:
    """The mean; of several, with the lowest and the highest."""
    mean = f"{sum(values) / len(values):{form}}"
    return mean if len(values) == 1 else f"{mean}<br><sub>{min(values):{form}} to {max(values):{form}}</sub>"


def quality(trial: Trial) -> str:
    """The accuracy on the samples that were measured; the ROC-AUC where the paper gives this of its model."""
    paper = ACCURACY.get(trial.dataset)
    said = f" (paper {paper:.1%})" if paper else ""
    said = write_range([main.accuracy or 0.0 for main in trial.mains], ".1%") + said
    found = [run.roc_auc for run in trial.runs if run.roc_auc is not None]
    return f"{said}; ROC-AUC {write_range(found, '.1%')} (paper {ROC_AUC[trial.dataset]:.1%})" if found else said


def largest_error(found: Evaluation, method: str = "lrp") -> float:
    """The worst sample: |unaccounted| relative to the absolute lines of its ledger."""
    return found[method].conservation.largest_unaccounted


def method_title(method: str) -> str:
    return TITLES.get(method, f"`{method}`")


def tables_page(trials: Sequence[Trial]) -> str:
    """Everything `headwater paper tables` has to say, as Markdown."""
    parts = ["## Models\n", accuracies(trials)]
    for measure in MEASURES:
        name = f"{measure.title}, {measure.better} is better"
        parts += [f"\n## {name}\n", measure_markdown(trials, measure.score)]
        parts += [f"\n### Who leads in {measure.title}\n", claims(trials, measure.score)]
    parts += ["\n### AU-MSE over that of a random order\n", against_random(trials)]
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
    for measure in MEASURES:
        parts += [f"\n### {measure.title} with masked nodes\n", measure_markdown(masked, measure.score)]
    return parts


def footnote(trials: Sequence[Trial]) -> str:
    notes = [
        "\nOurs, in brackets the paper's; below, the 95 % interval over samples (bootstrap) and, behind the stroke, "
        "over trainings (Student's). The best mean is bold. Differences are paired, sample by sample; those in bold "
        "leave out 0 in both intervals. Order as in the paper: Spearman's rank correlation of the paper's rows, here "
        "and there."
    ]
    parts: Mapping[str, str] = {
        t.title: f"{len(t.flow)} {samples(t.dataset)}"
        for t in trials
        if t.flow is not None and len(t.flow) < len(t.main)
    }
    if parts:
        said = ", ".join(f"{name} {rows}" for name, rows in parts.items())
        where = f"on the first training and a part of the samples ({said})"
        notes.append(f"A-Flow was measured {where} and does not compete for bold.")
    for trial in trials:
        if trial.dataset == "mnist" and len(trial.main) < TEST_DIGITS:
            drawn = f"{len(trial.main):,} of the {TEST_DIGITS:,} test digits"
            notes.append(f"{trial.title} is measured on {drawn}, drawn with the seed.")
    return "\n".join(notes) + "\n"
