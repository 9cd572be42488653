"""Model classes of this package, made known to transformers so that `Auto…` classes and `load` find them."""

from __future__ import annotations

from functools import cache


@cache
def register() -> None:
    """Make our architectures loadable by their config; doing it again changes nothing."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    from .text_transformer import TextTransformerConfig, TextTransformerForSequenceClassification

    AutoConfig.register(TextTransformerConfig.model_type, TextTransformerConfig, exist_ok=True)
    AutoModelForSequenceClassification.register(
        TextTransformerConfig, TextTransformerForSequenceClassification, exist_ok=True
    )
