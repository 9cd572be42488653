"""The paper's text transformer, a BERT changed in low rank, DistilBERT's build, and digits as superpixels."""

from __future__ import annotations


def register() -> None:
    """Make the paper's text transformer and changed BERTs loadable by config; doing it again changes nothing."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    from .low_rank import LowRankBertConfig, LowRankBertForSequenceClassification
    from .text_transformer import TextTransformerConfig, TextTransformerForSequenceClassification

    for config, model in (
        (TextTransformerConfig, TextTransformerForSequenceClassification),
        (LowRankBertConfig, LowRankBertForSequenceClassification),
    ):
        AutoConfig.register(config.model_type, config, exist_ok=True)
        AutoModelForSequenceClassification.register(config, model, exist_ok=True)
