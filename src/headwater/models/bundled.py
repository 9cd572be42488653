"""The small models that come with the package, for texts, digits and molecules: no download is needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import LoadError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# What they are called in results: where this copy of the package lies says nothing.
BUNDLED = NAME, DIGITS, MOLECULES = "headwater/sentiment", "headwater/mnist", "headwater/bace"


def bundled_path(name: str = NAME) -> Path:
    """The directory of a bundled model; its README.md is its card.

    Sentiment: a BERT of 4 layers, `negative` and `positive`. Digits: a small ViT trained on MNIST. Molecules: a
    Graphormer trained on BACE.
    """
    return Path(__file__).parent / "weights" / name.partition("/")[2]


def load_bundled() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The bundled model and its tokenizer, ready to be explained: evaluation mode, on the CPU, in float32.

    The weights are stored in half precision. Computed in it, a ledger would close no better than to three digits.
    """
    return load_classifier(bundled_path())


def load_classifier(source: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A text classifier and its tokenizer, from a directory or a hub name."""
    from headwater.models.loading import load

    model, tokenizer = load(source, task="text-classification")
    if tokenizer is None:
        raise LoadError(f"{source} has no tokenizer, so it takes no texts. Save one beside the model.")
    return model, tokenizer
