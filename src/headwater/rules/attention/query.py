"""`ah=query`: the query takes part in attention, and keys are constants, as gates are. One of all shares there are."""

from __future__ import annotations

from ..shares import AttentionShares
from .shares import SharesVariant
from .variant import register_variant

QUERY_SHARE = 0.6  # of a product of weights and values belongs to the weights: docs/studies/earlier-language-default.md


@register_variant
class QueryVariant(SharesVariant):
    """The queries take a part of weights times values (`QUERY_SHARE`), the values the rest; keys are constants."""

    name = "query"

    def __init__(self) -> None:
        super().__init__(AttentionShares(QUERY_SHARE, 0.0, 1 - QUERY_SHARE))
