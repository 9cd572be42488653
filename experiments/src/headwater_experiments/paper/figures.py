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
from headwater_experiments.data import LabelledTexts, experiment
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
CURVES = (
    *("random", "a-last", FLOW, "rollout", "gae", "gi"),
    *("lrp(ah)", "lrp(ln)", "lrp(ah+ln)", "lrp", "lrp-gamma(0.05)"),
)
ROWS = ("a-last", "rollout", "gae", "gi", "lrp(ah)", "lrp(ah+ln)", "lrp")
SENTENCE_ROWS = ("a-last", FLOW, "rollout", "gae", "gi", "lrp(ah)", "lrp(ln)", "lrp(ah+ln)", "lrp")
SENTENCE = "has a lot of the virtues of eastwood at his best ."  # the paper's own, of SST-2's dev part
TIMED = ("random", "a-last", "rollout", "gae", "gi", "lrp(ah)", "lrp(ah+ln)", "lrp", "lrp-gamma(0.05)", "attnlrp")

AUDITED = 40
SHOWN, MORE = 4, 5  # sentences: the paper's own and three others, then five more, as its appendix has eight
TIMED_TEXTS: int | None = None  # all of them
WORDS = (7, 16)  # of a sentence that a heatmap shows


def draw_figures(kind: str, results: Path, out: Path, datasets: Sequence[str], seed: int = 0) -> Iterator[Path]:
    """Draw everything that `results` (of `headwater paper tables`) has measurements for, as SVG and PNG.

    The first dataset of texts is the one whose sentences are shown, audited and timed; its model is loaded for that.
    Graphs have figures of their own, in which molecules and digits are shown.
    """
    for name in datasets:
        check_reads(kind, name)
    found = {name: load_trial(kind, name, results) for name in datasets}
    texts = {name: trial for name, trial in found.items() if name not in GRAPHS}
    graphs = {name: trial for name, trial in found.items() if name in GRAPHS}
    out.mkdir(parents=True, exist_ok=True)
    if texts:
        yield from text_figures(kind, texts, out, seed)
    if graphs:
        for name, figure in graph_figures(kind, graphs, seed):
            yield from drawing.save_figure(figure, out / f"{name}-graphs-{kind}")


def drawable(kind: str, results: Path) -> list[str]:
    """The seven texts, and beside the paper's models the graphs that were measured."""
    graphs = [name for name in GRAPHS if kind in RECIPES and find_seeds(kind, name, results)]
    return [*TEXTS, *graphs]


def text_figures(kind: str, found: Mapping[str, Trial], out: Path, seed: int) -> Iterator[Path]:
    """All figures of the texts, and the table of runtimes."""
    first = next(iter(found))
    model, tokenizer = load_classifier(find(kind, first))
    table = experiment(first).test
    for name, figure in draw_text_figures(found, model, tokenizer, table, seed):
        yield from drawing.save_figure(figure, out / f"{name}-{kind}")
    costs = runtimes(model, tokenizer, table, seed)
    yield from drawing.save_figure(drawing.runtime(costs), out / f"runtime-{kind}")
    timings = drawing.timings(costs)
    for suffix, text in ((".md", drawing.timing_markdown(timings)), (".csv", drawing.to_csv(timings))):
        path = out / f"runtime-{kind}{suffix}"
        path.write_text(text, encoding="utf-8")
        yield path


def graph_figures(kind: str, found: Mapping[str, Trial], seed: int) -> Iterator[tuple[str, Figure]]:
    """The figures over all graphs, then molecules and digits."""
    yield from overviews(found)
    masked = {f"{t.title}, nodes masked": t.masked for t in found.values() if t.masked is not None}
    if masked:
        yield "curves-masked", drawing.curves(masked, methods_with_results(CURVES, masked))
    for name in found:
        yield graph_pictures.NAMES[name], graph_pictures.draw_graphs(name, find(kind, name), ROWS, seed)


