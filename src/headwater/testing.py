"""A conformance test that every method must pass, a plug-in's too.

from headwater.testing import check_method
check_method("my-method", model, texts, tokenizer=tokenizer)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from .api.explain import explain
from .errors import MissingExtra, NotApplicable
from .methods import Method, resolve_method
from .results.explanation import Explanation

__all__ = ["NotConforming", "check_method"]


class NotConforming(AssertionError):
    """A method that breaks a promise; the message says which.

    Example:
        >>> from headwater.methods import NO_RULES, Method, propagate
        >>> from headwater.testing import NotConforming, check_method
        >>> def infinite(run):
        ...     outcome = propagate(run, NO_RULES)
        ...     rows = outcome.relevance[0].sum(-1) / 0
        ...     return outcome.with_positions([row[real] for row, real in zip(rows, run.batch.real)])
        >>> model, tokenizer = hw.load("headwater/sentiment")
        >>> try:
        ...     check_method(Method("infinite", "", infinite), model, ["a fine film", "dull"], tokenizer=tokenizer)
        ... except NotConforming as error:
        ...     print(error)
        'infinite' gives relevance that is not finite.
    """


def check_method(
    method: str | Method,
    model: nn.Module,
    data: Any,
    *,
    tokenizer: Any = None,
    processor: Any = None,
    tolerance: float = 1e-5,
) -> list[Explanation] | None:
    """Finite relevance for every token, the same alone, in a batch and padded, and the model left as it was.

    Args:
        method: its name, or the method itself.
        model: a model that it is tried on.
        data: texts (a list, of different lengths), images with their processor, or tensors for `explain`.
        tokenizer: as for `explain`.
        processor: as for `explain`.
        tolerance: how far relevance alone and in a batch may differ, relative to the score.

    Returns:
        The explanations; None where the method says that it does not apply to the model, which is a good answer.

    Raises:
        NotConforming: the method breaks a promise; the message says which.
        MissingExtra: the method needs a package that is not installed.

    Example:
        >>> from headwater.testing import check_method
        >>> model, tokenizer = hw.load("headwater/sentiment")
        >>> len(check_method("lrp", model, ["a fine film", "dull"], tokenizer=tokenizer))
        2
    """
    chosen = resolve_method(method)
    before = model_state(model)
    try:
        together = explain(model, data, tokenizer=tokenizer, processor=processor, method=chosen)
    except NotApplicable:
        return None
    except MissingExtra:
        raise
    demand(model_state(model) == before, chosen, "changed the model")
    for e, alone in zip(together, one_by_one(model, data, tokenizer, processor, chosen), strict=True):
        check_explanation(chosen, e)
        demand(e.relevance.shape == alone.relevance.shape, chosen, "has another shape in a batch")
        mine, other = e.relevance.double(), alone.relevance.double()
        near = torch.allclose(mine, other, rtol=tolerance, atol=scale_tolerance(alone, tolerance))
        demand(near, chosen, "gives other relevance in a batch than alone")
        demand(abs(e.score - alone.score) <= tolerance * max(1.0, abs(alone.score)), chosen, "has another score")
    return list(together)


def one_by_one(model: nn.Module, data: Any, tokenizer: Any, processor: Any, method: Method) -> Sequence[Explanation]:
    if isinstance(data, list):
        options = {"tokenizer": tokenizer, "processor": processor, "method": method}
        return [explain(model, one, **options) for one in data]
    count = len(next(iter(data.values())))
    parts = [{k: v[i : i + 1] for k, v in data.items()} for i in range(count)]
    return [explain(model, part, tokenizer=tokenizer, method=method)[0] for part in parts]


def check_explanation(method: Method, e: Explanation) -> None:
    demand(bool(e.relevance.isfinite().all()), method, "gives relevance that is not finite")
    demand(len(e.relevance) == len(e.tokens), method, "does not give one number a token")
    demand(e.method == method.name, method, f"calls itself {e.method!r}")
    inputs = float(e.relevance.double().sum())
    demand(abs(inputs - e.ledger.inputs) <= 1e-6 * max(1.0, abs(inputs)), method, "has a ledger of other inputs")


def scale_tolerance(e: Explanation, tolerance: float) -> float:
    """A tolerance in units of the largest relevance: methods differ in scale by orders of magnitude."""
    return tolerance * max(1e-12, float(e.relevance.abs().max()))


def model_state(model: nn.Module) -> tuple[Any, ...]:
    """What must not change: weights, flags, hooks, modes."""
    parameters = tuple((n, p.requires_grad, p._version, p.grad is None) for n, p in model.named_parameters())
    hooks = tuple(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    return parameters, hooks, tuple(m.training for m in model.modules()), torch.is_grad_enabled()


def demand(holds: bool, method: Method, otherwise: str) -> None:
    if not holds:
        raise NotConforming(f"{method.name!r} {otherwise}.")
