"""From trainings on graphs to the one model that tables and figures look at: trained here, or brought from elsewhere.

A training over several seeds ends in a report and a directory per seed (`paper.graphs`). The seed that was best on its
validation rows becomes the checkpoint, with the classes' names, a record and a card. What the report says of it
is measured again on the way: a directory, a split or a file of arrays that does not belong to it is noticed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwater.errors import DataError, UsageError
from headwater.models.graphormer import GraphormerForGraphClassification
from headwater_experiments.training.accuracy import Accuracy

from . import graphs
from .graph_arrays import Sheet, load_bace, load_mnist
from .graph_cards import graph_card
from .graph_data import ensure_arrays, find_graph_dataset
from .graph_training import GraphPhase, predict_rows, roc_auc
from .graphs import GraphRecipe, GraphReport, Trained, bace_split

RECORD = "training.json"
REPORT = "report.json"
RESAMPLES = 2000
SAME = 0.002  # a graphics card rounds otherwise than a processor: a few of 10,000 digits, a rank among molecules

Record = dict[str, Any]


def train_checkpoint(
    dataset: str,
    work: Path,
    *,
    arrays: Path,
    split: str = "random",
    seeds: Sequence[int] = (0,),
    device: str = "cpu",
    recipe: GraphRecipe | None = None,
) -> GraphReport:
    """Train once for each seed, in `work`; array files are made if they are missing.

    Every seed's report lies beside its model: cut off, the same call goes on, and does not train a finished seed again.
    """
    ensure_arrays(dataset, arrays)
    recipe = recipe or graphs.graph_recipe_for(dataset, "tuned")
    options = {"split": split} if dataset == "bace" else {}
    runs = [_one(dataset, work, seed, arrays, device, recipe, options) for seed in seeds]
    first = runs[0]
    return replace(first, runs=[run for report in runs for run in report.runs])


def _one(
    dataset: str, work: Path, seed: int, arrays: Path, device: str, recipe: GraphRecipe, options: Mapping[str, Any]
) -> GraphReport:
    """One seed's training, or what an earlier one of the same recipe left."""
    asked = {"dataset": dataset, "recipe": asdict(recipe), **options}
    name = f"bace-{options['split']}-{seed}" if dataset == "bace" else f"mnist-{seed}"
    kept = work / name / REPORT
    if kept.is_file():
        found = json.loads(kept.read_text(encoding="utf-8"))
        if found["asked"] == asked:
            return report_of(found)
    make = graphs.train_bace if dataset == "bace" else graphs.train_mnist
    report = make(arrays, work, seeds=(seed,), device=device, recipe=recipe, **options)
    kept.write_text(json.dumps({"asked": asked, **asdict(report)}, indent=2) + "\n", encoding="utf-8")
    return report


def report_of(found: Mapping[str, Any]) -> GraphReport:
    """A report as `python -m headwater_experiments.paper.graphs train` prints it."""
    try:
        recipe = {**found["recipe"], "phase": GraphPhase(**found["recipe"]["phase"])}
        runs = [Trained(**run) for run in found["runs"]]
        return GraphReport(found["dataset"], found["split"], found["measure"], runs, GraphRecipe(**recipe))
    except (KeyError, TypeError) as error:
        command = "python -m headwater_experiments.paper.graphs train"
        raise DataError(f"this is no report of `{command}`: {error!r}.") from error


def read_report(path: Path) -> GraphReport:
    """The report in a file."""
    try:
        return report_of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error


def join_reports(reports: Sequence[GraphReport]) -> list[GraphReport]:
    """One report a split: those of the same split, trained by the same recipe with other seeds, are put together."""
    if not reports or len({report.dataset for report in reports}) != 1:
        raise UsageError("the reports must be of one dataset. Install one dataset at a time.")
    found: dict[str, GraphReport] = {}
    for report in reports:
        known = found.get(report.split, replace(report, runs=[]))
        if known.recipe != report.recipe:
            raise UsageError(f"the reports of the {report.split} split have different recipes. Give those of one.")
        found[report.split] = replace(known, runs=[*known.runs, *report.runs])
    for report in found.values():
        seeds = [run.seed for run in report.runs]
        if len(set(seeds)) != len(seeds):
            raise UsageError(f"the reports of the {report.split} split hold a seed twice: {sorted(seeds)}.")
    return list(found.values())


