"""Which kernel computes dV = P^T dO, the backward pass of attention whose weights are held constant."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from . import blocked
from .batching import close_batch, map_batch, open_batch
from .cards import has_triton
from .forward import is_usual_shape
from .scoring import ScoreForm
from .token_sums import TokenRule


def values_gradient(
    gradient: Tensor, query: Tensor, key: Tensor, sums: Tensor | None, mask: Tensor | None, options: Any
) -> Tensor | None:
    """P^T dO by a kernel, or None if no kernel supports the call.

    `options` are those of torch's attention, plus `cap`, `sinks`, and `rule`, that for sums over tokens. The sinks are
    counted in `sums`.
    """
    if not is_usual_shape(query, key, mask, options):
        return None
    if query.is_cuda:
        return values_gradient_on_card(gradient, query, key, sums, mask, options)
    if query.device.type == "cpu" and sums is not None and blocked.keeps_digits(sums, mask):
        form, (opened, level) = ScoreForm.read(query, mask, options), open_batch(gradient)
        rule: TokenRule | None = options.get("rule")
        if rule is not None:
            many = opened[None] if level is None else opened
            found = blocked.token_gradient_in_blocks(many, query, key, sums, form, rule)
            return found[0] if level is None else close_batch(found, level)
        if level is None:
            return blocked.values_gradient_in_blocks(gradient, query, key, sums, form)
        columns = opened.movedim(0, -2).flatten(-2)  # the weights are the same for all: more columns of one product
        found = blocked.values_gradient_in_blocks(columns, query, key, sums, form)
        return close_batch(found.unflatten(-1, (len(opened), -1)).movedim(-2, 0), level)
    return None


def values_gradient_on_card(
    gradient: Tensor, query: Tensor, key: Tensor, sums: Tensor | None, mask: Tensor | None, options: Any
) -> Tensor | None:
    rule: TokenRule | None = options.get("rule")
    if not has_triton(query.device):
        return None
    from . import fused

    if not fused.supports(query, key, gradient, rule):
        return None
    form = ScoreForm.read(query, mask, options)
    found: Tensor = map_batch(lambda one: fused.values_gradient_triton(one, query, key, sums, form, rule), gradient)
    return found


def forward_on_card(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, sinks: Tensor | None, options: Any
) -> tuple[Tensor, Tensor] | None:
    """Attention with a cap or sinks, and its logsumexp, by a kernel; None where none is made for it."""
    if not is_usual_shape(query, key, mask, options) or not has_triton(query.device):
        return None
    from . import fused

    if not fused.supports(query, key, value):
        return None
    return fused.attend_by_triton(query, key, value, ScoreForm.read(query, mask, {**options, "sinks": sinks}))
