"""The small models that come with the package, for texts, digits and molecules: no download is needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import LoadError

from .pretrained import DIGITS as DIGITS
from .pretrained import MOLECULES as MOLECULES
from .pretrained import NAME as NAME
from .pretrained import bundled_path as bundled_path

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["DIGITS", "MOLECULES", "NAME", "bundled_path", "load_bundled", "load_classifier"]


def load_bundled() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The bundled model and its tokenizer, ready to be explained: evaluation mode, on the CPU, in float32.

    The weights are stored in half precision. Computed in it, a ledger would close no better than to three digits.

    Returns:
        The model, and its tokenizer.

    Example:
        >>> from headwater.models.bundled import load_bundled
        >>> model, tokenizer = load_bundled()
        >>> hw.explain(model, "a fine film", tokenizer=tokenizer).target
        'positive'
    """
    return load_classifier(NAME)


def load_classifier(source: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A text classifier and its tokenizer.

    Args:
        source: a directory or a hub name.

    Returns:
        The model, and its tokenizer.

    Raises:
        LoadError: the model cannot be loaded, or has no tokenizer.

    Example:
        >>> from headwater.models.bundled import bundled_path, load_classifier
        >>> model, tokenizer = load_classifier(bundled_path())
        >>> model.config.id2label
        {0: 'negative', 1: 'positive'}
    """
    from headwater.models.loading import load

    model, tokenizer = load(source, task="text-classification")
    if tokenizer is None:
        raise LoadError(f"{source} has no tokenizer, so it takes no texts. Save one beside the model.")
    return model, tokenizer