def install_checkpoint(
    reports: Sequence[GraphReport],
    out: Path,
    *,
    arrays: Path,
    models: Path | None = None,
    split: str | None = None,
    seed: int | None = None,
    device: str = "cpu",
    trained_on: str = "",
) -> Record:
    """Make one seed's model the checkpoint in `out`, with classes' names, record and card; the record.

    It is the seed that is best on its validation rows, unless one is named, of the split that is named, else of the
    first report. `models` is the directory that the seeds' directories lie in now, where they were moved since.
    """
    every = join_reports(reports)
    report = of_split(every, split)
    run = choose_run(report, seed)
    source = Path(run.out) if models is None else models / Path(run.out).name
    if not (source / "config.json").is_file():
        raise DataError(f"there is no model in {source}. Name the directory that holds {source.name} with --models.")
    ensure_arrays(report.dataset, arrays)
    test, validation = judge_run(report, run, source, arrays, device)
    record = {
        "dataset": report.dataset,
        "model": "graph",
        "split": report.split,
        "measure": report.measure,
        "chosen": "validation" if seed is None else "seed",
        **{name: value for name, value in asdict(run).items() if name not in ("out", "valid", "test")},
        "trained_on": trained_on,
        "test": test,
        "validation": validation,
        "trainings": [summarise_report(one) for one in every],
        "recipe_name": graphs.nearest(report.dataset, report.recipe),
        "recipe": asdict(report.recipe),
    }
    write_checkpoint(source, out, record)
    return record


def of_split(reports: Sequence[GraphReport], split: str | None) -> GraphReport:
    for report in reports:
        if split in (None, report.split):
            return report
    raise UsageError(f"no report is of the {split} split; there are {', '.join(r.split for r in reports)}.")


def choose_run(report: GraphReport, seed: int | None) -> Trained:
    """The run of a seed, or the one that was best on its validation rows."""
    if seed is None:
        return max(report.runs, key=lambda run: run.valid)
    for run in report.runs:
        if run.seed == seed:
            return run
    raise UsageError(f"no run has the seed {seed}; there are {', '.join(str(run.seed) for run in report.runs)}.")


def summarise_report(report: GraphReport) -> Record:
    """All seeds of a split."""
    runs = [{name: vars(run)[name] for name in ("seed", "valid", "test", "best_epoch")} for run in report.runs]
    return {"split": report.split, "mean": report.mean, "spread": report.spread, "runs": runs}


def judge_run(report: GraphReport, run: Trained, source: Path, arrays: Path, device: str) -> tuple[Record, Record]:
    """The measure on the test rows with its 95 % interval, and on the validation rows; it must be what was reported."""
    model = GraphormerForGraphClassification.from_pretrained(source, dtype=torch.float32).to(device).eval()
    sheet, rows, held = find_test_part(report, run, arrays, device)
    labels = sheet.labels[rows.to(device)]
    found = with_interval(report.measure, predict_rows(model, sheet, rows), labels)
    if abs(found["value"] - run.test) > SAME:
        raise DataError(
            f"{source} has a test {report.measure} of {found['value']:.4f}, its report says {run.test:.4f}. The "
            f"directory, the report and the arrays in {arrays} do not belong together."
        )
    return found, {"value": run.valid, "total": held}


def find_test_part(report: GraphReport, run: Trained, arrays: Path, device: str) -> tuple[Sheet, Tensor, int]:
    """The graphs, which of them are the test part of this run, and how many it was validated on."""
    if report.dataset == "bace":
        sheet, scaffold = load_bace(arrays, device)
        _, valid, test = bace_split(scaffold, report.split, run.seed)
        return sheet, test, len(valid)
    sheet = load_mnist(arrays, "test", device)
    with np.load(arrays / "mnist.npz") as kept:
        held = min(graphs.VALID_DIGITS, len(kept["labels_train"]) // 10)
    return sheet, torch.arange(len(sheet)), held


def with_interval(measure: str, logits: Tensor, labels: Tensor) -> Record:
    """Wilson's interval of an accuracy; of a ROC-AUC, percentiles over resampled rows."""
    if measure == "accuracy":
        found = Accuracy(int((logits.argmax(-1) == labels).sum()), len(labels))
        low, high = found.interval
        return {"value": found.value, "low": low, "high": high, "total": found.total}
    draw = np.random.default_rng(0)
    values = []
    for _ in range(RESAMPLES):
        rows = torch.from_numpy(draw.integers(len(labels), size=len(labels))).to(labels.device)
        if 0 < int(labels[rows].sum()) < len(rows):  # both classes, else nothing can be ranked
            values.append(roc_auc(logits[rows], labels[rows]))
    low, high = np.quantile(values, (0.025, 0.975)).tolist()
    return {"value": roc_auc(logits, labels), "low": low, "high": high, "total": len(labels)}


def write_checkpoint(source: Path, out: Path, record: Record) -> None:
    """The weights as they are, the configuration with the classes' names, the record and the card."""
    dataset = find_graph_dataset(record["dataset"])
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config["id2label"] = {str(i): name for i, name in enumerate(dataset.label_names)}
    config["label2id"] = {name: i for i, name in enumerate(dataset.label_names)}
    out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source / "model.safetensors", out / "model.safetensors")
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (out / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    (out / "README.md").write_text(graph_card(record, dataset), encoding="utf-8")


def record_of(path: Path) -> Record:
    """What is known of the training of the model in this directory, above all which graphs it has not seen."""
    file = path / RECORD
    if not file.is_file():
        raise DataError(
            f"{path} has no {RECORD}, so its test part is not known. `headwater paper train` and `headwater paper "
            "install` write it."
        )
    found: Record = json.loads(file.read_text(encoding="utf-8"))
    return found
