"""The paper's text transformer, DistilBERT's build, and digits as superpixels."""

from __future__ import annotations


def register() -> None:
    """Make the paper's text transformer loadable by its config; doing it again changes nothing."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    from .text_transformer import TextTransformerConfig, TextTransformerForSequenceClassification

    AutoConfig.register(TextTransformerConfig.model_type, TextTransformerConfig, exist_ok=True)
    AutoModelForSequenceClassification.register(
        TextTransformerConfig, TextTransformerForSequenceClassification, exist_ok=True
    )
