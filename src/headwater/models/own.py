"""Model classes of this package and of plug-ins, made known to transformers: `Auto…` classes and `load` find them."""

from __future__ import annotations

from functools import cache

from headwater import plugins


@cache
def register_architectures() -> None:
    """Make these architectures loadable by their config; doing it again changes nothing."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    from .graphormer import GraphormerConfig, GraphormerForGraphClassification

    AutoConfig.register(GraphormerConfig.model_type, GraphormerConfig, exist_ok=True)
    AutoModelForSequenceClassification.register(GraphormerConfig, GraphormerForGraphClassification, exist_ok=True)
    for make_known in plugins.load_all(plugins.MODELS).values():
        make_known()
