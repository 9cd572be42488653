"""One operation inside the scope of the rules: its value, the gradients that it passes back, and its lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from weighing import drawn

from headwater.inputs.places import start
from headwater.rules import Books, RuleSet, Scope
from headwater.rules.sources import Sort

Operation = Callable[..., Tensor]
UPSTREAM = 9  # the seed of the gradient that comes back to the result


@dataclass
class Passed:
    """What went through. `lines` are those of all sorts by name, `sorts` says which of them are which."""

    value: Tensor
    gradients: list[Tensor]
    lines: dict[str, float]
    sorts: dict[str, Sort]
    scope: Scope

    @property
    def met(self) -> dict[str, int]:
        return self.scope.met


def rules(*names: str, **more: Any) -> RuleSet:
    return RuleSet(frozenset(names), **more)


def passed(
    operation: Operation,
    leaves: Sequence[Tensor],
    active: RuleSet,
    named: dict[str, Tensor] | None = None,
    kind: type[Scope] = Scope,
) -> Passed:
    """`operation` of signals with the values of `leaves`, and one way back from a result whose elements all differ."""
    own = [leaf.clone().requires_grad_() for leaf in leaves]
    scope = kind(active, Books(1), {id(value): name for name, value in (named or {}).items()}, {})
    with scope:
        result = operation(*(start(leaf) for leaf in own))
    gradients = gradients_of(result, own)
    amounts = {sort: scope.books.totals(sort) for sort in Sort}
    return Passed(
        result.detach(),
        gradients,
        {name: float(amount) for found in amounts.values() for name, amount in found.items()},
        {name: sort for sort, found in amounts.items() for name in found},
        scope,
    )


def gradients_of(result: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """Zero where none arrives."""
    upstream = drawn_upstream(result.shape).to(result.dtype)
    if not result.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = torch.autograd.grad(result, leaves, upstream, allow_unused=True)
    return [torch.zeros_like(leaf) if one is None else one for leaf, one in zip(leaves, found, strict=True)]


def drawn_upstream(shape: torch.Size) -> Tensor:
    """The gradient that comes back to a result of this shape."""
    return drawn(math.prod(shape), seed=UPSTREAM).reshape(shape)


def expected(reference: Operation, leaves: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of what the rule says, written out with its constants detached."""
    own = [leaf.clone().requires_grad_() for leaf in leaves]
    return gradients_of(reference(*own), own)


def amount(value: Tensor, *shape: int) -> float:
    """What a constant that is added to a result of `shape` is worth."""
    return float((drawn(math.prod(shape), seed=UPSTREAM).reshape(shape) * value).sum())


def check(
    operation: Operation,
    reference: Operation,
    leaves: Sequence[Tensor],
    active: RuleSet,
    lines: dict[str, float] | None = None,
    named: dict[str, Tensor] | None = None,
) -> Passed:
    """The value is the model's own, bit for bit; gradients are those of `reference`, and lines as they are given.

    Its own is what it gives with gradients or without: torch multiplies some matrices in another order then.
    """
    found = passed(operation, leaves, active, named)
    with torch.no_grad():
        own = [operation(*(leaf.clone() for leaf in leaves))]
    if not torch.equal(found.value, own[0]):
        own.append(operation(*(start(leaf.clone().requires_grad_()) for leaf in leaves)).detach())
    assert any(torch.equal(found.value, one) for one in own)
    for ours, theirs in zip(found.gradients, expected(reference, leaves), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)
    if lines is not None:
        known = {name: value for name, value in found.lines.items() if abs(value) > 1e-12}
        assert known.keys() == lines.keys()
        for name, value in lines.items():
            assert abs(known[name] - value) < 1e-10, (name, known[name], value)
    return found
