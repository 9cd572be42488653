"""The sums of a residual stream, x + attention(x) + feed_forward(x), and the attention in their terms. Only read.

A term knows which attentions it was made of by operations that no sum with another signal lies between. A sum that is
only added to another one is a part of it, so that x + (a + b) has three terms.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from .call import Call, is_signal
from .cuts import tensors
from .maps import AttentionMap, MapScope

_MADE_OF, _SUM = "_headwater_made_of", "_headwater_sum"
_IDENTITIES = frozenset(("dropout", "contiguous", "clone", "to", "type_as"))
NOTHING: frozenset[int] = frozenset()


@dataclass(frozen=True, eq=False)
class Term:
    """A term of a sum: its value, where it stands in the graph, and the numbers of the attentions it was made of."""

    value: Tensor
    edge: GradientEdge
    attentions: frozenset[int]
    inner: ResidualSum | None  # the sum that it is itself

    @classmethod
    def of(cls, tensor: Tensor) -> Term:
        inner = getattr(tensor, _SUM, None)
        value = tensor.detach().clone() if inner is None else inner.value  # a model may write into its tensors
        return cls(value, get_gradient_edge(tensor), made_of(tensor), inner)


@dataclass(eq=False)
class ResidualSum:
    """A sum of two signals of one shape. `used`: something else than a further sum reads it."""

    value: Tensor
    edge: GradientEdge
    pair: tuple[Term, Term]
    used: bool = False

    @property
    def terms(self) -> list[Term]:
        """Its terms; those of a sum that nobody else reads count as its own."""
        found: list[Term] = []
        for term in self.pair:
            found += [term] if term.inner is None or term.inner.used else term.inner.terms
        return found


@dataclass(frozen=True, eq=False)
class MixedValues:
    """One attention with its result in the graph. `order` turns the result's axes to [heads …, queries, size]."""

    map: AttentionMap
    edge: GradientEdge
    order: tuple[int, ...]


def made_of(tensor: Tensor) -> frozenset[int]:
    found: frozenset[int] = getattr(tensor, _MADE_OF, NOTHING)
    return found


@dataclass(eq=False)
class ResidualScope(MapScope):
    """A scope that also keeps every sum of two signals, and every attention's result."""

    sums: list[ResidualSum] = field(default_factory=list)
    attentions: list[MixedValues] = field(default_factory=list)
    _performing: bool = False

    def watch_result(self, result: Tensor, one: AttentionMap, order: tuple[int, ...]) -> None:
        self.attentions.append(MixedValues(one, get_gradient_edge(result), order))

    def perform(self, call: Call) -> Any:
        if self._performing:  # the same operation once more, on a copy
            return super().perform(call)
        signals = [tensor for tensor in tensors((call.args, call.kwargs)) if is_signal(tensor)]
        kinds, sums = [made_of(one) for one in signals], [getattr(one, _SUM, None) for one in signals]
        terms = (Term.of(call.args[0]), Term.of(call.args[1])) if is_sum(call) else None
        known = len(self.attentions)
        self._performing = True
        try:
            result = super().perform(call)
        finally:
            self._performing = False
        made = [one for one in tensors((result, call.args[:1] if call.inplace else ())) if is_signal(one)]
        passed = sums[0] if call.name in _IDENTITIES and len(signals) == 1 else None
        if made and terms is None and passed is None:
            note_use(sums)
        kind = NOTHING if terms is not None and NOTHING in kinds else NOTHING.union(*kinds)
        if len(self.attentions) > known:
            kind = frozenset(range(known, len(self.attentions)))
        for one in made:
            setattr(one, _MADE_OF, kind)
            setattr(one, _SUM, passed)
        if terms is not None and is_signal(result):
            self._keep(result, terms)
        return result

    def _keep(self, result: Tensor, terms: tuple[Term, Term]) -> None:
        found = ResidualSum(result.detach().clone(), get_gradient_edge(result), terms)
        setattr(result, _SUM, found)
        self.sums.append(found)


def is_sum(call: Call) -> bool:
    """Whether it adds two signals of one shape."""
    if call.name != "add" or len(call.args) != 2 or call.kwargs.get("alpha", 1) != 1:
        return False
    a, b = call.args
    return is_signal(a) and is_signal(b) and a.shape == b.shape and torch.is_floating_point(a)


def note_use(sums: list[ResidualSum | None]) -> None:
    for one in sums:
        if one is not None:
            one.used = True
