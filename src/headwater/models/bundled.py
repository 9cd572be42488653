"""The small sentiment classifier that comes with the package, so that a first explanation needs no download."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import LoadError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

NAME = "headwater/sentiment"  # what it is called in results: where this copy of the package lies says nothing


def bundled_path() -> Path:
    """The directory of the bundled model: a BERT of 4 layers, `negative` and `positive`. Its README.md is its card."""
    return Path(__file__).parent / "sentiment"


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
