"""The paper's figures from our measurements: conservation, the collapse at LayerNorm, curves, heatmaps, runtimes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.api.audit.trace import audit
from headwater.api.compare import compare
from headwater.api.explain import explain
from headwater.errors import DataError
from headwater.evaluation.cost import Cost, run_forward, time_job
from headwater.evaluation.files import RESULT, load_evaluation
from headwater.evaluation.results import Evaluation, Samples, summarise
from headwater.models.bundled import load_classifier
from headwater_experiments.data import Table, experiment
from headwater_experiments.paper.checkpoints import RECIPES, find, seeds

from . import drawing, graph_pictures
from .graph_trials import MASKED
from .published import GRAPHS, TEXTS
from .trials import FLOW, Run, Trial, check_reads

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

KEPT = ("gi", "lrp(ah+ln)", "lrp")
ATTENTION = ("gae", "rollout", FLOW)
CURVES = ("random", "a-last", "rollout", "gae", "gi", "lrp(ah)", "lrp(ln)", "lrp(ah+ln)", "lrp", "lrp-gamma")
ROWS = ("a-last", "rollout", "gae", "gi", "lrp(ah)", "lrp(ah+ln)", "lrp")
SENTENCE_ROWS = ("a-last", FLOW, "rollout", "gae", "gi", "lrp(ah)", "lrp(ln)", "lrp(ah+ln)", "lrp")
SENTENCE = "has a lot of the virtues of eastwood at his best ."  # the paper's own, of SST-2's dev part
TIMED = ("random", "a-last", "rollout", "gae", "gi", "lrp(ah)", "lrp(ah+ln)", "lrp", "lrp-gamma", "attnlrp")

AUDITED, SHOWN = 40, 4
TIMED_TEXTS: int | None = None  # all of them
WORDS = (7, 16)  # of a sentence that a heatmap shows


def figures(kind: str, results: Path, out: Path, datasets: Sequence[str], seed: int = 0) -> Iterator[Path]:
    """Draw everything that `results` (of `headwater paper tables`) has measurements for, as SVG and PNG.

    The first dataset of texts is the one whose sentences are shown, audited and timed; its model is loaded for that.
    Graphs have figures of their own, in which molecules and digits are shown.
    """
    for name in datasets:
        check_reads(kind, name)
    found = {name: measured(kind, name, results) for name in datasets}
    texts = {name: trial for name, trial in found.items() if name not in GRAPHS}
    graphs = {name: trial for name, trial in found.items() if name in GRAPHS}
    out.mkdir(parents=True, exist_ok=True)
    if texts:
        yield from of_texts(kind, texts, out, seed)
    if graphs:
        for name, figure in of_graphs(kind, graphs, seed):
            yield from drawing.save(figure, out / f"{name}-graphs-{kind}")


def drawable(kind: str, results: Path) -> list[str]:
    """The seven texts, and beside the paper's models the graphs that were measured."""
    graphs = [name for name in GRAPHS if kind in RECIPES and measured_seeds(kind, name, results)]
    return [*TEXTS, *graphs]


def of_texts(kind: str, found: Mapping[str, Trial], out: Path, seed: int) -> Iterator[Path]:
    """All figures of the texts, and the table of runtimes."""
    first = next(iter(found))
    model, tokenizer = load_classifier(find(kind, first))
    table = experiment(first).test
    for name, figure in drawn(found, model, tokenizer, table, seed):
        yield from drawing.save(figure, out / f"{name}-{kind}")
    costs = runtimes(model, tokenizer, table, seed)
    yield from drawing.save(drawing.runtime(costs), out / f"runtime-{kind}")
    timings = drawing.timings(costs)
    for suffix, text in ((".md", drawing.markdown(timings)), (".csv", drawing.comma_separated(timings))):
        path = out / f"runtime-{kind}{suffix}"
        path.write_text(text, encoding="utf-8")
        yield path


def of_graphs(kind: str, found: Mapping[str, Trial], seed: int) -> Iterator[tuple[str, Figure]]:
    """The figures over all graphs, then molecules and digits."""
    yield from overviews(found)
    masked = {f"{t.title}, nodes masked": t.masked for t in found.values() if t.masked is not None}
    if masked:
        yield "curves-masked", drawing.curves(masked, measured_of(CURVES, masked))
    for name in found:
        yield graph_pictures.NAMES[name], graph_pictures.drawn(name, find(kind, name), ROWS, seed)


def measured_seeds(kind: str, name: str, results: Path) -> list[int]:
    """The trainings that `results` has finished measurements of."""
    return [seed for seed in seeds(kind, name) if (results / kind / name / str(seed) / RESULT).is_file()]


