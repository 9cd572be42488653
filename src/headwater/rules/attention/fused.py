"""torch's own attention, as one operation: the variant of attention says how relevance is shared in it."""

from __future__ import annotations

from typing import Any

from ..call import Call
from ..handlers import on
from ..scope import Scope
from .call import AttentionCall
from .variant import variant_of


@on("scaled_dot_product_attention", rules=("ah", "token"))
def share_fused_attention(scope: Scope, call: Call) -> Any:
    r"""y_j = sum_i v_i p_ij with p held fixed (`ah=constant`), or shared between queries, keys and values."""
    if not scope.applies("ah"):
        return call.run()
    return variant_of(scope).attend(scope, AttentionCall.read(call))
