"""The card that lies beside a trained model: what it is, how it was made, how good it is, and the data's terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater_experiments.data import Dataset

from .published import ACCURACY

WHAT = {
    "small": (
        "The text transformer of Ali et al. (2022): three blocks of attention without feed-forward layers over frozen "
        "embeddings, and a pooler on the first token. The file holds what was trained, its matrices rounded to four "
        "bits; the embeddings and the tokenizer are those of `{embeddings}` and are fetched when the model is loaded. "
        "The test accuracy is that of the file."
    ),
    "minilm": "`{embeddings}`, fine-tuned as a whole. The weights are stored in half precision.",
    "low rank": (
        "`{embeddings}`, fine-tuned by a change of rank {rank} to every matrix of its layers. The file holds what was "
        "trained, its matrices rounded to four bits; the rest is fetched when the model is loaded, which is then a "
        "plain BERT. The test accuracy is that of the file."
    ),
    "distilbert": (
        "`{embeddings}` in DistilBERT's build (no types of tokens, no pooler, a head of its own), fine-tuned as a "
        "whole. The weights are stored in half precision."
    ),
}
TITLES = {"small": "the small text transformer", "minilm": "MiniLM", "distilbert": "a DistilBERT"}


DEFECTS = {"unscaled": "scores are not divided by the root of a head's width", "ignore_mask": "padding is attended"}


def text_card(found: Mapping[str, Any], dataset: Dataset) -> str:
    """Markdown. `found` is a training as plain types."""
    return "\n".join(
        [
            f"# {dataset.title}: {TITLES[found['model']]}",
            "",
            describe_model(found),
            "",
            f"Made by `{text_training_command(found)}` ({found['trained_on']}, {found['seconds']:.0f} s).",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in text_card_lines(found, dataset)),
            "",
        ]
    )


def describe_model(found: Mapping[str, Any]) -> str:
    """What the model is and what its file holds."""
    rank = found["recipe"].get("rank", 0)
    return WHAT["low rank" if rank else found["model"]].format(embeddings=found["embeddings"], rank=rank)


def text_training_command(found: Mapping[str, Any]) -> str:
    """What makes this model again."""
    options = [f"--model {found['model']}"] if found["model"] != "small" else [f"--recipe {found['recipe_name']}"]
    options += [option(name, value) for name, value in found["changes"].items()]
    options += [f"--seed {found['seed']}"] if found["seed"] else []
    return " ".join(["headwater paper train", found["dataset"], *options, "--device cuda"])


def option(name: str, value: Any) -> str:
    """A choice of a recipe as the command line takes it."""
    spelt = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{spelt}" if value else f"--no-{spelt}"
    return f"--{spelt} {value}"


def text_card_lines(found: Mapping[str, Any], dataset: Dataset) -> list[tuple[str, str]]:
    test, validation = found["test"], found["validation"]
    paper = ACCURACY.get(found["dataset"])
    switches = " and ".join(said for switch, said in DEFECTS.items() if found["recipe"][switch])
    return [
        ("classes", ", ".join(dataset.label_names)),
        (
            "test accuracy",
            f"{test['accuracy']:.1%} of {test['total']:,} (95 % interval {test['low']:.1%} to {test['high']:.1%})"
            + (f"; the paper's model: {paper:.1%}" if paper else ""),
        ),
        ("validation accuracy", f"{validation['accuracy']:.1%} of {validation['total']:,}, which chose the round"),
        ("training", ", ".join(describe_recipe(found))),
        ("defects of the original that it has", switches or "none: the mask is kept, scores are scaled")
        if found["model"] == "small"
        else ("weights", f"{found['parameters']:,}"),
        ("data", "; ".join(found["notes"]) or "the published parts"),
        ("terms", dataset.terms),
    ]


def describe_recipe(found: Mapping[str, Any]) -> list[str]:
    """The recipe in words."""
    recipe = found["recipe"]
    said = [
        f"round {found['best_round']} of at most {recipe['rounds']}",
        f"seed {found['seed']}",
        f"AdamW at {recipe['rate']:g}",
        f"batches of {recipe['batch']}",
        f"dropout {recipe['dropout']:g}",
        f"texts cut at {recipe['longest']} tokens",
    ]
    said += ["no warm-up" if not recipe["warmup"] else f"warm-up over {recipe['warmup']:.0%} of the steps"]
    said += [f"{recipe['word_dropout']:.0%} of the tokens replaced by [UNK]"] * bool(recipe["word_dropout"])
    return said + [f"weights averaged over about {recipe['average']} steps"] * bool(recipe["average"])