def measured(kind: str, name: str, results: Path) -> Trial:
    """What `headwater paper tables` left of a dataset."""
    done = measured_seeds(kind, name, results)
    if not done:
        option = f" --recipe {kind}" if kind in RECIPES else f" --model {kind}"
        raise DataError(
            f"{results / kind / name} holds no measurements. `headwater paper tables{option} --datasets {name} --out "
            f"{results}` makes them."
        )
    return Trial(name, kind, tuple(run_of(results / kind / name / str(seed), seed) for seed in done))


def run_of(place: Path, seed: int) -> Run:
    flow, masked = (load_evaluation(place / part) if (place / part).is_dir() else None for part in (FLOW, MASKED))
    return Run(seed, load_evaluation(place), flow, masked)


def drawn(
    found: Mapping[str, Trial], model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, table: Table, seed: int
) -> Iterator[tuple[str, Figure]]:
    """Names and figures, but for the runtimes."""
    yield from overviews(found)
    draw = np.random.default_rng(seed).permutation(len(table)).tolist()
    yield "collapse", drawing.collapse(audits(model, tokenizer, table.rows(draw[:AUDITED])))
    shown = sorted(draw, key=lambda row: table.texts[row].strip() != SENTENCE)  # the paper's first, where it is there
    yield "heatmaps", drawing.heatmaps(heatmaps(model, tokenizer, table.rows(shown)), SENTENCE_ROWS)


def overviews(found: Mapping[str, Trial]) -> Iterator[tuple[str, Figure]]:
    """Conservation and curves of all datasets."""
    titled = {trial.title: trial for trial in found.values()}
    mains = {title: trial.main for title, trial in titled.items()}
    attended = with_flow(titled)
    yield "conservation", drawing.conservation(mains, measured_of(KEPT, mains))
    yield "conservation-attention", drawing.conservation(attended, measured_of(ATTENTION, attended))
    yield "curves", drawing.curves(mains, measured_of(CURVES, mains))


def measured_of(wanted: Sequence[str], evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Those of the methods that were measured; all, for the error that names them, where none was."""
    return [m for m in wanted if any(m in e.methods for e in evaluations.values())] or list(wanted)


def with_flow(trials: Mapping[str, Trial]) -> dict[str, Evaluation]:
    """Datasets of which A-Flow was measured on every text, with its row beside the others; else the others alone."""
    whole = {title: joined(t.main, t.flow) for title, t in trials.items() if t.flow and len(t.flow) == len(t.main)}
    return whole or {title: t.main for title, t in trials.items()}


def joined(main: Evaluation, flow: Evaluation) -> Evaluation:
    """Both evaluations of the same samples as one."""
    values = {**main.samples.values, FLOW: flow.samples.values[FLOW]}
    return summarise(Samples(main.samples.common, values), main.chosen, main.protocol, main.provenance)


def audits(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, table: Table) -> dict[str, list[Any]]:
    """GI and the paper's method on the same sentences, in float64: rounding would hide what little passes."""
    return {
        method: [
            audit(model, text, tokenizer=tokenizer, method=method, target=label, dtype="float64")
            for text, label in zip(table.texts, table.labels, strict=True)
        ]
        for method in ("gi", "lrp(ah+ln)")
    }


def heatmaps(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, table: Table) -> dict[str, Any]:
    """Sentences of a readable length that the model gets right, in the order of the table."""
    found: dict[str, Any] = {}
    for text, label in zip(table.texts, table.labels, strict=True):
        if not WORDS[0] <= len(text.split()) <= WORDS[1]:
            continue
        made = compare(model, text, methods=SENTENCE_ROWS, tokenizer=tokenizer, target=label)
        if made.explanations[0].prediction == table.label_names[label]:
            found[f"sentence {len(found) + 1}"] = made
        if len(found) == SHOWN:
            break
    return found


def runtimes(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, table: Table, seed: int) -> list[Cost]:
    """Seconds a sentence in the mean over the dataset, one at a time, as the paper gives them.

    The ratio is that of the means; the range has nine tenths of the sentences' own ratios. The first is run twice.
    """
    texts = table.texts[:TIMED_TEXTS]
    times: dict[str, list[float]] = {name: [] for name in ("forward", *TIMED)}
    for number, text in enumerate([texts[0], *texts]):
        inputs = dict(tokenizer(text, return_tensors="pt"))
        jobs = {"forward": partial(run_forward, model, inputs)}
        for method in TIMED:
            jobs[method] = partial(explain, model, inputs, method=method, tokenizer=tokenizer, seed=seed)
        for name, job in jobs.items():
            took = time_job(job, on_card=False)
            times[name] += [took] if number else []
    forward = np.array(times["forward"])
    costs = []
    for name, seconds in times.items():
        low, high = np.quantile(np.array(seconds) / forward, (0.05, 0.95)).tolist()
        mean = float(np.mean(seconds))
        costs.append(Cost(name, mean, mean / float(forward.mean()), low, high, None))
    return costs
