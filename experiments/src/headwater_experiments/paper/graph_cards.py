"""The card beside a trained graph model: what it is, how it was made, how good it is over seeds, the data's terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .graph_data import GraphDataset
from .graphs import RECIPES, choices

OPTIONS = ("epochs", "batch", "rate", "decay", "warmup", "patience", "average", "smoothing", "dropout", "bent")
WHAT = {
    "bace": (
        "A Graphormer (Ying et al. 2021) that says whether a molecule inhibits human beta-secretase 1 (`active`). "
        "Atoms and bonds enter by their categories, as `headwater.models.molecules` reads them from a SMILES string."
    ),
    "mnist": (
        "A Graphormer (Ying et al. 2021) that says which digit a graph of superpixels shows. A patch enters by its "
        "mean grey and its centre, as `headwater_experiments.models.superpixels` finds them, through a layer of sines "
        "(`Waves`)."
    ),
}


def graph_card(found: Mapping[str, Any], dataset: GraphDataset) -> str:
    """Markdown. `found` is the record of a training."""
    made = ", ".join(said for said in (found["trained_on"], f"{found['seconds']:,.0f} s") if said)
    return "\n".join(
        [
            f"# {dataset.title}: a Graphormer",
            "",
            f"{WHAT[found['dataset']]} {shape(found)}",
            "",
            f"Made by `{graph_training_command(found)}` ({made}).",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in graph_card_lines(found, dataset)),
            "",
        ]
    )


def shape(found: Mapping[str, Any]) -> str:
    recipe = found["recipe"]
    return (
        f"Two layers, {recipe['hidden_size']} wide, {recipe['heads']} heads, {found['parameters']:,} weights, stored "
        "in half precision."
    )


def graph_training_command(found: Mapping[str, Any]) -> str:
    """What makes this model again, and those of the other seeds of its split where these follow one another."""
    seeds = sorted(run["seed"] for run in trainings(found)[found["split"]]["runs"])
    if seeds != list(range(seeds[0], seeds[0] + len(seeds))):
        seeds = [found["seed"]]
    options = [f"--split {found['split']}"] if found["dataset"] == "bace" else []
    options += [f"--seed {seeds[0]}"] if seeds[0] else []
    options += [f"--recipe {found['recipe_name']}"]
    options += changes(found)
    options += [f"--seeds {len(seeds)}", *([] if found["trained_on"] == "CPU" else ["--device cuda"])]
    return " ".join(["headwater paper train", found["dataset"], *options])


def changes(found: Mapping[str, Any]) -> list[str]:
    """The options of `headwater paper train` whose value is not that of the recipe; no option says None."""
    usual = choices(RECIPES[found["recipe_name"]][found["dataset"]])
    given = {**found["recipe"]["phase"], **found["recipe"]}
    differ = [name for name in OPTIONS if given[name] not in (None, usual[name])]
    return [written(name, given[name]) for name in differ]


def written(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name} {value:g}"


def trainings(found: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Every split's trainings by its name."""
    return {training["split"]: training for training in found["trainings"]}


def graph_card_lines(found: Mapping[str, Any], dataset: GraphDataset) -> list[tuple[str, str]]:
    test, validation, measure = found["test"], found["validation"], found["measure"]
    return [
        ("classes", ", ".join(dataset.label_names)),
        (
            f"test {measure}",
            f"{test['value']:.1%} of {test['total']:,} {dataset.samples} (95 % interval {test['low']:.1%} to "
            f"{test['high']:.1%}); the paper's model: {dataset.paper:.1%}",
        ),
        *((over(split, measure), format_spread(training)) for split, training in trainings(found).items()),
        (f"validation {measure}", f"{validation['value']:.1%} of {validation['total']:,}, {chose(found)}"),
        ("training", ", ".join(describe_graph_recipe(found))),
        ("test part", f"{found['split']} split" + (f", seed {found['seed']}" if found["split"] == "random" else "")),
        ("data", dataset.parts[found["split"]]),
        ("terms", dataset.terms),
    ]


def chose(found: Mapping[str, Any]) -> str:
    several = len(trainings(found)[found["split"]]["runs"]) > 1
    return "which chose epoch and seed" if several and found["chosen"] == "validation" else "which chose the epoch"


def over(split: str, measure: str) -> str:
    return f"test {measure} over seeds" + ("" if split == "standard" else f", {split} split")


def format_spread(training: Mapping[str, Any]) -> str:
    tests = [run["test"] for run in training["runs"]]
    said = (
        f"{training['mean']:.1%} ± {training['spread']:.1%} ({min(tests):.1%} to {max(tests):.1%}, {len(tests)} seeds)"
    )
    return said if len(tests) > 1 else f"{tests[0]:.1%} (one seed)"


def describe_graph_recipe(found: Mapping[str, Any]) -> list[str]:
    """The recipe in words."""
    recipe, phase = found["recipe"], found["recipe"]["phase"]
    said = [
        f"epoch {found['best_epoch']} of {found['epochs']} (at most {phase['epochs']:,})",
        f"seed {found['seed']}",
        f"AdamW at {phase['rate']:g}{', falling' if phase['falling'] else ''}",
        f"batches of {phase['batch']}",
        f"dropout {recipe['dropout']:g}",
    ]
    said += ["digits turned, stretched, sheared and shifted a little at random"] * bool(recipe["bent"])
    return said + [f"weights averaged ({phase['average']:g} of the past a step)"] * bool(phase["average"])
