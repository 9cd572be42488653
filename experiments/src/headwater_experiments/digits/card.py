"""The card that lies beside the trained model: what it is, how it was made, how good it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def digits_card(found: Mapping[str, Any]) -> str:
    """Markdown. `found` is a training as plain types."""
    return "\n".join(
        [
            "---",
            "license: apache-2.0",
            "pipeline_tag: image-classification",
            "library_name: transformers",
            "---",
            "",
            "# MNIST: a small vision transformer",
            "",
            "`ViTForImageClassification` of transformers, for the examples and tests of images. The weights are stored "
            "in half precision; `preprocessor_config.json` brings an image of any size to 28 by 28 grey pixels.",
            "",
            f"Made by `{training_command(found)}` ({found['trained_on']}, {found['seconds']:.0f} s).",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in card_lines(found)),
            "",
        ]
    )


def training_command(found: Mapping[str, Any]) -> str:
    """What makes this model again."""
    return "headwater image train" + (f" --seed {found['seed']}" if found["seed"] else "")


def card_lines(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    test, validation, recipe = found["test"], found["validation"], found["recipe"]
    return [
        ("classes", "0 to 9"),
        (
            "model",
            f"{recipe['layers']} layers, width {recipe['width']}, {recipe['heads']} heads, feed-forward "
            f"{recipe['inner']}, 49 patches of 4 by 4 pixels and a class token; {found['parameters']:,} weights",
        ),
        (
            "test accuracy",
            f"{test['accuracy']:.2%} of {test['total']:,} (95 % interval {test['low']:.2%} to {test['high']:.2%})",
        ),
        (
            "validation accuracy",
            f"{validation['accuracy']:.2%} of {validation['total']:,} images of the training part, which chose",
        ),
        (
            "training",
            f"round {found['best_round']} of {recipe['rounds']} over {found['rows']:,} images, seed {found['seed']}, "
            f"AdamW at {recipe['rate']:g}, batches of {recipe['batch']}, moved by up to {recipe['shift']} pixels",
        ),
        ("data", "MNIST (LeCun, Cortes, Burges), test part untouched by training and choice"),
        ("terms", "MNIST (LeCun, Cortes and Burges): research use is customary; cite LeCun et al. (1998)."),
    ]
