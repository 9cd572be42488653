"""Model classes of this package, made known to transformers so that `Auto…` classes and `load` find them."""

from __future__ import annotations

from functools import cache


@cache
def register() -> None:
    """Make our architectures loadable by their config; doing it again changes nothing."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    from .graphormer import GraphormerConfig, GraphormerForGraphClassification
    from .text_transformer import TextTransformerConfig, TextTransformerForSequenceClassification

    for config, model in (
        (TextTransformerConfig, TextTransformerForSequenceClassification),
        (GraphormerConfig, GraphormerForGraphClassification),
    ):
        AutoConfig.register(config.model_type, config, exist_ok=True)
        AutoModelForSequenceClassification.register(config, model, exist_ok=True)