def find_seeds(kind: str, name: str, results: Path) -> list[int]:
    """The trainings that `results` has finished measurements of."""
    return [seed for seed in seeds(kind, name) if (results / kind / name / str(seed) / RESULT).is_file()]


def load_trial(kind: str, name: str, results: Path) -> Trial:
    """What `headwater paper tables` left of a dataset."""
    done = find_seeds(kind, name, results)
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


def draw_text_figures(
    found: Mapping[str, Trial],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    table: LabelledTexts,
    seed: int,
) -> Iterator[tuple[str, Figure]]:
    """Names and figures, but for the runtimes."""
    yield from overviews(found)
    draw = np.random.default_rng(seed).permutation(len(table)).tolist()
    yield "collapse", drawing.collapse(audits(model, tokenizer, table.rows(draw[:AUDITED])))
    shown = sorted(draw, key=lambda row: table.texts[row].strip() != SENTENCE)  # the paper's first, where it is there
    sentences = list(compare_sentences(model, tokenizer, table.rows(shown)).items())
    yield "heatmaps", drawing.heatmaps(dict(sentences[:SHOWN]), SENTENCE_ROWS)
    if sentences[SHOWN:]:
        yield "heatmaps-more", drawing.heatmaps(dict(sentences[SHOWN:]), SENTENCE_ROWS)


def overviews(found: Mapping[str, Trial]) -> Iterator[tuple[str, Figure]]:
    """Conservation and curves of all datasets."""
    titled = {trial.title: trial for trial in found.values()}
    mains = {title: trial.main for title, trial in titled.items()}
    whole = with_flow(titled)
    attended = whole or mains
    yield "conservation", drawing.conservation(mains, methods_with_results(KEPT, mains))
    yield "conservation-attention", drawing.conservation(attended, methods_with_results(ATTENTION, attended))
    yield "curves", drawing.curves({**mains, **whole}, methods_with_results(CURVES, {**mains, **whole}))


def methods_with_results(wanted: Sequence[str], evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Those of the methods that were measured; all, for the error that names them, where none was."""
    return [m for m in wanted if any(m in e.methods for e in evaluations.values())] or list(wanted)


def with_flow(trials: Mapping[str, Trial]) -> dict[str, Evaluation]:
    """Datasets of which A-Flow was measured on every sample, with its row beside the others."""
    both = {title: (t.main, t.flow) for title, t in trials.items() if t.flow and len(t.flow) == len(t.main)}
    return {title: join_evaluations(main, flow) for title, (main, flow) in both.items()}


def join_evaluations(main: Evaluation, flow: Evaluation) -> Evaluation:
    """Both evaluations of the same samples as one."""
    values = {**main.samples.values, FLOW: flow.samples.values[FLOW]}
    return summarise(Samples(main.samples.common, values), main.chosen, main.protocol, main.provenance)


def audits(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, table: LabelledTexts) -> dict[str, list[Any]]:
    """GI and the paper's method on the same sentences, in float64: rounding would hide what little passes."""
    return {
        method: [
            audit(model, text, tokenizer=tokenizer, method=method, target=label, dtype="float64")
            for text, label in zip(table.texts, table.labels, strict=True)
        ]
        for method in ("gi", "lrp(ah+ln)")
    }


def compare_sentences(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, table: LabelledTexts
) -> dict[str, Any]:
    """Sentences of a readable length that the model gets right, in the order of the table."""
    found: dict[str, Any] = {}
    for text, label in zip(table.texts, table.labels, strict=True):
        if not WORDS[0] <= len(text.split()) <= WORDS[1]:
            continue
        made = compare(model, text, methods=SENTENCE_ROWS, tokenizer=tokenizer, target=label)
        if made.explanations[0].prediction == table.label_names[label]:
            found[f"sentence {len(found) + 1}"] = made
        if len(found) == SHOWN + MORE:
            break
    return found


def runtimes(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, table: LabelledTexts, seed: int) -> list[Cost]:
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
